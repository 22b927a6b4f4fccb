"""The connection between the gateway and one shim: lines in, lines out; keeps no time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from gateway.sidecar.command import Command


class Link(asyncio.Protocol):
    """Feeds one command with what its shim says; ``voice``, owned, is to speak with the shim."""

    def __init__(
        self, command: Command, voice: socket.socket, lost: Callable[[Command], None]
    ) -> None:
        self._command = command
        self._voice = voice
        self._lost = lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is in the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._command.attach(self._transport, self._say)

    def _say(self, line: bytes) -> None:
        """A transport that cannot write does not read on either, and the last word of a shim that
        has just ended would be lost. A shim that has 200 KB to read already is stopped."""
        with suppress(OSError):
            self._voice.send(line)

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
        self._voice.close()
        self._command.detach()
        self._lost(self._command)


async def connect(command: Command, sock: socket.socket, lost: Callable[[Command], None]) -> None:
    """Put a connected stream socket, owned from here on, into the running loop."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    voice = sock.dup()
    try:
        await loop.create_unix_connection(lambda: Link(command, voice, lost), sock=sock)
    except BaseException:
        voice.close()
        raise
