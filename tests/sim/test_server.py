"""The running provider: routes, counting, pace, what it saw, and its end."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import zstandard

from gateway.sim.coding import decode
from gateway.sim.script import SCRIPTS, model_names
from gateway.sim.server import SimServer, start
from tests.sim.support import (
    PROTOCOLS,
    ask,
    body,
    contents,
    dechunk,
    events,
    exchange,
    finishes,
)

if TYPE_CHECKING:
    from pathlib import Path


async def get(sim: SimServer, path: str) -> Any:
    reply = await exchange(sim.port, path, b"", method="GET")
    return json.loads(reply.body)


async def until(condition: Any) -> None:
    async with asyncio.timeout(3):
        while not condition():  # noqa: ASYNC110 - the server has no event for what it saw
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_times_counts_per_exact_model_name(sim: SimServer, protocol: str) -> None:
    ends = [(await ask(sim.port, protocol, "sim-cut,times=2")).end for _ in range(3)]
    assert ends == ["fin", "fin", "clean"]
    assert (await ask(sim.port, protocol, "sim-cut,times=2,seed=1")).end == "fin"
    assert [seen.number for seen in sim.seen] == [1, 2, 3, 1]
    assert [seen.faulted for seen in sim.seen] == [True, True, False, True]


async def test_every_server_counts_for_itself(sim: SimServer) -> None:
    other = await start()
    try:
        for server in (sim, other):
            assert (await ask(server.port, "chat", "sim-cut,times=1")).end == "fin"
    finally:
        await other.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_unknown_script_is_refused_in_the_protocols_own_shape(
    sim: SimServer, protocol: str
) -> None:
    reply = await ask(sim.port, protocol, "sim-bare-eoff")
    assert reply.status == 400
    error = json.loads(reply.body)["error"]
    assert "did you mean 'sim-bare-eof'?" in error["message"]
    assert sim.seen[0].model == "sim-bare-eoff"
    kind = error["status"] if protocol == "gemini" else error["type"]
    assert kind == ("INVALID_ARGUMENT" if protocol == "gemini" else "invalid_request_error")


async def test_a_request_without_a_model_is_refused(sim: SimServer) -> None:
    reply = await exchange(sim.port, "/v1/chat/completions", {"messages": []})
    assert reply.status == 400
    assert "unknown script ''" in reply.body.decode()


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_json_object_is_refused(sim: SimServer, raw: bytes) -> None:
    reply = await exchange(sim.port, "/v1/messages", raw)
    assert reply.status == 400
    assert "not" in json.loads(reply.body)["error"]["message"]


async def test_an_unknown_path_is_told_what_is_known(sim: SimServer) -> None:
    reply = await exchange(sim.port, "/v1/embeddings", {"model": "sim-ok"})
    assert reply.status == 404
    assert "…/chat/completions" in json.loads(reply.body)["error"]["message"]


async def test_a_websocket_is_refused(sim: SimServer) -> None:
    head = "upgrade: websocket\r\nconnection: upgrade\r\n"
    reply = await exchange(sim.port, "/v1/responses", b"", method="GET", head=head)
    assert reply.status == 426


async def test_models_are_listed_as_openai_and_anthropic_do(sim: SimServer) -> None:
    listed = (await get(sim, "/v1/models"))["data"]
    assert [model["id"] for model in listed] == [name for name, _ in model_names()]
    assert all(model["type"] == model["object"] == "model" for model in listed)
    assert listed[0]["description"] == SCRIPTS["sim-ok"].summary


async def test_models_are_listed_as_google_does(sim: SimServer) -> None:
    listed = (await get(sim, "/v1beta/models"))["models"]
    assert listed[0]["name"] == "models/sim-ok"
    assert (await get(sim, "/v1beta/models/sim-cut"))["displayName"] == "sim-cut"


async def test_a_single_model_can_be_asked_for_with_parameters(sim: SimServer) -> None:
    assert (await get(sim, "/v1/models/sim-cut%2Cafter%3D1"))["id"] == "sim-cut,after=1"
    assert "unknown script" in (await get(sim, "/v1/models/gpt-9"))["error"]["message"]


async def test_tokens_are_counted(sim: SimServer) -> None:
    payload = body("anthropic", "sim-ok", stream=False)
    reply = await exchange(sim.port, "/v1/messages/count_tokens", payload)
    assert json.loads(reply.body)["input_tokens"] > 10
    path = "/v1beta/models/sim-ok:countTokens"
    reply = await exchange(sim.port, path, body("gemini", "", stream=False))
    assert json.loads(reply.body)["totalTokens"] > 10


async def test_the_root_explains_every_script(sim: SimServer) -> None:
    reply = await exchange(sim.port, "/", b"", method="GET")
    assert all(name in reply.body.decode() for name in SCRIPTS)
    assert reply.headers["content-type"].startswith("text/plain")


async def test_a_head_request_has_headers_and_no_body(sim: SimServer) -> None:
    reply = await exchange(sim.port, "/v1/models", b"", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 1000


async def test_what_the_provider_saw_can_be_asked_for(sim: SimServer) -> None:
    raw = json.dumps(body("chat", "sim-ok", stream=True)).encode()
    head = "authorization: Bearer sk-secret\r\nx-repeated: 1\r\nx-repeated: 2\r\n"
    await exchange(sim.port, "/v1/chat/completions?a=%2F", raw, head=head)
    (seen,) = (await get(sim, "/_sim/requests"))["requests"]
    assert (seen["method"], seen["path"]) == ("POST", "/v1/chat/completions?a=%2F")
    assert (seen["model"], seen["script"], seen["status"]) == ("sim-ok", "sim-ok", 200)
    assert seen["body_sha256"] == hashlib.sha256(raw).hexdigest()
    assert (seen["open"], seen["closed_early"]) == (False, False)
    assert seen["when"].endswith("+00:00")
    names = [name for name, _ in seen["headers"]]
    assert names.count("x-repeated") == 2
    assert "sk-secret" not in json.dumps(seen)


async def test_looking_leaves_no_record(sim: SimServer) -> None:
    await get(sim, "/_sim/requests")
    assert (await get(sim, "/_sim/requests"))["requests"] == []
    assert sim.seen == []


@pytest.mark.parametrize(
    "model",
    [
        "sim-stall,after=1",
        "sim-stall-keepalive,after=1,beat=0.01",
        "sim-drip,after=1,beat=0.01",
        "sim-linger",
        "sim-no-headers",
        "sim-slow",
        "sim-ok,headers=60",
        "sim-ok,every=0.01,words=9999",
    ],
)
async def test_a_client_that_leaves_ends_its_answer_and_is_noticed(
    sim: SimServer, model: str
) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    raw = json.dumps(body("anthropic", model, stream=True)).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: s\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await until(lambda: sim.seen and sim.seen[0].model)
    assert (sim.seen[0].open, sim.seen[0].closed_early) == (True, False)
    writer.close()
    await until(lambda: not sim.seen[0].open)
    assert sim.seen[0].closed_early


async def test_a_client_that_leaves_while_it_sends_is_noticed(sim: SimServer) -> None:
    _reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: s\r\ncontent-length: 100\r\n\r\n{")
    await until(lambda: sim.seen)
    writer.close()
    await until(lambda: not sim.seen[0].open)
    assert sim.seen[0].closed_early


async def test_a_finished_stream_that_lingers_has_sent_everything(sim: SimServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    raw = json.dumps(body("chat", "sim-linger", stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    received = await asyncio.wait_for(reader.readuntil(b"[DONE]\n\n\r\n"), 3)
    text, end = dechunk(received.split(b"\r\n\r\n", 1)[1])
    assert (end, finishes("chat", text)) == ("fin", 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.05)
    writer.close()


async def test_stopping_ends_open_answers_and_is_no_early_close() -> None:
    sim = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    raw = json.dumps(body("chat", "sim-stall", stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 3)
    started = time.perf_counter()
    await sim.stop()
    assert time.perf_counter() - started < 1
    await asyncio.wait_for(reader.read(), 3)
    writer.close()
    assert (sim.seen[0].open, sim.seen[0].closed_early) == (False, False)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", sim.port)


async def test_connections_are_reused_after_whole_answers_and_after_errors(sim: SimServer) -> None:
    opened: list[object] = []

    async def count(*event: object) -> None:
        opened.append(event)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    async with aiohttp.ClientSession(sim.url, trace_configs=[trace]) as client:
        for model in ("sim-ok", "sim-bare-eof", "sim-status-503", "sim-html-200", "sim-gzip"):
            payload = body("chat", model, stream=True)
            async with client.post("/v1/chat/completions", json=payload) as response:
                await response.read()
    assert len(opened) == 1


async def test_two_pipelined_requests_are_answered_in_order(sim: SimServer) -> None:
    raw = json.dumps(body("chat", "sim-ok,words=3", stream=False)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: {len(raw)}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    request = head.encode() + b"\r\n" + raw
    writer.write(request + head.encode() + b"connection: close\r\n\r\n" + raw)
    received = await asyncio.wait_for(reader.read(), 3)
    writer.close()
    assert received.count(b"HTTP/1.1 200 OK") == 2


async def test_an_http_1_0_client_gets_no_chunks_and_a_close(sim: SimServer) -> None:
    payload = body("chat", "sim-ok", stream=True)
    reply = await exchange(sim.port, "/v1/chat/completions", payload, version="1.0")
    assert "transfer-encoding" not in reply.headers
    assert (reply.end, finishes("chat", reply.body)) == ("fin", 1)


async def test_a_client_that_waits_for_leave_to_send_gets_it(sim: SimServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port)
    raw = json.dumps(body("chat", "sim-ok", stream=True)).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\n"
    writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode())
    assert await asyncio.wait_for(reader.readline(), 3) == b"HTTP/1.1 100 Continue\r\n"
    writer.write(raw)
    assert b"[DONE]" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 3)
    writer.close()


async def test_large_headers_and_bodies_are_taken(sim: SimServer) -> None:
    payload = body("chat", "sim-ok,words=5", stream=False, padding="x" * 5_000_000)
    head = f"x-large: {'h' * 40_000}\r\n"
    reply = await exchange(sim.port, "/v1/chat/completions", payload, head=head)
    assert reply.status == 200
    assert sim.seen[0].body_bytes > 5_000_000


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)],
)
async def test_compressed_request_bodies_are_read_and_remembered_as_they_came(
    sim: SimServer, coding: str, compress: Any
) -> None:
    raw = compress(json.dumps(body("responses", "sim-ok", stream=True)).encode())
    head = f"content-encoding: {coding}\r\n"
    reply = await exchange(sim.port, "/v1/responses", raw, head=head)
    assert finishes("responses", reply.body) == 1
    assert sim.seen[0].body_sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_compressed_answers_can_be_read_by_a_client(
    sim: SimServer, protocol: str, coding: str
) -> None:
    model = f"sim-gzip,coding={coding}"
    for stream in (True, False):
        reply = await ask(sim.port, protocol, model, stream=stream)
        assert reply.headers["content-encoding"] == coding
        assert reply.end == "clean"
        data = decode(reply.body, coding)
        assert finishes(protocol, data) == 1 if stream else json.loads(data)


async def test_a_cut_gzip_stream_lacks_its_trailer_and_a_clean_end_has_it(sim: SimServer) -> None:
    clean = await ask(sim.port, "chat", "sim-bare-eof,coding=gzip")
    assert len(contents("chat", gzip.decompress(clean.body))) == 3
    cut = await ask(sim.port, "chat", "sim-cut,coding=gzip")
    with pytest.raises(EOFError):
        gzip.decompress(cut.body)


async def test_events_come_at_the_pace_asked_for(sim: SimServer) -> None:
    started = time.perf_counter()
    await ask(sim.port, "completions", "sim-ok,words=4,first=0.05,every=0.02,headers=0.03")
    assert 0.18 <= time.perf_counter() - started < 1


async def test_a_server_may_have_a_pace_of_its_own() -> None:
    sim = await start(every=0.02)
    try:
        started = time.perf_counter()
        await ask(sim.port, "completions", "sim-ok,words=6")
        assert time.perf_counter() - started >= 0.12
        started = time.perf_counter()
        await ask(sim.port, "completions", "sim-ok,words=6,every=0")
        assert time.perf_counter() - started < 0.1
    finally:
        await sim.stop()


async def test_a_slow_reader_holds_the_answer_back(sim: SimServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim.port, limit=1024)
    raw = json.dumps(body("chat", "sim-big-event,size=32M", stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await asyncio.wait_for(reader.read(10), 5)
    await asyncio.sleep(0.1)
    assert sim.seen[0].open
    writer.transport.abort()
    await until(lambda: not sim.seen[0].open)


async def test_many_streams_run_at_once(sim: SimServer) -> None:
    replies = await asyncio.gather(
        *(ask(sim.port, "chat", "sim-ok,words=5,first=0.1") for _ in range(150))
    )
    assert all(finishes("chat", reply.body) == 1 for reply in replies)


async def test_ids_differ_and_texts_do_not(sim: SimServer) -> None:
    first, second = [await ask(sim.port, "chat", "sim-ok") for _ in range(2)]
    assert contents("chat", first.body) == contents("chat", second.body)
    assert events(first.body)[0][1]["id"] != events(second.body)[0][1]["id"]
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


async def test_it_can_listen_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "sim.sock"
    sim = await start(f"unix:{path}")
    try:
        assert sim.url == f"unix:{path}"
        connector = aiohttp.UnixConnector(str(path))
        async with aiohttp.ClientSession("http://sim", connector=connector) as client:
            payload = body("chat", "sim-ok", stream=True)
            async with client.post("/v1/chat/completions", json=payload) as response:
                assert finishes("chat", await response.read()) == 1
            payload = body("chat", "sim-reset", stream=True)
            async with client.post("/v1/chat/completions", json=payload) as response:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
    finally:
        await sim.stop()


async def test_it_can_listen_on_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    sim = await start("[::1]:0")
    try:
        assert sim.url == f"http://[::1]:{sim.port}"
    finally:
        await sim.stop()


@pytest.mark.parametrize("listen", ["8484", "localhost:", ":80", "localhost:http", "h:70000"])
async def test_an_address_that_is_none_is_refused_with_the_mend(listen: str) -> None:
    with pytest.raises(ValueError, match=r"write HOST:PORT or unix:/path"):
        await start(listen)


async def test_a_taken_port_is_an_os_error(sim: SimServer) -> None:
    with pytest.raises(OSError, match=str(sim.port)):
        await start(f"127.0.0.1:{sim.port}")
