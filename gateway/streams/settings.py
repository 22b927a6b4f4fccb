"""What configuration and request say about one stream. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.streams.events import Hold
from gateway.streams.limits import Limits

DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Settings:
    """How one stream is to be treated.

    ``known`` is false for a stream of no known protocol: it has no finish frame, so a clean end is
    its end, and nothing of it is held. ``finish_optional`` is for a provider whose ``[DONE]`` alone
    ends an answer. ``observe`` hands on every byte as it comes and intervenes in nothing.
    ``limits`` of None means that no silence is a stall; ``hold_max`` is in seconds, None for no
    limit.
    """

    limits: Limits | None = DEFAULT_LIMITS
    hold: Hold = Hold.FIRST_CONTENT
    hold_max_bytes: int = 1 << 20
    hold_max: float | None = None
    max_event: int = 8 << 20
    finish_optional: bool = False
    known: bool = True
    observe: bool = False
