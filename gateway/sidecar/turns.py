"""How many commands run at once, and who is next. Starts none, and never lets one overtake."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.sidecar import refusal


class Turns:
    """``running`` commands at most, ``queued`` more that wait in order. The event loop's alone."""

    def __init__(self, running: int, queued: int) -> None:
        self._free = running
        self._most_running = running
        self._most_queued = queued
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def running(self) -> int:
        """Turns that are taken."""
        return self._most_running - self._free

    @property
    def queued(self) -> int:
        """How many wait."""
        return sum(not turn.done() for turn in self._waiting)

    def ask(self) -> asyncio.Future[None]:
        """A turn, to wait for; give it back with :meth:`leave`, or cancel it while it waits.

        Raises RefusedError, 429 where too many wait already.
        """
        self.check()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._free and not self.queued:
            self._free -= 1
            turn.set_result(None)
        else:
            self._waiting.append(turn)
        return turn

    def check(self) -> None:
        """Whether :meth:`ask` would give one now. Raises RefusedError where not."""
        if self._closed:
            raise refusal.stopping()
        if not (self._free and not self.queued) and self.queued >= self._most_queued:
            raise refusal.busy(
                f"{self.running} commands run and {self.queued} wait, which is as many as may "
                "(exec.max_running, exec.max_queued): send this one again later."
            )

    def leave(self) -> None:
        """Give a turn back: the next one's has come."""
        self._free += 1
        while self._waiting and self._free:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free -= 1
                turn.set_result(None)

    def close(self) -> None:
        """Nobody's turn comes any more."""
        self._closed = True
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(refusal.stopping())
        self._waiting.clear()
