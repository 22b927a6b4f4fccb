"""What is counted and timed of a stream."""

from __future__ import annotations

from bisect import bisect_left

from gateway.streams.events import GAP_BUCKETS
from tests.streams import chat
from tests.streams.feeding import open_stream


def test_the_first_moments_are_kept() -> None:
    stream = open_stream()
    assert stream.first_event_at is stream.first_content_at is None

    stream.receive_data(chat.PING, 1.0)
    stream.receive_data(chat.ROLE, 2.0)
    stream.receive_data(chat.text(), 3.0)
    stream.receive_data(chat.text(), 4.0)

    assert stream.last_heartbeat_at == 1.0
    assert stream.first_event_at == 2.0
    assert stream.first_content_at == 3.0
    assert stream.last_progress_at == 4.0


def test_gaps_are_measured_between_reads_that_bring_progress() -> None:
    stream = open_stream()
    stream.receive_data(chat.ROLE, 1.0)
    stream.receive_data(chat.text() + chat.text(), 1.5)
    stream.receive_data(chat.PING, 100.0)
    stream.receive_data(chat.text(), 301.5)

    assert stream.max_gap == 300.0
    assert stream.gap_sum == 300.5
    assert sum(stream.gap_counts) == 2
    assert stream.gap_counts[bisect_left(GAP_BUCKETS, 0.5)] == 1
    assert stream.gap_counts[bisect_left(GAP_BUCKETS, 300.0)] == 1


def test_a_gap_longer_than_every_bucket_has_a_place() -> None:
    stream = open_stream()
    stream.receive_data(chat.ROLE, 1.0)
    stream.receive_data(chat.text(), 10_000.0)

    assert stream.gap_counts[len(GAP_BUCKETS)] == 1


def test_nothing_but_heartbeats_is_no_event() -> None:
    stream = open_stream()
    stream.receive_data(chat.PING * 3, 1.0)

    assert stream.first_event_at is None
    assert stream.heartbeats == 3
    assert stream.line == "heartbeats"


def test_credit_moves_the_stall_clock_and_not_what_is_reported() -> None:
    stream = open_stream()
    stream.receive_data(chat.ROLE + chat.PING, 1.0)
    stream.credit(50.0)
    stream.receive_data(chat.text(), 61.0)

    assert stream.max_gap == 60.0
    assert stream.last_heartbeat_at == 1.0


def test_what_the_reader_learnt_can_be_read_off_the_stream() -> None:
    stream = open_stream()
    stream.receive_data(
        chat.event(
            {
                "model": "m-1",
                "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 5},
            }
        ),
        1.0,
    )

    assert stream.model == "m-1"
    assert stream.finish_reason == "stop"
    assert (stream.usage.input, stream.usage.output, stream.usage.cached) == (3, 5, None)
    assert stream.error is None
