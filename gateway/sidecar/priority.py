"""Makes commands, and what drains them, give way to the relay; takes no privilege for it.

On Linux a niceness alone does little. Where the scheduler groups processes by session (autogroup in
sched(7), on by default outside of control groups) it counts only among those of one session, and
each command has one: beside four of them the relay would get a sixth of a busy processor. So their
sessions are made nice as well.
"""

from __future__ import annotations

import errno
import math
import os
import select
from contextlib import suppress

from gateway.sidecar import kernel

NICE = 5
"""Steps; so many give up two thirds of a processor that others want, too (sched(7))."""

FIRST_PAUSE = 0.1
"""Seconds: without privileges one session of the whole machine can be made nice in this time."""

LONGEST_PAUSE = 5.0

TRIES = 5
"""For a process that does nothing else yet; with the pauses between them."""


def lower() -> None:
    """Make this process nicer, what it will fork, and its session. Blocks, but not for a second."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    process = kernel.process(os.getpid())
    for _ in range(TRIES):
        if process is None or _lower_session(process):
            return
        select.select([], [], [], FIRST_PAUSE)


class Lowering:
    """Makes the session of another process nice, as soon as the kernel allows it."""

    def __init__(self, process: kernel.Process) -> None:
        self._process = process
        self._pause = FIRST_PAUSE
        self.next_at = 0.0
        """When to try, on the monotonic clock; infinite once there is nothing left to do."""

    def advance(self, now: float) -> None:
        """Try it if it is time; ever more seldom where it is never allowed."""
        if now < self.next_at:
            return
        done = _lower_session(self._process)
        self.next_at = math.inf if done else now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _lower_session(process: kernel.Process) -> bool:
    """False where it is to be tried again."""
    try:
        file = os.open(f"/proc/{process.pid}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        # It has ended, or this kernel has no such groups.
        return True
    try:
        # The file is that of one process: one more look tells whether it is the right one.
        found = kernel.process(process.pid)
        if found is not None and found.started == process.started:
            os.write(file, b"%d" % NICE)
    except OSError as error:
        return error.errno != errno.EAGAIN
    finally:
        os.close(file)
    return True
