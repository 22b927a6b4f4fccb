"""One sandbox as its shim sees it: what is handed to its first process, and what that tells.

The program that makes it (bwrap) gets none of the command's environment and none of its output: it
has neither a say in what the command writes, nor does it keep the pipe open. What it complains of
goes to a file and is told where no sandbox came about.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.sidecar import kernel
from gateway.sidecar.record import SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
"""The interpreter itself: of an environment (venv) the sandbox may not see enough."""

PLACES = tuple(sorted({os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix)}))
"""The directories that it needs."""

_MAX_WORDS = 500
"""Characters of a complaint that are told."""

_NONE = "no sandbox could be made"

_CREDENTIALS = struct.Struct("3i")

with open(os.path.join(os.path.dirname(__file__), "init.py"), "rb") as _file:
    _INIT = marshal.dumps(compile(_file.read(), "init.py", "exec", dont_inherit=True))


@dataclass(frozen=True, slots=True)
class Told:
    """A message of the first process: its words, and the pid of who sent it, as seen from here."""

    words: list[bytes]
    sender: int


class Sandbox:
    """The descriptors of one sandbox. ``output`` is the pipe for the command, and stays open here.

    Raises SpawnFailed where they cannot be made.
    """

    def __init__(self, request: dict[str, Any], limits: list[tuple[int, int]], output: int) -> None:
        self._wrap: list[str] = request["wrap"]
        self._output = output
        self.leader: kernel.Process | None = None
        self.init = 0
        """The pid of the first process."""
        try:
            plan = {
                "argv": [os.fsencode(word) for word in request["argv"]],
                "env": {os.fsencode(k): os.fsencode(v) for k, v in request["env"].items()},
                "limits": limits,
            }
            self._code, self._plan = _file_of(_INIT), _file_of(marshal.dumps(plan))
            self._complaints = _file_of(b"")
            self.report, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # Whoever sends is told by its number in this namespace, which it does not know itself.
            self.report.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        except UnicodeError:
            raise SpawnFailed("exec", errno.EINVAL) from None
        except OSError as error:
            raise SpawnFailed("sandbox", error.errno or errno.EMFILE) from None

    def argv(self) -> list[str]:
        """What is to be executed."""
        run = f"import marshal; exec(marshal.load(open({self._code}, 'rb')))"
        handed = (self._plan, self._output, self._theirs.fileno())
        return [*self._wrap, PYTHON, "-I", "-S", "-c", run, *map(str, handed)]

    def hand_over(self) -> None:
        """In the process that becomes the sandbox: let it have the descriptors."""
        for descriptor in (self._code, self._plan, self._output, self._theirs.fileno()):
            os.set_inheritable(descriptor, True)
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
        os.dup2(self._complaints, 2)

    def await_start(self, seconds: float, control: int) -> SpawnFailed | None:
        """Wait until the command has been executed, or what kept it from that. Blocks.

        ``control`` is the socket to the gateway: who is heard there before has changed his mind.
        """
        self._theirs.close()
        for descriptor in (self._code, self._plan):
            os.close(descriptor)
        give_up = time.monotonic() + seconds
        try:
            while True:
                told = self._next(give_up - time.monotonic())
                if told is None:
                    late = f"{_NONE}: it takes too long"
                    return SpawnFailed("sandbox", errno.ETIMEDOUT, late)
                if not told.words:
                    return SpawnFailed("sandbox", errno.EPERM, self._why())
                if told.words[0] == b"failed":
                    return SpawnFailed(told.words[1].decode(), int(told.words[2]))
                if told.words[0] == b"started":
                    self.init = told.sender
                    return None if self.leader else SpawnFailed("sandbox", errno.ESRCH)
                # Until here it has not begun; from here on it has, and can only be killed.
                if select.select([control], [], [], 0)[0]:
                    return SpawnFailed("start", errno.ECANCELED)
                self.leader = kernel.process(told.sender)
                self.report.send(b"go")
        except OSError as error:
            return SpawnFailed("sandbox", error.errno or errno.EIO)
        finally:
            os.close(self._complaints)
            self.report.setblocking(False)

    def explain(self, failure: SpawnFailed) -> SpawnFailed:
        """The same, with the program's name where it could not be executed."""
        if failure.stage == "sandbox":
            why = f"{_NONE}: {self._wrap[0]}: {os.strerror(failure.number)}"
            return SpawnFailed(failure.stage, failure.number, why)
        return failure

    def hear(self) -> Iterator[Told]:
        """What has come since. A message without words is the last: the first process has ended."""
        try:
            while (told := self._receive()).words:
                yield told
        except BlockingIOError:
            return
        yield told

    def _next(self, seconds: float) -> Told | None:
        """The next message; None where there is none in time."""
        poll = select.poll()
        poll.register(self.report, select.POLLIN)
        return self._receive() if poll.poll(max(0.0, seconds * 1000)) else None

    def _receive(self) -> Told:
        size = socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            data, ancillary, _, _ = self.report.recvmsg(256, size)
        except ConnectionResetError:
            # It has ended with something unread, which is told once, before what it had said.
            data, ancillary, _, _ = self.report.recvmsg(256, size)
        sender = 0
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                sender = _CREDENTIALS.unpack(value)[0]
        return Told(data.split(), sender)

    def _why(self) -> str:
        said = os.pread(self._complaints, 65536, 0).decode(errors="replace")
        said = " ".join(said.split())[-_MAX_WORDS:]
        return f"{_NONE}: {said.rstrip('.') or 'it ended without a word'}"


def _file_of(data: bytes) -> int:
    """A file without a name that holds this, to be read from its beginning."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
