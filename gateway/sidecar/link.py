"""The connection between the gateway and one shim: lines in, lines out; keeps no time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from gateway.sidecar.command import Command


class Link(asyncio.Protocol):
    """Feeds one command with what its shim says."""

    def __init__(self, command: Command, lost: Callable[[Command], None]) -> None:
        self._command = command
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is in the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._command.attach(self._transport)

    def data_received(self, data: bytes) -> None:
        """Some lines, or parts of one."""
        self._buffer += data
        if b"\n" not in data:
            return
        *lines, self._buffer = self._buffer.split(b"\n")
        try:
            for line in lines:
                self._command.take(line)
        except msgspec.MsgspecError:
            # What cannot be understood cannot be trusted: the command becomes "interrupted".
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The shim has ended, or died."""
        self._command.detach()
        self._lost(self._command)


async def connect(command: Command, sock: socket.socket, lost: Callable[[Command], None]) -> None:
    """Put a connected stream socket, owned from here on, into the running loop."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.create_unix_connection(lambda: Link(command, lost), sock=sock)
