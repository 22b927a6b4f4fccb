"""One running command as the gateway sees it; never blocks, holds no more than head and tail."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gateway.sidecar import status as told
from gateway.sidecar.record import SPILL
from gateway.sidecar.status import Output, Reason, Spill, State, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.sidecar.spec import Spec


class Command:
    """What is known of one command, kept up to date by its shim."""

    def __init__(self, spec: Spec) -> None:
        self.spec = replace(spec, stdin=b"") if spec.stdin else spec
        """What was asked for; its input, which can be large, is not kept."""
        self.spill_path = os.path.join(spec.directory, SPILL)
        self.status = Status(id=spec.id, containment=spec.containment)
        self.head = b""
        """The first bytes of the output; set when it is answered and when it ends."""
        self.tail = b""
        """The last bytes, without those of the head: both are all of it where it fits."""
        self.bytes_seen = 0
        """Bytes of output so far; behind by 50 ms at most."""
        self.bytes_spilled = 0
        """How many of them can be read in the spill."""
        self._accepted = False
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._link: asyncio.WriteTransport | None = None

    def changed(self) -> asyncio.Future[None]:
        """Wait for the next news from now on; done already where there can be none.

        Not a coroutine: one that starts only later would miss what comes in between.
        """
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            news.set_result(None)
        else:
            self._waiters.add(news)
            news.add_done_callback(self._waiters.discard)
        return news

    async def answered(self) -> Status:
        """Wait until there is an answer: the end, or a leader that left its output open."""
        return await self._until(lambda: self.status.state is not State.RUNNING)

    async def ended(self) -> Status:
        """Wait for the end of the command and of its output."""
        return await self._until(lambda: self.status.final)

    async def closed(self) -> Status:
        """Wait until its shim has gone as well: nothing that the command has left behind runs."""
        return await self._until(lambda: self._closed)

    def kill(
        self,
        number: int = signal.SIGTERM,
        reason: Reason = Reason.KILLED,
        grace_ms: int | None = None,
    ) -> None:
        """End it: a signal to all its processes, SIGKILL when the grace is over.

        The grace is that of the spec, or shorter. A second call only makes it more urgent. After
        the end it is for the survivors.
        """
        if self._link is None or self._closed:
            return
        message: dict[str, object] = {"signal": int(number), "reason": reason.value}
        if grace_ms is not None:
            message["grace"] = grace_ms / 1000
        self._link.write(json.dumps(message).encode() + b"\n")

    async def _until(self, reached: Callable[[], bool]) -> Status:
        while not reached():
            await self.changed()
        return self.status

    # --- for the runner -----------------------------------------------------------------------

    @property
    def accepted(self) -> bool:
        """A shim had it: it may have run."""
        return self._accepted

    async def started(self) -> Status:
        """Wait until it runs, or never will."""
        return await self._until(lambda: self._closed or self.status.started_at is not None)

    def abandon(self) -> None:
        """Nobody waits for it any more, and nobody may have seen that it was started."""
        if self._link is not None:
            self.kill(signal.SIGKILL)
            self._link.close()

    def take(self, line: bytes | bytearray) -> None:
        """Take in one message of the shim. Raises msgspec.MsgspecError."""
        message = told.read_message(line)
        self._accepted = True
        match message:
            case told.Progress(bytes=seen, spilled=spilled):
                self.bytes_seen, self.bytes_spilled = seen, spilled
            case told.Started(status=status):
                self._take_status(status)
            case told.Answer(status=status, head=head, tail=tail):
                self.head, self.tail = head, tail
                self._take_status(status)
            case told.Final(status=status, head=head, tail=tail):
                self.head, self.tail = head, tail
                self._take_status(status)
            case told.Accepted():
                pass
        self._wake()

    def attach(self, link: asyncio.WriteTransport) -> None:
        """The connection to the shim stands."""
        self._link = link

    def detach(self) -> None:
        """The shim has gone. Without a last word of its own it has died."""
        self._closed = True
        self._link = None
        if not self.status.final and self._accepted:
            # Head and tail went with it. What it had told is all that is known; the file has more.
            output = Output(
                bytes=self.bytes_seen,
                lines=None,
                spill=Spill(path=self.spill_path, bytes=self.bytes_spilled),
            )
            self.status = msgspec.structs.replace(
                self.status, state=State.INTERRUPTED, output=output
            )
        self._wake()

    def _take_status(self, status: Status) -> None:
        self.status = status
        self.bytes_seen, self.bytes_spilled = status.output.bytes, status.output.spill.bytes

    def _wake(self) -> None:
        for news in self._waiters:
            if not news.done():
                news.set_result(None)
