"""The register holds what is open and nothing else; its page says who waits for what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gateway.observe.live import Live, open_gap, streams_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.observe.records import RequestRecord
    from gateway.streams.stream import Stream


def test_records_come_and_go(live: Live, make_record: Callable[..., RequestRecord]) -> None:
    one, two = make_record(), make_record()
    live.add(one)
    live.add(two)
    assert list(live) == [one, two]
    for record in live:
        live.remove(record)
    live.remove(one)
    assert len(live) == 0
    assert one not in live


def test_the_page_says_whose_stream_it_is_and_how_it_stands(
    live: Live, make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    stream = make_stream("a", "tool")
    stream.receive_data(b": keep-alive\n\n", 1004.0)
    live.add(
        make_record(
            stream=stream, streaming=True, session="ses_1", client="10.0.0.7", model="asked"
        )
    )
    (row,) = streams_page(live, 1010.0)
    assert row == {
        "request_id": "r1",
        "provider": "openai",
        "protocol": "openai_chat",
        "client_app": "opencode",
        "client": "10.0.0.7",
        "session": "ses_1",
        "model": "m1",
        "age": 10.0,
        "attempts": 1,
        "phase": "in_tool_call",
        "events": 3,
        "heartbeats": 1,
        "bytes": stream.bytes_received,
        "committed": True,
        "last_progress": 7.5,
        "without_progress": 7.5,
        "line": "heartbeats",
    }
    assert json.loads(json.dumps(row)) == row


def test_a_stream_that_is_waited_for_is_on_the_page_too_and_the_worst_comes_first(
    live: Live, make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    finished = make_record(stream=make_stream("a", end="complete"), streaming=True)
    moving = make_record(stream=make_stream("a"), streaming=True)
    waiting = make_record(streaming=True, model="asked")
    plain = make_record(streaming=False)
    for record in (finished, moving, waiting, plain):
        live.add(record)
    rows = streams_page(live, 1020.0)
    assert [row["request_id"] for row in rows] == [
        record.request_id for record in (waiting, moving, finished)
    ]
    assert rows[0]["phase"] == "before_content"
    assert rows[0]["last_progress"] is None
    assert rows[0]["without_progress"] == 20.0
    assert rows[0]["model"] == "asked"
    assert rows[2]["without_progress"] is None


def test_a_gap_is_open_only_while_progress_is_due(
    make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    assert open_gap(make_record(streaming=True), 1004.0) == 4.0
    assert open_gap(make_record(stream=make_stream("a")), 1004.0) == 2.5
    assert open_gap(make_record(stream=make_stream("a", end="bare_eof")), 1004.0) is None
    assert open_gap(make_record(streaming=False), 1004.0) is None
    assert open_gap(make_record(), 1004.0) is None
