"""A client on a raw socket: sends exact bytes, and tells a whole answer from a broken one."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Self


@dataclass
class Answer:
    """``clean`` is whether the body ended as its framing promised."""

    head: bytes
    body: bytes
    clean: bool

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.head.split(b" ", 2)[1])

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Header fields as on the wire."""
        lines = self.head.split(b"\r\n")[1:-2]
        return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]

    def values(self, name: str) -> list[bytes]:
        """The values of one field."""
        wanted = name.lower().encode()
        return [value for key, value in self.fields if key.lower() == wanted]


class RawClient:
    """One connection to the gateway."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self._port = port
        self._receive_buffer = receive_buffer

    async def __aenter__(self) -> Self:
        opened = socket.socket()
        opened.setblocking(False)
        if self._receive_buffer is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        await asyncio.get_running_loop().sock_connect(opened, ("127.0.0.1", self._port))
        self.reader, self.writer = await asyncio.open_connection(
            sock=opened, limit=self._receive_buffer or 2**26
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> bytes:
        """The head of the next answer."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
        self._answer = Answer(head, b"", clean=False)
        return head

    async def read(self, size: int) -> bytes:
        """Exactly that many bytes."""
        async with asyncio.timeout(10):
            return await self.reader.readexactly(size)

    async def read_until(self, marker: bytes) -> bytes:
        """Everything up to ``marker``, framing and all."""
        async with asyncio.timeout(10):
            return await self.reader.readuntil(marker)

    async def answer(self, *, method: str = "POST") -> Answer:
        """The next answer, to its end."""
        async with asyncio.timeout(20):
            self._answer = Answer(await self.read_head(), b"", clean=False)
            await self._finish(self._answer, method)
            return self._answer

    async def answer_body(self, *, method: str = "POST") -> tuple[bytes, bool]:
        """The rest of an answer whose head has been read: its body, and whether that is whole."""
        async with asyncio.timeout(20):
            await self._finish(self._answer, method)
        return self._answer.body, self._answer.clean

    async def _finish(self, answer: Answer, method: str) -> None:
        try:
            answer.clean = await self._read_body(answer, method)
        except (asyncio.IncompleteReadError, ConnectionError):
            answer.clean = False

    async def _read_body(self, answer: Answer, method: str) -> bool:
        body = bytearray()
        try:
            if method == "HEAD" or answer.status in (204, 304):
                return True
            if answer.values("Transfer-Encoding") == [b"chunked"]:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    body += await self._exactly(size, body)
                    await self.reader.readexactly(2)
                await self.reader.readexactly(2)
            elif answer.values("Content-Length"):
                body += await self._exactly(int(answer.values("Content-Length")[0]), body)
            else:
                while data := await self.reader.read(65536):
                    body += data
        finally:
            answer.body = bytes(body)
        return True

    async def _exactly(self, size: int, body: bytearray) -> bytes:
        try:
            return await self.reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            body += error.partial
            raise

    def close(self) -> None:
        """Leave in good order."""
        self.writer.close()

    def reset(self) -> None:
        """Leave with a reset."""
        opened = self.writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def request(
    target: str = "/up/v1/chat/completions",
    body: bytes | None = b'{"model":"m","stream":true}',
    *fields: str,
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    """The bytes of a request; ``body`` of None for one without."""
    lines = [f"{method} {target} HTTP/{version}", "Host: gateway.test", *fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


async def ask(port: int, raw: bytes | None = None) -> Answer:
    """Send one request on a connection of its own and read the answer to its end."""
    raw = request() if raw is None else raw
    async with RawClient(port) as client:
        await client.send(raw)
        return await client.answer(method=raw.split(b" ", 1)[0].decode())
