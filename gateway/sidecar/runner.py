"""Starts commands and stops them all; runs none in this process and reads no output.

One zygote serves all commands and is started again when it has died. A command that runs depends on
its own shim alone: it goes on without the zygote.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.sidecar.command import Command
from gateway.sidecar.link import connect
from gateway.sidecar.status import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.sidecar.spec import Spec

_ZYGOTE = Path(__file__).with_name("zygote.py")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_START_SECONDS = 20.0

_TAKE_SECONDS = 5.0
"""For a shim to be forked. After so long a stopped zygote is woken; after twice that, replaced."""


class SidecarError(Exception):
    """Commands cannot be started at all; one sentence for a person."""


class Runner:
    """Runs commands through a zygote, on Linux. One per event loop.

    ``start`` it before secrets are read where that can be had, and ``stop`` it always.
    """

    def __init__(self) -> None:
        self._zygote: _Zygote | None = None
        self._starting = asyncio.Lock()
        self._commands: set[Command] = set()
        self._stopped = False

    @property
    def commands(self) -> frozenset[Command]:
        """Those with a living shim: running, or ended with survivors."""
        return frozenset(self._commands)

    async def start(self) -> None:
        """Start the zygote. Raises SidecarError."""
        await self._living_zygote()

    async def spawn(self, spec: Spec, begun: Callable[[Command], None] = lambda _: None) -> Command:
        """Start a command; it runs, or has failed to start, when this returns.

        ``begun`` gets it before that, so that it can be killed: then it is not started. A failure
        of the command's own is its status, ``spawn_failed``. Raises SidecarError where no command
        can be started.
        """
        for _ in range(2):
            try:
                command = await self._try(spec, begun)
            except OSError as error:
                reason = error.strerror or str(error)
                raise SidecarError(f"No command can be started: {reason}.") from None
            if command.accepted or command.status.final:
                return command
            # The zygote died with the request in its hands; no shim has had it, nothing has run.
        raise SidecarError("The process that starts commands dies: see standard error.")

    async def stop(self, seconds: float = 5.0) -> None:
        """End every command and the zygote; nothing of them is left after so many seconds or so.

        Half the time is for commands to end by themselves after SIGTERM.
        """
        self._stopped = True
        for command in self.commands:
            command.kill(signal.SIGTERM, Reason.SERVER_SHUTDOWN, int(seconds * 500))
        await self._all_closed(seconds)
        for command in self.commands:
            _kill_shim(command)
        await self._all_closed(1.0)
        for command in self.commands:
            command.abandon()
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.stop()

    async def _all_closed(self, seconds: float) -> None:
        waits = [asyncio.ensure_future(command.closed()) for command in self._commands]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=seconds)
        for wait in late:
            wait.cancel()

    async def _living_zygote(self) -> _Zygote:
        async with self._starting:
            if self._stopped:
                raise SidecarError("No command can be started any more: the server is stopping.")
            if self._zygote is not None and not self._zygote.alive:
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await _Zygote.start()
            return self._zygote

    async def _try(self, spec: Spec, begun: Callable[[Command], None]) -> Command:
        zygote = await self._living_zygote()
        command = Command(spec)
        command.watch(self._end_shim)
        ours, theirs = socket.socketpair()
        with theirs:
            await connect(command, ours, self._commands.discard)
            self._commands.add(command)
            begun(command)
            try:
                handed = await asyncio.to_thread(_files, spec, time.monotonic())
                try:
                    await zygote.send({"control": theirs.fileno(), **handed})
                finally:
                    _close(handed)
                # Closed before the wait: the end of the shim must be the end of the connection.
                theirs.close()
                await self._taken(command, zygote)
                await command.started()
            except BaseException:
                command.abandon()
                raise
        return command

    async def _taken(self, command: Command, zygote: _Zygote) -> None:
        """Wait until a shim has the command. A zygote that does not come to it is replaced: what it
        has not taken by then it finds without a caller, and does not run."""
        for way_out in (zygote.wake, zygote.kill):
            try:
                async with asyncio.timeout(_TAKE_SECONDS):
                    await command.taken()
            except TimeoutError:
                way_out()
            else:
                return
        command.abandon()
        async with self._starting:
            if self._zygote is zygote:
                self._zygote = None
        await zygote.stop()

    def _end_shim(self, pid: int) -> None:
        """It has not done its duty. The zygote then kills what it has left, if it is not stopped
        itself."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if self._zygote is not None:
            self._zygote.wake()


class _Zygote:
    """The process, and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], requests: socket.socket) -> None:
        self._process = process
        self._requests = requests
        self._sending = asyncio.Lock()

    @classmethod
    async def start(cls) -> _Zygote:
        """Start the process and wait until it serves. Raises SidecarError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            with theirs:
                process = await asyncio.to_thread(_start_zygote, theirs)
        except OSError as error:
            ours.close()
            reason = error.strerror or str(error)
            raise SidecarError(
                f"The process that starts commands cannot start: {reason}."
            ) from None
        zygote = cls(process, ours)
        loop = asyncio.get_running_loop()
        try:
            said = await asyncio.wait_for(loop.sock_recv(ours, 64), _START_SECONDS)
        except (OSError, TimeoutError):
            said = b""
        except BaseException:
            await zygote.stop()
            raise
        if said != b"ready":
            await zygote.stop()
            raise SidecarError(
                "The process that starts commands does not start: see standard error."
            )
        return zygote

    @property
    def alive(self) -> bool:
        """It has not ended, and is not about to: its socket closes before it can be collected."""
        try:
            return bool(self._requests.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def send(self, handed: dict[str, int]) -> None:
        """Hand descriptors over by name; they stay the caller's too."""
        data = json.dumps(list(handed)).encode()
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._requests, [data], list(handed.values()))
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    # It has died: the command's connection says so.
                    return
                else:
                    return

    def wake(self) -> None:
        """Let it go on, if somebody has stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is of no use any more."""
        self._process.kill()

    async def stop(self) -> None:
        """Let it go; it ends by itself when no shim is left, and is killed if not."""
        self._requests.close()
        if not await asyncio.to_thread(_has_ended, self._process, 2.0):
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(self._requests, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_writer(self._requests)


def _start_zygote(theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this Python, and a file of ours
        [sys.executable, "-I", "-S", "-X", "utf8", str(_ZYGOTE), str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=[theirs.fileno()],
        # Ctrl-C in a terminal is for the gateway, which then decides about the commands.
        start_new_session=True,
    )


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _files(spec: Spec, asked: float) -> dict[str, int]:
    """Descriptors with the request and the standard input; in a thread, for there can be much."""
    handed: dict[str, int] = {}
    try:
        handed["request"] = _memory(json.dumps(spec.request(asked)).encode())
        if spec.stdin:
            handed["stdin"] = _memory(spec.stdin)
        if spec.cwd_fd is not None:
            handed["cwd"] = os.dup(spec.cwd_fd)
    except BaseException:
        _close(handed)
        raise
    return handed


def _memory(data: bytes) -> int:
    """A file without a name that holds the data, and nothing else any more.

    As standard input it is read like any file: nobody has to write while it is read, so that a
    command which does not read cannot hold anything up.
    """
    descriptor = os.memfd_create("gateway", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _close(handed: dict[str, int]) -> None:
    for descriptor in handed.values():
        os.close(descriptor)


def _kill_shim(command: Command) -> None:
    """The last resort; the zygote then kills what it has left. Its connection is open: it lives."""
    if pid := command.shim_pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
