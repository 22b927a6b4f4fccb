"""The body of a request: kept in memory so that it can be sent twice, or streamed through.

Never parses or changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http import HttpVersion11

from gateway.errors import Code, GatewayError, Origin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

_PIECE: Final = 256 * 1024
"""Bytes of a kept body that are written at once; the connection copies what it cannot send."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientBodyError(Exception):
    """The client's body cannot be read to its end: its framing is broken, or it is too long."""

    def __init__(self, error: GatewayError) -> None:
        super().__init__(error.message)
        self.error = error


class Budget:
    """How many bytes of request bodies may be kept at once, over all requests."""

    __slots__ = ("_free",)

    def __init__(self, total: int) -> None:
        self._free = total

    @property
    def free(self) -> int:
        """Bytes that may still be kept."""
        return self._free

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes, if that many are free."""
        if size > self._free:
            return False
        self._free -= size
        return True

    def give(self, size: int) -> None:
        """Hand back what was taken."""
        self._free += size


class RequestBody:
    """One request's body.

    ``length`` in bytes, None while it is not known (and where there is no body at all). ``kept`` is
    all of it, where it is kept; else it can be sent once. ``head`` is what is known of it for
    looking into. ``received`` counts the bytes that came from the client.
    """

    __slots__ = ("_budget", "_content", "_limit", "_taken", "head", "kept", "length", "received")

    def __init__(self, budget: Budget, length: int | None, limit: int | None = None) -> None:
        self._budget = budget
        self._content: aiohttp.StreamReader | None = None
        self._limit = limit
        self._taken = 0
        self.length = length
        self.kept: bytes | None = None
        self.head = b""
        self.received = 0

    async def keep(self, content: aiohttp.StreamReader, most: int) -> None:
        """Read it into memory, up to ``most`` bytes and as far as the budget allows.

        Where that ends, it is to be streamed: what has been read is its beginning.
        """
        self._content = content
        if self.length is not None and (self.length > most or not self._reserve(self.length)):
            return
        first = await self._next()
        # One block that grows, and not a list of parts: the memory of many parts of many bodies is
        # never handed back to the system.
        whole = bytearray()
        part = first
        while part:
            if self.length is None and (self.received > most or not self._reserve(len(part))):
                self.head = bytes(whole + part)
                return
            if content.at_eof() and not whole:
                break
            whole += part
            part = await self._next()
        self.kept = self.head = bytes(whole) if whole else first
        self.length = len(self.kept)

    def stream(self, content: aiohttp.StreamReader) -> None:
        """Keep nothing of it."""
        self._content = content

    def _reserve(self, size: int) -> bool:
        if not self._budget.take(size):
            return False
        self._taken += size
        return True

    async def _next(self) -> bytes:
        """The next bytes from the client, b"" at the end; raises :class:`ClientBodyError`."""
        content = self._content
        assert content is not None
        try:
            part = await content.readany()
        except web.RequestPayloadError:
            raise ClientBodyError(
                GatewayError(
                    Origin.CLIENT,
                    Code.BAD_REQUEST,
                    "The body of the request is not framed as its header says "
                    "(broken chunked encoding).",
                )
            ) from None
        self.received += len(part)
        if self._limit is not None and self.received > self._limit:
            raise ClientBodyError(too_large())
        return part

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body from its beginning; a second time only if it is kept."""
        kept = self.kept
        if kept is not None:
            view = memoryview(kept)
            for start in range(0, len(kept), _PIECE):
                yield bytes(view[start : start + _PIECE])
            return
        head, self.head = self.head, b""
        for start in range(0, len(head), _PIECE):
            yield head[start : start + _PIECE]
        del head
        self.release()
        while part := await self._next():
            yield part

    def replace(self, body: bytes) -> None:
        """Send another body instead, of about the same length; only where it is kept."""
        self.kept = self.head = body
        self.length = len(body)

    def release(self) -> None:
        """It will not be sent again: give the memory back."""
        if self._taken:
            self._budget.give(self._taken)
            self._taken = 0
        self.kept = None
        self.head = b""


async def receive(
    request: web.BaseRequest, budget: Budget, *, most: int | None, limit: int | None
) -> RequestBody:
    """The body of ``request``: kept if it has at most ``most`` bytes; if that is None, streamed
    unless it has come already.

    ``limit`` is the most bytes that are let through at all. Raises GatewayError.
    """
    if not request.body_exists:
        body = RequestBody(budget, request.content_length)
        body.kept = b""
        return body
    length = request.content_length
    if limit is not None and length is not None and length > limit:
        raise too_large()
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and request.version >= HttpVersion11 and request.transport is not None:
        # The low-level server leaves this to its handler.
        request.transport.write(_CONTINUE)
    body = RequestBody(budget, length, limit)
    if most is None and length is not None and request.content.is_eof():
        # All of it is here, so keeping it costs nothing; and what can be sent again may go out on a
        # pooled connection, for should that be dead it goes out once more on a fresh one.
        most = _PIECE
    if most is None:
        body.stream(request.content)
    else:
        try:
            await body.keep(request.content, most)
        except ClientBodyError as error:
            body.release()
            raise error.error from None
        except BaseException:
            body.release()
            raise
    return body


def too_large() -> GatewayError:
    """The refusal of a body above ``server.max_body``, without a number: clients act on some."""
    return GatewayError(
        Origin.CLIENT,
        Code.REQUEST_TOO_LARGE,
        "The body of the request is larger than server.max_body allows.",
    )
