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
from gateway.sidecar.watch import Watch

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
        self._shim_pid = 0
        self._watch: Watch | None = None
        self._end_shim: Callable[[int], None] | None = None
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._link: asyncio.WriteTransport | None = None
        self._say: Callable[[bytes], None] | None = None

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
        if self._say is None or self._closed:
            return
        message: dict[str, object] = {"signal": int(number), "reason": reason.value}
        grace = 0.0 if number == signal.SIGKILL else self.spec.kill_grace_ms / 1000
        if grace_ms is not None:
            message["grace"] = grace_ms / 1000
            grace = min(grace, grace_ms / 1000)
        self._expect(grace, lambda: self._closed)
        self._say(json.dumps(message).encode() + b"\n")

    async def _until(self, reached: Callable[[], bool]) -> Status:
        while not reached():
            await self.changed()
        return self.status

    # --- for the runner -----------------------------------------------------------------------

    @property
    def accepted(self) -> bool:
        """A shim had it: it may have run."""
        return self._accepted

    async def taken(self) -> bool:
        """Wait until a shim has it, or none ever will; whether one has."""
        await self._until(lambda: self._closed or self._accepted)
        return self._accepted

    def watch(self, end_shim: Callable[[int], None]) -> None:
        """Have its shim ended, by pid, where it does not see to the end in time."""
        self._end_shim = end_shim

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
                left = self.spec.timeout_ms + self.spec.kill_grace_ms
                self._expect(left / 1000, lambda: self.status.state is not State.RUNNING)
            case told.Answer(status=status, head=head, tail=tail):
                self.head, self.tail = head, tail
                self._take_status(status)
                left = self.spec.max_background_ms + self.spec.kill_grace_ms
                self._expect(left / 1000, lambda: self.status.final)
            case told.Final(status=status, head=head, tail=tail):
                self.head, self.tail = head, tail
                self._take_status(status)
            case told.Accepted(pid=pid):
                self._begin_watch(pid)
        self._wake()

    @property
    def shim_pid(self) -> int:
        """The process that looks after it; 0 where there is none, or none is known."""
        return self._shim_pid

    def _begin_watch(self, pid: int) -> None:
        self._shim_pid, end = pid, self._end_shim
        if pid and end is not None:
            self._watch = Watch(pid, lambda: end(pid))
            self._expect(0.0, lambda: self.status.started_at is not None)

    def _expect(self, seconds: float, reached: Callable[[], bool]) -> None:
        if self._watch is not None:
            self._watch.expect(seconds, reached)

    def attach(self, link: asyncio.WriteTransport, say: Callable[[bytes], None]) -> None:
        """The connection to the shim stands; ``say`` sends it a line, and never fails."""
        self._link, self._say = link, say

    def detach(self) -> None:
        """The shim has gone. Without a last word of its own it has died."""
        self._closed = True
        self._link = self._say = None
        if self._watch is not None:
            self._watch.stop()
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
