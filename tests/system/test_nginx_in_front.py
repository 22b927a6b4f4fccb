"""Agents reach the gateway through nginx, configured as deploy/nginx.conf says."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING

import pytest

from bench.rig import free_port
from tests.system.support import CHAT, ROOT, Server, ask, chat, get, nginx
from tests.system.support import gateway as start_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SNIPPET = ROOT / "deploy" / "nginx.conf"


def block_for(gateway_port: int, port: int) -> str:
    """The snippet with the ports of this test."""
    text = SNIPPET.read_text()
    for old, new in (("127.0.0.1:8484", f"127.0.0.1:{gateway_port}"), ("listen 8480", None)):
        assert text.count(old) == 1
        text = text.replace(old, new or f"listen 127.0.0.1:{port}")
    return text


@pytest.fixture(scope="module")
def front(gateway: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    directory = tmp_path_factory.mktemp("front")
    with nginx(directory, block_for(gateway.port, port), port) as server:
        yield server


@pytest.fixture(scope="module")
def plain_front(gateway: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """nginx as it is out of the box, which buffers what it relays."""
    port = free_port()
    block = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {gateway.url}; }} }}"
    with nginx(tmp_path_factory.mktemp("plain"), block, port) as server:
        yield server


@pytest.fixture(scope="module")
def deaf_front(gateway: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The snippet without what else keeps nginx from buffering: the header, and chunks."""
    port = free_port()
    block = block_for(gateway.port, port).replace(
        "proxy_http_version 1.1", "proxy_http_version 1.0"
    )
    block += "\nproxy_ignore_headers X-Accel-Buffering;\n"
    with nginx(tmp_path_factory.mktemp("deaf"), block, port) as server:
        yield server


@pytest.mark.parametrize("which", ["front", "plain_front", "deaf_front"])
def test_events_arrive_one_by_one(which: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(which)
    answer = ask(server, f"/up{CHAT}", chat("sim-ok,every=0.1,words=12"))
    assert answer.status == 200
    assert answer.broken is None
    assert answer.body.endswith(b"data: [DONE]\n\n")
    contents = [at for at, data in answer.reads if b'"content":"' in data.replace(b": ", b":")]
    # Each arrives when it was sent, a tenth of a second after the one before.
    assert len(contents) >= 8
    gaps = [later - earlier for earlier, later in itertools.pairwise(contents)]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(0.1, abs=0.06)


def test_a_prompt_of_24_mb_passes(front: Server) -> None:
    answer = ask(front, f"/up{CHAT}", chat("sim-ok", stream=False, content="x" * 24_000_000))
    assert answer.status == 200
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_a_cut_stream_is_told_in_band_and_then_ends_cleanly(front: Server) -> None:
    answer = ask(front, f"/up{CHAT}", chat("sim-bare-eof,after=5"))
    assert answer.status == 200
    assert answer.broken is None
    assert [error["code"] for error in answer.errors()] == ["upstream_stream_truncated"]
    assert b"[DONE]" not in answer.body


def test_metrics_and_open_streams_are_not_for_everybody(front: Server) -> None:
    assert get(front, "/metrics").status == 404
    assert get(front, "/-/streams").status == 404
    assert get(front, "/healthz").status == 200


async def test_a_client_that_leaves_ends_the_upstream_request_within_a_second(
    tmp_path: Path,
) -> None:
    left = asyncio.Event()

    async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A provider that sends one event and then waits for the other side to leave."""
        await reader.readuntil(b"\r\n\r\n")
        event = {"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": None}]}
        data = f"data: {json.dumps(event)}\n\n".encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
        left.set()
        writer.close()

    provider = await asyncio.start_server(provide, "127.0.0.1", 0)
    port = free_port()
    provider_url = f"http://127.0.0.1:{provider.sockets[0].getsockname()[1]}"
    async with provider:
        with (
            start_gateway(tmp_path, {"up": provider_url}) as gateway,
            nginx(tmp_path, block_for(gateway.port, port), port) as front,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            body = json.dumps(chat("any")).encode()
            head = f"POST /up{CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            async with asyncio.timeout(10):
                await reader.readuntil(b"hello")
            assert not left.is_set()
            writer.close()
            async with asyncio.timeout(1):
                await left.wait()
