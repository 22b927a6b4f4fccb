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
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SET_PDEATHSIG = 1
SET_DUMPABLE = 4
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVS = 38

_EXITING = 0x4
"""Of the flags in ``/proc/PID/stat``: it has begun to exit (PF_EXITING)."""

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


class Standing(Enum):
    """What a process can still do."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Nothing, until somebody lets it run on: it does not end in between."""
    ENDING = "ending"
    """Nothing any more: it has ended, or is on the way and reaches no other end by a signal."""


def _stat(path: str) -> list[bytes]:
    """The fields of a ``stat`` below /proc from the state on; none where there is no process."""
    try:
        with open(f"/proc/{path}/stat", "rb") as file:
            # The name stands in parentheses and may itself hold some.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if len(fields) >= 20 else []


def _is_ending(fields: list[bytes]) -> bool:
    return not fields or fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _EXITING)


def process(pid: int) -> Process | None:
    """The process of that number, None where there is none (any more)."""
    fields = _stat(str(pid))
    if not fields:
        return None
    # A process whose main thread has ended is a zombie to look at, and yet runs on in others.
    several = int(fields[17]) > 1
    alive = not _is_ending(fields) or (several and standing(pid) is not Standing.ENDING)
    return Process(pid, int(fields[1]), int(fields[19]), alive)


def is_stopped(pid: int) -> bool:
    """Whether the process of that number has been stopped, as by SIGSTOP, and does nothing."""
    return _stat(str(pid))[:1] in ([b"T"], [b"t"])


def standing(pid: int) -> Standing:
    """What the process of that number can still do, with all of its threads."""
    found = _sweep(pid)
    # A thread that ends its process wakes those that were seen to stand still before it.
    return found if _sweep(pid) is found else Standing.RUNNING


def _sweep(pid: int) -> Standing:
    try:
        threads = [_stat(f"{pid}/task/{name}") for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return Standing.ENDING
    left = [fields[0] for fields in threads if not _is_ending(fields)]
    if not left:
        return Standing.ENDING
    return Standing.STOPPED if set(left) <= {b"T", b"t"} else Standing.RUNNING


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
