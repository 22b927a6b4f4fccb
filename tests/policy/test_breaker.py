"""The circuit breaker: opens on failures in a row, probes once, and can be off."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.breaker import MAX_MODELS, Breaker, ModelBreakers, State


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(3, 10.0)
    assert [breaker.note_failure(at) for _ in range(3)] == [False, False, True]
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = opened()
    assert breaker.state(1.0) is State.OPEN
    assert not breaker.allows(1.0)
    assert breaker.wait(4.0) == 6.0


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(2, 10.0)
    breaker.note_failure(0.0)
    assert not breaker.note_success(0.0)
    assert not breaker.note_failure(0.0)
    assert breaker.allows(0.0)


def test_failures_with_minutes_in_between_are_not_in_a_row() -> None:
    breaker = Breaker(2, 10.0)
    breaker.note_failure(0.0)
    assert not breaker.note_failure(100.0)
    assert breaker.note_failure(101.0)


def test_half_open_lets_one_probe_through() -> None:
    breaker = opened()
    assert breaker.state(10.0) is State.HALF_OPEN
    assert breaker.allows(10.0)
    assert not breaker.allows(10.1)
    assert breaker.note_success(10.0)
    assert breaker.allows(10.2)


def test_a_failed_probe_opens_it_again_for_the_whole_time() -> None:
    breaker = opened()
    assert breaker.allows(11.0)
    assert breaker.note_failure(12.0)
    assert not breaker.allows(21.9)
    assert breaker.allows(22.0)


def test_a_probe_whose_client_left_does_not_block_the_next() -> None:
    breaker = opened()
    assert breaker.allows(10.0)
    breaker.note_nothing(10.0)
    assert breaker.allows(10.1)


def test_only_the_probe_itself_makes_room_for_another() -> None:
    breaker = opened()
    assert breaker.allows(10.0)
    breaker.note_nothing(9.0)
    assert not breaker.allows(10.1)


def test_a_success_from_before_the_outage_does_not_close_it() -> None:
    breaker = opened(5.0)
    assert not breaker.note_success(4.0)
    assert breaker.state(6.0) is State.OPEN
    assert breaker.note_success(5.5)
    assert breaker.state(6.0) is State.CLOSED


def test_a_probe_that_never_reports_back_is_given_up() -> None:
    breaker = opened()
    assert breaker.allows(10.0)
    assert not breaker.allows(19.9)
    assert breaker.allows(20.0)


def test_a_threshold_of_zero_never_opens() -> None:
    breaker = Breaker(0, 10.0)
    assert not any(breaker.note_failure(0.0) for _ in range(100))
    assert breaker.allows(0.0)


def test_each_model_has_a_circuit_of_its_own_and_memory_is_bounded() -> None:
    models = ModelBreakers(1, 10.0)
    models.of("a").note_failure(0.0)
    assert not models.of("a").allows(1.0)
    assert models.of("b").allows(1.0)
    for number in range(MAX_MODELS):
        models.of(str(number))
    assert models.of("a").allows(1.0), "forgotten as the one unused longest"


@given(st.lists(st.tuples(st.sampled_from(["ask", "good", "bad"]), st.floats(0, 5)), max_size=80))
def test_an_open_circuit_never_lets_two_probes_through_at_once(
    steps: list[tuple[str, float]],
) -> None:
    breaker = Breaker(2, 10.0)
    now = 0.0
    probes: list[float] = []
    for what, wait in steps:
        now += wait
        if what == "ask":
            guarded = breaker.state(now) is not State.CLOSED
            if breaker.allows(now) and guarded:
                assert not probes or now >= probes[-1] + 10.0
                probes.append(now)
        else:
            if what == "good":
                breaker.note_success(now)
            else:
                breaker.note_failure(now)
            probes.clear()
