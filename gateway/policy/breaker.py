"""When to stop asking a provider for a while: a circuit breaker. Reads no clock and asks nobody.

Closed until so many tries in a row failed, then open for a while, then half open: one try may find
out whether things are well again. Connect failures count against the provider. 5xx answers count
only against one model of it, and only where a fallback exists: one overloaded model must not stop
everybody, and some clients turn each 503 into thirty requests. A try is known to have reached its
provider, and by which status, once the head of the answer is there.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum

FORGOTTEN_AFTER = 60.0
"""Seconds after which a failure is not one of those in a row any more."""

MAX_MODELS = 256
"""Models of one provider that are watched at once; the ones unused longest are forgotten."""


class State(StrEnum):
    """How a circuit stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One circuit. Moments are monotonic seconds; a threshold of 0 never opens."""

    __slots__ = (
        "_failed_at", "_failures", "_open_for", "_opened_at", "_probing_since", "_threshold",
    )  # fmt: skip

    def __init__(self, threshold: int, open_for: float) -> None:
        self._threshold = threshold
        self._open_for = open_for
        self._failures = 0
        self._failed_at = 0.0
        self._opened_at: float | None = None
        self._probing_since: float | None = None

    def state(self, now: float) -> State:
        """How it stands at a moment."""
        if self._opened_at is None:
            return State.CLOSED
        return State.OPEN if now < self._opened_at + self._open_for else State.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Whether a try may be made; in the half-open state that takes the one probe.

        A probe that never reports back is given up after another ``open_for`` seconds.
        """
        state = self.state(now)
        if state is State.CLOSED:
            return True
        probing = self._probing_since
        if state is State.OPEN or (probing is not None and now < probing + self._open_for):
            return False
        self._probing_since = now
        return True

    def wait(self, now: float) -> float:
        """Seconds until a try may be worth it again; at least one."""
        since = self._probing_since if self._probing_since is not None else self._opened_at
        return max(1.0, (since if since is not None else now) + self._open_for - now)

    def note_success(self, began: float) -> bool:
        """A try that began at that moment reached the provider; whether that closed the circuit.

        One from before the circuit opened says how things were then.
        """
        if self._opened_at is not None and began < self._opened_at:
            return False
        was_open = self._opened_at is not None
        self._failures = 0
        self._opened_at = self._probing_since = None
        return was_open

    def note_failure(self, now: float) -> bool:
        """A try failed; whether that opened the circuit (again)."""
        if self._opened_at is None and now - self._failed_at > FORGOTTEN_AFTER:
            self._failures = 0
        self._failures += 1
        self._failed_at = now
        if self._threshold <= 0 or self._failures < self._threshold:
            return False
        if self.state(now) is State.OPEN:
            return False
        self._opened_at, self._probing_since = now, None
        return True

    def note_nothing(self, began: float) -> None:
        """A try said nothing (its client left): if it was the probe, another one may be made."""
        if self._probing_since == began:
            self._probing_since = None


class ModelBreakers:
    """A circuit for each model of one provider, as many as are in use."""

    __slots__ = ("_breakers", "_open_for", "_threshold")

    def __init__(self, threshold: int, open_for: float) -> None:
        self._threshold = threshold
        self._open_for = open_for
        self._breakers: OrderedDict[str, Breaker] = OrderedDict()

    def of(self, model: str) -> Breaker:
        """The model's circuit."""
        breaker = self._breakers.pop(model, None) or Breaker(self._threshold, self._open_for)
        self._breakers[model] = breaker
        if len(self._breakers) > MAX_MODELS:
            self._breakers.popitem(last=False)
        return breaker
