"""What one protocol must offer the simulator; knows no protocol itself and does no I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.sim.content import Answer, Ask
    from gateway.sim.problem import Problem

Json = dict[str, Any]
Headers = list[tuple[str, str]]


class Kind(StrEnum):
    """What an event is in its stream, so that a fault knows where to break it."""

    OPEN = "open"
    """Before or between content: the role chunk, ``message_start``, ``response.created``."""
    CONTENT = "content"
    """Something the user or the agent reads: text, reasoning, tool arguments."""
    CLOSE = "close"
    """After content, still no finish: ``content_block_stop``, ``message_delta``, the ``.done``
    events.
    """
    FINISH = "finish"
    """The frame without which the stream is cut; one per choice."""
    AFTER = "after"
    """What may trail the finish: the usage chunk."""
    DONE = "done"
    """``[DONE]``."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it goes on the wire, blank line included."""

    kind: Kind
    data: bytes


class ErrorForm(StrEnum):
    """The forms in which providers put an error into a running stream."""

    FULL = "full"
    FLAT = "flat"
    HALF = "half"


class Keepalive(StrEnum):
    """The forms of a heartbeat; ``AUTO`` is the one that the protocol's provider sends."""

    AUTO = "auto"
    COMMENT = "comment"
    BLANK = "blank"
    EVENT = "event"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class HeadersFor:
    """What response headers depend on: an id, the time (seconds since 1970), whether it is a
    success.
    """

    request_id: str
    now: float
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One protocol, as data and pure functions.

    ``read(body, size)`` tells what a request asks for. ``events`` is a whole stream, ``whole`` the
    answer without streaming. ``error_events(form, problem, answer, sequence)`` is what goes into a
    stream at its ``sequence``-th event; ``error_body(problem)`` what goes into an HTTP error,
    ``flat_body`` its flat variant. ``keepalive(form, answer, sequence)`` is one heartbeat. ``done``
    is what passes for a normal end beside the finish.
    """

    name: str
    read: Callable[[Json, int], Ask]
    events: Callable[[Answer, Ask], list[Event]]
    whole: Callable[[Answer, Ask], Json]
    error_events: Callable[[ErrorForm, Problem, Answer, int], list[bytes]]
    error_body: Callable[[Problem], Any]
    flat_body: Callable[[Problem], Json]
    keepalive: Callable[[Keepalive, Answer, int], bytes]
    headers: Callable[[HeadersFor], Headers]
    done: bytes = b"data: [DONE]\n\n"
    stream_type: str = "text/event-stream; charset=utf-8"


def encode(payload: Any) -> str:
    """Compact JSON that leaves letters beyond ASCII as they are; lone surrogates become ``?``."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def sse(payload: Any, event: str | None = None) -> bytes:
    """One server-sent event with LF line ends."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {encode(payload)}\n\n".encode()


def renumber(event: bytes, by: int) -> bytes:
    """The event with its ``sequence_number`` raised, if it has one: heartbeats before it have used
    numbers up.
    """
    head, mark, tail = event.partition(b'"sequence_number":')
    if not mark or not by:
        return event
    digits = len(tail) - len(tail.lstrip(b"0123456789"))
    return head + mark + str(int(tail[:digits]) + by).encode() + tail[digits:]


def texts(content: Any) -> str:
    """The text in a message's content: a string, or a list of parts that carry ``text``."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


def dicts(value: Any) -> list[Json]:
    """The objects in a JSON list; an empty list for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
