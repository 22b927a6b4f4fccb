"""Deadlines of the gateway's own for what looks after a command. Signals nothing by itself.

A shim keeps its command's times. But it is a process of the same user as the command's, which can
stop it: then nothing would end any more, and nobody would be told. So the gateway knows by when it
must have heard of the end, and ends the shim where it has not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.sidecar import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

LATE = 3.0
"""Seconds after what should have happened: one that is stopped by then is ended."""

LOST = 35.0
"""Seconds after which it is ended in any case: a shim gives up by itself before that."""

_AGAIN = 1.0


class Watch:
    """The deadlines of one shim; ``end`` is called once where one of them passes."""

    def __init__(self, pid: int, end: Callable[[], None]) -> None:
        self._pid = pid
        self._end = end
        self._timers: set[asyncio.TimerHandle] = set()

    def expect(self, seconds: float, reached: Callable[[], bool]) -> None:
        """In so many seconds, and a few more, this has to hold."""
        last = asyncio.get_running_loop().time() + seconds + LOST
        self._later(seconds + LATE, last, reached)

    def stop(self) -> None:
        """Nothing is expected any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _later(self, seconds: float, last: float, reached: Callable[[], bool]) -> None:
        def look() -> None:
            self._timers.discard(timer)
            self._look(last, reached)

        timer = asyncio.get_running_loop().call_later(seconds, look)
        self._timers.add(timer)

    def _look(self, last: float, reached: Callable[[], bool]) -> None:
        if reached():
            return
        late = asyncio.get_running_loop().time() >= last
        if late or kernel.is_stopped(self._pid):
            self.stop()
            self._end()
        else:
            self._later(_AGAIN, last, reached)
