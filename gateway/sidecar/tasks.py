"""Work that outlives the request that began it: kept, told of when it fails, waited for at the end.

It never ends anything by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.observe import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Tasks:
    """Running tasks; what one of them raises is logged."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Begin, and see to it until it ends."""
        self._keep(asyncio.create_task(work))  # noqa: TID251 - here they are kept, and awaited

    async def shielded(self, work: Coroutine[object, object, None]) -> None:
        """Begin and wait; it goes on where the caller is cancelled."""
        task = asyncio.create_task(work)  # noqa: TID251 - as above
        self._keep(task)
        await asyncio.shield(task)

    async def wait(self, seconds: float) -> None:
        """Wait until all have ended, at most so long."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def cancel(self) -> None:
        """Break off what still runs."""
        left = list(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.logger().error("exec_fault", error=type(error).__name__, exc_info=error)


class Once:
    """Calls something the first time only."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what: Callable[[], None] | None = what

    def __call__(self) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()
