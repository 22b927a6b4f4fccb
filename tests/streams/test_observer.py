"""What whole blocks come to: kinds, last events without a blank line, and a reader that fails."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocols import BY_NAME
from gateway.streams.events import Fault, Kind, Verdict
from gateway.streams.observer import Observer
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream
from tests.streams import chat


def observer(**settings: Any) -> Observer:
    return Observer(BY_NAME["openai_chat"].reader(1), Settings(**settings), 0.0, None)


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (chat.text(), Kind.CONTENT),
        (chat.text().replace(b"\n", b"\r\n"), Kind.CONTENT),
        (b"\xef\xbb\xbf" + chat.text(), Kind.CONTENT),
        (chat.ROLE, Kind.STATE),
        (chat.finish(), Kind.FINISH),
        (chat.error(), Kind.ERROR),
        (b"data: words\n\n", Kind.OPAQUE),
        (b": ping\n\n", Kind.HEARTBEAT),
        (b"event: x\n\n", Kind.HEARTBEAT),
        (b"data:\n\n", Kind.HEARTBEAT),
        (b"data:  \n\n", Kind.HEARTBEAT),
        (b"data: [DONE]\n\n", None),
        (b"data:[DONE] \r\n\r\n", None),
    ],
)
def test_the_kind_of_a_block(block: bytes, kind: Kind | None) -> None:
    assert observer()._read(block) is kind


@pytest.mark.parametrize(
    ("tail", "kind", "shall_be_whole"),
    [
        (chat.finish()[:-2], Kind.FINISH, True),
        (chat.error()[:-1], Kind.ERROR, True),
        (chat.text()[:-2], Kind.CONTENT, False),
        (b"data: {", Kind.OPAQUE, False),
        (b"event: error", Kind.HEARTBEAT, False),
        (b": pi", Kind.HEARTBEAT, False),
        (b"data: [DONE]", None, False),
    ],
)
def test_what_has_no_blank_line_at_the_end(
    tail: bytes, kind: Kind | None, shall_be_whole: bool
) -> None:
    assert observer()._read_tail(tail) == (kind, shall_be_whole)


@pytest.mark.parametrize("tail", [b"data: [DONE]", chat.ROLE[:-2]])
def test_what_is_whole_and_trails_a_finish_shall_have_its_blank_line(tail: bytes) -> None:
    seen = observer()
    seen._read(chat.finish())

    assert seen._read_tail(tail)[1]
    assert seen._judge(broke=False) is Verdict.COMPLETE


@pytest.mark.parametrize(
    ("tail", "verdict"),
    [
        (b"data: {", Verdict.TORN),
        (chat.text()[:-2], Verdict.TORN),
        (b": pi", Verdict.BARE_EOF),
        (chat.finish()[:-2], Verdict.COMPLETE),
        (chat.finish("length")[:-2], Verdict.COMPLETE_ABNORMAL),
        (b"data: [DONE]", Verdict.DONE_WITHOUT_FINISH),
    ],
)
def test_the_verdict_on_a_tail(tail: bytes, verdict: Verdict) -> None:
    seen = observer()
    seen._note_progress(1.0)

    seen._read_tail(tail)

    assert seen._judge(broke=False) is verdict


def test_what_was_passed_over_may_have_been_the_finish() -> None:
    seen = observer()

    assert seen._pass_over() is Kind.OPAQUE

    assert seen._judge(broke=True) is Verdict.OPAQUE
    assert seen._done_suffices


def test_the_end_marker_suffices_only_where_that_is_known() -> None:
    assert not observer()._done_suffices
    assert observer(finish_optional=True)._done_suffices
    assert observer(known=False)._done_suffices


# A reader's bug.


class Broken:
    """A reader that fails on everything."""

    def __init__(self) -> None:
        self.facts = BY_NAME["openai_chat"].reader(1).facts

    def read(self, name: bytes, data: bytes) -> Kind:
        raise KeyError(name, data)

    def read_bare(self, block: bytes) -> Kind:
        raise TypeError(block)

    def read_done(self) -> None:
        raise ValueError

    def may_close(self) -> bool:
        return False

    def complement(self, *, ending: bool) -> bytes:
        raise AssertionError(ending)

    def fault(self, fault: Fault) -> bytes | None:
        return None


def test_a_readers_bug_never_hurts_the_relay_and_is_counted() -> None:
    stream = Stream("broken", Broken(), Settings(), 0.0)
    body = chat.text() + b"event: x\n\n" + chat.text()

    assert stream.receive_data(body, 1.0) == body
    assert stream.reader_faults == 3
    assert stream.opaque_events == 3


def test_where_there_is_no_in_band_form_the_connection_is_broken() -> None:
    stream = Stream("broken", Broken(), Settings(), 0.0)
    stream.receive_data(chat.text(), 1.0)

    assert stream.receive_eof(1.0) == b""
    assert stream.must_abort


BOM = b"\xef\xbb\xbf"
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


def verdict_of(stream: Stream, *chunks: bytes) -> Verdict | None:
    for chunk in chunks:
        stream.receive_data(chunk, 1.0)
    stream.receive_eof(2.0)
    return stream.verdict


def chat_stream(**settings: bool) -> Stream:
    return Stream("openai_chat", BY_NAME["openai_chat"].reader(1), Settings(**settings), 0.0)  # type: ignore[arg-type]


def test_a_byte_order_mark_is_taken_away_from_the_first_event_alone() -> None:
    """Clients drop an event whose line begins with one: a finish behind it is none to them."""
    text = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    assert verdict_of(chat_stream(), BOM + FINISH) is Verdict.COMPLETE
    assert verdict_of(chat_stream(), text, BOM + FINISH) is Verdict.BARE_EOF
    assert verdict_of(chat_stream(), text + BOM + FINISH) is Verdict.BARE_EOF


@pytest.mark.parametrize("reason", ["false", "0", "{}", "[]", '{"stop":true}', '""', "null"])
def test_what_is_no_word_is_no_finish_reason(reason: str) -> None:
    event = FINISH.replace(b'"stop"', reason.encode())
    assert verdict_of(chat_stream(), event) is not Verdict.COMPLETE


def test_spaces_around_the_end_marker_do_not_hide_it() -> None:
    text = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    stream = chat_stream(finish_optional=True)
    assert verdict_of(stream, text, b"data:   [DONE] \n\n") is Verdict.DONE_WITHOUT_FINISH
    assert not stream.cut
