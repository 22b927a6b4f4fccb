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
from typing import TYPE_CHECKING, Protocol

from gateway.sidecar import kernel

if TYPE_CHECKING:
    from gateway.sidecar.sandbox import Sandbox

HOLD = 0.25
"""Seconds for a leader to stand still. One that hangs in the kernel does not, nor does it end."""

ROUNDS = 50
"""Rounds of SIGKILL that a sandbox survives its processes, to tell how its leader ended."""


class Family(Protocol):
    """What a session needs to know about processes, and do to them."""

    wait_status: int | None
    """Of the leader, once it has ended."""
    alone: bool
    """No process of the command is left."""

    @property
    def killed(self) -> int:
        """Processes that were signalled to end."""

    def watch(self, poll: select.poll) -> None:
        """Have the poll end when there is news of what is not a child of this process."""

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

    def __init__(self, leader: int) -> None:
        self._init(kernel.process(leader) or kernel.Process(leader, os.getpid(), 0, alive=False))

    def _init(self, leader: kernel.Process) -> None:
        self.leader = leader
        self._signalled: set[tuple[int, int]] = set()
        self.wait_status: int | None = None
        self.alone = False

    @property
    def killed(self) -> int:
        """Processes that were sent a signal to end them."""
        return len(self._signalled)

    def watch(self, poll: select.poll) -> None:
        """The end of a child rings by itself."""

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
            if pid == self.leader.pid and self.wait_status is None:
                self.wait_status = status

    def hold(self) -> bool:
        """As in :class:`Family`. What has been stopped before stays so."""
        give_up = time.monotonic() + HOLD
        if self.wait_status is None:
            kernel.send(self.leader, signal.SIGSTOP)
        while True:
            self.reap()
            if self.wait_status is not None:
                return False
            standing = self._standing()
            if standing is kernel.Standing.STOPPED:
                return True
            if time.monotonic() >= give_up:
                return standing is not kernel.Standing.ENDING
            # It does as soon as it runs; what it writes in the meantime stays in the pipe.
            select.poll().poll(1)

    def _standing(self) -> kernel.Standing:
        now = kernel.process(self.leader.pid)
        if now is None or now.started != self.leader.started:
            return kernel.Standing.ENDING
        return kernel.standing(self.leader.pid)

    def signal(self, number: int) -> None:
        """Send a signal to every descendant."""
        for found in self._members():
            if kernel.send(found, number) and number != signal.SIGCONT:
                self._signalled.add((found.pid, found.started))

    def living(self) -> int:
        """How many there are."""
        return 0 if self.alone else len(self._members())

    def _members(self) -> list[kernel.Process]:
        """The processes of the command."""
        return kernel.descendants(os.getpid())

    def usage(self) -> tuple[float | None, int | None]:
        """Sums of all that was waited for.

        The size is at least that of a shim, from which the leader was forked.
        """
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime, used.ru_maxrss


class Boxed(Descendants):
    """Those in a sandbox: below ``outer``, a child of this process, which is none of the command's.

    Nor is the first process of the sandbox. It collects what ends in there and tells of the leader.
    """

    def __init__(self, outer: int, box: Sandbox) -> None:
        assert box.leader is not None
        self._init(box.leader)
        self._box = box
        self._frame = {outer, box.init}
        self._poll: select.poll | None = None
        self._rounds = 0
        self._usage: tuple[float, int] | None = None
        self._heard_all = False

    def watch(self, poll: select.poll) -> None:
        """The end of the leader is told through a socket."""
        self._poll = poll
        poll.register(self._box.report, select.POLLIN)

    def reap(self) -> None:
        """Collect what makes up the sandbox, and hear of what is collected within."""
        super().reap()
        if self._heard_all:
            return
        for told in self._box.hear():
            if not told.words:
                self._hear_no_more()
                return
            if told.words[0] == b"ended":
                self.wait_status = int(told.words[1])
            self._usage = float(told.words[-2]), int(told.words[-1])

    def _hear_no_more(self) -> None:
        self._heard_all = True
        if self._poll is not None:
            self._poll.unregister(self._box.report)
        self._box.report.close()
        if self.wait_status is None:
            # Whoever ended the sandbox: with its first process the kernel kills all others.
            self.wait_status = signal.SIGKILL

    def signal(self, number: int) -> None:
        """Send a signal to every process of the command.

        SIGKILL is for the sandbox as well, which ends whatever is forked in it: but not before it
        has told how the leader ended, if it comes to that.
        """
        super().signal(number)
        if number == signal.SIGKILL:
            self._rounds += 1
            if self.wait_status is not None or self._rounds > ROUNDS:
                for found in kernel.descendants(os.getpid()):
                    if found.pid in self._frame:
                        kernel.send(found, number)

    def usage(self) -> tuple[float | None, int | None]:
        """As it was told last; without the sandbox itself."""
        return self._usage or (None, None)

    def _members(self) -> list[kernel.Process]:
        return [found for found in super()._members() if found.pid not in self._frame]
