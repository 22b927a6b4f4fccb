"""Commands from the request to the end of the record; speaks no HTTP and never blocks the loop.

A command lives in a task of its own, not in the request that asked for it: that one may leave, and
another one may come back for it. Whatever becomes of a command that has started is its status, and
never an error.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from gateway.observe import exec_log, logs
from gateway.observe.exec_metrics import Gauges
from gateway.policy.exec_request import DEFAULT_OUTPUT, ExecError, ExecRequest
from gateway.sidecar import account, refusal, workdir
from gateway.sidecar.folder import Meta, new_id
from gateway.sidecar.runner import SidecarError
from gateway.sidecar.status import Reason, State, Status
from gateway.sidecar.store import Entry, interrupted
from gateway.sidecar.tasks import Once, Tasks
from gateway.sidecar.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.model import Exec
    from gateway.observe.exec_metrics import ExecMetrics
    from gateway.sidecar.command import Command
    from gateway.sidecar.fallback import ThreadRunner
    from gateway.sidecar.plan import Planner
    from gateway.sidecar.runner import Runner
    from gateway.sidecar.store import Store

SWEEP = 60.0
"""Seconds between two looks for what has expired, and at the room on the disk."""

STOP = 5.0
"""Seconds for commands to end in when the gateway stops: half of it by themselves."""

_WITH_PIECES = 64
"""Commands whose output is not all on the disk, and of which head and tail are remembered."""

_LIVE_PER_TURN = 4
"""Commands with a living shim, per command that may run: the others have ended and left something
behind that goes on."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name of its token, and where the request came from."""

    client: str
    peer: str


class Service:
    """All commands of one gateway. Use it inside one running event loop."""

    def __init__(
        self,
        exec_: Exec,
        runner: Runner | ThreadRunner,
        store: Store,
        planner: Planner,
        metrics: ExecMetrics,
    ) -> None:
        self._exec = exec_
        self._runner = runner
        self.store = store
        self._planner = planner
        self._metrics = metrics
        self._turns = Turns(exec_.max_running, exec_.max_queued)
        self._tasks = Tasks()
        self._housekeeping = Tasks()
        self.draining = False
        self._disk_free = 0
        self._with_pieces: deque[Entry] = deque()
        metrics.gauges = self._gauges

    # --- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Take over the records of the disk. The runner has been started."""
        await self.store.load()
        await self._look_at_disk()
        self._housekeeping.start(self.store.watch_orphans())
        self._housekeeping.start(self._keep_house())

    async def drain(self, seconds: float = STOP) -> None:
        """Refuse new commands and end those that run, as SIGTERM and then SIGKILL do."""
        self.draining = True
        self._turns.close()
        await self._runner.stop(seconds)
        await self._tasks.wait(2.0)

    async def stop(self) -> None:
        """End everything, at once where it has not been drained."""
        await self.drain(1.0)
        await self._tasks.cancel()
        await self._housekeeping.cancel()

    # --- what is asked for --------------------------------------------------------------------

    def check_room(self, caller: Caller, key: str | None) -> None:
        """Raise the ExecError of :meth:`submit` that needs no look at the body."""
        if key is None or not self.store.knows(caller.client, key):
            self._check_room()
            self._turns.check()

    def _check_room(self) -> None:
        if self.draining:
            raise refusal.stopping()
        if len(self._runner.commands) >= _LIVE_PER_TURN * self._exec.max_running:
            raise refusal.busy(
                "Too many commands have ended and left processes behind that still run: kill some "
                "of those that GET /v1/exec lists with survivors."
            )

    def submit(
        self, request: ExecRequest, caller: Caller, key: str | None = None, mark: str = ""
    ) -> Entry:
        """Start a command, or find the one that the same key has started; ``mark`` is the
        request's fingerprint where there is a key.

        Raises ExecError where nothing will run. What is refused only later, when its turn has come,
        is the entry's ``problem``.
        """
        known = self.store.of_key(caller.client, key, mark)
        if known is not None:
            return known
        cwd = workdir.asked_for(request.cwd, self._exec.allowed_roots)
        self._check_room()
        turn = self._turns.ask()
        meta = Meta(
            id=new_id(),
            owner=caller.client,
            created_at=self.store.now(),
            key=key,
            fingerprint=mark,
            head_bytes=request.head_bytes,
            tail_bytes=request.tail_bytes,
            look=request.preview,
            warnings=self._planner.environment(request).warnings,
        )
        state = State.RUNNING if turn.done() else State.QUEUED
        entry = Entry(meta, Status(id=meta.id, state=state))
        self.store.add(entry)
        told = exec_log.asked(
            entry.id, caller.peer, caller.client, request.command, request.argv, cwd
        )
        self._tasks.start(self._run(entry, request, cwd, turn, told))
        return entry

    def leave(self, entry: Entry, request: ExecRequest) -> None:
        """A client that waited for the answer has gone without it."""
        entry.deserted = entry.deserted or request.on_disconnect == "kill"
        self._desert(entry)

    def detach(self, entry: Entry) -> None:
        """Who waited for it, or read its output, does so no more."""
        entry.attached -= 1
        self._desert(entry)

    def _desert(self, entry: Entry) -> None:
        """Without anybody who would see its end it has none to wait for."""
        if entry.deserted and not (entry.attached or entry.promised):
            entry.wanted = False
            if not entry.answered:
                self.kill(entry, signal.SIGTERM, Reason.CLIENT_GONE)
            entry.wake()

    def hide(self, secret_files: Sequence[str]) -> None:
        """What sandboxes hide from now on: the configuration may have been read again."""
        self._planner = replace(self._planner, secret_files=tuple(secret_files))

    def kill(self, entry: Entry, number: int, reason: Reason = Reason.KILLED) -> None:
        """End a command, or what it has left behind."""
        if entry.command is not None:
            entry.kill_signal = signal.Signals(number).name
            entry.command.kill(number, reason)

    def cancel(self, entry: Entry, why: str) -> None:
        """Take a command out of the queue; its record says so."""
        entry.promised = True
        entry.wanted, entry.cancelled = False, ExecError(422, why)
        entry.wake()

    async def delete(self, entry: Entry) -> None:
        """End a command and remove its record and output; it goes on where the caller does not."""
        await self._tasks.shielded(self._delete(entry))

    # --- one command --------------------------------------------------------------------------

    async def _run(
        self,
        entry: Entry,
        request: ExecRequest,
        cwd: str,
        turn: asyncio.Future[None],
        told: exec_log.Asked,
    ) -> None:
        try:
            await self._turn(entry, turn)
        except ExecError as error:
            self._give_up(entry, error, told)
            return
        left = Once(self._turns.leave)
        try:
            command = await self._start(entry, request, cwd, told)
            await self._follow(entry, command, left)
        except ExecError as error:
            self._give_up(entry, error, told)
            return
        except BaseException:
            self._fall(entry, told)
            raise
        finally:
            left()
        most = min(self._exec.max_output, DEFAULT_OUTPUT)
        self._account(entry, told, own_limit=request.max_output_bytes < most)
        await self.store.sweep()
        await command.closed()
        entry.command = None
        entry.wake()

    async def _turn(self, entry: Entry, turn: asyncio.Future[None]) -> None:
        """Wait for it, as long as anybody does."""
        while not turn.done():
            if not entry.wanted:
                turn.cancel()
                raise entry.cancelled or _left()
            news = asyncio.ensure_future(entry.changed())
            try:
                await asyncio.wait((turn, news), return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
        turn.result()
        entry.status = msgspec.structs.replace(entry.status, state=State.RUNNING)
        entry.wake()

    async def _start(
        self, entry: Entry, request: ExecRequest, cwd: str, told: exec_log.Asked
    ) -> Command:
        """From the turn to the start. Raises ExecError where nothing was started."""
        if not entry.wanted:
            raise entry.cancelled or _left()
        await self._look_at_disk()
        if self._disk_free < self._exec.min_free:
            raise refusal.unavailable(
                "The disk of exec.spill_dir has less room than exec.min_free: make room there, "
                "or wait until outputs expire."
            )
        folder, roots = self.store.folder, self._planner.roots
        descriptor, real = await asyncio.to_thread(workdir.open_within, cwd, roots)
        try:
            spec = await asyncio.to_thread(self._planner.spec, entry.id, request, descriptor, real)
            await asyncio.to_thread(folder.announce, entry.meta)
            exec_log.started(told)
            command = await self._runner.spawn(spec, lambda early: self._begin(entry, early))
        except SidecarError as error:
            raise refusal.unavailable(str(error)) from None
        except OSError as error:
            raise refusal.unavailable(
                f"exec.spill_dir cannot be written to: {os.strerror(error.errno or 0)}."
            ) from None
        finally:
            os.close(descriptor)
            await asyncio.to_thread(folder.adopt, entry.id)
        return command

    def _begin(self, entry: Entry, command: Command) -> None:
        """It is about to be started: who does not want it any more can still have it stopped."""
        entry.command = command
        if not entry.wanted:
            self.kill(entry, signal.SIGTERM, Reason.CLIENT_GONE)

    async def _follow(self, entry: Entry, command: Command, left: Once) -> None:
        """Take over what the shim tells, up to its last word."""
        while not command.status.final:
            status = command.status
            if status.state is State.OUTPUT_OPEN and status is not entry.status:
                left()
                entry.pieces = command.head, command.tail
                self._metrics.output_open()
            entry.status = status
            entry.wake()
            await command.changed()
        status = command.status
        if self.draining and status.called_off:
            # Its key is free again: nothing has run, and there is no record of it.
            await asyncio.to_thread(self.store.folder.remove, entry.id)
            raise refusal.stopping()
        if status.state is State.INTERRUPTED:
            status = await self._interrupted(status)
            entry.pieces = None
        elif status.output.spill.bytes == status.output.bytes:
            # The disk has them: many records, each with its head and tail, would be much.
            entry.pieces = None
        else:
            entry.pieces = command.head, command.tail
            self._remember(entry)
        entry.ended_at = self.store.now()
        entry.status = status
        entry.wake()

    def _remember(self, entry: Entry) -> None:
        """Head and tail that no file has are kept for the last few, for each costs memory."""
        self._with_pieces.append(entry)
        while len(self._with_pieces) > _WITH_PIECES:
            self._with_pieces.popleft().pieces = None

    async def _interrupted(self, status: Status) -> Status:
        folder = self.store.folder
        try:
            size = await asyncio.to_thread(folder.size, status.id)
            status = interrupted(status, status.id, size, folder.spill(status.id))
            await asyncio.to_thread(folder.save, status)
        except OSError as error:
            logs.logger().warning("exec_record_not_saved", id=status.id, error=str(error))
        return status

    def _give_up(self, entry: Entry, problem: ExecError, told: exec_log.Asked) -> None:
        """Nothing has run. Only who was told to come back for it finds a record that says why."""
        entry.problem, entry.command = problem, None
        if entry.promised:
            self.store.free_key(entry)
            entry.status = account.not_started(entry.status, problem)
            entry.ended_at = self.store.now()
        else:
            self.store.forget(entry)
        self._metrics.rejected()
        exec_log.refused(told.peer, told.client, problem.status, problem.message, told.id)
        entry.wake()

    def _fall(self, entry: Entry, told: exec_log.Asked) -> None:
        """Something is wrong with this program: nobody may wait for an answer for ever."""
        if entry.command is None:
            self._give_up(entry, refusal.unavailable("The command could not be started."), told)
            return
        entry.command.kill(signal.SIGKILL)
        path = self.store.folder.spill(entry.id)
        entry.status = interrupted(entry.now(), entry.id, entry.size, path)
        entry.ended_at = self.store.now()
        entry.command = None
        entry.wake()

    def _account(self, entry: Entry, told: exec_log.Asked, *, own_limit: bool) -> None:
        ended = account.ended(entry.status, entry.kill_signal, own_limit=own_limit)
        self._metrics.ended(ended)
        exec_log.ended(told, account.result(entry.status))

    async def _delete(self, entry: Entry) -> None:
        if entry.command is not None:
            self.kill(entry, signal.SIGTERM)
        elif not entry.started:
            self.cancel(entry, "The command was deleted before it had started.")
        while entry.command is not None or (not entry.started and entry.problem is None):
            await entry.changed()
        await self.store.remove(entry, "This command and its output were deleted.")

    # --- the house ----------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        while True:
            await self.store.sweep()
            await self._look_at_disk()
            await asyncio.sleep(SWEEP)

    async def _look_at_disk(self) -> None:
        self._disk_free = await asyncio.to_thread(self.store.folder.free_bytes)

    def _gauges(self) -> Gauges:
        turns = self._turns
        return Gauges(turns.running, turns.queued, self.store.spill_bytes, self._disk_free)


def _left() -> ExecError:
    # Nobody reads this; the status is for the log.
    return ExecError(499, "The client left before the command had started.")
