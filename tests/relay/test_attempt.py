"""One try: what each way of failing is called, and how long an answer may take."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from gateway.config.model import Timeouts
from gateway.policy.headers import AuthForm
from gateway.relay.attempt import auth_form
from gateway.relay.call import Call
from tests.relay.fake_upstream import (
    FIN,
    HOLD,
    LAST_CHUNK,
    SSE,
    FakeUpstream,
    Step,
    chunk,
    head,
    json_answer,
)
from tests.relay.raw_client import Answer, RawClient, ask, request
from tests.relay.streams import WHOLE
from tests.relay.support import BUSY, CHAT, FAST, JSON, PLAIN, with_backup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.relay.conftest import Gateway, StartGateway


def told(answer: Answer) -> tuple[int, str, str]:
    """Status, code and message of an error in OpenAI's shape."""
    error = json.loads(answer.body)["error"]
    assert answer.values("x-gateway-error") == [error["code"].encode()]
    return answer.status, error["code"], error["message"]


def attempts(gateway: Gateway, result: str) -> float:
    """How many attempts ended so."""
    counted = gateway.metrics.snapshot().numbers["gateway_attempts_total"]
    return counted.get(("up", result), 0)


async def test_a_refused_connection_names_the_place(start_gateway: StartGateway) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        gateway = await start_gateway(port)
        status, code, message = told(await ask(gateway.port))
        assert (status, code) == (502, "upstream_unreachable")
        assert f"127.0.0.1:{port}" in message
        assert "refused" in message
        assert "[" not in message
        record = await gateway.record()
        assert (record.status, record.error_code, record.upstream_status) == (502, code, None)
        assert attempts(gateway, "connect") == 1


async def test_a_name_that_does_not_resolve_is_called_so(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> list[object]:
        raise OSError(None, "Name or service not known")

    monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", fail)
    gateway = await start_gateway(None, base_url="https://nowhere.test/v1")
    status, code, message = told(await ask(gateway.port))
    assert (status, code) == (502, "upstream_unreachable")
    assert "nowhere.test" in message
    assert "DNS" in message


async def test_connecting_has_a_limit(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object, **__: object) -> list[object]:
        await asyncio.sleep(30)
        return []

    monkeypatch.setattr(aiohttp.DefaultResolver, "resolve", hang)
    timeouts = Timeouts(connect=0.05)
    gateway = await start_gateway(None, base_url="http://slow.test", timeouts=timeouts)
    status, code, message = told(await ask(gateway.port))
    assert (status, code) == (502, "upstream_unreachable")
    assert "took longer than 0.05 s" in message


async def test_a_tls_provider_that_speaks_plain_http_is_told_apart(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([json_answer(b"{}")]) as upstream:
        plain = await asyncio.start_server(_not_tls, "127.0.0.1", 0)
        port = plain.sockets[0].getsockname()[1]
        gateway = await start_gateway(None, base_url=f"https://127.0.0.1:{port}")
        status, code, message = told(await ask(gateway.port))
        assert (status, code) == (502, "upstream_unreachable")
        assert "TLS" in message
        assert upstream.requests == []
        plain.close()


async def _not_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def test_a_proxy_that_fails_is_told_apart(start_gateway: StartGateway) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        refusal = head("407 Proxy Authentication Required", "Content-Length: 0")
        async with FakeUpstream([refusal]) as proxy:
            for url, says in (
                (nowhere, "the proxy cannot be reached (Connection refused)"),
                (f"http://127.0.0.1:{proxy.port}", "the proxy refused to connect to it (HTTP 407)"),
            ):
                gateway = await start_gateway(None, base_url="https://provider.test", proxy=url)
                status, code, message = told(await ask(gateway.port))
                assert (status, code) == (502, "upstream_unreachable")
                assert f"Cannot reach provider.test: {says}" in message
            assert proxy.requests[0].line == b"CONNECT provider.test:443 HTTP/1.1"


@pytest.mark.parametrize(
    ("streaming", "timeouts"),
    [(True, Timeouts(first_event=0.05)), (False, Timeouts(response=0.05))],
)
async def test_no_answer_within_the_limit_is_a_504(
    start_gateway: StartGateway, streaming: bool, timeouts: Timeouts
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=timeouts)
        body = json.dumps({"stream": streaming}).encode()
        status, code, message = told(await ask(gateway.port, request(body=body)))
        assert (status, code) == (504, "upstream_timeout")
        assert "response timed out" in message
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()
        assert attempts(gateway, "timeout") == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        head("200 OK", "Content-Length: 5, 6"),
        head("101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"),
    ],
)
async def test_malformed_http_is_an_invalid_response(
    start_gateway: StartGateway, answer: bytes
) -> None:
    async with FakeUpstream([answer, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        status, code, _ = told(await ask(gateway.port))
        assert (status, code) == (502, "upstream_invalid_response")
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()


async def test_interim_answers_are_skipped(start_gateway: StartGateway) -> None:
    script: list[Step] = [
        head("102 Processing"),
        head("103 Early Hints", "Link: </x>"),
        json_answer(b"{}"),
    ]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body, answer.values("Link")) == (200, b"{}", [])


async def test_a_client_that_leaves_while_the_provider_thinks_ends_the_request(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        for number, body in enumerate((b'{"stream":true}', b"{}"), 1):
            async with RawClient(gateway.port) as client:
                await client.send(request(body=body))
                seen = await upstream.wait_for(number)
                client.close()
                async with asyncio.timeout(1):
                    await seen.closed.wait()
            record = await gateway.record(number)
            assert (record.status, record.stream) == (499, None)


async def test_an_answer_that_comes_before_the_whole_request_is_passed(
    start_gateway: StartGateway,
) -> None:
    refusal = json_answer(b'{"error":"too long"}', status="413 Too Large")
    async with FakeUpstream([refusal, FIN], read_body=False) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            raw = request("/up/v1/files", None, "Content-Length: 100000") + b"ab"
            await client.send(raw)
            answer = await client.answer()
            assert (answer.status, answer.body) == (413, b'{"error":"too long"}')
        assert len(upstream.requests) == 1


async def test_results_of_attempts_are_counted(start_gateway: StartGateway) -> None:
    scripts: list[list[Step]] = [
        [SSE, chunk(WHOLE), LAST_CHUNK],
        [json_answer(b"{}", status="429 Slow Down")],
        [SSE, LAST_CHUNK],
        [json_answer(b"{}")],
        [FIN],
        [json_answer(b"{}")],
    ]
    async with FakeUpstream(*scripts) as upstream:
        gateway = await start_gateway(upstream.port)
        for _ in range(5):
            await ask(gateway.port)
        # The HTTP connection was reused, so one try was on a dead one and then again.
        counted = {
            result: attempts(gateway, result)
            for result in ("answered", "error_status", "truncated", "stale_connection")
        }
        assert counted == {
            "answered": 3, "error_status": 1, "truncated": 1, "stale_connection": 1,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("host", "protocol", "fields", "form"),
    [
        ("api.anthropic.com", "anthropic", ["Authorization"], AuthForm.X_API_KEY),
        ("api.anthropic.com", "openai_chat", ["Authorization"], AuthForm.BEARER),
        ("api.anthropic.com", "none", [], AuthForm.X_API_KEY),
        ("generativelanguage.googleapis.com", "gemini", [], AuthForm.X_GOOG_API_KEY),
        ("generativelanguage.googleapis.com", "openai_chat", ["authorization"], AuthForm.BEARER),
        ("r.openai.azure.com", "openai_chat", [], AuthForm.API_KEY),
        ("notazure.com:443", "openai_chat", [], AuthForm.BEARER),
        ("127.0.0.1:8000", "anthropic", ["X-Api-Key"], AuthForm.X_API_KEY),
    ],
)
def test_the_form_of_the_gateways_own_key(
    host: str, protocol: str, fields: list[str], form: AuthForm
) -> None:
    from gateway.observe.records import RequestRecord

    record = RequestRecord("id", "POST", "/", 0.0, 0.0, protocol=protocol)
    request = SimpleNamespace(raw_headers=[(name.encode(), b"x") for name in fields])
    call = Call(request, record, None, "/")  # type: ignore[arg-type]
    assert auth_form(call, host) is form


async def test_a_request_meets_one_dead_connection_at_most(start_gateway: StartGateway) -> None:
    warm = asyncio.Event()
    dead: list[Step] = [FIN]
    good: list[Step] = [warm, json_answer(JSON)]
    async with FakeUpstream(good, good, good, dead, BUSY) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        asked = [asyncio.create_task(ask(gateway.port, PLAIN)) for _ in range(3)]
        await upstream.wait_for(3)
        warm.set()
        await asyncio.gather(*asked)
        assert (await ask(gateway.port, PLAIN)).status >= 500
        used = [seen.connection for seen in upstream.requests[3:]]
        assert used[0] <= 3
        assert used[1:] == [4, 5, 6, 7]
        assert (await gateway.record(4)).attempts == 4


async def test_a_stored_answer_is_asked_for_as_often_as_it_takes(
    start_gateway: StartGateway,
) -> None:
    """To read one does nothing at the provider."""
    poll = request("/up/v1/responses/resp_1", None, method="GET")
    done = json_answer(b'{"object":"response"}')
    async with FakeUpstream([done], BUSY, [done]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert [(await ask(gateway.port, poll)).status for _ in range(3)] == [200, 200, 200]
        assert len(upstream.requests) == 4
        # After a fault of the server the next answer on its connection may be another's.
        assert upstream.connections == 3


LARGE = b'{"model":"m","x":"' + b"a" * 3_000_000 + b'"}'


@asynccontextmanager
async def hasty(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers (or does not) and closes when it has read the beginning of a request:
    its port, and what it has read. Who closes with unread bytes resets the connection.
    """
    loop, seen = asyncio.get_running_loop(), []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)

        async def serve() -> None:
            while True:
                client, _ = await loop.sock_accept(server)
                with client:
                    seen.append(await loop.sock_recv(client, 20_000))
                    await loop.sock_sendall(client, answer)

        serving = asyncio.ensure_future(serve())
        try:
            yield server.getsockname()[1], seen
        finally:
            serving.cancel()


@pytest.mark.parametrize("path", [CHAT, "/up/v1/files"])
async def test_a_refusal_in_the_middle_of_a_large_request_is_read_and_final(
    start_gateway: StartGateway, path: str
) -> None:
    body = b'{"error":{"message":"bad key","code":"invalid_api_key"}}'
    async with hasty(json_answer(body, "Connection: close", status="401 No")) as (port, seen):
        gateway = await start_gateway(port, retry=FAST)
        answers = [await ask(gateway.port, request(path, LARGE)) for _ in range(20)]
        assert {(answer.status, b"bad key" in answer.body) for answer in answers} == {(401, True)}
        assert len(seen) == 20


async def test_a_large_request_that_is_broken_off_may_have_been_refused(
    start_gateway: StartGateway,
) -> None:
    """Its answer may be lost with the connection: it is asked once more, and not elsewhere."""
    async with hasty(b"") as (port, seen), FakeUpstream([json_answer(JSON)]) as other:
        gateway = await start_gateway(port, retry=FAST, **with_backup(other.port))
        assert (await ask(gateway.port, request(CHAT, LARGE))).status == 502
        assert (len(seen), len(other.requests)) == (2, 0)


async def test_nothing_of_a_connection_is_kept_open(start_gateway: StartGateway) -> None:
    """A second descriptor would keep it from ending when the gateway has ended it."""
    large = request(CHAT, LARGE)
    async with FakeUpstream([json_answer(JSON)], [SSE, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port, large)
        before = len(os.listdir("/proc/self/fd"))
        async with RawClient(gateway.port) as client:
            await client.send(large)
            seen = await upstream.wait_for(2)
            await seen.whole.wait()
        async with asyncio.timeout(2):
            await seen.closed.wait()
        await asyncio.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= before
