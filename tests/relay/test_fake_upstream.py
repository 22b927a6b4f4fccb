"""The fake provider does what its script says, so that tests may trust it."""

from __future__ import annotations

import asyncio

import pytest

from tests.relay.fake_upstream import FIN, HOLD, RST, FakeUpstream, chunk, head, json_answer
from tests.relay.raw_client import RawClient, ask, request


async def test_serves_scripts_in_order_and_repeats_the_last() -> None:
    async with FakeUpstream([json_answer(b"1")], [json_answer(b"2")]) as upstream:
        assert [(await ask(upstream.port)).body for _ in range(3)] == [b"1", b"2", b"2"]
        assert upstream.connections == 3


async def test_keeps_a_connection_for_the_next_request_and_records_what_came() -> None:
    async with FakeUpstream([json_answer(b"{}")]) as upstream, RawClient(upstream.port) as client:
        await client.send(request("/a?b", b"xyz", "X-One: 1", "x-one: 2"))
        assert (await client.answer()).clean
        await client.send(request("/c", None, method="GET"))
        assert (await client.answer()).clean
        first, second = upstream.requests
        assert (first.line, first.body) == (b"POST /a?b HTTP/1.1", b"xyz")
        assert first.values("X-One") == [b"1", b"2"]
        assert first.connection == second.connection == 1


async def test_reads_chunked_bodies() -> None:
    async with FakeUpstream([json_answer(b"{}")]) as upstream:
        raw = request("/", None, "Transfer-Encoding: chunked") + chunk(b"ab") + chunk(b"c")
        await ask(upstream.port, raw + b"0\r\n\r\n")
        assert upstream.requests[0].body == b"abc"


@pytest.mark.parametrize("end", [FIN, RST])
async def test_breaks_a_body_off(end: object) -> None:
    script = [head("200 OK", "Content-Length: 5"), b"ab", end]
    async with FakeUpstream(script) as upstream:  # type: ignore[arg-type]
        answer = await ask(upstream.port)
        assert not answer.clean


async def test_waits_for_an_event_before_it_goes_on() -> None:
    go_on = asyncio.Event()
    script = [head("200 OK", "Content-Length: 1"), go_on, b"x"]
    async with FakeUpstream(script) as upstream, RawClient(upstream.port) as client:  # type: ignore[arg-type]
        await client.send(request())
        await client.read_head()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.reader.read(1)
        go_on.set()
        assert await client.read(1) == b"x"


async def test_notices_that_the_other_side_leaves() -> None:
    async with FakeUpstream([HOLD]) as upstream, RawClient(upstream.port) as client:
        await client.send(request())
        seen = await upstream.wait_for(1)
        assert not seen.closed.is_set()
        client.close()
        async with asyncio.timeout(1):
            await seen.closed.wait()
