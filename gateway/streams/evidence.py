"""From what was seen of a stream to its verdict; sees nothing itself.

The order of evidence: an error frame, a finish frame, ``[DONE]`` alone, how the transport ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.streams.events import Verdict

if TYPE_CHECKING:
    from gateway.streams.events import Facts


@dataclass(frozen=True, slots=True)
class Evidence:
    """What else is known when a stream has ended.

    ``unread``: a part of it could not be read, and the finish may have been in there. ``done``:
    ``[DONE]`` came. ``broke``: the transport did. ``torn``: it ended inside an event. ``known``:
    the protocol has a finish frame. ``empty``: there was not one event.
    """

    unread: bool
    done: bool
    broke: bool
    torn: bool
    known: bool
    empty: bool


def judge(facts: Facts, evidence: Evidence) -> Verdict:
    """The verdict on a stream that has ended."""
    if facts.error is not None and (evidence.known or not (evidence.broke or evidence.torn)):
        return Verdict.PROVIDER_ERROR
    more_may_come = facts.awaited or (facts.doubtful and not evidence.done)
    if facts.finished and not (more_may_come and (evidence.broke or evidence.torn)):
        return Verdict.COMPLETE_ABNORMAL if facts.abnormal else Verdict.COMPLETE
    if evidence.unread:
        return Verdict.OPAQUE
    if evidence.done:
        return Verdict.DONE_WITHOUT_FINISH
    if evidence.broke:
        return Verdict.RESET
    if evidence.torn:
        return Verdict.TORN
    if not evidence.known:
        return Verdict.OPAQUE
    return Verdict.EMPTY if evidence.empty else Verdict.BARE_EOF
