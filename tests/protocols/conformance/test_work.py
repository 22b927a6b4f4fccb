"""Work grows with the bytes that come, not with the pieces that they come in."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gateway.protocols import ALL
from gateway.streams.events import Verdict
from tests.protocols.reading import first_content
from tests.samples.catalog import BY_FILE
from tests.streams.feeding import feed, open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 100


@dataclass
class Calls:
    count: int = 0


@contextmanager
def counting_calls() -> Iterator[Calls]:
    """How many functions, Python's and C's, are called inside."""
    calls = Calls()

    def note(frame: object, event: str, argument: object) -> None:
        calls.count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def long_event(protocol: str, size: int) -> bytes:
    """The first content of the protocol's sample, padded inside its JSON, with LF line ends."""
    event = first_content(protocol).replace(b"\r\n", b"\n").rstrip(b"\n")
    assert event.endswith(b"}")
    return event[:-1] + b" " * size + b"}\n\n"


def calls_for(protocol: str, size: int, line_ends: bytes) -> int:
    data = long_event(protocol, size).replace(b"\n", line_ends)
    chunks = [data[i : i + PIECE] for i in range(0, len(data), PIECE)]
    stream = open_stream(protocol)
    with counting_calls() as calls:
        for chunk in chunks:
            stream.receive_data(chunk, 1.0)
    assert stream.content_events + stream.opaque_events == 1
    return calls.count


@pytest.mark.parametrize("protocol", [protocol.name for protocol in ALL])
@pytest.mark.parametrize("line_ends", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_in_many_pieces_costs_a_fixed_number_of_calls_a_piece(
    protocol: str, line_ends: bytes
) -> None:
    few = calls_for(protocol, 20_000, line_ends)
    many = calls_for(protocol, 80_000, line_ends)

    assert many < 4.4 * few


def seconds_for(pieces: int, line_end: bytes) -> float:
    """The CPU time that an event of 2 MB in so many pieces takes, the best of three."""
    data = long_event("openai_chat", 2_000_000).replace(b"\n", line_end)
    step = len(data) // pieces
    chunks = [data[i : i + step] for i in range(0, len(data), step)]
    best = 1e9
    for _ in range(3):
        stream = open_stream("openai_chat")
        started = time.process_time()
        for chunk in chunks:
            stream.receive_data(chunk, 1.0)
        best = min(best, time.process_time() - started)
        assert stream.content_events == 1
    return best


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_two_megabytes_in_twenty_thousand_pieces_copy_each_byte_a_few_times_only(
    line_end: bytes,
) -> None:
    # A parser that starts over with each piece would copy 20 GB here: minutes, where this takes
    # hundredths of a second. The bound is far from both.
    assert seconds_for(20_000, line_end) < 3.0


def test_many_small_events_in_one_read_are_linear() -> None:
    head = BY_FILE["openai_chat/complete.sse"].data
    event = head[head.index(b'data: {"id"', 300) :].split(b"\n\n")[0] + b"\n\n"

    def calls(count: int) -> int:
        stream = open_stream("openai_chat")
        with counting_calls() as counted:
            stream.receive_data(event * count, 1.0)
        return counted.count

    assert calls(4000) < 4.4 * calls(1000)


def test_a_torn_event_of_many_pieces_ends_as_torn() -> None:
    data = long_event("openai_chat", 200_000)[:-40]

    stream = open_stream("openai_chat")
    feed(stream, [data[i : i + PIECE] for i in range(0, len(data), PIECE)])

    assert stream.verdict is Verdict.TORN
