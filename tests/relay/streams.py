"""Events of Chat Completions streams, for tests that need bytes and not their meaning."""

from __future__ import annotations

import json


def event(data: object) -> bytes:
    """One event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def text(word: str, finish: str | None = None) -> bytes:
    """A chunk with text."""
    return event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": finish}]})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]})
FINISH = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"
WHOLE = ROLE + text("Hel") + text("lo") + FINISH + DONE
"""A whole answer."""


def last_error(body: bytes) -> dict[str, str]:
    """The error in the last event of a Chat Completions stream."""
    last = body.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
    error: dict[str, str] = json.loads(last.removeprefix(b"data: "))["error"]
    return error
