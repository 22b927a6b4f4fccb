"""Answers whose kind is told by their first bytes alone, when something else comes in between."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Timeouts
from tests.relay.fake_upstream import FIN, LAST_CHUNK, SSE, FakeUpstream, chunk, head
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import ROLE, WHOLE, text
from tests.relay.support import FAST, GOOD, JSON, after

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway
    from tests.relay.fake_upstream import Step

PLAIN_HEAD = head("200 OK", "Transfer-Encoding: chunked")
RESPONSES = request("/up/v1/responses", b'{"model":"m","stream":true,"input":"x"}')
RESPONSE = b'{"id":"r","object":"response","status":"completed","output":[{"type":"message"}]}'
EVENTS = (
    b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'
)
BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("start", "first", "rest"),
    [
        (PLAIN_HEAD, b"", RESPONSE),
        (PLAIN_HEAD, b"\n", RESPONSE),
        (PLAIN_HEAD, b"dat", EVENTS[3:]),
        (SSE, b"", RESPONSE),
    ],
)
async def test_the_end_of_a_hold_does_not_release_what_is_not_known(
    start_gateway: StartGateway, start: bytes, first: bytes, rest: bytes
) -> None:
    begun = [chunk(first)] if first else []
    async with FakeUpstream([start, *begun, after(0.4), chunk(rest), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold_max=0.1)
        answer = await ask(gateway.port, RESPONSES)
        assert (answer.status, answer.clean, answer.body) == (200, True, first + rest)


async def test_what_comes_at_the_moment_of_the_deadline_follows_the_first_bytes(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([PLAIN_HEAD, chunk(WHOLE[:3]), after(5)]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(first_event=0.3))
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await upstream.wait_for(1)
            await asyncio.sleep(0.15)
            # The loop stands still, and then finds the data and the timer at once.
            upstream.writers[0].write(chunk(WHOLE[3:]) + LAST_CHUNK)
            time.sleep(0.2)  # noqa: ASYNC251
            answer = await client.answer()
        assert (answer.status, answer.body) == (200, WHOLE)


@pytest.mark.parametrize("first", [JSON[:-5], b"\n" + JSON[:-5], b"dat"])
async def test_a_connection_that_breaks_does_not_make_a_stream_of_it(
    start_gateway: StartGateway, first: bytes
) -> None:
    script: list[Step] = [PLAIN_HEAD, after(0.02), chunk(first), FIN]
    async with FakeUpstream(script, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).body == WHOLE
        assert len(upstream.requests) == 2
        record = await gateway.record()
        assert record.rescued
        assert record.stream is not None


@pytest.mark.parametrize("cut", range(1, 4))
async def test_a_byte_order_mark_may_come_in_pieces(start_gateway: StartGateway, cut: int) -> None:
    body = BOM + ROLE + text("a")
    script: list[Step] = [PLAIN_HEAD, chunk(body[:cut]), after(0.05), chunk(body[cut:]), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.body.startswith(body)
        assert b"upstream_stream_truncated" in answer.body


def packed(kind: str, body: bytes) -> bytes:
    fields = ("Content-Encoding: gzip", "Transfer-Encoding: chunked")
    return head("200 OK", f"Content-Type: {kind}", *fields) + chunk(gzip.compress(body))


kinds = pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/event-stream"])


@kinds
async def test_a_compressed_stream_of_any_name_that_is_cut_is_broken_off(
    start_gateway: StartGateway, kind: str
) -> None:
    async with FakeUpstream([packed(kind, ROLE + text("a")), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert gzip.decompress(answer.body) == ROLE + text("a")
        assert not answer.clean


@kinds
async def test_a_compressed_stream_of_any_name_passes_event_by_event(
    start_gateway: StartGateway, kind: str
) -> None:
    squeeze = zlib.compressobj(wbits=31)
    pieces = [squeeze.compress(text("a")) + squeeze.flush(zlib.Z_SYNC_FLUSH)]
    pieces += [squeeze.compress(WHOLE) + squeeze.flush()]
    fields = ("Content-Encoding: gzip", "Transfer-Encoding: chunked")
    start = head("200 OK", f"Content-Type: {kind}", *fields)
    go = asyncio.Event()
    # The head of the coding comes alone: it tells nothing.
    first, rest = pieces[0][:5], pieces[0][5:]
    script: list[Step] = [start, chunk(first), after(0.05), chunk(rest), go]
    async with FakeUpstream([*script, chunk(pieces[1]), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            await client.read_until(rest[-8:] + b"\r\n")
            go.set()
            _, clean = await client.answer_body()
        assert clean


async def test_compressed_json_is_judged_as_ever(start_gateway: StartGateway) -> None:
    error = b'{"error":{"message":"busy","type":"server_error"}}'
    kind = "application/json"
    scripts = [packed(kind, error), LAST_CHUNK], [packed(kind, JSON), LAST_CHUNK]
    async with FakeUpstream(*scripts) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert gzip.decompress(answer.body) == JSON
        assert len(upstream.requests) == 2


async def test_a_compressed_answer_that_does_not_begin_is_tried_again(
    start_gateway: StartGateway,
) -> None:
    fields = ("Content-Type: text/plain", "Content-Encoding: gzip", "Transfer-Encoding: chunked")
    script: list[Step] = [head("200 OK", *fields), chunk(gzip.compress(WHOLE)[:10]), after(5)]
    async with FakeUpstream(script, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, timeouts=Timeouts(first_event=0.2))
        assert (await ask(gateway.port)).body == WHOLE
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("kind", ["application/octet-stream", "audio/mpeg", "application/json-seq"])
@pytest.mark.parametrize("body", [b"\0\1\2\xff", b'\x1e{"a":1}\n', b"plain words"])
async def test_a_whole_answer_of_another_kind_passes(
    start_gateway: StartGateway, kind: str, body: bytes
) -> None:
    whole = head("200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body
    async with FakeUpstream([whole]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean, answer.body) == (200, True, body)
        assert len(upstream.requests) == 1


async def test_another_kind_does_not_fill_a_stream_that_has_begun(
    start_gateway: StartGateway,
) -> None:
    sound = head("200 OK", "Content-Type: audio/mpeg", "Content-Length: 2") + b"\0\1"
    async with FakeUpstream([SSE, chunk(ROLE), after(0.4), FIN], [sound]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.1)
        answer = await ask(gateway.port)
        assert b"does not fit the stream begun" in answer.body
        assert b"\0" not in answer.body


@pytest.mark.parametrize("first", [b"\n", b" ", b"\r\n\r\n", BOM, BOM + b"\n"])
async def test_json_behind_blank_bytes_is_none_of_the_events_it_says_it_is(
    start_gateway: StartGateway, first: bytes
) -> None:
    script: list[Step] = [SSE, chunk(first), after(0.05), chunk(JSON), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (200, first + JSON)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("body", [JSON, b"\n\n" + JSON, WHOLE, b"\n\n" + WHOLE, b"\n"])
async def test_what_is_compressed_is_known_when_something_of_it_can_be_read(
    start_gateway: StartGateway, body: bytes
) -> None:
    coded = gzip.compress(body)
    kind = ("Content-Type: text/event-stream", "Content-Encoding: gzip")
    start = head("200 OK", *kind, "Transfer-Encoding: chunked")
    script: list[Step] = [start, chunk(coded[:10]), after(0.05), chunk(coded[10:]), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (200, coded)
        assert answer.clean == (body != b"\n")


async def test_blank_lines_of_a_stream_are_held_no_longer_than_anything(
    start_gateway: StartGateway,
) -> None:
    go = asyncio.Event()
    async with FakeUpstream([SSE, chunk(b"\n\n"), go, chunk(EVENTS), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold_max=0.1)
        async with RawClient(gateway.port) as client, asyncio.timeout(3):
            await client.send(RESPONSES)
            await client.read_head()
            await client.read_until(b"\n\n\r\n")
            go.set()
            body, clean = await client.answer_body()
        assert clean
        assert EVENTS in body
