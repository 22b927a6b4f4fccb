"""The processes of one command, seen by the shim that adopted them; never another's.

A shim is a subreaper: whatever a command starts remains its descendant, also what has left its
session or has been forked twice. So there is a list to signal, and an end: when the kernel says
that no child is left, nothing of the command runs any more.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from typing import Protocol

from gateway.sidecar import kernel

HOLD = 0.25
"""Seconds for a leader to stand still. One that hangs in the kernel does not, nor does it end."""


class Family(Protocol):
    """What a session needs to know about processes, and do to them."""

    wait_status: int | None
    """Of the leader, once it has ended."""
    alone: bool
    """No process of the command is left."""

    @property
    def killed(self) -> int:
        """Processes that were signalled to end."""

    def reap(self) -> None:
        """Collect what has ended."""

    def hold(self) -> bool:
        """Stop the leader, so that it cannot end before it gets the next signal.

        False where it has ended, or is about to, without one. Blocks for :data:`HOLD` at most.
        """

    def signal(self, number: int) -> None:
        """Send a signal to every process of the command."""

    def living(self) -> int:
        """How many processes of the command there are."""

    def usage(self) -> tuple[float | None, int | None]:
        """CPU seconds and the largest resident size in KiB, of what has been reaped."""


class Descendants:
    """The children of this process, theirs and so on. It must be a subreaper."""

    def __init__(self, leader: int, *, wrapped: bool) -> None:
        self._leader = leader
        self._wrapped = wrapped
        self._signalled: set[tuple[int, int]] = set()
        self.wait_status: int | None = None
        self.alone = False

    @property
    def killed(self) -> int:
        """Processes that were sent a signal to end them."""
        return len(self._signalled)

    def reap(self) -> None:
        """Collect what has ended; nobody stays a zombie."""
        while not self.alone:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.alone = True
                return
            if pid == 0:
                return
            # Its number may be given again once it has been reaped.
            if pid == self._leader and self.wait_status is None:
                self.wait_status = status

    def hold(self) -> bool:
        """As in :class:`Family`. What has been stopped before stays so."""
        give_up = time.monotonic() + HOLD
        leader = kernel.process(self._leader) if self.wait_status is None else None
        if leader is not None:
            kernel.send(leader, signal.SIGSTOP)
        while True:
            self.reap()
            if self.wait_status is not None:
                return False
            standing = kernel.standing(self._leader)
            if standing is kernel.Standing.STOPPED:
                return True
            if time.monotonic() >= give_up:
                return standing is not kernel.Standing.ENDING
            # It does as soon as it runs; what it writes in the meantime stays in the pipe.
            select.poll().poll(1)

    def signal(self, number: int) -> None:
        """Send a signal to every descendant.

        The leader is a sandbox where the command is wrapped in one: its end kills what is within at
        once, so that only SIGKILL is for it.
        """
        for found in kernel.descendants(os.getpid()):
            spared = self._wrapped and found.pid == self._leader and number != signal.SIGKILL
            if not spared and kernel.send(found, number) and number != signal.SIGCONT:
                self._signalled.add((found.pid, found.started))

    def living(self) -> int:
        """How many there are."""
        return 0 if self.alone else len(kernel.descendants(os.getpid()))

    def usage(self) -> tuple[float | None, int | None]:
        """Sums of all that was waited for.

        The size is at least that of a shim, from which the leader was forked.
        """
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime, used.ru_maxrss
