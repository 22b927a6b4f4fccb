"""Server-sent events of no known protocol: relayed and counted. Never judges such a stream to be
cut by its content.

``[DONE]`` is taken for its end. ``event: error`` (or a top-level ``error``) is a failure where it
is the last that comes, and else news of whatever the stream is about; it ends nothing. A clean end
without either says nothing (specification: none).
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocols.base import BaseReader, StreamProtocol, decode, encode
from gateway.streams.events import Kind, Phase


class _Event(msgspec.Struct, gc=False):
    error: Any = None
    message: Any = None


_decoder = msgspec.json.Decoder(_Event)


class Reader(BaseReader):
    """Reads events that it knows nothing about."""

    __slots__ = ()

    def read(self, name: bytes, data: bytes) -> Kind:
        """An error is an error; everything else is opaque."""
        self.facts.error = None
        if name == b"error" or b'"error"' in data:
            found = decode(data, _decoder, _Event)
            error = found.error if found is not None else None
            if isinstance(error, dict) and error:
                return self._fail_object(error)
            if error:
                return self._fail_beside(data)
            if name == b"error":
                message = found.message if found is not None else data.decode("utf-8", "replace")
                return self._fail("error", message, retryable=False)
        if self.facts.phase is Phase.BEFORE_CONTENT:
            self.facts.phase = Phase.IN_TEXT
        return Kind.OPAQUE


def error_body(status: int, code: str | None, message: str) -> bytes:  # noqa: ARG001 - one signature for all protocols
    """The gateway's own failure for a client whose protocol is not known: the OpenAI shape, which
    most read."""
    return encode(
        {"error": {"message": message, "type": "gateway_error", "param": None, "code": code}}
    )


PROTOCOL = StreamProtocol(
    name="generic",
    claims=lambda method, path: False,  # noqa: ARG005 - it is what remains
    reader=lambda choices: Reader(),  # noqa: ARG005 - it has none
    keepalive=b"",
    error_body=error_body,
    known=False,
)
