"""aiohttp's side of a connection to a provider, where it would lose an answer or its fault."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from aiohttp.http import RawResponseMessage

_HEAD_END: Final = re.compile(rb"\n\r?\n")

_AT_ONCE: Final = 64 * 1024

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
    _spare = -1
    """Another descriptor of the socket, as long as a request is being sent."""

    def keep_unread(self) -> None:
        """Read what has come when the connection is lost, until :meth:`let_go`.

        Who refuses a large request answers and closes before it has read all of it, which resets
        the connection. A write that meets the reset closes the socket, with the answer in it.
        Encrypted, what is left in there cannot be read any more.
        """
        transport = self.transport
        opened = None if transport is None else transport.get_extra_info("socket")
        plain = transport is not None and transport.get_extra_info("ssl_object") is None
        if opened is not None and plain and self._spare < 0:
            with suppress(OSError):  # without a free descriptor it is as it was without this
                self._spare = os.dup(opened.fileno())

    def let_go(self) -> None:
        """No more of that: the connection ends when aiohttp closes it."""
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)

    def connection_lost(self, exc: BaseException | None) -> None:
        """aiohttp's, after what had come before."""
        while self._spare >= 0:
            try:
                data = os.read(self._spare, _AT_ONCE)
            except OSError:
                data = b""
            if data:
                self.data_received(data)
            else:
                self.let_go()
        super().connection_lost(exc)

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
