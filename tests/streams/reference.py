"""A second, naive reading of server-sent events, to hold the real one against.

It needs the whole text, is slow, and follows the specification line by line
(https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream). What it
adds: an event is dispatched at the end of the text, too, for the caller to tell.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Event:
    """One event: ``data`` is None without a data line; ``end`` is where its blank line ends."""

    name: bytes
    data: bytes | None
    end: int


def _lines(text: bytes) -> list[tuple[bytes, int]]:
    """Every whole line without its end, and where the next one starts."""
    found, start = [], 0
    for match in re.finditer(rb"\r\n|\r|\n", text):
        found.append((text[start : match.start()], match.end()))
        start = match.end()
    return found


def read(text: bytes) -> tuple[list[Event], list[int]]:
    """The whole events of a text, and its boundaries: where a line starts and no field waits."""
    events: list[Event] = []
    boundaries = [0]
    name, data, fields = b"", list[bytes](), False
    for index, (line, after) in enumerate(_lines(text)):
        if index == 0 and line.startswith(BOM):
            line = line[len(BOM) :]  # noqa: PLW2901 - the mark is no part of the line
        if not line:
            if fields:
                events.append(Event(name, b"\n".join(data) if data else None, after))
            name, data, fields = b"", [], False
        elif line[:1] != b":":
            fields = True
            key, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if key == b"data":
                data.append(value)
            elif key == b"event":
                name = value
        if not fields:
            boundaries.append(after)
    return events, boundaries


def split(text: bytes) -> tuple[list[bytes], bytes]:
    """The text cut at its boundaries, and what is left after the last one."""
    _, boundaries = read(text)
    whole = [text[a:b] for a, b in itertools.pairwise(boundaries)]
    return whole, text[boundaries[-1] :]
