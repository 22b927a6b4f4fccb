"""Tells by its first bytes whether a body is a stream of events. Reads no event itself."""

from __future__ import annotations

from typing import Final

from gateway.streams.sse import BOM, EVENT_STARTS

_NO_EVENT: Final = (b"{", b"[", b"<")

_MOST_BLANK: Final = 64 * 1024
"""Blank bytes before the first line after which a body is what it says that it is."""


def is_stream(first: bytes, *, declared: bool) -> bool | None:
    """Whether what begins so is a stream of events; None while more must come to tell.

    No line of one begins like JSON or HTML; and where nothing says that it is one (``declared``),
    it has to begin like one. Blank lines, and a byte order mark, tell nothing.
    """
    start = first.removeprefix(BOM).lstrip()
    if not start:
        # Some providers send blank lines for as long as their JSON takes.
        return None if len(first) <= _MOST_BLANK else declared
    begins = (BOM,) if declared else (BOM, *EVENT_STARTS)
    if any(begin.startswith(start) and begin != start for begin in begins):
        return None
    return start[:1] not in _NO_EVENT if declared else start.startswith(EVENT_STARTS)
