"""From the request line to the log line: where requests go, and that each one ends."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from gateway.config.credentials import Secret
from gateway.config.model import Provider, Server
from gateway.policy.clients import ClientApp
from gateway.relay import handler as handler_module
from gateway.relay.downstream import Downstream
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
from tests.relay.streams import ROLE, WHOLE, last_error, text
from tests.relay.support import FAST, GOOD

if TYPE_CHECKING:
    from tests.relay.conftest import Gateway, StartGateway

OK = json_answer(b"{}")
CHAT = "/up/v1/chat/completions"


def error(answer: Answer) -> dict[str, Any]:
    """The error of an answer of the gateway's own, in OpenAI's shape."""
    found: dict[str, Any] = json.loads(answer.body)["error"]
    assert answer.values("x-gateway-error") == [found["code"].encode()]
    assert answer.values("Content-Type") == [b"application/json"]
    assert len(answer.values("x-gateway-request-id")) == 1
    assert answer.values("Server") == []
    return found


def log_lines(gateway: Gateway) -> list[dict[str, Any]]:
    """What was logged, line by line."""
    return [json.loads(line) for line in gateway.log.getvalue().splitlines()]


async def test_an_unknown_provider_is_a_404_that_names_the_nearest(
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(1)
    answer = await ask(gateway.port, request("/upp/v1/chat/completions"))
    assert answer.status == 404
    told = error(answer)
    assert told["code"] == "unknown_provider"
    assert 'did you mean "up"' in told["message"]
    assert answer.values("x-gateway-provider") == []
    record = await gateway.record()
    assert (record.status, record.provider, record.error_code) == (404, None, "unknown_provider")


async def test_the_gateways_own_errors_have_the_shape_of_the_path(
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(1)
    anthropic = json.loads((await ask(gateway.port, request("/nobody/v1/messages"))).body)
    assert anthropic["type"] == "error"
    path = "/nobody/v1beta/models/g:streamGenerateContent?alt=sse"
    gemini = json.loads((await ask(gateway.port, request(path))).body)
    assert gemini["error"]["code"] == 404


async def test_a_provider_that_is_not_configured_says_what_is_missing(
    start_gateway: StartGateway,
) -> None:
    unavailable = {"azure": 'set base_url = "https://…" in [providers.azure]'}
    gateway = await start_gateway(1, unavailable=unavailable)
    answer = await ask(gateway.port, request("/azure/openai/v1/chat/completions"))
    assert answer.status == 404
    told = error(answer)
    assert told["code"] == "provider_not_configured"
    assert "[providers.azure]" in told["message"]


async def test_a_provider_that_cannot_be_reached_as_configured_says_why(
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(1, proxy="socks5://127.0.0.1:1")
    answer = await ask(gateway.port)
    assert answer.status == 502
    assert "socks5://" in error(answer)["message"]
    missing = await start_gateway(1, ca_file="/nowhere/ca.pem")
    assert "No such file" in error(await ask(missing.port))["message"]
    nowhere = await start_gateway(1, base_url="")
    assert "base_url" in error(await ask(nowhere.port))["message"]


@pytest.mark.parametrize("path", ["/", "/up"])
async def test_head_is_answered_at_once(start_gateway: StartGateway, path: str) -> None:
    gateway = await start_gateway(1)
    answer = await ask(gateway.port, request(path, None, method="HEAD"))
    assert (answer.status, answer.values("Content-Length")) == (200, [b"0"])
    assert gateway.records == []


async def test_own_pages_are_left_to_who_knows_them(start_gateway: StartGateway) -> None:
    async def pages(request: web.BaseRequest, path: str) -> web.StreamResponse:
        return web.Response(text=f"{request.method} {path}")

    gateway = await start_gateway(1, pages=pages)
    answer = await ask(gateway.port, request("/metrics?x=1", None, method="GET"))
    assert answer.body == b"GET /metrics"
    bare = await start_gateway(1)
    assert (await ask(bare.port, request("/metrics", None, method="GET"))).status == 404


async def test_the_default_provider_serves_bare_paths(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, server=Server(default_provider="up"))
        assert (await ask(gateway.port, request("/v1/chat/completions"))).status == 200
        assert upstream.requests[0].line == b"POST /v1/chat/completions HTTP/1.1"


async def test_websockets_are_refused_at_once_and_the_connection_goes_on(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            fields = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA==")
            await client.send(request("/up/v1/realtime", None, *fields, method="GET"))
            answer = await client.answer()
            assert answer.status == 501
            assert error(answer)["code"] == "not_implemented"
            await client.send(request("/up/v1/models", None, method="GET"))
            assert (await client.answer()).status == 200
        assert len(upstream.requests) == 1


async def test_the_clients_request_id_is_kept_if_it_is_sane(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        named = await ask(gateway.port, request(CHAT, b"{}", "X-Request-ID: turn-7"))
        assert named.values("x-gateway-request-id") == [b"turn-7"]
        for odd in ("", "a b", "x" * 200, "<script>"):
            fields = (f"X-Request-ID: {odd}",) if odd else ()
            answer = await ask(gateway.port, request(CHAT, b"{}", *fields))
            own = answer.values("x-gateway-request-id")[0]
            assert re.fullmatch(rb"[0-9a-f]{32}", own)
        sent = [seen.values("X-Request-ID") for seen in upstream.requests]
        assert sent == [[b"turn-7"], [], [b"a b"], [b"x" * 200], [b"<script>"]]


async def test_one_line_and_one_record_per_request(start_gateway: StartGateway) -> None:
    answer = head("200 OK", "Content-Type: text/event-stream", "request-id: up-9", "cf-ray: no")
    async with FakeUpstream([answer, WHOLE, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        fields = ("User-Agent: opencode/1", "x-session-affinity: s-1", "Authorization: Bearer hush")
        body = b'{"model":"m","stream":true,"n":1}'
        await ask(gateway.port, request(f"{CHAT}?key=AIzaHUSHHUSH", body, *fields))
        record = await gateway.record()
        assert record.client_app is ClientApp.OPENCODE
        assert (record.session, record.model, record.client) == ("s-1", "m", "127.0.0.1")
        assert (record.upstream_request_id, record.upstream_status) == ("up-9", 200)
        assert (record.method, record.path) == ("POST", f"{CHAT}?key=[redacted]")
        assert (record.bytes_up, record.bytes_down) == (len(body), len(WHOLE))
        assert record.ended is not None
        assert len(gateway.live) == 0
        (line,) = [line for line in log_lines(gateway) if line["event"] == "request"]
        assert (line["verdict"], line["status"], line["finish_reason"]) == ("complete", 200, "stop")
        assert "hush" not in gateway.log.getvalue().lower()


async def test_an_open_request_is_in_the_register(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            (record,) = gateway.live
            assert (record.provider, record.attempts, record.status) == ("up", 1, 200)
            assert record.stream is not None
            assert record.stream.content_events == 1


async def test_a_fault_of_the_gateway_is_a_500_without_its_traceback(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError("secret=sk-SECRETSECRET0123456789")

    monkeypatch.setattr(handler_module, "see_through", fail)
    gateway = await start_gateway(1)
    answer = await ask(gateway.port)
    assert answer.status == 500
    assert error(answer)["code"] == "gateway_internal_error"
    assert b"ZeroDivision" not in answer.body
    (line,) = [line for line in log_lines(gateway) if line["event"] == "internal_error"]
    assert "ZeroDivisionError" in line["exception"]
    assert "SECRETSECRET" not in gateway.log.getvalue()
    assert (await gateway.record()).status == 500


async def test_a_fault_in_the_middle_of_an_answer_breaks_the_connection(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Downstream.send
    sent: list[bytes] = []

    def fail(self: Downstream, data: bytes) -> None:
        sent.append(data)
        if len(sent) > 1:
            raise ZeroDivisionError
        real(self, data)

    monkeypatch.setattr(Downstream, "send", fail)
    more = asyncio.Event()
    script: list[Step] = [SSE, chunk(ROLE + text("a")), more, chunk(text("b")), HOLD]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            more.set()
            body, clean = await client.answer_body()
            assert not clean
            assert body == ROLE + text("a")
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()
        assert (await gateway.record()).error_code == "gateway_internal_error"


async def test_a_draining_gateway_refuses_politely(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1)
    gateway.relay.draining = True
    answer = await ask(gateway.port)
    assert answer.status == 503
    assert error(answer)["code"] == "gateway_draining"
    assert answer.values("Retry-After") == [b"1"]
    assert answer.values("Connection") == [b"close"]


async def test_an_answer_that_is_running_while_draining_ends_its_connection(
    start_gateway: StartGateway,
) -> None:
    go_on = asyncio.Event()
    async with FakeUpstream([go_on, OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await upstream.wait_for(1)
            gateway.relay.draining = True
            go_on.set()
            answer = await client.answer()
            assert (answer.status, answer.values("Connection")) == (200, [b"close"])
            assert await client.reader.read() == b""


async def test_an_interrupted_request_without_an_answer_gets_a_503(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await upstream.wait_for(1)
            gateway.relay.interrupt()
            gateway.relay.interrupt()
            answer = await client.answer()
        assert (answer.status, error(answer)["code"]) == (503, "gateway_draining")
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()
        assert (await gateway.record()).status == 503


async def test_an_interrupted_download_is_broken_off(start_gateway: StartGateway) -> None:
    async with FakeUpstream([head("200 OK", "Content-Length: 9"), b"abc", HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", None, method="GET"))
            await client.read_head()
            gateway.relay.interrupt()
            assert not (await client.answer_body())[1]


async def test_a_new_configuration_is_taken_over(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as first, FakeUpstream([OK]) as second:
        gateway = await start_gateway(first.port)
        await ask(gateway.port)
        from gateway.config.model import Config

        moved = Provider(name="up", base_url=f"http://127.0.0.1:{second.port}", proxy="none")
        gateway.relay.configure(Config(providers={"up": moved}, unavailable={}))
        await ask(gateway.port)
        assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_a_protocol_set_for_the_provider_reads_every_path(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, protocol="openai_chat")
        answer = await ask(gateway.port, request("/up/odd/path"))
        assert b"upstream_stream_truncated" in answer.body
        assert (await gateway.record()).protocol == "openai_chat"


async def test_pipelined_requests_are_answered_in_order(start_gateway: StartGateway) -> None:
    async with FakeUpstream(*[[json_answer(b"%d" % n)] for n in range(3)]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", b"{}") * 3)
            assert [(await client.answer()).body for _ in range(3)] == [b"0", b"1", b"2"]


async def test_all_header_fields_together_are_bounded(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1, server=Server(max_header=8000))
    fields = [f"x-{number}: {'a' * 700}" for number in range(20)]
    answer = await ask(gateway.port, request("/up/v1/models", None, *fields, method="GET"))
    assert answer.status == 431
    assert answer.values("x-gateway-error") == [b"headers_too_large"]


async def test_a_refusal_before_the_body_ends_the_connection(start_gateway: StartGateway) -> None:
    """A client that waits for 100 Continue sends no body: what follows is another request."""
    gateway = await start_gateway(1)
    answer = await ask(gateway.port, request("/nope/x", b"data", "Expect: 100-continue"))
    assert answer.status == 404
    assert answer.values("Connection") == [b"close"]


async def test_keys_and_prompts_that_a_provider_repeats_do_not_reach_the_log(
    start_gateway: StartGateway,
) -> None:
    prompt = "What is the airspeed velocity of an unladen swallow, and who wants to know that?"
    echoes = [
        {"error": {"message": "user operatorkey77 not found", "code": "operatorkey77"}},
        {"error": {"message": "zz9plainkeyQ is wrong", "code": "zz9plainkeyQ"}},
        {"detail": [{"loc": ["body"], "msg": "bad", "input": prompt}]},
        {"error": {"message": f"cannot answer: {prompt}", "code": {"it": prompt}}},
        {"error": {"message": "long", "code": "c" * 50_000}},
    ]
    for echo in echoes:
        script = [json_answer(json.dumps(echo).encode(), status="400 Bad")]
        async with FakeUpstream(script) as upstream:
            gateway = await start_gateway(upstream.port, api_key=Secret("env:KEY", "operatorkey77"))
            body = json.dumps({"stream": True, "messages": [{"content": prompt}]}).encode()
            await ask(
                gateway.port,
                request("/up/v1/chat/completions", body, "Authorization: Bearer zz9plainkeyQ"),
            )
            await gateway.record()
            log = gateway.log.getvalue()
            for secret in ("operatorkey77", "zz9plainkeyQ", "airspeed velocity", "c" * 1000):
                assert secret not in log, echo


@pytest.mark.parametrize(
    ("target", "body", "kind"),
    [
        ("fine_tuning/jobs", b'{"model":"gpt","training_file":"file-1"}', "application/json"),
        ("assistants", b'{"model":"gpt"}', "application/json"),
        ("videos", b'{"model":"gpt","prompt":"a cat"}', "application/json"),
        ("files", b"\x00\x01binary", "application/octet-stream"),
        (
            "audio/transcriptions",
            b'--x\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
    ],
)
async def test_one_protocol_for_all_paths_repeats_and_judges_nothing_else(
    start_gateway: StartGateway, target: str, body: bytes, kind: str
) -> None:
    plain = head("200 OK", "Content-Type: text/plain", "Content-Length: 3") + b"Hi\n"
    for script in ([FIN], [json_answer(b"{}", status="503 No")], [plain]):
        async with FakeUpstream(script, [json_answer(b"{}")]) as upstream:
            gateway = await start_gateway(upstream.port, retry=FAST, protocol="openai_chat")
            asking = request(f"/up/v1/{target}", body, f"Content-Type: {kind}")
            answer = await ask(gateway.port, asking)
            assert len(upstream.requests) == 1
            assert answer.status == 200 or script[0] is not plain


async def test_one_protocol_for_all_paths_reads_what_answers_a_prompt(
    start_gateway: StartGateway,
) -> None:
    cut: list[Step] = [SSE, chunk(ROLE + text("a")), LAST_CHUNK]
    async with FakeUpstream(cut) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, protocol="openai_chat")
        answer = await ask(gateway.port, request("/up/generate", b'{"model":"m","messages":[1]}'))
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"
    async with FakeUpstream([SSE, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, protocol="openai_chat")
        body = b'{"stream":true,"messages":[1]}'
        assert (await ask(gateway.port, request("/up/generate", body))).body == WHOLE
