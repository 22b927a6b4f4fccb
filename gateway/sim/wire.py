"""Writes HTTP/1 answers on the transport itself, so that they can be broken; decides nothing.

The server library cannot express a missing last chunk, a torn chunk, a reset or bytes that are no
HTTP, so every answer is written here, the whole ones too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus

from aiohttp import web

from gateway.sim.coding import encoder
from gateway.sim.plan import End, Headers, Plan

RESET_SETTLE = 0.03
"""Seconds between the last byte and a reset: the receiver's kernel may drop what was not yet read.
"""


class _Written(web.StreamResponse):
    """Tells the server library that the answer has already gone out, and whether the connection
    lives on.
    """

    def __init__(self, *, reusable: bool) -> None:
        super().__init__()
        self._reusable = reusable

    @property
    def keep_alive(self) -> bool:
        return self._reusable

    async def prepare(self, request: web.BaseRequest) -> None:  # noqa: ARG002
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002
        return None


class Wire:
    """One answer on one connection. Raises ConnectionResetError when the client has left."""

    def __init__(self, request: web.BaseRequest, plan: Plan) -> None:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has left")
        self._request = request
        self._transport = transport
        self._plan = plan
        self._encoder = encoder(plan.coding)
        self._silent = request.method == "HEAD"
        modern = request.version >= (1, 1)
        self._chunked = plan.status is not None and plan.length is None and modern
        framed = self._chunked or plan.length is not None
        self._reusable = bool(request.keep_alive) and framed and plan.end is End.CLEAN

    async def head(self) -> None:
        """Status line and headers, if the plan has any."""
        status = self._plan.status
        if status is None:
            return
        headers: Headers = [*self._plan.headers]
        if self._plan.length is not None:
            headers.append(("content-length", str(self._plan.length)))
        elif self._chunked:
            headers.append(("transfer-encoding", "chunked"))
        if not self._reusable and self._plan.end is End.CLEAN:
            headers.append(("connection", "close"))
        lines = [f"HTTP/1.1 {status} {_phrase(status)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        await self._write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))

    async def send(self, data: bytes) -> None:
        """One piece of the body; in several writes where the plan wants small ones."""
        if self._silent:
            return
        encoded = self._encoder.encode(data)
        piece = self._plan.piece or len(encoded) or 1
        for at in range(0, len(encoded), piece):
            await self._write(self._framed(encoded[at : at + piece]))
            if at + piece < len(encoded):
                await asyncio.sleep(0)

    async def finish(self) -> web.StreamResponse:
        """Ends the answer as the plan says; what comes back is for the server library."""
        match self._plan.end:
            case End.CLEAN:
                await self._finish_clean()
            case End.FIN:
                self._transport.close()
            case End.SHORT:
                rest = self._plan.rest
                size = f"{len(rest):x}\r\n".encode() if self._chunked else b""
                await self._write(size + rest[: len(rest) // 2])
                self._transport.close()
            case End.BAD:
                await self._write(b"zz\r\n")
                self._transport.close()
            case End.RESET:
                await self._reset()
        return _Written(reusable=self._reusable)

    async def _finish_clean(self) -> None:
        if self._silent:
            return
        if trailer := self._encoder.finish():
            await self._write(self._framed(trailer))
        if self._chunked:
            await self._write(b"0\r\n\r\n")

    async def _reset(self) -> None:
        # No event tells when the kernel has taken the last byte.
        while self._transport.get_write_buffer_size():  # noqa: ASYNC110
            await asyncio.sleep(RESET_SETTLE / 10)
        await asyncio.sleep(RESET_SETTLE)
        raw = self._transport.get_extra_info("socket")
        if raw is not None and raw.family != socket.AF_UNIX:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _framed(self, data: bytes) -> bytes:
        if not self._chunked:
            return data
        return f"{len(data):x}\r\n".encode() + data + b"\r\n"

    async def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("the client has left")
        self._transport.write(data)
        await self._request.writer.drain()


def send_continue(request: web.BaseRequest) -> None:
    """The interim answer to ``Expect: 100-continue``, which this level of the server library leaves
    to us.
    """
    if (
        request.transport is not None
        and request.headers.get("expect", "").lower() == "100-continue"
    ):
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Error"
