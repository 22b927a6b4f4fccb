"""Request bodies: exact bytes, kept within bounds, streamed beyond them."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest
import zstandard

from gateway.config.model import Server, Timeouts
from gateway.relay.body import Budget
from tests.relay.fake_upstream import HOLD, FakeUpstream, chunk, json_answer
from tests.relay.raw_client import RawClient, ask, request

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

OK = json_answer(b"{}")
CHAT = "/up/v1/chat/completions"
FILES = "/up/v1/files"


def test_a_budget_never_gives_more_than_it_has() -> None:
    budget = Budget(10)
    assert budget.take(6)
    assert not budget.take(5)
    assert budget.take(4)
    budget.give(6)
    assert budget.free == 6


@pytest.mark.parametrize("path", [CHAT, FILES])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
async def test_a_body_passes_byte_for_byte_with_its_length(
    start_gateway: StartGateway, path: str, size: int
) -> None:
    body = os.urandom(size)
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(path, body))
        assert answer.status == 200
        (seen,) = upstream.requests
        assert seen.body == body
        assert seen.values("Content-Length") == [str(size).encode()]
        assert seen.values("Transfer-Encoding") == []
        assert (await gateway.record()).bytes_up == size


@pytest.mark.parametrize(
    ("path", "framing"),
    [(CHAT, ("Content-Length", [b"8"])), (FILES, ("Transfer-Encoding", [b"chunked"]))],
)
async def test_a_chunked_body_arrives_whole(
    start_gateway: StartGateway, path: str, framing: tuple[str, list[bytes]]
) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        head = request(path, None, "Transfer-Encoding: chunked")
        answer = await ask(gateway.port, head + chunk(b'{"a":') + chunk(b"12}") + b"0\r\n\r\n")
        assert answer.status == 200
        (seen,) = upstream.requests
        assert seen.body == b'{"a":12}'
        assert seen.values(framing[0]) == framing[1]


async def test_a_body_above_the_bound_streams_through(start_gateway: StartGateway) -> None:
    body = os.urandom(2_000_000)
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, server=Server(retry_body=1000))
        for head in (
            request(CHAT, None, f"Content-Length: {len(body)}") + body,
            request(CHAT, None, "Transfer-Encoding: chunked") + chunk(body) + b"0\r\n\r\n",
        ):
            assert (await ask(gateway.port, head)).status == 200
        assert [seen.body == body for seen in upstream.requests] == [True, True]
        assert upstream.requests[0].values("Content-Length") == [b"2000000"]
        assert upstream.requests[1].values("Transfer-Encoding") == [b"chunked"]


async def test_upload_begins_before_the_client_has_sent_all(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request(FILES, None, "Content-Length: 4") + b"ab")
            seen = await upstream.wait_for(1)
            await client.send(b"cd")
            assert (await client.answer()).status == 200
            assert seen.body == b"abcd"


async def test_the_time_of_an_upload_is_not_the_providers(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(response=0.05))
        async with RawClient(gateway.port) as client:
            await client.send(request(FILES, None, "Content-Length: 4") + b"ab")
            await upstream.wait_for(1)
            await asyncio.sleep(0.1)
            await client.send(b"cd")
            assert (await client.answer()).status == 200


async def test_the_providers_time_begins_when_the_upload_ends(start_gateway: StartGateway) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(response=0.05))
        async with asyncio.timeout(2):
            answer = await ask(gateway.port, request(FILES, b"data"))
        assert answer.status == 504


async def test_a_provider_that_takes_no_bytes_is_timed_out(start_gateway: StartGateway) -> None:
    async with FakeUpstream([asyncio.Event()], read_body=False) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(response=0.1))
        async with RawClient(gateway.port) as client:
            size = 30_000_000
            sending = asyncio.create_task(
                client.send(request(FILES, None, f"Content-Length: {size}") + bytes(size))
            )
            head = await client.read_head()
            assert b" 504 " in head
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def test_expect_is_answered_before_the_body_is_read(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        for number, path in enumerate((CHAT, FILES), 1):
            async with RawClient(gateway.port) as client:
                fields = ("Content-Length: 2", "Expect: 100-continue")
                await client.send(request(path, None, *fields))
                assert await client.read_head() == b"HTTP/1.1 100 Continue\r\n\r\n"
                await client.send(b"{}")
                assert (await client.answer()).status == 200
            assert upstream.requests[number - 1].body == b"{}"


async def test_no_continue_for_what_is_refused_anyway(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1)
    async with RawClient(gateway.port) as client:
        fields = ("Content-Length: 2", "Expect: 100-continue")
        await client.send(request("/upp/v1/chat/completions", None, *fields))
        assert b"404" in await client.read_head()


@pytest.mark.parametrize("framed", ["length", "chunked"])
@pytest.mark.parametrize("path", [CHAT, FILES])
async def test_a_configured_limit_is_a_413_in_json(
    start_gateway: StartGateway, framed: str, path: str
) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, server=Server(max_body=1000))
        body = bytes(5000)
        if framed == "length":
            raw = request(path, body)
        else:
            raw = request(path, None, "Transfer-Encoding: chunked") + chunk(body) + b"0\r\n\r\n"
        answer = await ask(gateway.port, raw)
        assert answer.status == 413
        error = json.loads(answer.body)["error"]
        assert error["code"] == "request_too_large"
        assert "server.max_body" in error["message"]
        assert "1000" not in error["message"], "clients act on some numbers"
        assert not any(seen.whole.is_set() for seen in upstream.requests)
        # At the limit it passes.
        assert (await ask(gateway.port, request(path, bytes(1000)))).status == 200


@pytest.mark.parametrize("path", [CHAT, FILES])
async def test_a_broken_chunked_body_is_the_clients_fault(
    start_gateway: StartGateway, path: str
) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request(path, None, "Transfer-Encoding: chunked") + chunk(b"ab"))
            await asyncio.sleep(0.02)
            await client.send(b"zz\r\n")
            answer = await client.answer()
            assert await client.reader.read() == b""
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["code"] == "bad_request"
        assert not any(seen.whole.is_set() for seen in upstream.requests)


async def test_a_compressed_body_passes_as_it_came_and_is_understood(
    start_gateway: StartGateway,
) -> None:
    body = zstandard.compress(b'{"model":"m-7","stream":true}')
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        fields = ("Content-Encoding: zstd", "Accept-Encoding: gzip")
        await ask(gateway.port, request(CHAT, body, *fields))
        (seen,) = upstream.requests
        assert seen.body == body
        assert seen.values("Content-Encoding") == [b"zstd"]
        assert seen.values("Accept-Encoding") == [b"identity"]
        record = await gateway.record()
        assert (record.model, record.streaming) == ("m-7", True)


@pytest.mark.parametrize("path", [CHAT, FILES])
async def test_a_client_that_leaves_while_it_uploads_ends_the_upstream_request(
    start_gateway: StartGateway, path: str
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request(path, None, "Content-Length: 100") + b"ab")
            await asyncio.sleep(0.02)
            client.close()
        record = await gateway.record()
        assert record.status == 499
        if path == FILES:
            async with asyncio.timeout(1):
                await upstream.requests[0].closed.wait()
        else:
            assert upstream.requests == []


async def test_kept_bodies_are_bounded_and_the_rest_streams(start_gateway: StartGateway) -> None:
    go_on = asyncio.Event()
    size, kept = 4_000_000, 8_000_000
    async with FakeUpstream([go_on, OK], read_body=False) as upstream:
        server = Server(buffer_total=kept)
        gateway = await start_gateway(upstream.port, server=server)
        before = _resident()
        body = bytes(size)
        head = request(CHAT, None, f"Content-Length: {size}")
        clients = []
        for _ in range(20):
            client = RawClient(gateway.port)
            await client.__aenter__()
            client.writer.transport.set_write_buffer_limits(high=2**30)
            client.writer.write(head)
            clients.append(client)
        sending = [asyncio.create_task(_send_slowly(client, body)) for client in clients]
        await upstream.wait_for(20)
        await asyncio.sleep(0.2)
        # 80 MB are on their way: two bodies are kept, the others wait at their clients.
        assert _resident() - before < kept + 20 * 1_500_000
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for client in clients:
            client.reset()
        await gateway.record(20)
        assert gateway.relay._budget.free == kept


async def _send_slowly(client: RawClient, body: bytes) -> None:
    client.writer.transport.set_write_buffer_limits(high=65536)
    view = memoryview(body)
    for start in range(0, len(body), 65536):
        await client.send(bytes(view[start : start + 65536]))


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
