"""Events of many streams in any order, cut and chunked anywhere: nonsense is read consistently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols import ALL, BY_NAME
from gateway.streams.events import CUT_VERDICTS, Hold, Phase, Verdict
from tests.samples.catalog import SHORT
from tests.streams import reference
from tests.streams.feeding import CUTS, feed, open_stream, pieces, singles

if TYPE_CHECKING:
    from gateway.streams.stream import Stream

PROTOCOLS = [protocol.name for protocol in ALL]
NOISE = [
    b": c\n", b"\n", b"\r\n", b"data: {}\n\n", b"data: [DONE]\n\n", b"event: x\n\n",
    b"data:\n\n", b"data: [DONE]\r\n\r\n", b"data: [DONE]\r\r", b": c\r",
]  # fmt: skip


def blocks_of(protocol: str) -> list[bytes]:
    found = {
        block
        for sample in SHORT
        if sample.protocol == protocol
        for block in reference.split(sample.data)[0]
    }
    return sorted(found) + NOISE


BLOCKS = {protocol: blocks_of(protocol) for protocol in PROTOCOLS}
HOLDS = st.sampled_from(list(Hold))


def run(protocol: str, chunks: list[bytes], hold: Hold, *, reset: bool) -> tuple[Stream, bytes]:
    stream = open_stream(protocol, hold=hold)
    return stream, feed(stream, chunks, reset=reset)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=120, deadline=None)
@given(data=st.data(), cuts=CUTS, hold=HOLDS, reset=st.booleans())
def test_any_mixture_is_read_the_same_however_it_is_chunked(
    protocol: str, data: st.DataObject, cuts: list[int], hold: Hold, reset: bool
) -> None:
    blocks = data.draw(st.lists(st.sampled_from(BLOCKS[protocol]), max_size=8))
    text = b"".join(blocks)
    text = text[: data.draw(st.integers(0, len(text)))]

    whole, out = run(protocol, [text], hold, reset=reset)
    cut, cut_out = run(protocol, pieces(text, cuts), hold, reset=reset)
    drip, drip_out = run(protocol, singles(text), hold, reset=reset)

    assert whole.verdict is cut.verdict is drip.verdict
    assert BY_NAME[protocol].known or out == text
    if whole.cut and whole.verdict is Verdict.DONE_WITHOUT_FINISH:
        # Comments glued to the end marker are held back with it; alone, they had passed already.
        out, cut_out, drip_out = events_of(out), events_of(cut_out), events_of(drip_out)
    assert out == cut_out == drip_out
    for stream in (whole, cut, drip):
        assert_consistent(stream, out)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=120, deadline=None)
@given(data=st.data(), cuts=CUTS, max_event=st.integers(20, 400), reset=st.booleans())
def test_what_is_too_long_is_so_however_it_is_chunked(
    protocol: str, data: st.DataObject, cuts: list[int], max_event: int, reset: bool
) -> None:
    blocks = data.draw(st.lists(st.sampled_from(BLOCKS[protocol]), max_size=6))
    text = b"".join(blocks)
    verdicts = set()
    for chunks in ([text], pieces(text, cuts), singles(text), blocks):
        stream = open_stream(protocol, max_event=max_event)
        feed(stream, [chunk for chunk in chunks if chunk], reset=reset)
        verdicts.add((stream.verdict, stream.facts.finished, stream.finish_reason))
    assert len(verdicts) == 1


BROKEN = (Verdict.RESET, Verdict.TORN)


def events_of(text: bytes) -> bytes:
    return b"".join(block for block in reference.split(text)[0] if reference.read(block)[0])


def assert_consistent(stream: Stream, out: bytes) -> None:
    """What holds for every stream that has ended."""
    facts, verdict = stream.facts, stream.verdict
    assert verdict is not None
    assert stream.closed
    assert stream.deadline is None
    assert stream.reader_faults == 0
    failed = verdict is Verdict.PROVIDER_ERROR
    if BY_NAME[stream.protocol].known:
        assert (facts.error is not None) == failed
    else:
        assert facts.error is not None or not failed
    if verdict in (Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL):
        assert facts.finished
        assert facts.phase is Phase.AFTER_FINISH
        assert facts.abnormal == (verdict is Verdict.COMPLETE_ABNORMAL)
    if verdict in CUT_VERDICTS and BY_NAME[stream.protocol].known:
        assert not facts.finished or (facts.doubtful and verdict in BROKEN)
        assert stream.cut
    if not stream.committed:
        assert out == b""
        assert not stream.must_abort
    else:
        assert not stream.retryable
    if BY_NAME[stream.protocol].known:
        _, torn = reference.split(out)
        assert torn == b""


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=120, deadline=None)
@given(text=st.binary(max_size=200), cuts=CUTS)
def test_any_bytes_at_all_are_read_the_same_however_they_are_chunked(
    protocol: str, text: bytes, cuts: list[int]
) -> None:
    whole, out = run(protocol, [text], Hold.FIRST_EVENT, reset=False)
    cut, cut_out = run(protocol, pieces(text, cuts), Hold.FIRST_EVENT, reset=False)

    assert whole.verdict is cut.verdict
    assert out == cut_out
    assert_consistent(whole, out)
