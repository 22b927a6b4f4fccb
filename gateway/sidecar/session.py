"""The life of one command from exec to the last byte: one poll loop; starts no process itself.

A command is over when its leader has ended *and* its pipe is at its end. The end of a process says
nothing about its output: what it has written may still be in the pipe, and what it has started may
write on. So nothing here ever stops draining because a process has ended.
"""

from __future__ import annotations

import base64
import math
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.sidecar import pipes
from gateway.sidecar.control import Control
from gateway.sidecar.flood import Flood
from gateway.sidecar.record import write_status

if TYPE_CHECKING:
    import socket

    from gateway.sidecar.family import Family
    from gateway.sidecar.kernel import ChildBell
    from gateway.sidecar.priority import Lowering
    from gateway.sidecar.record import Record
    from gateway.sidecar.sink import Sink

RESCAN = 0.02
"""Seconds between two rounds of SIGKILL: what was being forked in one is found by the next."""

GIVE_UP = 10.0
"""Seconds after the first SIGKILL. What is still there hangs in the kernel and cannot be killed."""

LAST_BYTES = 2.0
"""Seconds for the end of the pipe when no process of the command is left: others hold it open."""

PROGRESS = 0.05
"""Seconds between two messages of progress."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long, and what then; times in seconds. The words are those of ``spec.Spec``."""

    timeout: float
    kill_grace: float
    output_grace: float
    max_background: float
    on_output_open: str
    on_output_limit: str
    on_gone: str


@dataclass(slots=True)
class Ending:
    """A command that is being killed: asked first, then not asked any more."""

    kill_at: float
    """When SIGKILL is sent next."""
    sent: set[int]
    """Signals that its processes have been sent; each once, for a second one means more to some."""
    first_round: float | None = None
    """When it was sent first."""
    owed: int | None = None
    """Bytes of output in all when no process of the command was left."""
    drained_at: float | None = None
    """When those had been taken in."""

    def given_up(self, now: float) -> bool:
        """Killing has gone on for so long that it will not help any more."""
        return self.first_round is not None and now >= self.first_round + GIVE_UP


class Session:
    """Drains one command and ends it when it is time. ``control`` is to the gateway."""

    def __init__(
        self,
        record: Record,
        sink: Sink,
        family: Family,
        policy: Policy,
        *,
        pipe: int,
        control: socket.socket,
        directory: int,
        lowering: Lowering | None = None,
    ) -> None:
        self._record = record
        self._sink = sink
        self._family = family
        self._policy = policy
        self._pipe = pipe
        self._directory = directory
        self._lowering = lowering
        self._ending: Ending | None = None
        self._answered = False
        self._final = False
        self._progress_at = 0.0
        self._told = 0
        self._owed = 0
        self._held_since: float | None = None
        self._flood = Flood(pipes.capacity(pipe))
        # A command can read its output, and take what the poll told of. The flag is this end's own.
        os.set_blocking(pipe, False)
        self._poll = select.poll()
        self._poll.register(pipe, select.POLLIN)
        family.watch(self._poll)
        self._control = Control(control, self._poll)

    def run(self, bell: ChildBell | None, tick: float | None = None) -> None:
        """Until nothing is left to do; ``bell`` rings when a child ends, ``tick`` is in seconds."""
        if bell is not None:
            self._poll.register(bell.fileno(), select.POLLIN)
        self._save()
        self._send("started", self._report())
        while not self._over():
            ready = self._poll.poll(self._wait(tick))
            if bell is not None:
                bell.silence()
            for descriptor, events in ready:
                if descriptor == self._pipe:
                    self._drain(events)
                elif self._control.is_at(descriptor):
                    self._listen()
                    self._control.flush()
            self._family.reap()
            self._advance(time.monotonic())
            if self._lowering is not None:
                self._lowering.advance(time.monotonic())

    # --- what comes in ------------------------------------------------------------------------

    def _drain(self, events: int) -> None:
        self._flood.gather(events)
        size = self._sink.fill(self._pipe)
        self._flood.note(size or 0)
        if size == 0:
            self._record.eof_at = time.monotonic()
            self._close_pipe()
        elif self._sink.error == "output_limit" and self._policy.on_output_limit == "kill":
            self._end("output_limit")

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            self._poll.unregister(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _listen(self) -> None:
        heard = self._control.hear()
        if heard is None:
            self._gone()
            return
        for told in heard:
            self._end(told["reason"], told["signal"], told.get("grace"))

    def _gone(self) -> None:
        """The gateway has died, or does not want to know any more."""
        # Once it is over there is only what the command has left behind, and nobody to ask for it.
        if self._policy.on_gone == "kill" or self._final:
            self._end("server_shutdown")

    # --- what follows from it -----------------------------------------------------------------

    def _advance(self, now: float) -> None:
        self._note_exit(now)
        if self._ending is not None:
            self._press(self._ending, now)
        elif not self._final:
            self._keep_time(now)
        if not self._final:
            if self._finished(now):
                self._finish(now)
            else:
                self._tell_progress(now)

    def _note_exit(self, now: float) -> None:
        record, family = self._record, self._family
        if record.exit_at is None and family.wait_status is not None:
            record.wait_status, record.exit_at = family.wait_status, now
            self._owed = self._sink.seen + pipes.unread(self._pipe)

    def _keep_time(self, now: float) -> None:
        record, policy = self._record, self._policy
        assert record.exec_at is not None
        if record.exit_at is None or policy.on_output_open == "wait":
            if now >= record.exec_at + policy.timeout:
                self._time_out(now)
            return
        # The grace begins when all is drained that the leader can have written: a slow disk is not
        # a process that holds the pipe.
        if self._held_since is None and self._has_all(self._owed):
            self._held_since = now
        if record.eof_at is not None:
            return
        if now >= record.exit_at + policy.max_background:
            self._end("output_open")
        elif self._held_since is not None and now >= self._held_since + policy.output_grace:
            if pipes.has_no_writer(self._pipe):
                return
            if policy.on_output_open == "kill":
                self._end("output_open")
            elif not self._answered:
                self._answer(now)

    def _time_out(self, now: float) -> None:
        # It may have ended since the last look: then it has done so by itself.
        self._family.hold()
        self._note_exit(now)
        over = self._record.exit_at is not None
        if over and (self._policy.on_output_open != "wait" or pipes.has_no_writer(self._pipe)):
            return
        self._record.timed_out = True
        self._end("output_open" if over else "timeout")

    def _answer(self, now: float) -> None:
        """The leader has ended, the output has not: tell what there is, and go on."""
        self._answered = True
        self._record.state, self._record.reason = "output_open", "exit"
        self._tally()
        self._save()
        self._send("answer", self._report(now), kept=True)

    def _end(self, reason: str, number: int = signal.SIGTERM, grace: float | None = None) -> None:
        """Begin to kill; a second time only makes it more urgent."""
        now = time.monotonic()
        wait = 0.0 if number == signal.SIGKILL else self._policy.kill_grace
        kill_at = now + (wait if grace is None else min(wait, grace))
        if self._ending is not None:
            self._ending.kill_at = min(self._ending.kill_at, kill_at)
            self._ask(self._ending, number)
            return
        self._ending = Ending(kill_at, set())
        if not self._final:
            held = self._family.hold()
            self._note_exit(now)
            self._give_reason(reason, held=held)
        self._ask(self._ending, number)

    def _ask(self, ending: Ending, number: int) -> None:
        """Send a signal that asks, if it has not been sent."""
        if number != signal.SIGKILL and number not in ending.sent:
            ending.sent.add(number)
            self._family.signal(number)
            # What is stopped gets no other signal but SIGKILL.
            self._family.signal(signal.SIGCONT)

    def _give_reason(self, reason: str, *, held: bool) -> None:
        """Why the command ends. One that has ended, or cannot be ``held`` because it does so right
        now, did so for none of these reasons: what is ended now is what it has left behind."""
        record = self._record
        if held or reason == "output_open":
            record.reason = reason
            return
        record.reason, record.timed_out = "exit", False
        if self._family.living():
            record.warnings.append(f"processes that it had left behind were ended: {reason}")

    def _press(self, ending: Ending, now: float) -> None:
        if not self._family.alone:
            if now >= ending.kill_at:
                ending.first_round = ending.first_round or now
                self._family.signal(signal.SIGKILL)
                ending.kill_at = time.monotonic() + RESCAN
            return
        if ending.owed is None:
            ending.owed = self._sink.seen + pipes.unread(self._pipe)
        if ending.drained_at is None and self._has_all(ending.owed):
            ending.drained_at = now

    def _has_all(self, owed: int) -> bool:
        """So many bytes have been taken in, or others have taken the rest."""
        return self._sink.seen >= owed or pipes.unread(self._pipe) == 0

    def _finished(self, now: float) -> bool:
        ended, eof = self._record.exit_at is not None, self._record.eof_at is not None
        ending = self._ending
        if ending is None:
            return ended and eof
        if ending.given_up(now):
            return True
        if not self._family.alone:
            return False
        return eof or (ending.drained_at is not None and now >= ending.drained_at + LAST_BYTES)

    def _finish(self, now: float) -> None:
        record = self._record
        self._final = True
        self._close_pipe()
        self._sink.close()
        record.state = "exited"
        record.reason = record.reason or "exit"
        self._tally()
        if record.eof_at is None:
            record.warnings.append("the end of the output was not seen: the pipe is held open")
        if record.wait_status is None:
            record.warnings.append("how the command ended is not known: it could not be killed")
        self._save()
        self._send("final", self._report(now), kept=True)
        if not self._control.open and self._ending is None:
            self._end("server_shutdown")

    def _tally(self) -> None:
        record, family = self._record, self._family
        record.survivors, record.killed = family.living(), family.killed
        record.cpu_seconds, record.max_rss_kb = family.usage()

    def _over(self) -> bool:
        if not self._final or self._control.busy:
            return False
        given_up = self._ending is not None and self._ending.given_up(time.monotonic())
        return self._family.alone or given_up

    # --- what goes out ------------------------------------------------------------------------

    def _report(self, now: float | None = None) -> dict[str, Any]:
        return self._record.as_dict(self._sink, time.monotonic() if now is None else now)

    def _save(self) -> None:
        try:
            write_status(self._directory, self._report())
        except OSError as error:
            self._record.warnings.append(f"status.json was not written: {error.strerror}")

    def _send(self, event: str, status: dict[str, Any], *, kept: bool = False) -> None:
        message: dict[str, Any] = {"event": event, "status": status}
        if kept:
            message["head"] = base64.b64encode(self._sink.head).decode()
            message["tail"] = base64.b64encode(self._sink.tail).decode()
        self._control.put(message)

    def _tell_progress(self, now: float) -> None:
        # Where the gateway does not read, a newer one will do.
        if self._sink.seen > self._told and now >= self._progress_at and not self._control.busy:
            self._told = self._sink.seen
            self._progress_at = now + PROGRESS
            told = {"event": "progress", "bytes": self._told, "spilled": self._sink.written}
            self._control.put(told)

    def _wait(self, tick: float | None) -> float | None:
        """Milliseconds to the next thing to do; None: only what comes in can change anything."""
        times = [] if tick is None else [time.monotonic() + tick]
        if self._lowering is not None:
            times.append(self._lowering.next_at)
        if self._ending is not None:
            times.append(self._next_in(self._ending))
        elif not self._final:
            times.append(self._next_deadline())
        if not self._final and self._sink.seen > self._told and not self._control.busy:
            times.append(self._progress_at)
        if not times or (soonest := min(times)) == math.inf:
            return None
        return max(0.0, math.ceil((soonest - time.monotonic()) * 1000))

    def _next_deadline(self) -> float:
        record, policy = self._record, self._policy
        assert record.exec_at is not None
        if record.exit_at is None or policy.on_output_open == "wait":
            return record.exec_at + policy.timeout
        background = record.exit_at + policy.max_background
        if self._answered:
            return background
        if self._held_since is None:
            return min(background, time.monotonic() + RESCAN)
        return min(background, self._held_since + policy.output_grace)

    def _next_in(self, ending: Ending) -> float:
        if self._final and self._family.alone:
            return math.inf  # the gateway has not read the last word: the poll tells when it does
        if not self._family.alone:
            return ending.kill_at
        if ending.drained_at is None:
            return time.monotonic() + RESCAN
        return ending.drained_at + LAST_BYTES
