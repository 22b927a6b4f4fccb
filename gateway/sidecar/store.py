"""The records of all commands, in memory and on the disk: finds, keeps and forgets; runs none.

Each token sees its own commands alone. A record outlives the gateway: what the disk says of a
command that ran when the gateway died is looked at again when the next one starts.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from gateway.observe import logs
from gateway.policy.exec_request import ExecError
from gateway.sidecar import kernel
from gateway.sidecar.account import altered, growing
from gateway.sidecar.status import Spill, State, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.sidecar.command import Command
    from gateway.sidecar.folder import Folder, Found, Meta

KEPT = 10_000
"""Records that are kept at most: each costs memory here, and a directory."""

GRACE = 60.0
"""Seconds after its end in which no output goes because there is too much: an answer that has just
been given names it."""

REMEMBERED = 10_000
"""Ids of records that are gone, for which 410 is told and not 404."""


class Entry:
    """One command as the service knows it, from the moment that it was asked for."""

    def __init__(self, meta: Meta, status: Status) -> None:
        self.meta = meta
        self.status = status
        self.command: Command | None = None
        """While there is a shim of this gateway's that looks after it."""
        self.problem: ExecError | None = None
        """Why it was never started."""
        self.cancelled: ExecError | None = None
        """Why it shall not be started any more."""
        self.pieces: tuple[bytes, bytes] | None = None
        """Head and tail of ``status.output``, where the disk may not have them."""
        self.ended_at: float | None = None
        self.attached = 0
        """Requests that wait for its answer, or read its output, right now."""
        self.wanted = True
        """Somebody will still ask for it."""
        self.deserted = False
        """The client that asked for it has left, and did not want it to go on without one."""
        self.promised = False
        """A client has been told to come back for it: it does not end with a connection."""
        self.kill_signal = "SIGTERM"
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def id(self) -> str:
        """Its name."""
        return self.meta.id

    @property
    def started(self) -> bool:
        """It runs or has run, or has failed to; a record is kept in any case."""
        return self.status.started_at is not None or self.status.final

    @property
    def answered(self) -> bool:
        """There is an answer: its end, or that of its leader."""
        return self.status.state not in (State.QUEUED, State.RUNNING)

    @property
    def queued(self) -> bool:
        """It waits for its turn."""
        return self.status.state is State.QUEUED and self.problem is None

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self.now().output.spill.bytes

    def now(self) -> Status:
        """The status, with the output as far as it has come."""
        command, status = self.command, self.status
        if command is None or status.final or command.bytes_seen == status.output.bytes:
            return status
        spill = msgspec.structs.replace(
            status.output.spill, path=command.spill_path, bytes=command.bytes_spilled
        )
        output = msgspec.structs.replace(
            status.output, bytes=command.bytes_seen, lines=None, spill=spill
        )
        return msgspec.structs.replace(status, output=output)

    def wake(self) -> None:
        """There is news."""
        for news in self._waiters:
            if not news.done():
                news.set_result(None)

    async def changed(self, seconds: float | None = None) -> bool:
        """Wait for the next news, at most so long; whether there was any."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(news)
        try:
            async with asyncio.timeout(seconds):
                await news
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(news)
        return True

    async def until(self, reached: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until something holds, at most so long; whether it does. It raises its problem."""
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        while not reached():
            if self.problem is not None:
                raise self.problem
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            await self.changed(left)
        return True


def interrupted(status: Status | None, id_: str, size: int, path: str) -> Status:
    """The status of a command whose shim has died: its output has ``size`` bytes, or had more."""
    status = Status(id=id_) if status is None else status
    output = status.output
    output = msgspec.structs.replace(
        output,
        complete=False,
        open=False,
        bytes=max(output.bytes, size),
        lines=None,
        spill=Spill(path=path, bytes=size, error=output.spill.error),
    )
    return msgspec.structs.replace(status, state=State.INTERRUPTED, output=output)


def shim_is_alive(status: Status | None) -> bool:
    """Whether the process that looks after a command is the one that its status names."""
    if status is None or not status.shim.pid:
        return False
    found = kernel.process(status.shim.pid)
    return found is not None and found.alive and found.started == status.shim.started


class Store:
    """The records; ``retention`` in seconds after the end, ``most`` in bytes of all outputs."""

    def __init__(
        self,
        folder: Folder,
        *,
        retention: float,
        most: int,
        now: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self.folder = folder
        self.now = now
        self._retention = retention
        self._most = most
        self._entries: dict[str, Entry] = {}
        self._keys: dict[tuple[str, str], Entry] = {}
        self._gone: dict[str, tuple[str, str]] = {}
        self._sweeping = asyncio.Lock()

    @property
    def entries(self) -> list[Entry]:
        """All of them."""
        return list(self._entries.values())

    @property
    def spill_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(entry.size for entry in self._entries.values())

    def add(self, entry: Entry) -> None:
        """Keep a new one, under its key as well."""
        self._entries[entry.id] = entry
        if entry.meta.key is not None:
            self._keys[entry.meta.owner, entry.meta.key] = entry

    def forget(self, entry: Entry) -> None:
        """It was never started, or is gone: its key is free again."""
        self._entries.pop(entry.id, None)
        self.free_key(entry)

    def free_key(self, entry: Entry) -> None:
        """Nothing has run under it: the same request may be sent again."""
        key = (entry.meta.owner, entry.meta.key or "")
        if self._keys.get(key) is entry:
            del self._keys[key]

    def find(self, id_: str, owner: str) -> Entry:
        """One of the owner's. Raises ExecError: 404, or 410 for one that is gone."""
        entry = self._entries.get(id_)
        if entry is not None and entry.meta.owner == owner:
            return entry
        whose, why = self._gone.get(id_, ("", ""))
        if whose == owner and why:
            raise ExecError(410, why)
        raise ExecError(404, "There is no command of this id for this token: GET /v1/exec lists.")

    def knows(self, owner: str, key: str) -> bool:
        """Whether something has been started under this key."""
        return (owner, key) in self._keys

    def of_key(self, owner: str, key: str | None, fingerprint: str) -> Entry | None:
        """What the same key has started. Raises ExecError, 409 where that was something else."""
        entry = None if key is None else self._keys.get((owner, key))
        if entry is not None and entry.meta.fingerprint != fingerprint:
            raise ExecError(
                409,
                "This Idempotency-Key was sent with another body before: use a new key for a new "
                "command.",
            )
        return entry

    def owned(self, owner: str) -> list[Entry]:
        """The owner's, newest first."""
        mine = [entry for entry in self._entries.values() if entry.meta.owner == owner]
        return sorted(mine, key=lambda entry: entry.meta.created_at, reverse=True)

    def expires_at(self, entry: Entry) -> float | None:
        """When its output is removed, in seconds since 1970; None while it may still grow."""
        return None if entry.ended_at is None else entry.ended_at + self._retention

    async def load(self) -> None:
        """Take over what the disk has, and say of each command truly how it stands."""
        for found in await asyncio.to_thread(self.folder.scan):
            entry = Entry(found.meta, found.status or Status(id=found.meta.id))
            entry.wanted = False
            await self._take(entry, found)
            self.add(entry)

    async def watch_orphans(self, every: float = 0.25) -> None:
        """Commands of a gateway that has died are ended by their shims: look until they are."""
        orphans = [e for e in self._entries.values() if e.command is None and e.ended_at is None]
        while orphans := [entry for entry in orphans if entry.ended_at is None]:
            await asyncio.sleep(every)
            for entry in orphans:
                found = await asyncio.to_thread(self.folder.look, entry.id)
                if found is not None:
                    await self._take(entry, found)
                else:
                    self.forget(entry)
                    entry.ended_at = self.now()
                entry.wake()

    async def _take(self, entry: Entry, found: Found) -> None:
        """What the disk says of a command that this gateway has not started."""
        status = found.status
        if status is not None and not status.final and shim_is_alive(status):
            # Asked before its status was read a second time: it may have ended in between.
            entry.status = growing(status, found.size)
            return
        if status is not None and not status.final:
            again = await asyncio.to_thread(self.folder.look, entry.id)
            found = again or found
            status = found.status
        if status is None or not status.final:
            path = self.folder.spill(entry.id)
            status = interrupted(status, entry.id, found.size, path)
            try:
                await asyncio.to_thread(self.folder.save, status)
            except OSError as error:
                logs.logger().warning("exec_record_not_saved", id=entry.id, error=str(error))
        elif status.output.spill.bytes != found.size:
            status = altered(status, found.size)
        entry.status = status
        entry.ended_at = found.changed_at

    # --- what becomes of it -------------------------------------------------------------------

    async def sweep(self) -> None:
        """Remove what has been kept for long enough, and the oldest of what is too much.

        Never one that runs, nor one that is being read.
        """
        async with self._sweeping:
            total = self.spill_bytes
            ended = [e for e in self._entries.values() if e.ended_at is not None]
            for entry in sorted(ended, key=lambda each: each.ended_at or 0.0):
                expires = self.expires_at(entry)
                if entry.attached or expires is None:
                    continue
                now = self.now()
                too_much = len(self._entries) > KEPT or total > self._most
                fresh = now - (entry.ended_at or 0.0) < GRACE
                if expires <= now or (too_much and not fresh):
                    total -= entry.size
                    await self.remove(
                        entry,
                        "The output of this command has expired (exec.retention, "
                        "exec.retention_bytes).",
                    )

    async def remove(self, entry: Entry, why: str) -> None:
        """Remove the record and the output; ``why`` is what its owner is told from now on."""
        self.forget(entry)
        self._gone[entry.id] = (entry.meta.owner, why)
        while len(self._gone) > REMEMBERED:
            del self._gone[next(iter(self._gone))]
        try:
            await asyncio.to_thread(self.folder.remove, entry.id)
        except OSError as error:
            logs.logger().warning("exec_output_not_removed", id=entry.id, error=str(error))
