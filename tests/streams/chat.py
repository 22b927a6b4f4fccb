"""Chat Completions events, the plainest protocol to try a stream with."""

from __future__ import annotations

import json
from typing import Any

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def event(value: Any, line_end: bytes = b"\n") -> bytes:
    """One event with that JSON."""
    return b"data: " + json.dumps(value).encode() + line_end * 2


def text(content: str = "Hello", index: int = 0) -> bytes:
    """A piece of an answer."""
    return event({"choices": [{"index": index, "delta": {"content": content}}]})


def finish(reason: str = "stop", index: int = 0) -> bytes:
    """The finish frame of one choice."""
    return event({"choices": [{"index": index, "delta": {}, "finish_reason": reason}]})


def error(kind: str = "server_error", message: str = "It broke.") -> bytes:
    """An error on which every client raises."""
    return event({"error": {"message": message, "type": kind, "code": None, "param": None}})


def errors_in(out: bytes) -> list[dict[str, Any]]:
    """The error objects among the events handed on."""
    told = []
    for block in out.split(b"\n\n"):
        if block.startswith(b"data: {"):
            found = json.loads(block[6:])
            if found.get("error"):
                told.append(found["error"])
    return told
