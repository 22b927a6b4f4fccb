"""The client's side of one answer: exact bytes out, a clean end or a broken connection.

Never reads from the client and never adds a header field that is not about the connection itself.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http import HttpVersion11

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from gateway.policy.headers import Fields

_RST: Final = struct.pack("ii", 1, 0)
_EMPTY_STATUS: Final = frozenset({204, 304})


class Framing(Enum):
    """How the client learns where the body ends."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class Done(web.StreamResponse):
    """What aiohttp's server is told when an answer has been written: that it is done.

    ``keep``: the connection may serve another request. ``linger`` is seconds for which a client
    that is still sending may read a refusal: closing with unread bytes would take it back.
    """

    def __init__(self, *, keep: bool, linger: float = 0.0) -> None:
        super().__init__()
        self._keep_alive = keep
        self._linger = linger

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002
        """Nothing: all there is has been written."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002
        """Nothing, soon or later."""
        if self._linger:
            await asyncio.sleep(self._linger)


_KEEP: Final = Done(keep=True)
_CLOSE: Final = Done(keep=False)


class Downstream:
    """One answer to one client.

    It writes to the connection itself, so that names, order and bytes of header fields stay as they
    came; aiohttp gets to know only that it is :attr:`done`. ``started``: the head is out (or goes
    out with the next write). ``ended``: cleanly; ``aborted``: the connection was broken on purpose.
    ``last``: set it to end the connection with this answer. A client that has left makes every
    method a no-op; the handler learns it by being cancelled.
    """

    __slots__ = (
        "_framing", "_head", "_keep", "_protocol", "_request", "_transport", "aborted", "ended",
        "last", "started",
    )  # fmt: skip

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._protocol = request.protocol
        self._transport = request.transport
        self._framing = Framing.NONE
        self._head = b""
        self._keep = False
        self.started = self.ended = self.aborted = self.last = False

    @property
    def done(self) -> Done:
        """What the handler returns to aiohttp."""
        return _KEEP if self._keep else _CLOSE

    @property
    def until_close(self) -> bool:
        """Whether only the end of the connection ends the body, so that a plain end looks clean."""
        return self._framing is Framing.CLOSE

    @property
    def gone(self) -> bool:
        """Whether the client has left, or is being told nothing more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def blocked(self) -> bool:
        """Whether the client takes bytes more slowly than they come."""
        return self._protocol.writing_paused

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was written."""
        await self._request.writer.drain()

    def start(self, status: int, reason: str, fields: Fields) -> None:
        """Set the status line and header fields; they leave with the first bytes or by ``flush``.

        ``fields`` are latin-1 text. A Content-Length among them frames the body.
        """
        request = self._request
        modern = request.version >= HttpVersion11
        counted = any(name.lower() == "content-length" for name, _ in fields)
        if request.method == "HEAD" or status in _EMPTY_STATUS:
            self._framing = Framing.NONE
        elif counted:
            self._framing = Framing.LENGTH
        else:
            self._framing = Framing.CHUNKED if modern else Framing.CLOSE
        keep = request.keep_alive and not self.last and self._framing is not Framing.CLOSE
        self._keep = keep
        lines = [f"HTTP/1.{1 if modern else 0} {status} {reason}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if self._framing is Framing.CHUNKED:
            lines.append("Transfer-Encoding: chunked")
        if not keep:
            lines.append("Connection: close")
        elif not modern:
            lines.append("Connection: keep-alive")
        lines.append("\r\n")
        self._head = "\r\n".join(lines).encode("latin-1", "replace")
        self.started = True

    def flush(self) -> None:
        """Send the head, if it is not out."""
        self._write(b"")

    def send(self, data: bytes) -> None:
        """Hand on the next bytes of the body, as one write."""
        if self._framing is Framing.NONE:
            data = b""
        if self._framing is Framing.CHUNKED and data:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._write(data)

    def end(self, data: bytes = b"") -> None:
        """Hand on the last bytes and end the answer cleanly."""
        self.ended = True
        if self._framing is not Framing.CHUNKED:
            self.send(data)
            return
        self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")

    def abort(self) -> None:
        """Break the connection so that no client can take the answer for whole."""
        self.aborted = True
        self._keep = False
        transport = self._transport
        if transport is None:
            return
        if self._framing in (Framing.CHUNKED, Framing.LENGTH):
            # What was promised (a last chunk, more bytes) is missing: an orderly close shows it.
            transport.close()
            return
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        transport.abort()

    def _write(self, data: bytes) -> None:
        head = self._head
        if head:
            self._head = b""
            data = head + data
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)
