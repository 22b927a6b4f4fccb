"""Runs commands where there is no Linux: in threads of this process; adopts no one's children.

The loop, the records and the messages are those of a shim. What differs is said as ``containment``
``process_group``: what leaves the group is not found, and a gateway that dies takes the pipe along.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

from gateway.sidecar import record, shim
from gateway.sidecar.command import Command
from gateway.sidecar.family import HOLD
from gateway.sidecar.link import connect
from gateway.sidecar.runner import Runner, SidecarError
from gateway.sidecar.session import Session
from gateway.sidecar.sink import Sink
from gateway.sidecar.status import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.sidecar.spec import Spec

_TICK = 0.05
"""Seconds between two looks whether the leader has ended: nothing rings here."""


def make_runner() -> Runner | ThreadRunner:
    """The runner for this system."""
    return Runner() if sys.platform == "linux" else ThreadRunner()


class ThreadRunner:
    """A thread per command; the interface is that of ``runner.Runner``."""

    def __init__(self) -> None:
        self._commands: set[Command] = set()
        self._stopped = False

    @property
    def commands(self) -> frozenset[Command]:
        """Those that run, or ended with survivors."""
        return frozenset(self._commands)

    async def start(self) -> None:
        """Nothing has to be started."""

    async def spawn(self, spec: Spec, begun: Callable[[Command], None] = lambda _: None) -> Command:
        """As ``runner.Runner.spawn``."""
        if self._stopped:
            raise SidecarError("No command can be started any more: the server is stopping.")
        command = Command(spec)
        ours, theirs = socket.socketpair()
        await connect(command, ours, self._commands.discard)
        self._commands.add(command)
        begun(command)
        name = f"command-{spec.id}"
        asked = time.monotonic()
        threading.Thread(target=_main, args=(spec, theirs, asked), name=name, daemon=True).start()
        try:
            await command.started()
        except BaseException:
            command.abandon()
            raise
        return command

    async def stop(self, seconds: float = 5.0) -> None:
        """End every command, with SIGKILL when half of the time is over."""
        self._stopped = True
        for command in self.commands:
            command.kill(signal.SIGTERM, Reason.SERVER_SHUTDOWN, int(seconds * 500))
        waits = [asyncio.ensure_future(command.closed()) for command in self._commands]
        if waits:
            _, late = await asyncio.wait(waits, timeout=seconds)
            for wait in late:
                wait.cancel()


class ProcessGroup:
    """The leader, and what has stayed in its process group."""

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self._leader = leader
        self.wait_status: int | None = None
        self.alone = False
        self.killed = 0
        self._swept = False
        self._held = False

    def watch(self, poll: select.poll) -> None:
        """There is none: the session looks every now and then."""

    def reap(self) -> None:
        """Collect the leader; the others belong to somebody else."""
        if self.wait_status is None:
            pid, status = os.waitpid(self._leader.pid, os.WNOHANG)
            if pid == 0:
                return
            self._collect(status)
        # As long as the group has a member its number is not given again. None survives SIGKILL;
        # zombies stay members until somebody collects them.
        self.alone = self.alone or self._swept or not self._send(0)

    def hold(self) -> bool:
        """As in ``family.Family``; who waits for a child is told that it stands still, too."""
        give_up = time.monotonic() + HOLD
        if self.wait_status is None and not self._held:
            os.kill(self._leader.pid, signal.SIGSTOP)
        while self.wait_status is None and not self._held:
            pid, status = os.waitpid(self._leader.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                # It is told once.
                self._held = True
            elif pid:
                self._collect(status)
            elif time.monotonic() >= give_up:
                return True
            else:
                select.select([], [], [], 0.001)
        return self._held

    def signal(self, number: int) -> None:
        """Send a signal to the group; it is counted as one process."""
        if self.alone or not self._send(number):
            return
        if number == signal.SIGCONT:
            self._held = False
        else:
            self.killed = 1
            self._swept = number == signal.SIGKILL

    def living(self) -> int:
        """1 stands for any number."""
        return 0 if self.alone else 1

    def usage(self) -> tuple[float | None, int | None]:
        """Not known of one command among others."""
        return None, None

    def _collect(self, status: int) -> None:
        self.wait_status, self._held = status, False
        self._leader.returncode = os.waitstatus_to_exitcode(status)

    def _send(self, number: int) -> bool:
        try:
            os.killpg(self._leader.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # macOS says so of a group of zombies; elsewhere of those of another user.
            return sys.platform != "darwin"
        return True


def _main(spec: Spec, control: socket.socket, asked: float) -> None:
    with control:
        try:
            control.sendall(b'{"event":"accepted"}\n')
        except OSError:
            # Who asked for it has gone before it was begun.
            return
        request = spec.request(asked) | {"containment": "process_group"}
        made = record.Record(
            id=spec.id, directory=spec.directory, containment="process_group", asked=asked
        )
        try:
            _run(spec, request, made, control)
        except record.SpawnFailed as failure:
            shim.report_failure(made, failure, control)


def _run(spec: Spec, request: dict[str, Any], made: record.Record, control: socket.socket) -> None:
    directory, spill = record.make_directory(spec.directory)
    try:
        leader, read = _start(spec, spill)
        made.leader, made.exec_at = leader.pid, time.monotonic()
        Session(
            made,
            Sink(spill, shim.bounds_of(request), os.path.join(spec.directory, record.SPILL)),
            ProcessGroup(leader),
            shim.policy_of(request),
            pipe=read,
            control=control,
            directory=directory,
        ).run(None, _TICK)
    finally:
        os.close(directory)


def _start(spec: Spec, spill: int) -> tuple[subprocess.Popen[bytes], int]:
    """The leader, and where its output can be read. Raises SpawnFailed, the spill closed."""
    try:
        read, write = os.pipe()
    except OSError as error:
        os.close(spill)
        raise record.SpawnFailed("pipe", error.errno or errno.EMFILE) from None
    try:
        return _execute(spec, write), read
    except record.SpawnFailed:
        os.close(read)
        os.close(spill)
        raise
    finally:
        os.close(write)


def _execute(spec: Spec, output: int) -> subprocess.Popen[bytes]:
    if spec.wrap:
        raise record.SpawnFailed("sandbox", errno.ENOSYS)
    user: dict[str, Any] = {}
    if spec.run_as is not None:
        user = {"user": spec.run_as[0], "group": spec.run_as[1], "extra_groups": []}
    with tempfile.TemporaryFile() as stdin:
        stdin.write(spec.stdin)
        stdin.seek(0)
        try:
            return subprocess.Popen(  # noqa: S603 - running what it is told to is its purpose
                spec.full_argv(),
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=spec.env,
                cwd=spec.cwd,
                umask=spec.umask,
                start_new_session=True,
                **user,
            )
        except ValueError:
            raise record.SpawnFailed("exec", errno.EINVAL) from None
        except OSError as error:
            stage = "cwd" if error.filename == spec.cwd else "exec"
            raise record.SpawnFailed(stage, error.errno or errno.EIO) from None
