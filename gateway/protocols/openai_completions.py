"""Legacy Completions and llama.cpp's own ``/completion``, as streams. Knows only where text is.

The choices of a completion carry ``text`` where a chat's carry ``delta``; all else, the finish
included, is as in :mod:`gateway.protocols.openai_chat`
(https://platform.openai.com/docs/api-reference/completions).
"""

from __future__ import annotations

import msgspec

from gateway.protocols import openai_chat
from gateway.protocols.base import StreamProtocol
from gateway.streams.events import Kind, Phase


class _PlainChoice(msgspec.Struct, gc=False):
    text: str
    index: int = 0
    finish_reason: None = None
    error: None = None


class _Plain(msgspec.Struct, gc=False):
    """Just enough of a chunk to conclude: text of one choice that goes on. Nothing else."""

    choices: tuple[_PlainChoice]
    error: None = None
    usage: None = None


_plain = msgspec.json.Decoder(_Plain)


class Reader(openai_chat.Reader):
    """Reads completion chunks."""

    __slots__ = ()

    def _read_plain(self, data: bytes) -> Kind | None:
        try:
            chunk = _plain.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        (choice,) = chunk.choices
        if not choice.text or choice.index not in self._speaking:
            return None
        self.facts.phase = Phase.IN_TEXT
        return Kind.CONTENT


def _claims(method: str, path: str) -> bool:
    if method != "POST" or path.endswith("/chat/completions"):
        return False
    return path.endswith(("/completions", "/completion"))


PROTOCOL = StreamProtocol(
    name="openai_completions",
    claims=_claims,
    reader=Reader,
    keepalive=b":\n\n",
    error_body=openai_chat.error_body,
)
