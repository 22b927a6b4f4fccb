"""What does not mean progress never buys a stream time, in any protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.protocols import ALL
from gateway.streams.events import Verdict
from gateway.streams.limits import SILENT_LINE, Limits
from tests.protocols.reading import first_content
from tests.samples.catalog import SAMPLES, Sample, name_of
from tests.streams import reference
from tests.streams.feeding import one_limit, open_stream, singles

if TYPE_CHECKING:
    from gateway.streams.stream import Stream

ENDING = [sample for sample in SAMPLES if sample.role == "complete"]
KEEPALIVES = [sample for sample in SAMPLES if sample.keepalive]
PROTOCOLS = [protocol.name for protocol in ALL]


def opened(protocol: str, limits: Limits) -> Stream:
    """A stream that has just brought its first content (of an unknown protocol: an event), at 1."""
    stream = open_stream(protocol, limits=limits)
    stream.receive_data(first_content(protocol), 1.0)
    assert stream.content_events + stream.opaque_events == 1
    return stream


@pytest.mark.parametrize("sample", KEEPALIVES, ids=name_of)
@pytest.mark.parametrize("drip", [False, True], ids=["whole", "byte by byte"])
def test_keepalives_sent_forever_never_move_the_deadline(sample: Sample, drip: bool) -> None:
    stream = opened(sample.protocol, one_limit(60.0))
    events = stream.content_events + stream.state_events + stream.opaque_events

    for second in range(2, 61):
        for chunk in singles(sample.data) if drip else [sample.data]:
            stream.receive_data(chunk, float(second))
        assert stream.deadline == 61.0

    assert stream.expire(60.9) == b""
    assert not stream.closed
    stream.expire(61.0)
    assert stream.verdict is Verdict.STALLED
    assert stream.line == "heartbeats"
    assert stream.heartbeats > 59
    assert stream.content_events + stream.state_events + stream.opaque_events == events


@pytest.mark.parametrize("sample", KEEPALIVES, ids=name_of)
def test_keepalives_before_the_first_event_never_move_the_deadline(sample: Sample) -> None:
    stream = open_stream(sample.protocol, limits=Limits(first_event=30.0))

    for second in range(1, 30):
        stream.receive_data(sample.data, float(second))
        assert stream.deadline == 30.0

    stream.expire(30.0)
    assert stream.verdict is Verdict.STALLED_FIRST


@pytest.mark.parametrize("sample", KEEPALIVES, ids=name_of)
def test_a_living_line_may_be_silent_for_longer_but_not_for_ever(sample: Sample) -> None:
    limits = Limits(gap=290.0, gap_alive=600.0, silent_phase=900.0)
    stream = opened(sample.protocol, limits)

    for second in range(2, 2000):
        if stream.deadline is None or second >= stream.deadline:
            break
        stream.receive_data(sample.data, float(second))
        if second > SILENT_LINE:
            assert not stream.closed

    assert stream.deadline == 1.0 + 600.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_complete_no_event_move_nothing(protocol: str) -> None:
    stream = opened(protocol, Limits(gap=50.0))
    stream.receive_data(first_content(protocol)[:20], 2.0)
    before, heartbeats = stream.deadline, stream.heartbeats

    for second in range(3, 40):
        stream.receive_data(b"x", float(second))

    assert stream.deadline == before
    assert stream.heartbeats == heartbeats


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "form",
    [
        b": ping\n\n",
        b":\n",
        b"\n",
        b"\r\n",
        b"data:\n\n",
        b"data:   \n\n",
        b"event: heartbeat\n\n",
        b"retry: 3000\n\n",
        b"id: 7\n\n",
    ],
)
def test_what_carries_no_data_is_a_heartbeat_everywhere(protocol: str, form: bytes) -> None:
    stream = opened(protocol, one_limit(60.0))

    stream.receive_data(form, 9.0)

    assert stream.heartbeats >= 1
    assert stream.last_heartbeat_at == 9.0
    assert stream.last_progress_at == 1.0
    assert stream.deadline == 61.0


@pytest.mark.parametrize("sample", ENDING, ids=name_of)
def test_a_whole_answer_ends_as_soon_in_one_read_as_in_one_read_for_each_event(
    sample: Sample,
) -> None:
    blocks, tail = reference.split(sample.data)
    whole, each = open_stream(sample.protocol), open_stream(sample.protocol)
    whole.receive_data(sample.data, 5.0)

    for block in [*blocks, tail]:
        each.receive_data(block, 5.0)

    assert each.deadline == whole.deadline
