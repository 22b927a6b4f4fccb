"""aiohttp's low-level server as a relay needs it. Knows no route and no provider.

What differs from aiohttp's own: a request whose head is too large or broken is refused in JSON, and
a client that leaves is noticed also while nothing is read from it.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.observe import logs
from gateway.relay import replies
from gateway.relay.downstream import Downstream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

MAX_FIELDS: Final = 1000
"""Header fields of a request."""

READ_SIZE: Final = 64 * 1024
"""Bytes after which reading from a client pauses while the provider takes none (twice that)."""

_LOOK_EVERY: Final = 0.25
"""Seconds between looks at a client that is not being read from."""

_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class RelayServer(web.Server):
    """A factory of connections, for ``loop.create_server`` or a runner."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        max_header: int,
    ) -> None:
        """``max_header`` is the most bytes of one header field and of the request line."""
        super().__init__(handler, handler_cancellation=True)
        self.max_header = max_header

    def __call__(self) -> web.RequestHandler:
        """One connection."""
        return _Connection(self, loop=self._loop, max_header=self.max_header)


class _Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_look",)

    def __init__(
        self, manager: RelayServer, *, loop: asyncio.AbstractEventLoop, max_header: int
    ) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp's own runner passes it
            max_line_size=max_header,
            max_field_size=max_header,
            max_headers=MAX_FIELDS,
            read_bufsize=READ_SIZE,
            auto_decompress=False,
        )
        self._look: asyncio.TimerHandle | None = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what the parser refused; aiohttp's text would repeat the client's bytes."""
        if request.writer.output_size or status != 400:
            return super().handle_error(request, status, exc, message)
        downstream = Downstream(request)
        too_large = isinstance(exc, LineTooLong) or "Too many headers" in str(exc)
        refuse = replies.oversized_head if too_large else replies.malformed
        done = refuse(downstream)
        self.close()
        logs.logger().info(
            "request_refused",
            client=request.remote or "",
            reason="headers_too_large" if too_large else "bad_request",
        )
        return done

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client. A body whose framing is broken is told to who waits for it:
        aiohttp only queues the error behind the request, which would wait for ever."""
        super().data_received(data)
        request = self._current_request
        if request is not None and self._messages and not request.content.is_eof():
            message, _ = self._messages[-1]
            if getattr(message, "exc", None) is not None:
                request.content.set_exception(web.RequestPayloadError("broken framing"))
                request.content.feed_eof()

    # A client that leaves.

    def eof_received(self) -> None:
        """The client has closed its side. With bytes on their way to it, an orderly close would
        wait for them, and meanwhile the provider would go on."""
        transport = self.transport
        if (
            self._request_in_progress
            and transport is not None
            and transport.get_write_buffer_size()
        ):
            transport.abort()

    def _pause_transport_reading(self) -> None:
        """Stop reading, until the provider has taken what came, or requests that came too early
        have had their turn; look whether the client stays."""
        super()._pause_transport_reading()
        if self._look is None:
            self._look = self._loop.call_later(_LOOK_EVERY, self._look_for_hangup)

    def _look_for_hangup(self) -> None:
        self._look = None
        transport = self.transport
        if transport is None or not (self._reading_paused or self._buffer_paused):
            return
        opened: Any = transport.get_extra_info("socket")
        if opened is not None and opened.fileno() >= 0:
            poll = select.poll()
            poll.register(opened.fileno(), _HUNG_UP)
            if poll.poll(0):
                transport.abort()
                return
        self._look = self._loop.call_later(_LOOK_EVERY, self._look_for_hangup)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is over."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        super().connection_lost(exc)
