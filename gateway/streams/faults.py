"""What a client is told when a stream does not end as it should. Only wording: who is told, and
how, is elsewhere.

The words are chosen so that every measured client that can retry does so: several decide by
patterns such as "connection lost", "response timed out" and "retry your request" in the message.
"""

from __future__ import annotations

from gateway.errors import Code
from gateway.streams.events import Fault, Verdict

_RETRY = "The partial answer is incomplete; retry your request."
_CUTS: dict[Verdict, str] = {
    Verdict.BARE_EOF: f"the provider ended the stream without a finish event. {_RETRY}",
    Verdict.EMPTY: "the provider ended the stream without a single event. Retry your request.",
    Verdict.TORN: f"the provider ended the stream inside an event. {_RETRY}",
    Verdict.RESET: f"it broke before the provider's finish event. {_RETRY}",
    Verdict.DONE_WITHOUT_FINISH: (
        f"the provider sent its end marker without a finish event. {_RETRY}"
    ),
}


def cut(verdict: Verdict) -> Fault:
    """The fault for one of ``events.CUT_VERDICTS``."""
    return Fault(Code.STREAM_TRUNCATED, f"Upstream connection lost: {_CUTS[verdict]}")


def stalled(silence: float) -> Fault:
    """The fault for a stream without progress for ``silence`` seconds."""
    return Fault(
        Code.STALLED,
        f"Upstream response timed out: no event from the provider for {silence:.3g} s. {_RETRY}",
    )
