"""What the Linux kernel offers and Python's library does not; imports nothing of the gateway.

Processes are told by pid *and* start time, and signalled through a pidfd: a number that has been
given to another process in the meantime is never hit.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SET_PDEATHSIG = 1
SET_DUMPABLE = 4
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process. Raises OSError where the kernel refuses."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True, slots=True)
class Process:
    """One process as ``/proc/PID/stat`` shows it; ``started`` is in clock ticks since boot."""

    pid: int
    parent: int
    started: int
    alive: bool


def process(pid: int) -> Process | None:
    """The process of that number, None where there is none (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may itself hold some.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    # A process whose main thread has ended is a zombie to look at, and yet runs on in others.
    alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    return Process(pid, int(fields[1]), int(fields[19]), alive)


def is_stopped(pid: int) -> bool:
    """Whether the process of that number has been stopped, as by SIGSTOP, and does nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])
    except OSError:
        return False


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := process(int(name))) is not None:
            yield found


def descendants(root: int, without: frozenset[int] | set[int] = frozenset()) -> list[Process]:
    """All living descendants of a process, whatever their session or process group.

    Nothing below the pids in ``without`` is listed, nor are they themselves.
    """
    children: dict[int, list[Process]] = {}
    for found in _processes():
        children.setdefault(found.parent, []).append(found)
    listed: list[Process] = []
    todo = [root]
    while todo:
        for child in children.pop(todo.pop(), ()):
            if child.pid not in without:
                todo.append(child.pid)
                listed.append(child)
    return [found for found in listed if found.alive]


def send(target: Process, number: int) -> bool:
    """Signal exactly this process; whether it was there and the signal was allowed."""
    try:
        handle = os.pidfd_open(target.pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            return False
        return _send_by_number(target, number)
    try:
        # The handle was opened after the look into /proc: one more look tells that it is the same.
        now = process(target.pid)
        if now is None or now.started != target.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _send_by_number(target: Process, number: int) -> bool:
    now = process(target.pid)
    if now is None or now.started != target.started:
        return False
    try:
        os.kill(target.pid, number)
    except OSError:
        return False
    return True


class ChildBell:
    """A descriptor that becomes readable when a child has ended. One per process.

    It takes SIGCHLD over; a fork that makes a bell of its own must :meth:`drop` the parent's.
    """

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read.fileno()

    def silence(self) -> None:
        """Take in what has rung so far; before looking for ended children, never after."""
        try:
            while self._read.recv(4096):
                pass
        except BlockingIOError:
            return

    def drop(self) -> None:
        """Close the descriptors; rings no more."""
        signal.set_wakeup_fd(-1)
        self._read.close()
        self._write.close()


def _heard(_number: int, _frame: object) -> None:
    """Without a handler of Python's there is no wakeup."""
