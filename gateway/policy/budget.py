"""How many retries a provider may cost: a share of recent requests above a floor. No clock.

Clients multiply retries by 3 to 30 when a provider is down; what the gateway adds to that is
bounded here, per provider and not only per request.
"""

from __future__ import annotations

from collections import deque

WINDOW = 60.0
"""Seconds that count as recent."""


class RetryBudget:
    """Counts requests and retries of the last minute, of one provider.

    Moments are monotonic seconds.
    """

    __slots__ = ("_floor", "_requests", "_retries", "_share")

    def __init__(self, share: float, floor: int) -> None:
        """``share`` is retries per request, ``floor`` how many a minute are always allowed."""
        self._share = share
        self._floor = floor
        # Whole seconds with their counts, so that memory does not grow with the traffic.
        self._requests: deque[tuple[int, int]] = deque()
        self._retries: deque[tuple[int, int]] = deque()

    def note_request(self, now: float) -> None:
        """A client's request arrived."""
        _add(self._requests, now)

    def allows(self, now: float) -> bool:
        """Whether one more retry is within the budget."""
        requests, retries = _count(self._requests, now), _count(self._retries, now)
        return retries + 1 <= max(self._floor, self._share * requests)

    def note_retry(self, now: float) -> None:
        """A retry that needs budget is being made."""
        _add(self._retries, now)


def _add(counts: deque[tuple[int, int]], now: float) -> None:
    second = int(now)
    if counts and counts[-1][0] == second:
        counts[-1] = (second, counts[-1][1] + 1)
    else:
        counts.append((second, 1))
        while counts[0][0] <= second - WINDOW:
            counts.popleft()


def _count(counts: deque[tuple[int, int]], now: float) -> int:
    oldest = now - WINDOW
    return sum(number for second, number in counts if second > oldest)
