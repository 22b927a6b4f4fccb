"""What a client is told when a stream does not end as it should. Only wording: who is told, and
how, is elsewhere.

The words are chosen so that every measured client that can retry does so: several decide by
patterns such as "connection lost", "response timed out" and "retry your request" in the message.
"""

from __future__ import annotations

from gateway.errors import Code
from gateway.streams.events import Fault, Verdict

_CUTS: dict[Verdict, str] = {
    Verdict.BARE_EOF: "the provider ended the stream without a finish event.",
    Verdict.EMPTY: "the provider ended the stream without a single event.",
    Verdict.TORN: "the provider ended the stream inside an event.",
    Verdict.RESET: "it broke before the provider's finish event.",
    Verdict.DONE_WITHOUT_FINISH: "the provider sent its end marker without a finish event.",
}


def cut(verdict: Verdict, *, begun: bool = True) -> Fault:
    """The fault for one of ``events.CUT_VERDICTS``; ``begun``: the client has a part of it."""
    retry = _retry(begun=begun and verdict is not Verdict.EMPTY)
    return Fault(Code.STREAM_TRUNCATED, f"Upstream connection lost: {_CUTS[verdict]} {retry}")


def stalled(silence: float, *, begun: bool = True) -> Fault:
    """The fault for a stream without progress for ``silence`` seconds; ``begun`` as above."""
    return Fault(
        Code.STALLED,
        f"Upstream response timed out: no event from the provider for {silence:.3g} s. "
        f"{_retry(begun=begun)}",
    )


def _retry(*, begun: bool) -> str:
    if begun:
        return "The partial answer is incomplete; retry your request."
    return "Retry your request."
