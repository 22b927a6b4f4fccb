"""A command's output as server-sent events: bytes to frames. Reads no file, drops no byte.

Every frame says which bytes it stands for: ``offset`` and ``len``, and as ``id`` where the next one
begins. Text is UTF-8; what is not comes as base64. A character that is not there as a whole waits
for the next piece.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

KEEPALIVE = b": keepalive\n\n"


def event(name: str, data: Any, id_: int | None = None) -> bytes:
    """One event, whose data is one line of JSON."""
    head = f"event: {name}\n" + (f"id: {id_}\n" if id_ is not None else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


class Frames:
    """Cuts one output into frames, beginning at ``offset``."""

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._held = b""

    @property
    def next(self) -> int:
        """Where the next piece begins."""
        return self._offset + len(self._held)

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """The frame for the next piece; empty where all of it waits. ``last``: nothing waits."""
        data = self._held + data
        held = 0 if last else _begun(data)
        self._held = data[len(data) - held :]
        data = data[: len(data) - held]
        if not data:
            return b""
        start, self._offset = self._offset, self._offset + len(data)
        frame: dict[str, Any] = {"offset": start, "len": len(data)}
        try:
            frame["text"] = data.decode()
        except UnicodeDecodeError:
            frame["b64"] = base64.b64encode(data).decode()
        return event("output", frame, self._offset)


def _begun(data: bytes) -> int:
    """How many bytes at the end, three at most, begin a character that they do not end."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte > 0xF4:
            return 0  # begins nothing
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needs > back else 0
        if byte < 0x80:
            return 0
    return 0
