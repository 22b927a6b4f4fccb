"""The parameters of simulated model names: what they mean, how they are read; knows no script."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mark = Literal["none", "all", "finish", "end"]
"""Places in a stream that are not a number of content events: no event at all (headers only), all
content, the finish frame, everything."""

MARKS: Final[tuple[Mark, ...]] = ("none", "all", "finish", "end")


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. ``read`` raises ValueError with what was expected."""

    summary: str
    read: Callable[[str], Any]
    attribute: str


def _integer(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def _seconds(low: float = 0.0) -> Callable[[str], float]:
    def read(text: str) -> float:
        expected = f"seconds from {low:g} to 86400"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(expected) from None
        if not math.isfinite(value) or not low <= value <= 86_400:
            raise ValueError(expected)
        return value

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return read


def _word(text: str) -> str:
    if not re.fullmatch(r"[\w.\-]{1,64}", text):
        raise ValueError("a word of letters, digits, '_', '-' and '.'")
    return text


def _place(text: str) -> int | str:
    if text in MARKS:
        return text
    try:
        return _integer(0, 1_000_000)(text)
    except ValueError:
        raise ValueError("a number of content events, or one of " + ", ".join(MARKS)) from None


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})(k|M)?", text)
    unit = {None: 1, "k": 1024, "M": 1024 * 1024}
    size = int(match[1]) * unit[match[2]] if match else 0
    if not 1 <= size <= 64 * 1024 * 1024:
        raise ValueError("a number of bytes up to 64M, such as 200000, 64k or 9M")
    return size


ERROR_TYPES: Final = (
    "server_error",
    "overloaded",
    "rate_limit",
    "quota",
    "timeout",
    "invalid_request",
    "context_length",
    "authentication",
    "permission",
    "not_found",
    "request_too_large",
    "unusual",
)
"""What ``type=`` may say; the providers' own names for them are taken too (see ``ALIASES``)."""

ALIASES: Final[Mapping[str, str]] = {
    "api_error": "server_error",
    "internal": "server_error",
    "overloaded_error": "overloaded",
    "unavailable": "overloaded",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "resource_exhausted": "rate_limit",
    "insufficient_quota": "quota",
    "billing_error": "quota",
    "timeout_error": "timeout",
    "deadline_exceeded": "timeout",
    "invalid_request_error": "invalid_request",
    "invalid_argument": "invalid_request",
    "context_length_exceeded": "context_length",
    "authentication_error": "authentication",
    "unauthenticated": "authentication",
    "permission_denied": "permission",
    "unusual_error": "unusual",
    "permission_error": "permission",
    "not_found_error": "not_found",
}


def _error_type(text: str) -> str:
    name = ALIASES.get(text.lower(), text.lower())
    return _one_of(*ERROR_TYPES)(name)


PARAMS: Final[Mapping[str, Param]] = {
    "times": Param(
        "fault only the first N requests of this model name", _integer(1, 10**9), "times"
    ),
    "skip": Param("answer the first N requests well before faulting", _integer(0, 10**9), "skip"),
    "one_in": Param("fault only every N-th request", _integer(1, 10**9), "one_in"),
    "every": Param("seconds between events", _seconds(), "every"),
    "first": Param("seconds between the headers and the first event", _seconds(), "first"),
    "headers": Param("seconds before the headers", _seconds(), "headers"),
    "words": Param("length of the answer in words", _integer(1, 200_000), "words"),
    "seed": Param("another number, another text", _integer(0, 10**9), "seed"),
    "chunk": Param("write in pieces of N bytes", _integer(1, 10**9), "chunk"),
    "answer": Param(
        "text, tool or reasoning: what is answered", _one_of("text", "tool", "reasoning"), "answer"
    ),
    "tool": Param("which of the request's tools to call (default: the first)", _word, "tool"),
    "coding": Param(
        "compress the answer: gzip, deflate, br or zstd",
        _one_of("identity", "gzip", "deflate", "br", "zstd"),
        "coding",
    ),
    "eol": Param(
        "line ends of the events: auto, lf, crlf or cr", _one_of("auto", "lf", "crlf", "cr"), "eol"
    ),
    "after": Param("content events before the fault (3), or " + ", ".join(MARKS), _place, "after"),
    "for": Param(
        "seconds that the fault lasts (3600); then the answer goes on", _seconds(), "lasts"
    ),
    "beat": Param("seconds between heartbeats or bytes (1)", _seconds(0.001), "beat"),
    "form": Param(
        "heartbeat: auto, comment, blank, event or empty",
        _one_of("auto", "comment", "blank", "event", "empty"),
        "form",
    ),
    "end": Param(
        "how the connection ends: clean, fin, short or reset",
        _one_of("clean", "fin", "short", "reset"),
        "end",
    ),
    "type": Param("which error: " + ", ".join(ERROR_TYPES), _error_type, "type"),
    "reason": Param("the finish reason, literally", _word, "reason"),
    "retry_after": Param("seconds that the error tells clients to wait", _seconds(), "retry_after"),
    "body": Param(
        "error body: json, flat, detail, array, html, text or empty",
        _one_of("json", "flat", "detail", "array", "html", "text", "empty"),
        "body",
    ),
    "size": Param("bytes of the big event (k and M are known)", _size, "size"),
}

COMMON: Final = (
    "times",
    "skip",
    "one_in",
    "every",
    "first",
    "headers",
    "words",
    "seed",
    "chunk",
    "answer",
    "tool",
    "coding",
    "eol",
)
"""The parameters that every script takes."""
