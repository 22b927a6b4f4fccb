"""Framing: whole events out of any bytes in any pieces, not one byte changed or lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.streams.sse import BOM, SseFramer, parse_block
from tests.streams import reference
from tests.streams.feeding import CUTS, pieces, singles

NASTY = [
    b"data: a", b"data:b", b"data", b"data: {}", b"event: e", b"event:f", b"id: 1", b"retry: 9",
    b":", b": c", b":data: x", b" ", b"x", b"\x00", b"\xff", b"\xc3", b"\xe2\x80\xa8", b"\xc2\x85",
    b"\x0b", b"\x0c", b"\n", b"\n", b"\n\n", b"\r", b"\r\r", b"\r\n", b"\r\n\r\n", b"\n\r\n",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(NASTY), max_size=24).map(b"".join)
UNIFORM = st.tuples(
    st.lists(st.sampled_from([b"data: a", b"data:b", b": c", b":", b"event: e", b""]), max_size=16),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
).map(lambda drawn: drawn[1].join(drawn[0]) + drawn[1])
"""Texts that keep to one line end, so that each way to split them is taken for long."""
BODIES = st.one_of(TEXTS, UNIFORM, UNIFORM.map(lambda text: reference.BOM + text))


Events = list[tuple[bytes, bytes | None]]


def run(framer: SseFramer, chunks: list[bytes]) -> tuple[bytes, list[bytes]]:
    """All bytes that came out, and the blocks that are not pieces of too long events."""
    out: list[bytes] = []
    blocks: list[bytes] = []
    for chunk in chunks:
        got = framer.feed(chunk)
        out += [block + framer.separator for block in got]
        blocks += [block for index, block in enumerate(got) if index not in framer.opaque]
    return b"".join(out), blocks


def events_of(blocks: list[bytes]) -> Events:
    read = [
        parse_block(block if index else block.removeprefix(BOM))
        for index, block in enumerate(blocks)
    ]
    return [(name, data) for name, data, fields in read if fields]


def reference_events(text: bytes) -> Events:
    return [(event.name, event.data) for event in reference.read(text)[0]]


@settings(max_examples=300)
@given(text=BODIES, cuts=CUTS)
def test_no_byte_is_changed_lost_or_moved(text: bytes, cuts: list[int]) -> None:
    framer = SseFramer()

    out, _ = run(framer, pieces(text, cuts))

    assert out + framer.pending == text
    assert framer.pending_size == len(framer.pending)


@settings(max_examples=300)
@given(text=BODIES, cuts=CUTS)
def test_the_events_are_those_that_the_specification_gives(text: bytes, cuts: list[int]) -> None:
    for chunks in ([text] if text else [], pieces(text, cuts), singles(text)):
        framer = SseFramer()
        _, found = run(framer, chunks)
        # A last CR may be half of a line end, and then no line has ended yet.
        settled = text[: len(text) - framer.pending.endswith(b"\r")]
        assert events_of(found) == reference_events(settled)


@settings(max_examples=300)
@given(text=st.one_of(TEXTS, UNIFORM), cuts=CUTS)
def test_bytes_pass_exactly_up_to_the_last_boundary(text: bytes, cuts: list[int]) -> None:
    framer = SseFramer()
    seen = passed = 0
    for chunk in pieces(text, cuts):
        seen += len(chunk)
        passed += sum(len(block) + len(framer.separator) for block in framer.feed(chunk))

        # A last CR may be half of a line end, which is not torn apart.
        settled = seen - framer.pending.endswith(b"\r")
        assert passed == reference.read(text[:settled])[1][-1]
        assert framer.at_boundary == (passed == seen)


@settings(max_examples=300)
@given(text=st.one_of(TEXTS, UNIFORM), cuts=CUTS, max_event=st.integers(min_value=1, max_value=24))
def test_too_long_events_pass_and_the_others_are_still_found(
    text: bytes, cuts: list[int], max_event: int
) -> None:
    framer = SseFramer(max_event)
    if text.endswith(b"\r"):
        text += b"\n"  # a last CR would wait for its other half

    out, blocks = run(framer, pieces(text, cuts))

    assert out + framer.pending == text
    assert len(framer.pending) <= max_event
    whole, tail = reference.split(text)
    too_long = [block for block in whole if length_of_lines(block) > max_event]
    assert events_of(blocks) == events_of([block for block in whole if block not in too_long])
    assert framer.skipping == (len(tail) > max_event)


def length_of_lines(block: bytes) -> int:
    """Bytes of a block before the line end that makes it whole."""
    return len(re.sub(rb"(\r\n|\r|\n)\Z", b"", block))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_an_event_longer_than_the_bound_is_not_read_although_it_came_whole(
    line_end: bytes,
) -> None:
    framer = SseFramer(max_event=9 + len(line_end))
    short, long = b"data: abc" + line_end * 2, b"data: abcd" + line_end * 2

    for chunk in (short, long, short + long + short):
        assert framer.only_block(chunk) is None or chunk == short
    out, blocks = run(framer, [short + long + short, long, short])

    assert out == short + long + short + long + short
    assert events_of(blocks) == [(b"", b"abc")] * 3
    assert not framer.skipping


def test_a_comment_longer_than_the_bound_does_not_hide_the_event_after_it() -> None:
    whole, drip = SseFramer(max_event=9), SseFramer(max_event=9)
    text = b": a long comment\ndata: a\n\n"

    assert events_of(run(whole, [text])[1]) == events_of(run(drip, singles(text))[1])
    assert events_of(run(whole, [text])[1]) == [(b"", b"a")]


# One rule at a time.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data: a\r\n\r\n", [(b"", b"a")]),
        (b"data: a\r\r", [(b"", b"a")]),
        (b"data: a\n\r\n", [(b"", b"a")]),
        (b"data: a\r\n\n", [(b"", b"a")]),
        (b"data:a\n\n", [(b"", b"a")]),
        (b"data:  a\n\n", [(b"", b" a")]),
        (b"data\n\n", [(b"", b"")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"data: a\rdata: b\r\n\n", [(b"", b"a\nb")]),
        (b"event: e\ndata: a\n\n", [(b"e", b"a")]),
        (b"data: a\nevent: e\n\n", [(b"e", b"a")]),
        (b"event: e\n\n", [(b"e", None)]),
        (b"retry: 3000\n\n", [(b"", None)]),
        (b": c\ndata: a\n\n", [(b"", b"a")]),
        (b"data: a\n: c\n\n", [(b"", b"a")]),
        (b"data: a\n: c\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"\n\n\ndata: a\n\n\n\n", [(b"", b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        ("data: a\u2028b\u0085c\n\n".encode(), [(b"", "a\u2028b\u0085c".encode())]),
        (b"data: a\x0bb\x0cc\n\n", [(b"", b"a\x0bb\x0cc")]),
        (b"data: a\n", []),
        (b"data: a", []),
    ],
)
def test_a_rule_of_the_format(text: bytes, expected: Events) -> None:
    for chunks in ([text], singles(text)):
        assert events_of(run(SseFramer(), chunks)[1]) == expected
    assert reference_events(text) == expected


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_comment_and_blank_lines_pass_at_once(line_end: bytes) -> None:
    framer = SseFramer()
    # From here on it is known how lines end: a lone CR waits for its other half until then.
    framer.feed(line_end * 2)
    for line in (b": ping" + line_end, line_end, b":" + line_end):
        assert run(framer, [line])[0] == line
        assert framer.at_boundary


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_comment_inside_an_event_waits_for_the_event(line_end: bytes) -> None:
    framer = SseFramer()

    assert run(framer, [b"data: a" + line_end + b": c" + line_end])[0] == b""
    assert not framer.at_boundary
    assert run(framer, [line_end])[0].startswith(b"data: a")


def test_comments_glued_to_the_front_of_an_event_pass_before_it() -> None:
    framer = SseFramer()

    assert run(framer, [b"data: a\n\n: c\n: d\n\ndata: b"])[0] == b"data: a\n\n: c\n: d\n\n"
    assert framer.pending == b"data: b"


def test_a_half_comment_waits_for_its_line_end() -> None:
    framer = SseFramer()

    assert run(framer, [b": pi"])[0] == b""
    assert not framer.at_boundary
    assert run(framer, [b"ng\n"])[0] == b": ping\n"


def test_the_line_feed_after_a_carriage_return_may_come_later() -> None:
    framer = SseFramer()
    out, blocks = run(framer, [b"data: a\r", b"\n\r", b"\n", b"data: b\r\n\r\n"])

    assert out == b"data: a\r\n\r\ndata: b\r\n\r\n"
    assert events_of(blocks) == [(b"", b"a"), (b"", b"b")]


@pytest.mark.parametrize(
    ("text", "line_end"),
    [
        (b"data: a\r\n\r\n", b"\r\n"),
        (b"data: a\n\n", b"\n"),
        (b"data: a\r\r", b"\r"),
        (b"data: a\r\n\ndata: b", b"\n"),
        (b"data: a\n\r\ndata: b", b"\r\n"),
        (b"data: a", b"\n"),
    ],
)
def test_the_line_end_to_write_is_the_streams_own(text: bytes, line_end: bytes) -> None:
    whole, drip = SseFramer(), SseFramer()
    whole.feed(text)
    run(drip, singles(text))

    assert whole.line_end == drip.line_end == line_end


def test_an_event_that_outgrows_the_bound_passes_in_pieces_that_are_not_read() -> None:
    framer = SseFramer(max_event=16)

    assert framer.feed(b"data: a\n\ndata: 0123456789x") == [b"data: a\n\n", b"data: 0123456789x"]
    assert framer.opaque == (1,)
    assert framer.skipping
    assert not framer.at_boundary
    assert framer.feed(b"more") == [b"more"]
    assert framer.opaque == (0,)
    assert framer.feed(b"end\n\ndata: b\n\n") == [b"end\n\n", b"data: b\n\n"]
    assert framer.opaque == (0,)
    assert not framer.skipping
    framer.feed(b"data: c\n\n")
    assert framer.opaque == ()


def test_an_event_as_long_as_the_bound_is_whole() -> None:
    framer = SseFramer(max_event=9)

    assert run(framer, singles(b"data: a\n\n"))[1] == [b"data: a"]
    assert framer.opaque == ()


def test_the_tail_can_be_taken_once() -> None:
    framer = SseFramer()
    framer.feed(b"data: a\n\ndata: b")

    assert framer.take_pending() == b"data: b"
    assert framer.take_pending() == b""
    assert framer.at_boundary


@pytest.mark.parametrize("first", [b"data: a\r\n\r\n", b"data: a\r\n", b""])
def test_the_halves_of_a_line_end_are_not_torn_apart(first: bytes) -> None:
    """A client that knows LF alone would take what is written in between for a part of a line."""
    framer = SseFramer()
    if first:
        framer.feed(first)
    framer.feed(b"data: b\r\n\r")
    assert not framer.at_boundary
    blocks = framer.feed(b"\n")
    assert b"".join(block + framer.separator for block in blocks).endswith(b"data: b\r\n\r\n")
    assert framer.at_boundary


def test_a_half_line_end_at_the_end_is_made_whole() -> None:
    framer = SseFramer()
    framer.feed(b"data: a\r\n\r\ndata: b\r\n\r")
    assert framer.finish() == [b"data: b\r\n\r\n"]
    assert framer.take_pending() == b""


def test_events_of_a_stream_that_ends_lines_with_cr_do_not_wait() -> None:
    framer = SseFramer()
    assert framer.feed(b"data: a\r\r") == [b"data: a\r\r"]
    framer.feed(b"data: b")
    framer.feed(b"\r")
    assert framer.feed(b"\r") == [b"data: b\r\r"]
