"""The report on one command as the gateway reads it; computes nothing but what an end means.

The shim writes the same fields (``gateway.sidecar.record``); here they have types.
"""

from __future__ import annotations

import errno
from enum import StrEnum

import msgspec


class State(StrEnum):
    """Where a command stands. All but the first three are final."""

    QUEUED = "queued"
    """Its turn has not come."""
    RUNNING = "running"
    OUTPUT_OPEN = "output_open"
    """The leader has ended and others hold its output open, which is drained on."""
    EXITED = "exited"
    SPAWN_FAILED = "spawn_failed"
    """Nothing was started: ``spawn_error`` says why."""
    INTERRUPTED = "interrupted"
    """Its shim died; how far the command came is not known."""


class Reason(StrEnum):
    """Why a command ended."""

    EXIT = "exit"
    TIMEOUT = "timeout"
    KILLED = "killed"
    CLIENT_GONE = "client_gone"
    OUTPUT_LIMIT = "output_limit"
    OUTPUT_OPEN = "output_open"
    """Others held the output open for longer than they may."""
    SERVER_SHUTDOWN = "server_shutdown"
    """The gateway stopped, or died."""


class Spill(msgspec.Struct, frozen=True, kw_only=True):
    """The file with the output; ``path`` is None where none was made."""

    path: str | None = None
    bytes: int = 0
    sha256: str | None = None
    error: str | None = None
    """The name of an errno, or ``output_limit``: the file is a prefix of the output then."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What the command has written to standard output and standard error.

    ``complete`` is true only when the end of the output was seen and every byte is in the spill.
    ``lines`` counts line ends; None where the output is too long to count.
    """

    complete: bool = False
    open: bool = False
    bytes: int = 0
    lines: int | None = 0
    spill: Spill = Spill()


class SpawnError(msgspec.Struct, frozen=True):
    """Why nothing was started; ``stage`` is ``cwd``, ``exec``, ``spill``, ``limits`` ..."""

    stage: str
    errno: int
    name: str
    message: str


class Shim(msgspec.Struct, frozen=True):
    """The process that looks after a command; ``started`` is in clock ticks since boot."""

    pid: int = 0
    started: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a command. Never both an exit code and a signal."""

    id: str
    state: State = State.RUNNING
    exit_code: int | None = None
    signal: int | None = None
    signal_name: str | None = None
    core_dumped: bool = False
    reason: Reason | None = None
    timed_out: bool = False
    output: Output = Output()
    survivors: int = 0
    """Processes that were left running at the end."""
    killed: int = 0
    """Processes that were signalled to end the command."""
    containment: str = "subreaper"
    started_at: str | None = None
    duration_ms: float | None = None
    """From exec to the end of the leader."""
    spawn_ms: float | None = None
    """From the request to exec."""
    drain_ms: float | None = None
    """From the end of the leader to the end of the output."""
    cpu_ms: float | None = None
    max_rss_kb: int | None = None
    """At least the size of what it was forked from: a shim, or the first of a sandbox."""
    spawn_error: SpawnError | None = None
    leader: int | None = None
    shim: Shim = Shim()
    warnings: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        """Nothing of it changes any more."""
        return self.state not in (State.QUEUED, State.RUNNING, State.OUTPUT_OPEN)

    @property
    def called_off(self) -> bool:
        """It was not started, for who had asked for it did not want it any more."""
        failure = self.spawn_error
        return failure is not None and failure.errno == errno.ECANCELED


class Message(msgspec.Struct, frozen=True, tag_field="event"):
    """One line from a shim."""


class Accepted(Message, frozen=True, tag="accepted"):
    """The shim is there; the command may be started from now on. No ``pid``: it is no process."""

    pid: int = 0


class Started(Message, frozen=True, tag="started"):
    """The command runs."""

    status: Status


class Progress(Message, frozen=True, tag="progress"):
    """Bytes of output so far, and how many of them can be read in the spill."""

    bytes: int
    spilled: int


class Answer(Message, frozen=True, tag="answer", kw_only=True):
    """The leader has ended and the output has not. ``head`` and ``tail`` are what there is."""

    status: Status
    head: bytes = b""
    tail: bytes = b""


class Final(Message, frozen=True, tag="final", kw_only=True):
    """The last word."""

    status: Status
    head: bytes = b""
    tail: bytes = b""


AnyMessage = Accepted | Started | Progress | Answer | Final

_decoder: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)


def read_message(line: bytes | bytearray) -> AnyMessage:
    """One line as a message. Raises msgspec.MsgspecError."""
    return _decoder.decode(line)


def read_status(data: bytes) -> Status:
    """What a ``status.json`` holds. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(data, type=Status)
