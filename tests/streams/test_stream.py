"""What the stream hands on, how it ends, and what a client is told."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
import zstandard

from gateway.errors import Code
from gateway.streams.coding import Decoder
from gateway.streams.events import Fault, Hold, Phase, Verdict
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream
from tests.streams import chat
from tests.streams.feeding import feed, open_stream, singles

DRAIN = Fault(Code.DRAINING, "The gateway is being stopped. Retry your request.")


def committed_stream(**settings: object) -> Stream:
    """A stream of which the client has seen something."""
    stream = open_stream(**settings)  # type: ignore[arg-type]
    assert stream.receive_data(chat.ROLE + chat.text(), 1.0) == chat.ROLE + chat.text()
    return stream


# Handing on.


def test_whole_events_only_are_handed_on() -> None:
    stream = committed_stream()
    more = chat.text("more")

    assert stream.receive_data(more[:30], 2.0) == b""
    assert not stream.at_boundary
    assert stream.receive_data(more[30:] + chat.text()[:9], 2.0) == more
    assert not stream.at_boundary


def test_comments_pass_at_once_and_leave_a_boundary() -> None:
    stream = committed_stream()

    assert stream.receive_data(b": ping\n", 2.0) == b": ping\n"
    assert stream.at_boundary


def test_an_empty_read_is_nothing() -> None:
    stream = open_stream()

    assert stream.receive_data(b"", 1.0) == b""
    assert stream.bytes_received == 0


def test_nothing_is_handed_on_after_the_end() -> None:
    stream = committed_stream()
    feed(stream, [chat.finish(), chat.DONE])

    assert stream.closed
    assert stream.receive_data(chat.text(), 3.0) == b""
    assert stream.receive_eof(3.0) == b""
    assert stream.receive_reset(3.0) == b""
    assert stream.expire(999.0) == b""
    assert stream.give_up(DRAIN, Verdict.DRAINED, 3.0) == b""
    stream.client_gone()
    assert stream.verdict is Verdict.COMPLETE


# Commit and hold.


def test_nothing_is_handed_on_before_the_first_content() -> None:
    stream = open_stream()

    assert stream.receive_data(chat.PING + chat.ROLE, 1.0) == b""
    assert not stream.committed
    assert stream.receive_data(chat.text(), 2.0) == chat.PING + chat.ROLE + chat.text()
    assert stream.committed


def test_the_first_event_is_enough_where_the_hold_says_so() -> None:
    stream = open_stream(hold=Hold.FIRST_EVENT)

    assert stream.receive_data(chat.PING, 1.0) == b""
    assert stream.receive_data(chat.ROLE, 1.0) == chat.PING + chat.ROLE


def test_content_commits_although_the_hold_waits_for_an_event() -> None:
    stream = open_stream(hold=Hold.FIRST_EVENT)

    assert stream.receive_data(chat.text(), 1.0) == chat.text()


@pytest.mark.parametrize("hold", [Hold.FIRST_EVENT, Hold.FIRST_CONTENT])
def test_a_finish_without_content_is_an_answer(hold: Hold) -> None:
    stream = open_stream(hold=hold)

    assert stream.receive_data(chat.ROLE, 1.0) == (chat.ROLE if hold is Hold.FIRST_EVENT else b"")
    assert stream.receive_data(chat.finish(), 1.0).endswith(chat.finish())


def test_what_is_not_understood_releases_the_hold() -> None:
    stream = open_stream()
    unknown = chat.event({"something": "new"})

    assert stream.receive_data(unknown, 1.0) == unknown
    assert stream.opaque_events == 1


@pytest.mark.parametrize("end", ["done", "eof", "linger"])
def test_a_stream_held_until_its_finish_is_released_whole(end: str) -> None:
    stream = open_stream(hold=Hold.FINISH)
    body = chat.ROLE + chat.text() + chat.finish()

    assert stream.receive_data(body, 1.0) == b""
    if end == "done":
        assert stream.receive_data(chat.DONE, 1.0) == body + chat.DONE
    elif end == "eof":
        assert stream.receive_eof(1.0) == body
    else:
        assert stream.expire(3.0) == body
    assert stream.committed


def test_an_error_after_the_finish_is_unseen_while_all_is_held() -> None:
    stream = open_stream(hold=Hold.FINISH)

    assert feed(stream, [chat.text(), chat.finish("length"), chat.error(), chat.DONE]) == b""
    assert stream.verdict is Verdict.PROVIDER_ERROR
    assert stream.retryable


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_before_the_commit_says_nothing_and_can_be_retried(reset: bool) -> None:
    stream = open_stream()

    assert feed(stream, [chat.ROLE], reset=reset) == b""
    assert stream.retryable
    assert stream.cut
    assert not stream.must_abort


def test_more_than_may_be_held_is_committed() -> None:
    stream = open_stream(hold_max_bytes=len(chat.ROLE))

    assert stream.receive_data(chat.ROLE, 1.0) == b""
    assert stream.receive_data(chat.PING, 1.0) == chat.ROLE + chat.PING
    assert stream.committed


def test_an_unfinished_event_counts_towards_what_may_be_held() -> None:
    stream = open_stream(hold_max_bytes=2 * len(chat.ROLE))
    long = chat.text("x" * 1000)
    assert stream.receive_data(chat.ROLE + long[:20], 1.0) == b""
    assert not stream.committed

    assert stream.receive_data(long[20:100], 1.0) == chat.ROLE

    assert stream.committed
    assert stream.receive_data(long[100:], 1.0) == long


def test_an_event_that_is_longer_than_may_be_held_commits_before_it_is_whole() -> None:
    stream = open_stream(hold_max_bytes=50)
    long = chat.text("x" * 1000)

    assert stream.receive_data(long[:100], 1.0) == b""
    assert stream.committed
    assert not stream.at_boundary
    assert stream.receive_data(long[100:], 1.0) == long


def test_what_is_held_for_long_enough_is_committed() -> None:
    stream = open_stream(hold_max=240.0)
    stream.receive_data(chat.ROLE, 1.0)

    assert stream.deadline == 240.0
    assert stream.expire(240.0) == chat.ROLE
    assert stream.committed
    assert not stream.closed
    assert stream.deadline == 1.0 + 290.0


def test_a_hold_that_runs_out_before_anything_came_commits_what_comes() -> None:
    """Until then nobody knows whether it is going to be a stream at all."""
    stream = open_stream(hold_max=240.0)

    assert stream.deadline == 280.0
    assert stream.expire(240.0) == b""
    assert not stream.committed
    assert stream.receive_data(chat.ROLE, 241.0) == b""
    assert stream.deadline == 240.0
    assert stream.expire(241.0) == chat.ROLE
    assert stream.committed


def test_once_committed_nothing_can_be_retried() -> None:
    stream = committed_stream()

    feed(stream, [])

    assert stream.cut
    assert not stream.retryable


def test_an_open_stream_cannot_be_retried() -> None:
    assert not open_stream().retryable


# The truth after the commit.


@pytest.mark.parametrize(
    ("rest", "reset", "verdict"),
    [
        (b"", False, Verdict.BARE_EOF),
        (b"", True, Verdict.RESET),
        (b'data: {"choi', False, Verdict.TORN),
        (b"data: not json\n", False, Verdict.TORN),
        (b"event: error\n", False, Verdict.TORN),
        (chat.text()[:-1], False, Verdict.TORN),
        (chat.DONE, False, Verdict.DONE_WITHOUT_FINISH),
        (b"data: [DONE]", False, Verdict.DONE_WITHOUT_FINISH),
        (b"data: [DONE]\n", True, Verdict.DONE_WITHOUT_FINISH),
    ],
)
def test_a_cut_is_told_in_band_and_the_connection_ends_cleanly(
    rest: bytes, reset: bool, verdict: Verdict
) -> None:
    stream = committed_stream()

    out = feed(stream, [rest] if rest else [], reset=reset)

    assert stream.verdict is verdict
    assert stream.cut
    assert not stream.must_abort
    (told,) = chat.errors_in(out)
    assert told["code"] == "upstream_stream_truncated"
    assert told["message"].startswith("Upstream connection lost: ")
    assert told["message"].lower().endswith("retry your request.")
    assert out.endswith(b"}\n\n")
    assert b"[DONE]" not in out


def test_an_end_marker_without_a_finish_is_held_back() -> None:
    stream = committed_stream()

    out = stream.receive_data(chat.text("more") + chat.DONE + chat.text("late"), 2.0)

    assert out.startswith(chat.text("more"))
    assert stream.closed
    assert chat.DONE not in out
    assert chat.text("late") not in out
    assert len(chat.errors_in(out)) == 1


def test_an_end_marker_alone_is_an_end_where_no_finish_is_ever_sent() -> None:
    stream = open_stream(finish_optional=True)
    body = chat.ROLE + chat.text() + chat.DONE

    assert feed(stream, [body]) == body
    assert stream.verdict is Verdict.DONE_WITHOUT_FINISH
    assert not stream.cut
    assert stream.phase is Phase.IN_TEXT


def test_a_bare_end_is_still_a_cut_where_no_finish_is_ever_sent() -> None:
    stream = committed_stream(finish_optional=True)

    out = feed(stream, [])

    assert stream.verdict is Verdict.BARE_EOF
    assert len(chat.errors_in(out)) == 1


def test_an_end_marker_first_of_all_releases_a_hold_where_it_suffices() -> None:
    stream = open_stream(finish_optional=True)

    assert stream.receive_data(chat.ROLE + chat.DONE, 1.0) == chat.ROLE + chat.DONE


def test_nothing_at_all_is_empty() -> None:
    stream = open_stream()

    assert feed(stream, [chat.PING, b"\n"]) == b""
    assert stream.verdict is Verdict.EMPTY
    assert stream.retryable


def test_an_empty_stream_after_the_headers_went_out_is_told_in_band() -> None:
    stream = open_stream(hold_max=10.0)
    stream.receive_data(chat.PING, 1.0)
    stream.expire(10.0)

    (told,) = chat.errors_in(feed(stream, []))

    assert stream.verdict is Verdict.EMPTY
    assert "without a single event" in told["message"]


def test_a_reset_after_the_finish_is_still_complete() -> None:
    stream = committed_stream()

    assert feed(stream, [chat.finish()], reset=True) == chat.finish()
    assert stream.verdict is Verdict.COMPLETE
    assert not stream.must_abort
    assert not stream.cut


@pytest.mark.parametrize("reset", [False, True])
def test_a_transport_that_breaks_after_the_finish_is_noted(reset: bool) -> None:
    whole, cut = committed_stream(), committed_stream()

    feed(whole, [chat.finish()], reset=reset)
    feed(cut, [], reset=reset)

    assert whole.broke_after_finish == reset
    assert not cut.broke_after_finish


# Several choices.


ONE_OF_TWO = chat.text(index=0) + chat.finish(index=0)


def test_a_provider_that_gives_fewer_choices_than_asked_for_completes_at_its_end() -> None:
    stream = open_stream(choices=2)

    assert feed(stream, [ONE_OF_TWO]) == ONE_OF_TWO
    assert stream.verdict is Verdict.COMPLETE
    assert stream.phase is Phase.AFTER_FINISH


def test_its_last_event_may_bring_text_and_lack_its_blank_line() -> None:
    last = chat.event(
        {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}
    )
    stream = open_stream(choices=2)

    assert feed(stream, [chat.text() + last[:-2]]) == chat.text() + last
    assert stream.verdict is Verdict.COMPLETE


@pytest.mark.parametrize(
    ("rest", "reset", "verdict"),
    [
        (b"", True, Verdict.RESET),
        (b'data: {"choi', False, Verdict.TORN),
        (chat.text(index=1)[:-2], False, Verdict.TORN),
        (chat.text(index=1), False, Verdict.BARE_EOF),
    ],
)
def test_a_cut_while_another_choice_is_awaited_is_one(
    rest: bytes, reset: bool, verdict: Verdict
) -> None:
    stream = open_stream(choices=2)

    out = feed(stream, [ONE_OF_TWO + rest], reset=reset)

    assert stream.verdict is verdict
    assert len(chat.errors_in(out)) == 1
    assert not stream.broke_after_finish


def test_leaving_or_giving_up_while_another_choice_is_awaited_is_no_end() -> None:
    left, stopped = open_stream(choices=2), open_stream(choices=2)
    for stream in (left, stopped):
        stream.receive_data(ONE_OF_TWO, 1.0)

    left.client_gone()
    out = stopped.give_up(DRAIN, Verdict.DRAINED, 2.0)

    assert left.verdict is Verdict.CLIENT_GONE
    assert stopped.verdict is Verdict.DRAINED
    assert stopped.phase is Phase.IN_TEXT
    assert len(chat.errors_in(out)) == 1


@pytest.mark.parametrize("tail", [b"data: [DO", b"data: {", b": pi", b"event: x", b"data: [DONE"])
def test_a_torn_tail_after_the_finish_is_dropped(tail: bytes) -> None:
    stream = committed_stream()

    assert feed(stream, [chat.finish() + tail]) == chat.finish()
    assert stream.verdict is Verdict.COMPLETE
    assert not stream.repaired


# The blank line that a last event lacks.


@pytest.mark.parametrize(
    ("line_end", "missing", "added"),
    [
        (b"\n", b"\n", b"\n"),
        (b"\n", b"\n\n", b"\n\n"),
        (b"\r\n", b"\r\n", b"\r\n"),
        (b"\r\n", b"\r\n\r\n", b"\r\n\r\n"),
        (b"\r", b"\r", b"\r"),
        (b"\r", b"\r\r", b"\r\r"),
    ],
)
def test_a_finish_that_lacks_only_its_blank_line_is_completed(
    line_end: bytes, missing: bytes, added: bytes
) -> None:
    body = (chat.ROLE + chat.text() + chat.finish()).replace(b"\n", line_end)
    cut = body.removesuffix(missing)

    out = feed(stream := open_stream(), [cut])

    assert out == cut + added
    assert stream.verdict is Verdict.COMPLETE
    assert stream.repaired


@pytest.mark.parametrize("chunked", [False, True])
def test_an_end_marker_that_lacks_its_blank_line_is_completed(chunked: bool) -> None:
    body = chat.ROLE + chat.text() + chat.finish() + b"data: [DONE]"

    out = feed(open_stream(), singles(body) if chunked else [body])

    assert out == body + b"\n\n"


def test_what_trails_the_finish_whole_but_unterminated_passes() -> None:
    usage = chat.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
    stream = committed_stream()

    assert feed(stream, [chat.finish() + usage[:-2]]) == chat.finish() + usage
    assert (stream.usage.input, stream.usage.output) == (3, 4)


def test_an_error_that_lacks_its_blank_line_is_completed_and_told() -> None:
    stream = committed_stream()

    assert feed(stream, [chat.error()[:-2]]) == chat.error()
    assert stream.verdict is Verdict.PROVIDER_ERROR


def test_a_flat_error_that_lacks_its_blank_line_is_followed_by_one_that_raises() -> None:
    stream = committed_stream()
    flat = chat.event({"object": "error", "message": "boom", "type": "InternalServerError"})

    out = feed(stream, [flat[:-2]])

    assert out.startswith(flat)
    assert [told["message"] for told in chat.errors_in(out[len(flat) :])] == ["boom"]


def test_whole_content_that_lacks_its_blank_line_is_torn() -> None:
    stream = committed_stream()

    out = feed(stream, [chat.text("lost")[:-2]])

    assert stream.verdict is Verdict.TORN
    assert b"lost" not in out.split(b"error")[0]


# The provider's own errors.


def test_an_error_before_the_commit_is_not_handed_on() -> None:
    stream = open_stream()

    assert stream.receive_data(chat.ROLE + chat.error("rate_limit_exceeded"), 1.0) == b""
    assert stream.closed
    assert stream.verdict is Verdict.PROVIDER_ERROR
    assert stream.retryable
    assert not stream.cut
    assert stream.error is not None
    assert stream.error.status == 429


FLAT = {"object": "error", "message": "boom", "type": "InternalServerError"}


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_error_that_was_withheld_is_whole_and_raises(missing: int) -> None:
    stream = open_stream()
    flat = chat.event(FLAT)

    assert feed(stream, [chat.ROLE + flat[: len(flat) - missing]]) == b""
    withheld = stream.withheld

    assert stream.verdict is Verdict.PROVIDER_ERROR
    assert not stream.committed
    assert withheld.startswith(chat.ROLE + flat)
    (told,) = chat.errors_in(withheld[len(chat.ROLE + flat) :])
    assert told["message"] == "boom"
    assert stream.withheld == b""


def test_an_error_that_no_retry_mends_is_not_retried() -> None:
    stream = open_stream()

    stream.receive_data(chat.error("insufficient_quota"), 1.0)

    assert not stream.retryable


def test_an_error_after_the_commit_passes_with_its_end_marker() -> None:
    stream = committed_stream()
    rest = chat.error() + chat.DONE

    assert feed(stream, [rest]) == rest
    assert stream.verdict is Verdict.PROVIDER_ERROR


def test_an_error_outweighs_a_finish_before_and_after_it() -> None:
    before, after = committed_stream(), committed_stream()

    feed(before, [chat.finish(), chat.error()])
    feed(after, [chat.error(), chat.finish()])

    assert before.verdict is after.verdict is Verdict.PROVIDER_ERROR


@pytest.mark.parametrize(
    "mild",
    [
        {"object": "error", "message": "boom", "type": "InternalServerError", "code": 500},
        {"error": "boom"},
        {"error": {"message": "boom"}, "choices": [{"index": 0, "delta": {}}]},
        {"choices": [{"index": 0, "delta": {}, "error": {"message": "boom", "code": 502}}]},
    ],
)
def test_an_error_that_clients_swallow_is_followed_by_one_that_raises(mild: object) -> None:
    stream = committed_stream()
    event = chat.event(mild)

    out = stream.receive_data(event + chat.DONE, 2.0) + stream.receive_eof(2.0)

    assert out.startswith(event)
    assert out.endswith(chat.DONE)
    added = out[len(event) : -len(chat.DONE)]
    (told,) = chat.errors_in(added)
    assert told["message"] == "boom"
    assert isinstance(told["type"], str)


def test_a_failing_finish_reason_is_followed_by_an_error() -> None:
    stream = committed_stream()

    out = feed(stream, [chat.finish("network_error") + chat.DONE])

    assert out.startswith(chat.finish("network_error"))
    assert len(chat.errors_in(out)) == 1
    assert out.endswith(chat.DONE)
    assert stream.error is not None
    assert stream.error.type == "network_error"


RESPONSES_TEXT = chat.event({"type": "response.output_text.delta", "delta": "a"})
RESPONSES_ERROR = chat.event({"type": "error", "error": {"type": "server_error", "message": "m"}})


@pytest.mark.parametrize("blank", [b"\n\n", b""])
def test_what_is_missing_at_the_end_comes_before_the_end_marker(blank: bytes) -> None:
    stream = open_stream("openai_responses")
    body = RESPONSES_TEXT + RESPONSES_ERROR

    out = feed(stream, [body + b"data: [DONE]" + blank])

    assert out.startswith(body + b"event: response.failed\n")
    assert out.endswith(b"}\n\n" + chat.DONE)
    assert out.count(b"response.failed") == 2


@pytest.mark.parametrize("end", ["eof", "reset", "lull"])
def test_what_is_missing_at_the_end_comes_at_the_end(end: str) -> None:
    stream = open_stream("openai_responses")
    body = RESPONSES_TEXT + RESPONSES_ERROR
    assert stream.receive_data(body, 1.0) == body

    if end == "lull":
        out = stream.expire(3.0)
    else:
        out = stream.receive_eof(2.0) if end == "eof" else stream.receive_reset(2.0)

    assert out.startswith(b"event: response.failed\n")
    assert not stream.must_abort


# Streams of no known protocol.


def test_an_unknown_stream_passes_at_once() -> None:
    stream = open_stream("generic")

    assert stream.committed
    assert stream.receive_data(b": hi\n\n", 1.0) == b": hi\n\n"


def test_a_clean_end_of_an_unknown_stream_says_nothing() -> None:
    stream = open_stream("generic")

    assert feed(stream, [b'data: {"token":"a"}\n\n']) == b'data: {"token":"a"}\n\n'
    assert stream.verdict is Verdict.OPAQUE
    assert not stream.must_abort
    assert not stream.cut


def test_an_end_marker_ends_an_unknown_stream() -> None:
    stream = open_stream("generic")

    assert feed(stream, [b"data: a\n\n" + chat.DONE]) == b"data: a\n\n" + chat.DONE
    assert stream.verdict is Verdict.DONE_WITHOUT_FINISH
    assert not stream.cut


@pytest.mark.parametrize(
    ("rest", "reset", "verdict"),
    [(b"data: {", False, Verdict.TORN), (b"", True, Verdict.RESET)],
)
def test_a_cut_unknown_stream_breaks_the_connection(
    rest: bytes, reset: bool, verdict: Verdict
) -> None:
    stream = open_stream("generic")

    out = feed(stream, [b"data: a\n\n" + rest], reset=reset)

    assert out == b"data: a\n\n" + rest
    assert stream.verdict is verdict
    assert stream.must_abort


@pytest.mark.parametrize(
    "body",
    [
        b"Hello world",
        b"One\n\nTwo three",
        b'{"t":"a"}\n{"t":"b"}\n',
        b'{"jsonrpc":"2.0","id":1}',
        b"data: a\ndata: b\n",
        b"Title: x",
    ],
)
def test_what_is_no_events_passes_as_it_comes_whatever_it_is_called(body: bytes) -> None:
    """Home-made agents' servers call text and lines so."""
    for chunks in ([body], singles(body)):
        stream = open_stream("generic")
        got = [stream.receive_data(chunk, 1.0) for chunk in chunks]
        assert got == chunks
        assert stream.receive_eof(1.0) == b""
        assert stream.verdict in (Verdict.OPAQUE, Verdict.EMPTY)
        assert (stream.cut, stream.must_abort) == (False, False)


# Events that are too long.


def test_a_too_long_event_passes_as_it_comes_and_makes_the_end_opaque() -> None:
    stream = committed_stream(max_event=200)
    long = chat.text("x" * 400)
    out = b"".join(stream.receive_data(long[i : i + 90], 2.0) for i in range(0, len(long), 90))

    assert out == long
    assert stream.at_boundary
    assert stream.receive_data(chat.text(), 2.0) == chat.text()
    assert stream.receive_eof(3.0) == b""
    assert stream.verdict is Verdict.OPAQUE
    assert not stream.cut
    assert not stream.must_abort
    assert stream.opaque_events > 1


@pytest.mark.parametrize("way", ["whole", "drip", "after another"])
def test_an_event_is_too_long_in_one_read_as_in_many(way: str) -> None:
    text, finish = chat.text("x" * 250), chat.finish()
    stream = committed_stream(max_event=100)
    chunks = {"whole": [text], "drip": singles(text), "after another": [chat.PING + text]}[way]

    out = feed(stream, chunks)

    assert out.removeprefix(chat.PING) == text
    assert stream.verdict is Verdict.OPAQUE
    assert stream.content_events == 1
    late = committed_stream(max_event=len(finish))
    assert feed(late, [*chunks, finish]).endswith(finish)
    assert late.verdict is Verdict.COMPLETE


def test_a_finish_after_a_too_long_event_is_a_finish() -> None:
    stream = committed_stream(max_event=200)
    feed(stream, [*(singles(chat.text("x" * 400))), chat.finish(), chat.DONE])

    assert stream.verdict is Verdict.COMPLETE


def test_the_end_after_a_too_long_event_passes_as_it_was() -> None:
    stream = committed_stream(max_event=200)
    long = chat.text("x" * 400)

    assert feed(stream, [*singles(long), b"data: {half"]) == long + b"data: {half"
    assert stream.verdict is Verdict.OPAQUE


def test_the_finish_may_have_been_inside_a_too_long_event() -> None:
    stream = committed_stream(max_event=200)
    long = chat.text("x" * 400)

    assert feed(stream, [*singles(long), chat.DONE]) == long + chat.DONE
    assert not stream.cut


def test_a_reset_after_a_too_long_event_breaks_the_connection() -> None:
    stream = committed_stream(max_event=200)
    feed(stream, singles(chat.text("x" * 400)), reset=True)

    assert stream.verdict is Verdict.OPAQUE
    assert stream.must_abort


def test_a_stall_inside_a_too_long_event_cannot_be_told_in_band() -> None:
    stream = committed_stream(max_event=200)
    stream.receive_data(chat.text("x" * 400)[:300], 2.0)

    assert stream.expire(2.0 + 290.0) == b""
    assert stream.must_abort


# Observing.


@pytest.mark.parametrize(
    "body",
    [
        chat.ROLE + chat.text(),
        chat.ROLE + chat.text() + chat.DONE,
        chat.ROLE + chat.text() + b"data: {to",
        chat.ROLE + chat.text() + chat.finish()[:-2],
        chat.event({"object": "error", "message": "boom"}),
        chat.error(),
        b": ping\n",
        b"",
    ],
)
@pytest.mark.parametrize("reset", [False, True])
def test_observing_hands_on_every_byte_as_it_comes_and_adds_none(body: bytes, reset: bool) -> None:
    stream = open_stream(observe=True)

    assert b"".join(stream.receive_data(byte, 1.0) for byte in singles(body)) == body
    assert stream.deadline is None
    assert not stream.at_boundary
    assert (stream.receive_reset if reset else stream.receive_eof)(2.0) == b""
    assert stream.must_abort == reset
    assert not stream.retryable


def test_observing_knows_how_the_stream_ended() -> None:
    cut, done = open_stream(observe=True), open_stream(observe=True)

    feed(cut, [chat.text()])
    feed(done, [chat.text(), chat.finish()[:-2]])

    assert (cut.verdict, cut.cut) == (Verdict.BARE_EOF, True)
    assert (done.verdict, done.cut) == (Verdict.COMPLETE, False)


# Compressed streams.


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(body)


CODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": _zstd}
every_coding = pytest.mark.parametrize("coding", sorted(CODINGS))


def compressed_stream(coding: str) -> Stream:
    known = open_stream()._reader
    return Stream("openai_chat", known, Settings(), 0.0, decoder=Decoder(coding))


@every_coding
@pytest.mark.parametrize("drip", [False, True])
def test_a_compressed_stream_passes_as_it_came_and_is_understood(coding: str, drip: bool) -> None:
    plain = chat.ROLE + chat.text() + chat.finish() + chat.DONE
    body = CODINGS[coding](plain)
    stream = compressed_stream(coding)

    assert feed(stream, singles(body) if drip else [body]) == body
    assert stream.verdict is Verdict.COMPLETE
    assert stream.content_events == 1
    assert not stream.must_abort
    assert not stream.at_boundary


@every_coding
def test_a_cut_compressed_stream_breaks_the_connection(coding: str) -> None:
    stream = compressed_stream(coding)
    body = CODINGS[coding](chat.ROLE + chat.text())

    assert feed(stream, [body]) == body
    assert stream.verdict is Verdict.BARE_EOF
    assert stream.must_abort


def test_a_compressed_end_marker_without_a_finish_breaks_the_connection() -> None:
    stream = compressed_stream("gzip")
    feed(stream, [gzip.compress(chat.text() + chat.DONE)])

    assert stream.verdict is Verdict.DONE_WITHOUT_FINISH
    assert stream.must_abort


def test_a_stalled_compressed_stream_breaks_the_connection() -> None:
    stream = compressed_stream("gzip")

    assert stream.expire(280.0) == b""
    assert stream.verdict is Verdict.STALLED_FIRST
    assert stream.must_abort


@pytest.mark.parametrize("coding", ["gzip", "zstd", "compress"])
def test_a_stream_that_cannot_be_decoded_passes_and_is_opaque(coding: str) -> None:
    stream = compressed_stream(coding)

    assert feed(stream, [b"not compressed at all"]) == b"not compressed at all"
    assert stream.verdict is Verdict.OPAQUE
    assert not stream.must_abort


# The caller's own reasons.


def test_giving_up_after_the_commit_is_told_in_band() -> None:
    stream = committed_stream()

    out = stream.give_up(DRAIN, Verdict.DRAINED, 3.0)

    assert [told["code"] for told in chat.errors_in(out)] == ["gateway_draining"]
    assert stream.verdict is Verdict.DRAINED
    assert stream.closed


def test_giving_up_before_the_commit_says_nothing() -> None:
    stream = open_stream()
    stream.receive_data(chat.ROLE, 1.0)

    assert stream.give_up(DRAIN, Verdict.DRAINED, 3.0) == b""
    assert stream.closed


def test_giving_up_on_a_finished_stream_ends_it_as_complete() -> None:
    stream = committed_stream()
    stream.receive_data(chat.finish(), 2.0)

    assert stream.give_up(DRAIN, Verdict.DRAINED, 3.0) == b""
    assert stream.verdict is Verdict.COMPLETE
    assert not stream.must_abort


def test_giving_up_on_what_may_still_be_taken_back_is_told() -> None:
    stream = open_stream("gemini")
    text = {"content": {"parts": [{"text": "a"}]}, "index": 0, "finishReason": "STOP"}
    stream.receive_data(chat.event({"candidates": [text]}), 1.0)

    out = stream.give_up(DRAIN, Verdict.DRAINED, 2.0)

    assert len(chat.errors_in(out.replace(b"\r\n", b"\n"))) == 1
    assert stream.verdict is Verdict.DRAINED


def test_giving_up_inside_an_event_drops_its_half() -> None:
    stream = committed_stream()
    stream.receive_data(chat.text("half")[:25], 2.0)

    out = stream.give_up(DRAIN, Verdict.DRAINED, 3.0)

    assert out.startswith(b'data: {"error"')


def test_a_client_that_leaves_ends_the_stream() -> None:
    stream = committed_stream()

    stream.client_gone()

    assert stream.closed
    assert stream.verdict is Verdict.CLIENT_GONE
    assert stream.deadline is None


def test_a_client_that_leaves_after_the_finish_had_a_complete_answer() -> None:
    stream = committed_stream()
    stream.receive_data(chat.finish(), 2.0)

    stream.client_gone()

    assert stream.verdict is Verdict.COMPLETE


def test_a_client_that_leaves_after_an_error_got_an_error() -> None:
    stream = committed_stream()
    stream.receive_data(chat.error(), 2.0)

    stream.client_gone()

    assert stream.verdict is Verdict.PROVIDER_ERROR


# Where it stands.


def test_the_phase_follows_the_stream() -> None:
    stream = open_stream()
    phases = [stream.phase]
    for block in (
        chat.ROLE,
        chat.event({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}),
        chat.text(),
        chat.event(
            {"choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"name": "f"}}]}}]}
        ),
        chat.finish("tool_calls"),
    ):
        stream.receive_data(block, 1.0)
        phases.append(stream.phase)

    assert phases == [
        Phase.BEFORE_CONTENT,
        Phase.BEFORE_CONTENT,
        Phase.IN_REASONING,
        Phase.IN_TEXT,
        Phase.IN_TOOL_CALL,
        Phase.AFTER_FINISH,
    ]


@pytest.mark.parametrize("end", ["event", "tail", "lull"])
def test_a_failure_in_the_middle_of_text_is_no_finish(end: str) -> None:
    stream = committed_stream()

    stream.receive_data(chat.error()[:-2] if end == "tail" else chat.error(), 2.0)
    if end == "lull":
        stream.expire(4.0)
    else:
        stream.receive_eof(2.0)

    assert stream.verdict is Verdict.PROVIDER_ERROR
    assert stream.phase is Phase.IN_TEXT


def test_a_failure_after_the_finish_is_after_it() -> None:
    stream = committed_stream()

    feed(stream, [chat.finish(), chat.error()])

    assert stream.phase is Phase.AFTER_FINISH


def test_events_are_counted_by_kind() -> None:
    stream = open_stream()
    unknown = chat.event({"a": 1})
    body = chat.PING + chat.ROLE + chat.text() + chat.text() + unknown + chat.finish()

    stream.receive_data(body, 1.0)

    counts = (stream.heartbeats, stream.state_events, stream.content_events, stream.opaque_events)
    assert counts == (1, 2, 2, 1)
    assert stream.bytes_received == len(body)
