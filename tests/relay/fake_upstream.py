"""A provider on a real socket that does exactly what its script says.

A script is a list of steps for one request: ``bytes`` are written as they are, an ``asyncio.Event``
is waited for, :data:`FIN` closes, :data:`RST` resets, :data:`HOLD` waits until the gateway closes.
A script that runs out leaves the connection open for the next request. The last script serves every
request after it, too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence


class End(Enum):
    """Steps that end a connection."""

    FIN = "fin"
    RST = "rst"
    HOLD = "hold"


FIN, RST, HOLD = End.FIN, End.RST, End.HOLD

Step = bytes | asyncio.Event | End


@dataclass
class Seen:
    """One request as it came: ``head`` up to and with the blank line; ``whole`` once the body is
    there; ``closed`` when the gateway has closed the connection while its script was running."""

    connection: int
    head: bytes
    body: bytes = b""
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def line(self) -> bytes:
        """The request line."""
        return self.head.partition(b"\r\n")[0]

    def values(self, name: str) -> list[bytes]:
        """The values of a header field, in order."""
        wanted = name.lower().encode()
        lines = self.head.split(b"\r\n")[1:-2]
        pairs = [line.partition(b":") for line in lines]
        return [value.strip() for key, _, value in pairs if key.lower() == wanted]


class FakeUpstream:
    """Listens on loopback while it is entered.

    Without ``read_body`` nothing is read after the head of a request: the sockets' buffers fill up.
    """

    def __init__(
        self, *scripts: Sequence[Step], read_body: bool = True, tls: ssl.SSLContext | None = None
    ) -> None:
        self.scripts = list(scripts)
        self.requests: list[Seen] = []
        self.arrived = asyncio.Event()
        self.connections = 0
        self.read_body = read_body
        self.tls = tls
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=2**26, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait_for(self, number: int) -> Seen:
        """The request with that number (from 1), as soon as its head has come."""
        async with asyncio.timeout(5):
            while len(self.requests) < number:
                self.arrived.clear()
                await self.arrived.wait()
        return self.requests[number - 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.append(writer)
        self.connections += 1
        number = self.connections
        try:
            while await self._one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        seen = Seen(number, await reader.readuntil(b"\r\n\r\n"))
        self.requests.append(seen)
        self.arrived.set()
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        try:
            if self.read_body:
                await _read_body(reader, seen)
            else:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            for step in script:
                if not await _do(step, reader, writer):
                    return False
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        finally:
            seen.closed.set()
        seen.closed.clear()
        return True


async def _read_body(reader: asyncio.StreamReader, seen: Seen) -> None:
    if seen.values("Expect"):
        raise AssertionError("the gateway answers Expect itself")
    if b"chunked" in b"".join(seen.values("Transfer-Encoding")).lower():
        while size := int(await reader.readuntil(b"\r\n"), 16):
            seen.body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif seen.values("Content-Length"):
        seen.body = await reader.readexactly(int(seen.values("Content-Length")[0]))
    seen.whole.set()


async def _do(step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    if isinstance(step, bytes):
        writer.write(step)
        await writer.drain()
        return True
    if isinstance(step, asyncio.Event):
        # A gateway that leaves meanwhile ends the script.
        await _first(step.wait(), _closed(reader))
        return step.is_set()
    if step is HOLD:
        await _closed(reader)
    elif step is FIN:
        writer.close()
        await writer.wait_closed()
    else:
        opened = writer.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    return False


async def _closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


async def _first(*works: object) -> None:
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Wire forms.


def head(status: str = "200 OK", *fields: str) -> bytes:
    """A status line and header fields."""
    return "\r\n".join((f"HTTP/1.1 {status}", *fields, "", "")).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"

SSE = head("200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
"""The head of a stream."""


def json_answer(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    """A whole answer."""
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", *fields)
    return head(status, *lines) + body
