"""The vocabulary of streams: kinds, phases, verdicts, faults and the reader interface. Decides
nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Protocol

GAP_BUCKETS: tuple[float, ...] = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
"""Upper bounds in seconds of every time histogram of the gateway; one more bucket (+Inf)
follows."""


class Kind(Enum):
    """What one event means for the stream it is in."""

    HEARTBEAT = "heartbeat"
    """The line is alive and nothing more: never moves the stall clock."""
    STATE = "state"
    """Progress that is not content: a role chunk, a block start, usage."""
    CONTENT = "content"
    """Text, reasoning, refusal, tool name or arguments, audio."""
    FINISH = "finish"
    """The protocol's finish frame (of one choice, where there are several), without content."""
    ERROR = "error"
    """The provider says that it failed, or finishes with a reason that is a failure."""
    OPAQUE = "opaque"
    """Not understood: counts as progress, relayed as it is."""


class Phase(StrEnum):
    """Where in its life a stream is; a metric label."""

    BEFORE_CONTENT = "before_content"
    IN_TEXT = "in_text"
    IN_REASONING = "in_reasoning"
    IN_TOOL_CALL = "in_tool_call"
    AFTER_FINISH = "after_finish"


class Verdict(StrEnum):
    """How a stream ended. The order of evidence: error frame > finish frame > ``[DONE]`` alone >
    nothing."""

    COMPLETE = "complete"
    COMPLETE_ABNORMAL = "complete_abnormal"
    PROVIDER_ERROR = "provider_error"
    BARE_EOF = "bare_eof"
    TORN = "torn"
    RESET = "reset"
    EMPTY = "empty"
    STALLED_FIRST = "stalled_first"
    STALLED = "stalled"
    DONE_WITHOUT_FINISH = "done_without_finish"
    CLIENT_GONE = "client_gone"
    DRAINED = "drained"
    OPAQUE = "opaque"


CUT_VERDICTS = frozenset(
    {Verdict.BARE_EOF, Verdict.TORN, Verdict.RESET, Verdict.EMPTY, Verdict.DONE_WITHOUT_FINISH}
)
"""Endings that a client must never take for a finished answer."""


class Hold(StrEnum):
    """Up to which event nothing of the provider's stream is handed on."""

    FIRST_EVENT = "first_event"
    FIRST_CONTENT = "first_content"
    FINISH = "finish"


@dataclass(slots=True)
class Usage:
    """Token counts as the provider reports them; ``None`` where it does not."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class ProviderError:
    """A failure in the provider's own words, found inside a stream.

    ``type`` is the provider's error type, or the finish reason that means failure. ``status`` is
    the HTTP status that the type stands for.
    """

    type: str
    message: str
    code: str | None = None
    param: str | None = None
    retryable: bool = True
    status: int = 502


@dataclass(frozen=True, slots=True)
class Fault:
    """What the gateway has to tell a client in-band: a code, mostly one of
    :class:`gateway.errors.Code`, and a sentence. ``type`` is the provider's own error type, None
    for a fault of the transport, and ``status`` that of the HTTP error that it would be."""

    code: str
    message: str
    type: str | None = None
    status: int = 503


@dataclass(slots=True)
class Facts:
    """What a reader has learnt so far. Plain attributes, read by the stream object once per
    read."""

    phase: Phase = Phase.BEFORE_CONTENT
    waiting: bool = False
    """The protocol says that silence is normal now: hidden reasoning, a server-side tool, a
    queue."""
    finished: bool = False
    """Every choice that the stream has shown has its finish."""
    awaited: bool = False
    """More choices were asked for than the stream has shown, and they may still come: only an end
    in good order says that what it has shown is all."""
    doubtful: bool = False
    """The finish may not be the last word, as from servers that say it with every piece: it proves
    nothing where the transport broke, and a lull after it ends nothing."""
    resumed: bool = False
    """It has gone on after a finish: the next one may not be the last word either, however long it
    is silent then."""
    terminal: bool = False
    """The frame after which the protocol allows nothing more has come."""
    finish_reason: str | None = None
    abnormal: bool = False
    """Finished for an explicit reason that is not a normal stop (length, content filter,
    refusal)."""
    error: ProviderError | None = None
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    acted: bool = False
    """The provider has called a tool of another server."""
    worked: bool = False
    """There are signs of an answer that shows none: hidden reasoning, content beside an error."""


class Reader(Protocol):
    """The state machine of one stream in one protocol: one instance per stream, not thread-safe."""

    @property
    def facts(self) -> Facts:
        """What has been learnt so far; the same object all along."""

    def read(self, name: bytes, data: bytes) -> Kind:
        """Take one whole event. ``name`` is the ``event:`` field, ``data`` is neither empty nor
        ``[DONE]``."""

    def read_bare(self, block: bytes) -> Kind:
        """Take a block that has fields but no ``data:`` line."""

    def read_done(self) -> None:
        """Take ``[DONE]``."""

    def may_close(self) -> bool:
        """Whether a lull after the finish ends the client's answer, although the upstream has not
        ended it."""

    def complement(self, *, ending: bool) -> bytes:
        """The part of the raising form that the provider's own error lacks, as whole events; each
        part once.

        With ``ending`` false: what must follow the event just read at once. With ``ending`` true:
        what is still missing now that nothing more of the provider's will be handed on (or only its
        ``[DONE]``).
        """

    def fault(self, fault: Fault) -> bytes | None:
        """The in-band error events that make clients of this protocol raise; ``None`` where there
        are none."""
