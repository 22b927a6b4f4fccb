"""Holding back: by class of event, by size, by time; every byte comes out once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.streams.events import Hold
from gateway.streams.hold import HoldBack


def test_bytes_wait_for_the_class_of_event_that_was_asked_for() -> None:
    held = HoldBack(Hold.FIRST_CONTENT, 100, None, released=False)
    assert held.put(b"a") == b""
    held.reached(Hold.FIRST_EVENT)
    assert held.put(b"b") == b""
    held.reached(Hold.FIRST_CONTENT)
    assert held.put(b"c") == b"abc"
    assert held.put(b"d") == b"d"


def test_content_is_an_event_but_no_finish() -> None:
    event = HoldBack(Hold.FIRST_EVENT, 100, None, released=False)
    event.reached(Hold.FIRST_CONTENT)
    assert event.released
    finish = HoldBack(Hold.FINISH, 100, None, released=False)
    finish.reached(Hold.FIRST_CONTENT)
    assert not finish.released


def test_more_than_may_be_held_is_released() -> None:
    held = HoldBack(Hold.FINISH, 3, None, released=False)
    assert held.put(b"abc") == b""
    assert held.put(b"d") == b"abcd"
    assert held.released


def test_what_waits_elsewhere_counts_towards_what_may_be_held() -> None:
    held = HoldBack(Hold.FINISH, 5, None, released=False)
    assert held.put(b"abc", 2) == b""
    assert held.put(b"", 3) == b"abc"
    assert held.released


def test_the_end_of_the_waiting_bounds_the_deadline_until_release() -> None:
    held = HoldBack(Hold.FINISH, 3, 5.0, released=False)
    assert (held.bound(9.0), held.bound(4.0)) == (5.0, 4.0)
    assert not held.expired(4.9)
    assert held.expired(5.0)
    held.released = True
    assert held.bound(9.0) == 9.0
    assert not held.expired(5.0)


@given(st.lists(st.binary(max_size=4)), st.integers(0, 8), st.integers(0, 20))
def test_every_byte_comes_out_once_and_in_order(
    parts: list[bytes], most: int, release_after: int
) -> None:
    held = HoldBack(Hold.FIRST_CONTENT, most, None, released=False)
    out = b""
    for number, part in enumerate(parts):
        if number == release_after:
            held.reached(Hold.FIRST_CONTENT)
        out += held.put(part)
    assert out + held.take() == b"".join(parts)
