"""What the parts of a chat's delta hold; knows nothing of chunks before it and judges no stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.streams import lenient

if TYPE_CHECKING:
    from collections.abc import Set


def says_more(data: bytes, known: Set[str]) -> bool:
    """Whether a delta has a field that holds something and is none of the ``known``."""
    chunk: Any = lenient.loads(data)
    for choice in chunk["choices"]:
        delta = choice.get("delta") if isinstance(choice, dict) else None
        for name, value in delta.items() if isinstance(delta, dict) else ():
            if value and name not in known:
                return True
    return False


def trails(data: bytes) -> bool:
    """Whether a chunk behind the finish says something, known here or not: what a filter has found,
    when a sound expires. Without any choice it is one of the whole answer.
    """
    chunk: Any = lenient.loads(data)
    choices = chunk["choices"]
    parts = [each for each in choices if isinstance(each, dict)]
    said = [
        any(value.values()) if isinstance(value, dict) else bool(value)
        for part in parts
        for name, value in part.items()
        if name not in ("index", "finish_reason")
    ]
    return not choices or any(said)


def sounds(audio: Any) -> bool:
    """Whether there is sound, or its words; when it expires comes after the finish."""
    if not isinstance(audio, dict):
        return bool(audio)
    return any(value for key, value in audio.items() if key not in ("id", "expires_at"))


def calls(listed: Any) -> bool:
    """Whether there is a name or a piece of arguments in any of the tool calls."""
    for call in listed if isinstance(listed, list) else ():
        for part in call.values() if isinstance(call, dict) else ():
            if isinstance(part, dict) and any(part.values()):
                return True
    return False
