"""The numbers of the sidecar: commands, outputs, what was lost. Holds no command and no output.

Every label is from a closed set. What matters most is ``gateway_exec_incomplete_total``: each
increase is an output that is not all there, which its client was told.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.observe.snapshot import Family, Kind, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

OUTCOMES = (
    "exit0", "nonzero", "signal", "timeout", "killed", "client_gone", "output_limit",
    "server_shutdown", "spawn_failed", "interrupted", "rejected",
)  # fmt: skip
INCOMPLETE = ("output_limit", "client_limit", "write_error", "interrupted", "end_not_seen")
OTHER = "other"

_ERRNOS = frozenset(errno.errorcode.values())
_SIGNALS = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGKILL"})

REQUESTS = Family(
    "gateway_exec_requests_total",
    Kind.COUNTER,
    ("outcome",),
    "Commands asked for, by what became of them.",
)
RUNNING = Family("gateway_exec_running", Kind.GAUGE_SUM, (), "Commands that run now.")
QUEUED = Family("gateway_exec_queued", Kind.GAUGE_SUM, (), "Commands that wait for their turn.")
DURATION = Family(
    "gateway_exec_duration_seconds", Kind.HISTOGRAM, (), "From exec to the end of the command."
)
SPAWN = Family("gateway_exec_spawn_seconds", Kind.HISTOGRAM, (), "From the request's turn to exec.")
DRAIN = Family(
    "gateway_exec_drain_after_exit_seconds",
    Kind.HISTOGRAM,
    (),
    "From the end of the command to the end of its output.",
)
OUTPUT_BYTES = Family(
    "gateway_exec_output_bytes_total", Kind.COUNTER, (), "Bytes of output of commands that ended."
)
SPILL_BYTES = Family(
    "gateway_exec_spill_bytes", Kind.GAUGE_SUM, (), "Bytes of all outputs on the disk."
)
WRITE_ERRORS = Family(
    "gateway_exec_spill_write_errors_total",
    Kind.COUNTER,
    ("errno",),
    "Outputs that could not be written to their end.",
)
INCOMPLETE_OUTPUTS = Family(
    "gateway_exec_incomplete_total",
    Kind.COUNTER,
    ("reason",),
    "Commands that ended with an output that is not all there.",
)
OUTPUT_OPEN = Family(
    "gateway_exec_output_open_total",
    Kind.COUNTER,
    (),
    "Answers given while something left behind held the output open.",
)
KILLED = Family(
    "gateway_exec_killed_processes_total",
    Kind.COUNTER,
    ("signal",),
    "Processes signalled to end a command, by the signal that was sent first.",
)
SURVIVORS = Family(
    "gateway_exec_survivors_total",
    Kind.COUNTER,
    (),
    "Processes that commands left running at their end.",
)
SHIM_LOST = Family(
    "gateway_exec_shim_lost_total",
    Kind.COUNTER,
    (),
    "Commands whose watching process died before them.",
)
DISK_FREE = Family(
    "gateway_exec_disk_free_bytes", Kind.GAUGE_MAX, (), "Room on the disk of the outputs."
)
RANGES = Family(
    "gateway_exec_range_requests_total", Kind.COUNTER, (), "Requests for a part of an output."
)

EXEC_FAMILIES: tuple[Family, ...] = (
    REQUESTS, RUNNING, QUEUED, DURATION, SPAWN, DRAIN, OUTPUT_BYTES, SPILL_BYTES, WRITE_ERRORS,
    INCOMPLETE_OUTPUTS, OUTPUT_OPEN, KILLED, SURVIVORS, SHIM_LOST, DISK_FREE, RANGES,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What is counted of a command that has ended; times in seconds, None where not known."""

    outcome: str
    incomplete: str | None
    write_error: str | None
    output_bytes: int
    killed: int
    kill_signal: str
    survivors: int
    duration: float | None
    spawn: float | None
    drain: float | None


@dataclass(frozen=True, slots=True)
class Gauges:
    """What stands now."""

    running: int
    queued: int
    spill_bytes: int
    disk_free: int


class ExecMetrics:
    """The numbers of one sidecar. Not thread-safe: the event loop's alone."""

    def __init__(self) -> None:
        self.gauges: Callable[[], Gauges] = lambda: Gauges(0, 0, 0, 0)
        """Asked at each scrape; the sidecar sets it."""
        self._total = Snapshot()
        # A counter that appears with its first increase has none for Prometheus: 0 must be seen.
        for outcome in OUTCOMES:
            self._total.count(REQUESTS, (outcome,), 0)
        for reason in INCOMPLETE:
            self._total.count(INCOMPLETE_OUTPUTS, (reason,), 0)
        for family in (OUTPUT_BYTES, OUTPUT_OPEN, SURVIVORS, SHIM_LOST, RANGES):
            self._total.count(family, (), 0)

    def ended(self, end: Ended) -> None:
        """A command has ended, and its output, or it could not be started."""
        total = self._total
        total.count(REQUESTS, (_known(end.outcome, OUTCOMES),))
        total.count(OUTPUT_BYTES, (), end.output_bytes)
        total.count(SURVIVORS, (), end.survivors)
        if end.outcome == "interrupted":
            total.count(SHIM_LOST, ())
        if end.incomplete is not None:
            total.count(INCOMPLETE_OUTPUTS, (_known(end.incomplete, INCOMPLETE),))
        if end.write_error is not None:
            total.count(WRITE_ERRORS, (_known(end.write_error, _ERRNOS),))
        if end.killed:
            total.count(KILLED, (_known(end.kill_signal, _SIGNALS),), end.killed)
        for family, seconds in ((DURATION, end.duration), (SPAWN, end.spawn), (DRAIN, end.drain)):
            if seconds is not None:
                total.observe(family, (), seconds)

    def rejected(self) -> None:
        """A command was refused before anything ran."""
        self._total.count(REQUESTS, ("rejected",))

    def output_open(self) -> None:
        """An answer was given while something held the output open."""
        self._total.count(OUTPUT_OPEN, ())

    def range_request(self) -> None:
        """A part of an output was asked for."""
        self._total.count(RANGES, ())

    def snapshot(self) -> Snapshot:
        """Everything up to now."""
        taken, now = self._total.copy(), self.gauges()
        taken.gauge(RUNNING, (), now.running)
        taken.gauge(QUEUED, (), now.queued)
        taken.gauge(SPILL_BYTES, (), now.spill_bytes)
        taken.gauge(DISK_FREE, (), now.disk_free)
        return taken


def _known(value: str, known: tuple[str, ...] | frozenset[str]) -> str:
    return value if value in known else OTHER
