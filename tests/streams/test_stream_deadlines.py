"""When silence becomes a stall, and when a lull after the finish ends an answer."""

from __future__ import annotations

import gzip
import zlib

import pytest

from gateway.errors import Code
from gateway.protocols import BY_NAME
from gateway.streams.coding import Decoder
from gateway.streams.events import Fault, Hold, Verdict
from gateway.streams.limits import TRAILER, Limits
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream
from tests.samples.catalog import BY_FILE
from tests.streams import chat, reference
from tests.streams.feeding import open_stream

LIMITS = Limits(first_event=280.0, gap=290.0, gap_alive=600.0, silent_phase=900.0, linger=2.0)
TOOL = chat.event(
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"name": "f"}}]}}]}
)


def test_the_first_event_has_its_own_limit_from_the_request_on() -> None:
    stream = open_stream(limits=LIMITS)

    assert stream.deadline == 280.0
    assert stream.expire(279.9) == b""
    assert not stream.closed
    assert stream.expire(280.0) == b""
    assert stream.verdict is Verdict.STALLED_FIRST
    assert stream.retryable


def test_until_the_first_content_silence_is_normal() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE, 10.0)
    silent = stream.deadline
    stream.receive_data(chat.PING, 100.0)

    assert silent == 10.0 + 290.0
    assert stream.deadline == 100.0 + 290.0
    stream.receive_data(chat.PING, 800.0)
    assert stream.deadline == 10.0 + 900.0


def test_between_contents_the_gap_rules_on_a_silent_line() -> None:
    stream = open_stream(limits=Limits(gap=50.0))
    stream.receive_data(chat.ROLE + chat.text(), 10.0)

    assert stream.deadline == 60.0
    stream.receive_data(chat.text(), 30.0)
    assert stream.deadline == 80.0


def test_heartbeats_stretch_the_gap_but_not_beyond_its_longer_limit() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text(), 10.0)

    stream.receive_data(chat.PING, 200.0)
    assert stream.deadline == 200.0 + 290.0
    stream.receive_data(chat.PING, 450.0)
    assert stream.deadline == 10.0 + 600.0


def test_where_the_protocol_says_so_silence_may_last_longer() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + TOOL, 10.0)

    assert stream.deadline == 10.0 + 290.0
    stream.receive_data(chat.PING, 200.0)
    stream.receive_data(chat.PING, 400.0)
    stream.receive_data(chat.PING, 700.0)
    assert stream.deadline == 10.0 + 900.0


def test_a_short_silent_phase_rules_heartbeats_or_not() -> None:
    stream = open_stream(limits=Limits(silent_phase=40.0))
    stream.receive_data(chat.ROLE + TOOL, 10.0)

    assert stream.deadline == 50.0
    stream.receive_data(chat.PING, 20.0)
    assert stream.deadline == 50.0


def test_a_stall_is_told_with_its_length_and_code() -> None:
    stream = open_stream(limits=Limits(gap=50.0))
    stream.receive_data(chat.ROLE + chat.text(), 10.0)

    (told,) = chat.errors_in(stream.expire(61.2))

    assert stream.verdict is Verdict.STALLED
    assert told["code"] == Code.STALLED
    assert told["message"].startswith("Upstream response timed out: no event from the provider")
    assert "51.2 s" in told["message"]
    assert not stream.must_abort


def test_a_stall_says_whether_the_line_was_alive() -> None:
    silent, alive = open_stream(limits=LIMITS), open_stream(limits=LIMITS)
    for stream in (silent, alive):
        stream.receive_data(chat.ROLE + chat.text(), 10.0)
    alive.receive_data(chat.PING, 20.0)

    assert (silent.line, alive.line) == ("silent", "heartbeats")
    alive.receive_data(chat.text(), 30.0)
    assert alive.line == "silent"


def test_no_limits_mean_no_deadline() -> None:
    stream = open_stream(limits=None)
    stream.receive_data(chat.ROLE, 10.0)

    assert stream.deadline is None
    assert stream.expire(1e9) == b""
    assert not stream.closed


def test_time_in_which_the_client_took_nothing_does_not_count() -> None:
    stream = open_stream(limits=LIMITS)
    stream.credit(5.0)
    assert stream.deadline == 285.0
    stream.receive_data(chat.ROLE + chat.text(), 10.0)
    stream.receive_data(chat.PING, 20.0)
    stream.credit(100.0)

    assert stream.deadline == 20.0 + 100.0 + 290.0
    assert stream.last_progress_at == 10.0
    stream.receive_data(chat.finish(), 130.0)
    stream.credit(1.5)
    assert stream.deadline == 131.5 + 2.0


def test_time_in_which_the_client_took_nothing_does_not_shorten_a_hold() -> None:
    stream = open_stream(hold_max=240.0)
    stream.receive_data(chat.ROLE, 1.0)

    stream.credit(10.0)

    assert stream.deadline == 250.0


def test_credit_after_the_end_sets_no_deadline() -> None:
    stream = open_stream()
    stream.receive_eof(1.0)

    stream.credit(1.0)

    assert stream.deadline is None


# The end of the client's answer while the upstream's is open.


def test_the_end_marker_ends_the_answer_almost_at_once() -> None:
    stream = open_stream(limits=LIMITS)
    body = chat.ROLE + chat.text() + chat.finish() + chat.DONE
    stream.receive_data(body, 10.0)

    assert stream.deadline == 10.0 + TRAILER
    assert stream.expire(10.0 + TRAILER) == b""
    assert stream.verdict is Verdict.COMPLETE
    assert stream.lingered
    assert stream.closed


def test_a_finish_without_end_marker_waits_for_what_may_follow() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.finish(), 10.0)
    assert stream.deadline == 12.0

    usage = chat.event({"choices": [], "usage": {"prompt_tokens": 1}})
    assert stream.receive_data(usage, 11.0) == usage
    assert stream.deadline == 13.0
    stream.receive_data(chat.PING, 12.0)
    assert stream.deadline == 13.0
    stream.expire(13.0)
    assert stream.verdict is Verdict.COMPLETE


ENDS_WITH_TEXT = [
    ("openai_chat", chat.text(), chat.event(
        {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}
    )),
    ("openai_completions", chat.event({"choices": [{"index": 0, "text": "a"}]}), chat.event(
        {"choices": [{"index": 0, "text": "!", "finish_reason": "stop"}]}
    )),
    ("openai_completions", chat.event({"content": "a", "stop": False}), chat.event(
        {"content": "!", "stop": True, "stop_type": "eos"}
    )),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "text", "last"), ENDS_WITH_TEXT)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_finish_that_comes_with_text_is_one_however_it_was_read(
    protocol: str, text: bytes, last: bytes, line_end: bytes
) -> None:
    text, last = text.replace(b"\n", line_end), last.replace(b"\n", line_end)
    whole, each = open_stream(protocol, limits=LIMITS), open_stream(protocol, limits=LIMITS)
    whole.receive_data(text + text + last, 3.0)

    for block in (text, text, last):
        assert each.receive_data(block, 3.0) == block

    assert each.deadline == whole.deadline == 5.0
    each.expire(5.0)
    assert each.verdict is Verdict.COMPLETE


def test_of_an_unknown_protocol_any_event_may_be_content() -> None:
    stream = open_stream("generic", limits=Limits(gap=50.0, silent_phase=900.0))
    stream.receive_data(b"data: a\n\n", 10.0)

    assert stream.deadline == 60.0


def test_one_of_two_choices_does_not_end_the_answer() -> None:
    stream = open_stream(choices=2, limits=LIMITS)
    stream.receive_data(chat.text(index=0) + chat.finish(index=0), 10.0)
    assert stream.deadline == 10.0 + 290.0

    stream.receive_data(chat.text(index=1) + chat.finish(index=1), 20.0)
    assert stream.deadline == 22.0


def test_a_silence_while_another_choice_is_awaited_is_a_stall() -> None:
    stream = open_stream(choices=2, limits=LIMITS)
    stream.receive_data(chat.text(index=0) + chat.finish(index=0), 10.0)

    (told,) = chat.errors_in(stream.expire(300.0))

    assert stream.verdict is Verdict.STALLED
    assert told["code"] == Code.STALLED
    assert not stream.lingered


def test_an_error_waits_for_what_may_follow() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.error(), 10.0)

    assert stream.deadline == 12.0
    stream.expire(12.0)
    assert stream.verdict is Verdict.PROVIDER_ERROR
    assert stream.lingered


@pytest.mark.parametrize(
    ("file", "lull"),
    [
        ("anthropic_messages/complete.sse", TRAILER),
        ("openai_responses/complete.sse", TRAILER),
        ("openai_responses/incomplete_max_tokens.sse", TRAILER),
        ("openai_responses/failed_server_error.sse", TRAILER),
        ("openai_completions/complete.sse", TRAILER),
        ("llamacpp/native_complete.sse", 2.0),
        ("anthropic_messages/error_overloaded.sse", 2.0),
        ("gemini_sse/complete.sse", 290.0),
        ("gemini_sse/error_frame.sse", 2.0),
        ("generic_sse/complete_done.sse", 290.0),
    ],
)
def test_how_long_an_upstream_may_linger_after_its_last_event(file: str, lull: float) -> None:
    sample = BY_FILE[file]
    stream = open_stream(sample.protocol, limits=LIMITS)
    body = b"".join(reference.split(sample.data)[0])
    stream.receive_data(body, 10.0)
    assert stream.deadline == 10.0 + lull

    stream.expire(10.0 + lull)

    assert stream.verdict is sample.verdict
    assert stream.closed
    assert not stream.must_abort


def test_a_tail_that_hangs_after_the_finish_is_dropped_when_the_lull_ends() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.finish() + b"data: [DO", 10.0)

    assert stream.expire(12.0) == b""
    assert stream.verdict is Verdict.COMPLETE


EMPTY = chat.event({"choices": [{"index": 0, "delta": {}, "finish_reason": None}]})


@pytest.mark.parametrize("beat", [EMPTY, b"data: {}\n\n", b"data: null\n\n", chat.PING])
def test_what_says_nothing_after_the_finish_ends_nothing_later(beat: bytes) -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.finish(), 10.0)
    stream.receive_data(beat, 11.0)
    assert stream.deadline == 12.0


@pytest.mark.parametrize("beat", [b"data: {}\n\n", b"data: null\n\n", b"data: []\r\n\r\n"])
@pytest.mark.parametrize("protocol", [name for name in BY_NAME if name != "generic"])
def test_an_empty_value_is_a_heartbeat(protocol: str, beat: bytes) -> None:
    stream = open_stream(protocol, limits=LIMITS)
    stream.receive_data(beat, 10.0)
    assert (stream.heartbeats, stream.opaque_events) == (1, 0)


def test_what_trails_an_answer_cannot_go_on_for_ever() -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.finish(), 10.0)
    for second in range(11, 400):
        if stream.deadline is None or stream.deadline <= second:
            break
        stream.receive_data(b'data: {"something":"else"}\n\n', float(second))
    assert stream.deadline == 10.0 + LIMITS.gap
    stream.expire(stream.deadline)
    assert stream.verdict is Verdict.COMPLETE


def test_observing_sets_no_deadline_ever() -> None:
    stream = open_stream(observe=True, limits=LIMITS)
    for block in (chat.ROLE, chat.text(), chat.finish(), chat.DONE):
        stream.receive_data(block, 10.0)
        assert stream.deadline is None


# After an event that was too long to read.


def unread_stream() -> Stream:
    """A stream whose last event, read at 10, was too long to be read."""
    stream = open_stream(limits=LIMITS, max_event=200)
    stream.receive_data(chat.ROLE + chat.text() + chat.text("x" * 400), 10.0)
    return stream


def test_a_stall_after_a_too_long_event_is_no_clean_end_and_no_error_event() -> None:
    stream = unread_stream()
    assert stream.deadline == 300.0

    assert stream.expire(300.0) == b""

    assert stream.verdict is Verdict.STALLED
    assert stream.must_abort


def test_giving_up_after_a_too_long_event_is_no_clean_end_and_no_error_event() -> None:
    stream = unread_stream()
    fault = Fault(Code.DRAINING, "The gateway is being stopped. Retry your request.")

    assert stream.give_up(fault, Verdict.DRAINED, 20.0) == b""

    assert stream.verdict is Verdict.DRAINED
    assert stream.must_abort


# Compressed streams.


ANSWER = chat.ROLE + chat.text() + chat.finish()


def compressed_stream() -> Stream:
    reader = BY_NAME["openai_chat"].reader(1)
    return Stream("openai_chat", reader, Settings(limits=LIMITS), 0.0, decoder=Decoder("gzip"))


@pytest.mark.parametrize(("body", "lull"), [(ANSWER, 2.0), (ANSWER + chat.DONE, TRAILER)])
def test_a_compressed_answer_ends_with_a_lull_once_its_coding_has_ended(
    body: bytes, lull: float
) -> None:
    stream = compressed_stream()

    stream.receive_data(gzip.compress(body), 10.0)

    assert stream.deadline == 10.0 + lull
    assert stream.expire(10.0 + lull) == b""
    assert stream.verdict is Verdict.COMPLETE
    assert stream.lingered
    assert not stream.must_abort


def test_a_compressed_answer_waits_for_the_end_of_its_coding() -> None:
    stream = compressed_stream()
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    stream.receive_data(packer.compress(ANSWER + chat.DONE) + packer.flush(zlib.Z_SYNC_FLUSH), 10.0)
    assert stream.deadline == 10.0 + 290.0

    stream.receive_data(packer.flush(), 11.0)

    assert stream.deadline == 10.0 + TRAILER


NEWS = chat.event({"messages": ["hi"], "error": "tool weather failed, trying another"})


def test_in_an_unknown_protocol_an_error_ends_nothing() -> None:
    """Agents' states and tools' results hold errors that are none of the stream's."""
    stream = open_stream("generic", limits=LIMITS)
    assert stream.receive_data(NEWS, 10.0) == NEWS
    assert stream.deadline == 300.0
    assert stream.receive_data(NEWS, 290.0) == NEWS
    assert stream.receive_eof(290.0) == b""
    assert (stream.verdict, stream.cut, stream.must_abort) == (Verdict.PROVIDER_ERROR, False, False)


@pytest.mark.parametrize(("rest", "verdict"), [(b"", Verdict.RESET), (b"data: {", Verdict.RESET)])
def test_in_an_unknown_protocol_an_error_excuses_no_break(rest: bytes, verdict: Verdict) -> None:
    stream = open_stream("generic")
    stream.receive_data(NEWS + rest, 10.0)
    stream.receive_reset(11.0)
    assert (stream.verdict, stream.must_abort) == (verdict, True)


def test_in_an_unknown_protocol_an_error_excuses_no_torn_event() -> None:
    stream = open_stream("generic")
    stream.receive_data(NEWS + b"data: {", 10.0)
    stream.receive_eof(11.0)
    assert (stream.verdict, stream.must_abort) == (Verdict.TORN, True)


def test_in_an_unknown_protocol_what_follows_the_end_marker_was_not_the_end() -> None:
    stream = open_stream("generic")
    stream.receive_data(NEWS + chat.DONE + NEWS, 10.0)
    stream.receive_reset(11.0)
    assert stream.must_abort


PIECE = chat.event({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]})
GEMINI_PIECE = chat.event(
    {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}
)


@pytest.mark.parametrize(("protocol", "piece"), [("openai_chat", PIECE), ("gemini", GEMINI_PIECE)])
def test_a_stop_with_every_piece_is_no_end_where_the_stream_stalls(
    protocol: str, piece: bytes
) -> None:
    stream = open_stream(protocol, limits=Limits(gap=50.0, gap_alive=50.0))
    stream.receive_data(piece * 2, 10.0)
    assert stream.deadline == 60.0
    told = stream.expire(60.0)
    assert stream.verdict is Verdict.STALLED
    assert Code.STALLED.value.encode() in told


@pytest.mark.parametrize(("protocol", "piece"), [("openai_chat", PIECE), ("gemini", GEMINI_PIECE)])
def test_a_stop_with_every_piece_is_no_end_where_the_transport_breaks(
    protocol: str, piece: bytes
) -> None:
    stream = open_stream(protocol)
    stream.receive_data(piece * 2, 10.0)
    assert stream.receive_reset(11.0) != b""
    assert (stream.verdict, stream.cut) == (Verdict.RESET, True)


@pytest.mark.parametrize(("protocol", "piece"), [("openai_chat", PIECE), ("gemini", GEMINI_PIECE)])
def test_an_answer_in_one_piece_is_whole_where_the_line_is_held(
    protocol: str, piece: bytes
) -> None:
    stream = open_stream(protocol, limits=Limits(gap=50.0, gap_alive=50.0))
    stream.receive_data(piece, 10.0)
    assert stream.expire(60.0) == b""
    assert (stream.verdict, stream.lingered) == (Verdict.COMPLETE, True)


@pytest.mark.parametrize("hold", list(Hold))
@pytest.mark.parametrize(("protocol", "piece"), [("openai_chat", PIECE), ("gemini", GEMINI_PIECE)])
def test_a_stop_with_every_piece_is_no_end_inside_an_event(
    protocol: str, piece: bytes, hold: Hold
) -> None:
    stream = open_stream(protocol, hold=hold)
    stream.receive_data(piece * 2 + piece[:-9], 10.0)
    told = stream.receive_eof(11.0)
    assert (stream.verdict, stream.cut) == (Verdict.TORN, True)
    assert (told != b"") == (hold is not Hold.FINISH)
    assert stream.retryable == (hold is Hold.FINISH)


def test_a_stop_with_every_piece_is_an_end_where_the_stream_ends() -> None:
    stream = open_stream("openai_chat", hold=Hold.FINISH)
    assert stream.receive_data(PIECE * 2, 10.0) == b""
    assert stream.receive_eof(11.0) == PIECE * 2
    assert stream.verdict is Verdict.COMPLETE


AZURE = chat.event({"choices": [{"index": 0, "delta": {}, "content_filter_offsets": {"end": 9}}]})
NO_CHOICE = chat.event({"choices": [], "moderation": {"flagged": False}})


@pytest.mark.parametrize("trailer", [AZURE, NO_CHOICE])
def test_what_trails_a_finish_is_waited_for_while_it_keeps_coming(trailer: bytes) -> None:
    stream = open_stream(limits=LIMITS)
    stream.receive_data(chat.ROLE + chat.text() + chat.finish(), 10.0)
    for now in (11.5, 13.0, 14.5):
        assert stream.receive_data(trailer, now) == trailer
        assert stream.deadline == now + 2.0


@pytest.mark.parametrize("chunks", [[b"Hello wor"], [b"H", b"ello", b" wor"], [b'{"t":"a"}\n']])
def test_what_is_no_events_has_no_deadline(chunks: list[bytes]) -> None:
    """As any other body that passes: nobody knows what is progress in it."""
    stream = open_stream("generic", limits=LIMITS)
    for chunk in chunks:
        stream.receive_data(chunk, 10.0)
    assert stream.deadline is None


@pytest.mark.parametrize("chunks", [[b"data: a"], [b"d", b"a", b"t", b"a", b": a"], [b": ping\n"]])
def test_what_begins_like_an_event_has_one(chunks: list[bytes]) -> None:
    stream = open_stream("generic", limits=LIMITS)
    for chunk in chunks:
        stream.receive_data(chunk, 10.0)
    assert stream.deadline == 280.0
