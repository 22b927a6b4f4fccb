"""The retry decision: a table, and the bounds that hold for every failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import Retry
from gateway.policy.retry import (
    AMBIGUOUS_WINDOW,
    Again,
    Failure,
    Reason,
    Stop,
    Story,
    backoff,
    decide,
    failure_of_status,
    retry_after,
    retry_delay,
    says_when,
)

RULE = Retry()
CUT = Failure(Reason.TRUNCATED, retryable=True)


def story(**changes: float) -> Story:
    values = {"received": 100.0, "inference": True, "allowed": 3, **changes}
    return Story(**values)  # type: ignore[arg-type]


def ask(failure: Failure, told: Story, *, now: float = 101.0, budget: bool = True) -> Again | Stop:
    return decide(RULE, failure, told, now=now, jitter=0.0, budget=budget)


def test_a_cut_is_tried_again_after_the_first_backoff() -> None:
    assert ask(CUT, story()) == Again(0.25)


def test_backoff_doubles_up_to_its_bound_and_jitter_takes_at_most_half() -> None:
    assert [backoff(RULE, n, 0.0) for n in range(7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff(RULE, 2, 0.999) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("failure", "told", "now", "budget", "why"),
    [
        (Failure(Reason.STATUS, retryable=False), story(), 101, True, Stop.FINAL),
        (CUT, story(retries=3), 101, True, Stop.SPENT),
        (CUT, story(allowed=0), 101, True, Stop.SPENT),
        (CUT, story(inference=False), 101, True, Stop.NOT_REPEATABLE),
        (CUT, story(inference=False, allowed=0), 101, True, Stop.NOT_REPEATABLE),
        (
            Failure(Reason.NO_ANSWER, retryable=True, ambiguous=True),
            story(ambiguous=1),
            101,
            True,
            Stop.AMBIGUOUS,
        ),
        (
            Failure(Reason.NO_ANSWER, retryable=True, ambiguous=True),
            story(),
            100 + AMBIGUOUS_WINDOW + 1,
            True,
            Stop.AMBIGUOUS,
        ),
        (
            Failure(Reason.TRUNCATED, retryable=True, after_content=True),
            story(after_content=1),
            101,
            True,
            Stop.CONTENT,
        ),
        (
            Failure(Reason.RATE_LIMIT, retryable=True, retry_after=31),
            story(),
            101,
            True,
            Stop.WAIT_TOO_LONG,
        ),
        (
            Failure(Reason.TRUNCATED, retryable=True, begun=True),
            story(acts=True),
            101,
            True,
            Stop.ACTED,
        ),
        (
            Failure(Reason.NO_ANSWER, retryable=True, ambiguous=True),
            story(acts=True),
            101,
            True,
            Stop.ACTED,
        ),
        (CUT, story(), 370, True, Stop.TOO_LATE),
        (CUT, story(), 101, False, Stop.BUDGET),
    ],
)
def test_each_reason_to_stop(
    failure: Failure, told: Story, now: float, budget: bool, why: Stop
) -> None:
    assert ask(failure, told, now=now, budget=budget) is why


def test_a_tool_that_was_seen_to_be_called_is_not_called_again() -> None:
    failure = Failure(Reason.ERROR_EVENT, retryable=True, refused=True, acted=True)
    assert ask(failure, story()) is Stop.ACTED


def test_a_connect_failure_is_tried_again_on_any_path_because_nothing_was_sent() -> None:
    failure = Failure(Reason.CONNECT, retryable=True, sent=False)
    assert isinstance(ask(failure, story(inference=False)), Again)


def test_a_rate_limit_waits_as_told_and_needs_no_budget() -> None:
    failure = Failure(Reason.RATE_LIMIT, retryable=True, retry_after=7)
    assert ask(failure, story(), budget=False) == Again(7)


def test_a_wait_shorter_than_the_backoff_does_not_shorten_it() -> None:
    failure = Failure(Reason.RATE_LIMIT, retryable=True, retry_after=0.01)
    assert ask(failure, story(retries=2)) == Again(1.0)


failures = st.builds(
    Failure,
    reason=st.sampled_from(Reason),
    retryable=st.booleans(),
    sent=st.booleans(),
    ambiguous=st.booleans(),
    after_content=st.booleans(),
    retry_after=st.none() | st.floats(0.001, 1e6),
)


@given(
    st.lists(failures, max_size=12),
    st.integers(0, 5),
    st.booleans(),
    st.floats(0, 0.999),
    st.floats(0, 60),
)
def test_whatever_fails_the_bounds_hold(
    seen: list[Failure], allowed: int, inference: bool, jitter: float, each: float
) -> None:
    told = Story(received=0.0, inference=inference, allowed=allowed)
    now = 0.0
    for failure in seen:
        now += each
        answer = decide(RULE, failure, told, now=now, jitter=jitter, budget=True)
        if not isinstance(answer, Again):
            continue
        assert failure.retryable
        assert inference or not failure.sent
        assert 0 < answer.delay <= max(RULE.backoff_max, RULE.retry_after_max * 1.1)
        if failure.retry_after is not None:
            assert answer.delay >= failure.retry_after
        now += answer.delay
        assert now <= RULE.deadline
        told.note(failure)
    assert told.retries <= allowed
    assert told.ambiguous <= RULE.ambiguous
    assert told.after_content <= RULE.max_retries_after_content


@pytest.mark.parametrize(
    ("status", "headers", "final", "retryable"),
    [
        (400, {}, False, False),
        (401, {}, False, False),
        (404, {}, False, False),
        (408, {}, False, True),
        (409, {}, False, True),
        (413, {}, False, False),
        (422, {}, False, False),
        (424, {}, False, False),
        (424, {"x-amzn-errortype": "ModelErrorException:http://x/"}, False, True),
        (425, {}, False, True),
        (429, {}, False, True),
        (429, {}, True, False),
        (500, {}, False, True),
        (501, {}, False, False),
        (502, {}, False, True),
        (505, {}, False, False),
        (524, {}, False, True),
        (529, {}, False, True),
        (400, {"x-should-retry": "true"}, False, True),
        (429, {"x-should-retry": "true"}, True, False),
        (503, {"x-should-retry": "false"}, False, False),
    ],
)
def test_which_statuses_are_tried_again(
    status: int, headers: dict[str, str], final: bool, retryable: bool
) -> None:
    failure = failure_of_status(status, headers, final_error=final, retry_after=None)
    assert failure.retryable is retryable
    assert failure.reason is (Reason.RATE_LIMIT if status == 429 else Reason.STATUS)


WALL = 1_790_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "800"}, 0.8),
        ({"retry-after-ms": "800", "retry-after": "7"}, 0.8),
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:22 GMT"}, 2.0),
        ({"retry-after": "Mon, 21 Sep 2020 14:13:22 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "86400"}, 86400.0),
        ({}, None),
    ],
)
def test_every_form_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, WALL) == (pytest.approx(seconds) if seconds else None)


def test_the_wait_of_a_google_retry_info() -> None:
    details = [
        {"@type": "x"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"},
    ]
    assert retry_delay(details) == 34.0
    assert retry_delay([{"retryDelay": "soon"}]) is None
    assert retry_delay({"retryDelay": "3s"}) is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("Retry-After", "5", True),
        ("retry-after", "0", True),
        ("Retry-After-Ms", "0.0", True),
        ("Retry-After", "Wed, 01 Jan 2120 00:00:00 GMT", True),
        ("Retry-After", "Wed, 01 Jan 2020 00:00:00 GMT", False),
        ("Retry-After", "soon", False),
        ("Retry-After", "-1", False),
        ("Retry-After", "", False),
    ],
)
def test_a_field_says_when_to_come_back_if_it_can_be_read(
    name: str, value: str, says: bool
) -> None:
    assert says_when([(name, value)], 1.7e9) is says
    assert not says_when([], 1.7e9)


@pytest.mark.parametrize(("status", "again"), [(429, 1), (503, 1), (529, 1), (500, 0), (504, 0)])
def test_what_cannot_have_used_a_tool_is_tried_again(status: int, again: bool) -> None:
    failure = failure_of_status(status, {}, final_error=False, retry_after=None)
    assert isinstance(ask(failure, story()), Again)
    assert isinstance(ask(failure, story(acts=True)), Again) is bool(again)
    unsent = Failure(Reason.CONNECT, retryable=True, sent=False)
    assert isinstance(ask(unsent, story(acts=True)), Again)
