"""The retry budget: a share of the last minute's requests, above a floor."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.budget import WINDOW, RetryBudget


def spend(budget: RetryBudget, now: float, tries: int) -> int:
    """How many of ``tries`` retries the budget lets through."""
    allowed = 0
    for _ in range(tries):
        if budget.allows(now):
            budget.note_retry(now)
            allowed += 1
    return allowed


def test_the_floor_is_always_allowed() -> None:
    assert spend(RetryBudget(0.2, 10), 5.0, 100) == 10


def test_the_share_counts_above_the_floor() -> None:
    budget = RetryBudget(0.2, 10)
    for number in range(1000):
        budget.note_request(number / 100)
    assert spend(budget, 10.0, 1000) == 200


def test_what_is_older_than_a_minute_no_longer_counts() -> None:
    budget = RetryBudget(0.2, 10)
    assert spend(budget, 1.0, 50) == 10
    assert spend(budget, 1.0 + WINDOW - 2, 50) == 0
    assert spend(budget, 2.0 + WINDOW, 50) == 10


def test_a_floor_and_share_of_zero_allow_nothing() -> None:
    assert spend(RetryBudget(0.0, 0), 1.0, 5) == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=200))
def test_retries_of_a_minute_never_exceed_the_budget(steps: list[tuple[bool, float]]) -> None:
    budget = RetryBudget(0.5, 3)
    now = 0.0
    requests: list[float] = []
    retries: list[float] = []
    for is_request, wait in steps:
        now += wait
        if is_request:
            budget.note_request(now)
            requests.append(now)
        elif budget.allows(now):
            budget.note_retry(now)
            retries.append(now)
            # Seconds are counted whole, so the window may be up to a second short.
            recent = sum(moment > now - WINDOW + 1 for moment in retries)
            assert recent <= max(3, 0.5 * sum(moment > now - WINDOW - 1 for moment in requests))
