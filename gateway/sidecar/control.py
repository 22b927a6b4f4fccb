"""The lines between a session and the gateway; decides nothing, and holds nobody up.

What the gateway does not read waits here. When it has gone, whatever is put is dropped.
"""

from __future__ import annotations

import json
import select
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket


class Control:
    """A socket to the gateway, registered with the session's poll for as long as it is open."""

    def __init__(self, link: socket.socket, poll: select.poll) -> None:
        self._link: socket.socket | None = link
        self._poll = poll
        self._heard = b""
        self._outbox = bytearray()
        link.setblocking(False)
        poll.register(link, select.POLLIN)

    @property
    def open(self) -> bool:
        """The gateway is there, as far as is known."""
        return self._link is not None

    @property
    def busy(self) -> bool:
        """There are lines that the gateway has not taken yet."""
        return bool(self._outbox)

    def is_at(self, descriptor: int) -> bool:
        """Whether the poll told of this socket."""
        return self._link is not None and descriptor == self._link.fileno()

    def hear(self) -> list[dict[str, Any]] | None:
        """What the gateway has said, line by line; None once it has gone."""
        if self._link is None:
            return None
        try:
            data = self._link.recv(65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self._close(self._link)
            return None
        *lines, self._heard = (self._heard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def put(self, message: dict[str, Any]) -> None:
        """Send a line, now or when there is room."""
        if self._link is not None:
            self._outbox += json.dumps(message).encode() + b"\n"
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room; the poll tells of more."""
        if self._link is None:
            return
        try:
            while self._outbox:
                del self._outbox[: self._link.send(self._outbox)]
        except BlockingIOError:
            self._poll.modify(self._link, select.POLLIN | select.POLLOUT)
            return
        except OSError:
            # The poll will say that it is closed.
            self._outbox.clear()
        self._poll.modify(self._link, select.POLLIN)

    def _close(self, link: socket.socket) -> None:
        self._poll.unregister(link)
        link.close()
        self._link = None
        self._outbox.clear()
