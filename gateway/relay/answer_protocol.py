"""aiohttp's side of a connection to a provider, where it would lose an answer or its fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from aiohttp.http import RawResponseMessage

_HEAD_END: Final = re.compile(rb"\n\r?\n")

_receive: Final = ResponseHandler.data_received  # by its name: this is done with every read


class AnswerProtocol(ResponseHandler):
    """aiohttp's, but that it also tells the reader of a body when what follows is no HTTP.

    aiohttp then closes the connection and keeps the error for the next answer, of which there is
    none; the end of the connection does not tell the body either, for its parser has let go of it.
    And an error in what one read brought takes with it the answers that begin in the same read: so
    the parser gets a head first, and what follows it when the answer is there.
    """

    _awaited = False
    """The head of the answer has not come yet."""
    _last = b""
    """The end of what has come, where it may be half of a head's end."""
    heard = False
    """Some of an answer has come, an interim one or a part of a head."""

    def set_response_params(self, **params: Any) -> None:
        self._awaited, self._last, self.heard = True, b"", False
        super().set_response_params(**params)

    def feed_data(
        self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0
    ) -> None:
        self._awaited = data[0].code < 200
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        while self._awaited and self.exception() is None:
            self.heard = True
            found = _HEAD_END.search(self._last + data)
            if found is None:
                self._last = (self._last + data)[-2:]
                break
            end = found.end() - len(self._last)
            self._last = b""
            _receive(self, data[:end])
            data = data[end:]
            if not data:
                return
        _receive(self, data)

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        body = self._payload
        super().set_exception(exc, exc if exc_cause is None else exc_cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("no valid HTTP follows"), exc)
