"""The retry budget: a share of the last minute's requests, above a floor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import Retry
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


@pytest.mark.parametrize(
    ("client", "tries", "seconds"),
    [
        ("SDKs of OpenAI and Anthropic", 3, 1.5),
        ("AI SDK", 3, 6.0),
        ("codex", 30, 25.0),
        ("claude", 11, 180.0),
        ("opencode", 6, 81.0),
        ("aider", 27, 81.0),
    ],
)
def test_a_dead_provider_sees_little_more_than_a_hundred_clients_own_tries(
    client: str, tries: int, seconds: float
) -> None:
    """Each try of a client would be four requests without a budget."""
    rule = Retry()
    budget = RetryBudget(rule.budget, rule.budget_floor)
    own = retries = 0
    for step in range(tries):
        now = step * seconds / tries
        for _ in range(100):
            own += 1
            budget.note_request(now)
            for _ in range(rule.max_retries):
                if budget.allows(now):
                    budget.note_retry(now)
                    retries += 1
    minutes = seconds / WINDOW + 1
    assert own == 100 * tries, client
    assert retries <= rule.budget * own + rule.budget_floor * minutes
