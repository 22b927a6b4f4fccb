"""The server around the handler: refusals before any handler, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Server
from gateway.streams.events import Verdict
from tests.relay.fake_upstream import HOLD, SSE, FakeUpstream, chunk, json_answer
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import ROLE, text

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

OK = json_answer(b"{}")


@pytest.mark.parametrize(
    "raw",
    [
        request("/up/x", None, "X-Big: " + "a" * 70_000, method="GET"),
        request("/up/x?" + "a" * 70_000, None, method="GET"),
        request("/up/x", None, "X-Big: " + "a" * 3_000_000, method="GET"),
        request("/up/x", None, *[f"X-{number}: 1" for number in range(1100)], method="GET"),
    ],
    ids=["field", "line", "far-beyond", "count"],
)
async def test_a_head_that_is_too_large_is_a_431_that_names_the_limit(
    start_gateway: StartGateway, raw: bytes
) -> None:
    gateway = await start_gateway(1)
    answer = await ask(gateway.port, raw)
    assert answer.status == 431
    told = json.loads(answer.body)["error"]
    assert told["code"] == "headers_too_large"
    assert not re.search(r"\d", told["message"]), "clients act on some numbers"
    assert "max_header" in told["message"]
    assert "aaaa" not in answer.body.decode() + gateway.log.getvalue()
    assert answer.values("Connection") == [b"close"]


async def test_a_client_that_is_still_sending_can_read_why_it_is_refused(
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(1)
    async with RawClient(gateway.port) as client:
        await client.send(b"GET /up/x HTTP/1.1\r\nHost: h\r\nX-Big: " + b"a" * 70_000)
        for _ in range(3):
            await asyncio.sleep(0.02)
            await client.send(b"a" * 100_000)
        assert (await client.answer()).status == 431


async def test_the_limit_is_configurable(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, server=Server(max_header=200_000))
        raw = request("/up/x", None, "X-Big: " + "a" * 150_000, method="GET")
        assert (await ask(gateway.port, raw)).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"GET /up/x HTTP/1.1\r\n\r\n",
        b"GET /up/x\xff HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /up/x HTTP/1.1\r\nHost: h\r\nX: sk-SECRETSECRET0123456789\x00\r\n\r\n",
        b"POST /up/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_a_400_that_repeats_nothing(
    start_gateway: StartGateway, raw: bytes
) -> None:
    gateway = await start_gateway(1)
    answer = await ask(gateway.port, raw)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == "bad_request"
    assert "SECRETSECRET" not in answer.body.decode() + gateway.log.getvalue()


async def test_garbage_behind_a_request_does_not_hurt_its_answer(
    start_gateway: StartGateway,
) -> None:
    go_on = asyncio.Event()
    async with FakeUpstream([go_on, OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", b"{}"))
            await upstream.wait_for(1)
            await client.send(b"garbage\r\n\r\n")
            go_on.set()
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 400


async def test_a_client_that_closes_its_side_has_left(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            client.writer.write_eof()
            async with asyncio.timeout(1):
                await upstream.requests[0].closed.wait()


async def test_a_client_that_closes_its_side_and_reads_nothing_has_left(
    start_gateway: StartGateway,
) -> None:
    flood = chunk(text("x" * 60_000)) * 4
    async with FakeUpstream([SSE, chunk(ROLE), *[flood] * 100, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", gateway.port))
            await loop.sock_sendall(client, request())
            await upstream.wait_for(1)
            await asyncio.sleep(0.1)
            client.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(1):
                await upstream.requests[0].closed.wait()
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.CLIENT_GONE


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_a_client_that_leaves_while_it_is_not_being_read_is_noticed(
    start_gateway: StartGateway, leave: str
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1/files", None, "Content-Length: 100") + b"ab")
            await upstream.wait_for(1)
            (connection,) = gateway.server.connections
            connection.pause_reading()
            getattr(client, leave)()
            async with asyncio.timeout(1):
                assert (await gateway.record()).status == 499
                await upstream.requests[0].closed.wait()


async def test_a_client_that_leaves_behind_many_requests_is_noticed(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request() + request("/up/v1/models", None, method="GET") * 100)
            await upstream.wait_for(1)
            client.close()
            async with asyncio.timeout(1):
                assert (await gateway.record()).status == 499
        assert len(upstream.requests) == 1


async def test_a_client_that_leaves_while_the_provider_takes_no_bytes_is_noticed(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([asyncio.Event()], read_body=False) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            # The sockets' buffers are full, and so are the gateway's: it has stopped reading.
            size = 12_000_000
            client.writer.transport.set_write_buffer_limits(high=2**28)
            client.writer.write(request("/up/v1/files", None, f"Content-Length: {size}"))
            client.writer.write(bytes(size))
            await upstream.wait_for(1)
            await asyncio.sleep(0.1)
            client.reset()
            async with asyncio.timeout(1):
                assert (await gateway.record()).status == 499


async def test_a_connection_that_stays_is_not_taken_for_one_that_left(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1/files", None, "Content-Length: 4") + b"ab")
            await upstream.wait_for(1)
            (connection,) = gateway.server.connections
            connection.pause_reading()
            await client.send(b"cd")
            await asyncio.sleep(0.6)
            assert gateway.records == []
            connection.resume_reading()
            assert (await client.answer()).status == 200
