"""Every sample, whole and cut at every byte, through the real stream: no ending is mistaken."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from gateway.protocols import ALL
from gateway.streams.events import CUT_VERDICTS, Verdict
from tests.samples.catalog import HERE, LONG, SAMPLES, SHORT, Sample, name_of
from tests.streams import reference
from tests.streams.feeding import CUTS, feed, open_stream, pieces, singles

if TYPE_CHECKING:
    from gateway.streams.stream import Stream

COMPLETE = frozenset({Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL})
FINISHED = [sample for sample in SAMPLES if sample.verdict in COMPLETE]
COMPLETING = [sample for sample in SAMPLES if sample.completes_at is not None]
GATEWAYS_OWN = (b"data: {", b"event: error\n", b"event: response.failed\n")
every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
every_short_sample = pytest.mark.parametrize("sample", SHORT, ids=name_of)
every_long_sample = pytest.mark.parametrize("sample", LONG, ids=name_of)


@pytest.mark.parametrize("protocol", [protocol.name for protocol in ALL])
@pytest.mark.parametrize("role", ["complete", "cut", "error", "keepalive"])
def test_each_protocol_has_samples_of_what_matters(protocol: str, role: str) -> None:
    assert any(s.role == role for s in SAMPLES if s.protocol == protocol)


def test_each_sample_file_is_in_the_index_once() -> None:
    files = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.sse"))
    assert files == sorted(sample.file for sample in SAMPLES)


# Whole.


def assert_as_indexed(sample: Sample, stream: Stream) -> None:
    assert stream.verdict is sample.verdict
    assert stream.reader_faults == 0
    if sample.finish_reason is not None:
        assert stream.finish_reason == sample.finish_reason
    if sample.model is not None:
        assert stream.model == sample.model
    for name, count in (sample.usage or {}).items():
        assert getattr(stream.usage, name) == count, name
    error = stream.error
    assert (error is not None) == (sample.verdict is Verdict.PROVIDER_ERROR)
    if error is not None:
        assert (error.type, error.retryable) == (sample.error_type, sample.retryable)
        assert sample.error_code is None or error.code == sample.error_code
        assert 400 <= error.status < 600


@every_sample
def test_a_whole_sample_gets_its_verdict_its_reason_and_its_counts(sample: Sample) -> None:
    stream = open_stream(sample.protocol)

    feed(stream, [sample.data], reset=sample.reset)

    assert_as_indexed(sample, stream)


@pytest.mark.parametrize("sample", FINISHED, ids=name_of)
def test_a_finished_stream_passes_byte_for_byte(sample: Sample) -> None:
    out = feed(open_stream(sample.protocol), [sample.data], reset=sample.reset)

    missing_blank = out[len(sample.data) :]
    assert out.startswith(sample.data)
    assert missing_blank == (b"" if sample.data.endswith((b"\n\n", b"\n", b"\r")) else b"\n\n")


@every_short_sample
def test_byte_by_byte_is_as_whole(sample: Sample) -> None:
    stream = open_stream(sample.protocol)

    out = feed(stream, singles(sample.data), reset=sample.reset)

    assert_as_indexed(sample, stream)
    assert out == feed(open_stream(sample.protocol), [sample.data], reset=sample.reset)


@every_sample
@settings(max_examples=8, deadline=None)
@given(cuts=CUTS)
def test_any_chunking_gives_the_same_bytes_and_the_same_verdict(
    sample: Sample, cuts: list[int]
) -> None:
    stream = open_stream(sample.protocol)

    out = feed(stream, pieces(sample.data, cuts), reset=sample.reset)

    assert_as_indexed(sample, stream)
    assert out == feed(open_stream(sample.protocol), [sample.data], reset=sample.reset)


# Cut.


def expected_verdicts(sample: Sample, cut: int) -> frozenset[Verdict]:
    """What a sample may be taken for when only its first ``cut`` bytes came."""
    if sample.fails_at is not None and cut >= sample.fails_at:
        return frozenset({Verdict.PROVIDER_ERROR})
    if sample.completes_at is not None and cut >= sample.completes_at:
        return COMPLETE
    if sample.done_at is not None and cut >= sample.done_at:
        return frozenset({Verdict.DONE_WITHOUT_FINISH})
    if sample.protocol == "generic":
        return frozenset({Verdict.OPAQUE, Verdict.TORN})
    return CUT_VERDICTS - {Verdict.DONE_WITHOUT_FINISH, Verdict.RESET}


def assert_told_truly(sample: Sample, cut: int) -> None:
    head = sample.data[:cut]
    stream = open_stream(sample.protocol)

    out = feed(stream, [head])

    assert stream.verdict in expected_verdicts(sample, cut), f"cut at {cut}: {stream.verdict}"
    assert stream.cut == (stream.verdict in CUT_VERDICTS and not stream_may_end_so(sample, stream))
    assert_whole_events_only(sample, stream, head, out)
    if stream.verdict in COMPLETE:
        assert out.startswith(sample.data[: sample.completes_at])


def stream_may_end_so(sample: Sample, stream: Stream) -> bool:
    """``[DONE]`` alone is the end of a stream of which nothing is known."""
    return sample.protocol == "generic" and stream.verdict is Verdict.DONE_WITHOUT_FINISH


def assert_whole_events_only(sample: Sample, stream: Stream, head: bytes, out: bytes) -> None:
    """What was handed on: the provider's blocks in order, with errors of the gateway's between
    them; the tail of the provider's bytes only with the blank line that it lacks."""
    if sample.protocol == "generic":
        assert out == head
        assert stream.must_abort == stream.cut
        return
    if not stream.committed:
        assert out == b""
        return
    given, tail = reference.split(head)
    if head.endswith(b"\r") and given and not tail and (b"\n" in head or head.count(b"\r") == 1):
        given[-1] += b"\n"  # half a line end is made whole, too
    passed, torn = reference.split(out)
    assert torn == b""
    told = [block for block in passed if block.startswith(GATEWAYS_OWN) and _is_failure(block)]
    taken = 0
    for block in passed:
        if (taken < len(given) and block == given[taken]) or (
            stream.repaired and taken == len(given) and _is_completed(block, tail)
        ):
            taken += 1
        else:
            assert block in told
    held_back = stream.cut and stream.verdict is Verdict.DONE_WITHOUT_FINISH
    assert held_back or taken >= len(given)
    assert not stream.must_abort
    assert not stream.cut or stream.must_abort or passed[-1] in told


def _is_completed(block: bytes, tail: bytes) -> bool:
    """Whether the block is the tail and a blank line."""
    rest = block[len(tail) :]
    return block.startswith(tail) and rest != b"" and not rest.strip(b"\r\n")


def _is_failure(block: bytes) -> bool:
    (event,) = reference.read(block)[0]
    told = json.loads(event.data or b"{}")
    return bool(told.get("error")) or told.get("type") == "response.failed"


CHECKED: set[int] = set()
"""Many samples of a protocol begin alike: what was checked once need not be checked again."""


@every_short_sample
def test_a_stream_cut_at_any_byte_is_told_truly(sample: Sample) -> None:
    for cut in range(len(sample.data) + 1):
        case = hash((sample.protocol, expected_verdicts(sample, cut), sample.data[:cut]))
        if case not in CHECKED:
            assert_told_truly(sample, cut)
            CHECKED.add(case)


@every_long_sample
def test_a_long_stream_cut_at_its_edges_and_anywhere_is_told_truly(sample: Sample) -> None:
    edges = [sample.completes_at or 0, *reference.read(sample.data)[1]]
    near = {edge + step for edge in edges for step in range(-3, 4)}
    anywhere = {random.Random(7).randrange(len(sample.data)) for _ in range(12)}
    for cut in sorted(near | anywhere):
        if 0 <= cut <= len(sample.data):
            assert_told_truly(sample, cut)


@every_short_sample
def test_where_a_stream_is_split_in_two_makes_no_difference(sample: Sample) -> None:
    whole = feed(open_stream(sample.protocol), [sample.data], reset=sample.reset)
    # What lies between is as good as the bytes beside the line ends; each byte is in the shortest.
    ends = [match.end() for match in re.finditer(rb"[\r\n]", sample.data)]
    near = {end + step for end in ends for step in range(-4, 9)}
    cuts = range(1, len(sample.data)) if len(sample.data) < 500 else sorted(near)
    for cut in cuts:
        stream = open_stream(sample.protocol)

        halves = [sample.data[:cut], sample.data[cut:]]

        assert feed(stream, halves, reset=sample.reset) == whole, f"split at {cut}"
        assert stream.verdict is sample.verdict


@pytest.mark.parametrize("sample", COMPLETING, ids=name_of)
def test_a_stream_completes_with_the_last_byte_of_its_finish_and_not_before(
    sample: Sample,
) -> None:
    assert sample.completes_at is not None
    before, after = open_stream(sample.protocol), open_stream(sample.protocol)

    feed(before, [sample.data[: sample.completes_at - 1]])
    out = feed(after, [sample.data[: sample.completes_at]])

    assert before.verdict not in COMPLETE
    assert after.verdict in COMPLETE
    assert sample.data[sample.completes_at - 1 : sample.completes_at] == b"}"
    assert after.repaired
    assert out.rstrip(b"\r\n") == sample.data[: sample.completes_at]


@every_sample
def test_a_broken_connection_never_makes_a_cut_stream_complete(sample: Sample) -> None:
    at = (sample.completes_at or sample.fails_at or sample.done_at or len(sample.data) + 1) - 1
    stream = open_stream(sample.protocol)

    feed(stream, [sample.data[:at]], reset=True)

    assert stream.verdict in (Verdict.RESET, Verdict.TORN)
    assert stream.cut
