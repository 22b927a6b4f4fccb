"""Errors of streams: as HTTP errors while the head is the gateway's to choose, in-band after it,
and either way with all that the provider said.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.model import Retry, Timeouts
from tests.relay.fake_upstream import (
    HOLD,
    LAST_CHUNK,
    SSE,
    FakeUpstream,
    Step,
    chunk,
    head,
    json_answer,
)
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import WHOLE, event

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway
    from tests.relay.raw_client import Answer

FAST = Retry(max_retries=3, backoff_initial=0.001, backoff_max=0.002, budget=100.0)
CHAT = "/up/v1/chat/completions"
MESSAGES = "/up/v1/messages"
RESPONSES = "/up/v1/responses"
GEMINI = "/up/v1beta/models/m:streamGenerateContent?alt=sse"
PAGE = b"<html><head><title>413 Request Entity Too Large</title></head><body>nginx</body></html>"


def error_answer(status: str, body: bytes, kind: str = "application/json") -> bytes:
    return head(status, f"Content-Type: {kind}", f"Content-Length: {len(body)}") + body


def errors_in(body: bytes) -> list[dict[str, Any]]:
    """The errors of all events of a stream, whatever the protocol."""
    found = []
    for line in body.splitlines():
        if line.startswith(b"data:") and b"error" in line:
            value = json.loads(line.removeprefix(b"data:"))
            error = value.get("error") or value.get("response", {}).get("error")
            found += [error] if error else []
    return found


async def ask_after_a_keepalive(
    start_gateway: StartGateway, path: str, *answers: list[Step], **keys: Any
) -> Answer:
    """What comes after a head that went out for a keepalive: a first try that falls silent, and
    then those answers.
    """
    timeouts = Timeouts(silent_phase=0.15, first_event=0.15)
    silent: list[Step] = [SSE, chunk(b": comment\n\n"), HOLD]
    async with FakeUpstream(silent, *answers) as upstream:
        gateway = await start_gateway(
            upstream.port, hold_keepalive=0.05, timeouts=timeouts, retry=FAST, **keys
        )
        answer = await ask(gateway.port, request(path))
        assert answer.status == 200, "the head was out"
        return answer


# After the head.


@pytest.mark.parametrize(
    ("path", "status", "body", "told"),
    [
        (CHAT, "413 Too Large", PAGE, {"type": "invalid_request_error"}),
        (
            CHAT,
            "401 No",
            b'{"detail":"no key"}',
            {"type": "authentication_error", "message": "no key"},
        ),
        (
            CHAT,
            "400 No",
            b'{"error":{"message":"m","code":"c","metadata":{"raw":"why"}}}',
            {"message": "m (code: c; why)", "code": "c"},
        ),
        (CHAT, "401 No", PAGE, {"type": "authentication_error"}),
        (MESSAGES, "403 No", PAGE, {"type": "permission_error"}),
        (CHAT, "404 No", b'{"error":{"message":"m"}}', {"type": "not_found_error", "message": "m"}),
        (CHAT, "404 No", b'{"error":{"message":"m","type":"own"}}', {"type": "own"}),
        (CHAT, "403 No", b"", {"type": "permission_error"}),
        (
            MESSAGES,
            "401 No",
            b'{"detail":"no key"}',
            {"type": "authentication_error", "message": "no key"},
        ),
        (MESSAGES, "413 Too Large", PAGE, {"type": "request_too_large"}),
        (
            MESSAGES,
            "400 No",
            b'{"type":"error","error":{"type":"invalid_request_error","message":"m","param":"p"}}',
            {"type": "invalid_request_error", "message": "m (param: p)"},
        ),
        (
            RESPONSES,
            "400 No",
            b'{"error":{"message":"m","type":"invalid_request_error","param":"p"}}',
            {"message": "m (param: p)"},
        ),
        (RESPONSES, "401 No", b"no key", {"message": "no key", "type": "authentication_error"}),
    ],
)
async def test_an_http_error_after_the_head_is_told_in_band_with_its_type(
    start_gateway: StartGateway, path: str, status: str, body: bytes, told: dict[str, str]
) -> None:
    kind = "text/html" if body == PAGE else "application/json"
    answer = await ask_after_a_keepalive(start_gateway, path, [error_answer(status, body, kind)])
    error = errors_in(answer.body)[0]
    assert {name: error[name] for name in told} == told
    assert b"<" not in answer.body


async def test_gemini_is_told_the_status_in_band(start_gateway: StartGateway) -> None:
    denied = {"code": 403, "message": "m", "status": "PERMISSION_DENIED"}
    body = json.dumps({"error": denied | {"details": [{"reason": "WHY"}]}}).encode()
    for refusal in (body, b'{"detail":"m"}'):
        answer = await ask_after_a_keepalive(
            start_gateway, GEMINI, [error_answer("403 Forbidden", refusal)]
        )
        error = errors_in(answer.body)[0]
        assert error["code"] == 403
        assert error["status"] == "PERMISSION_DENIED"
        assert error["message"] == ("m (WHY)" if refusal == body else "m")


@pytest.mark.parametrize(("status", "code"), [("400 No", "invalid_prompt"), ("401 No", "no_key")])
async def test_codex_gives_up_in_band_where_it_would_for_the_status(
    start_gateway: StartGateway, status: str, code: str
) -> None:
    body = b'{"error":{"message":"m","type":"t","code":"no_key"}}'
    answer = await ask_after_a_keepalive(start_gateway, RESPONSES, [error_answer(status, body)])
    nested, failed = errors_in(answer.body)
    assert (nested["code"], nested["message"]) == ("no_key", "m (code: no_key; type: t)")
    assert (failed["code"], failed["message"]) == (code, "m (code: no_key; type: t)")


# The first event.


NESTED = {
    "message": "Provider returned error",
    "code": 400,
    "metadata": {
        "raw": '{"error":{"message":"tools[3].name is too long"}}',
        "provider_name": "Acme",
    },
}


@pytest.mark.parametrize("parts", [1, 2])
async def test_an_error_that_is_the_first_event_is_an_http_error_with_its_detail(
    start_gateway: StartGateway, parts: int
) -> None:
    data = event({"error": NESTED, "user_id": "u"})
    cut = len(data) // 2 if parts == 2 else len(data)
    script: list[Step] = [SSE, chunk(b": OPENROUTER PROCESSING\n\n"), chunk(data[:cut])]
    script += [chunk(data[cut:])] if parts == 2 else []
    async with FakeUpstream([*script, LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(CHAT))
        assert answer.status == 400
        assert answer.values("Content-Type") == [b"application/json"]
        error = json.loads(answer.body)["error"]
        assert error == NESTED | {
            "message": "Provider returned error (tools[3].name is too long; provider_name: Acme)"
        }


@pytest.mark.parametrize(
    ("path", "frames", "status", "message"),
    [
        (
            MESSAGES,
            b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error",'
            b'"message":"m","details":{"field":"f"}}}\n\n',
            400,
            "m (field: f)",
        ),
        (
            RESPONSES,
            b'event: error\ndata: {"type":"error","code":"invalid_prompt","message":"m",'
            b'"param":"input[2]"}\n\n',
            400,
            "m (code: invalid_prompt; param: input[2])",
        ),
        (
            GEMINI,
            b'data: {"error":{"code":403,"message":"m","status":"PERMISSION_DENIED",'
            b'"details":[{"reason":"WHY"}]}}\r\n\r\n',
            403,
            "m (WHY)",
        ),
    ],
)
async def test_a_first_error_event_is_an_http_error_in_each_protocol(
    start_gateway: StartGateway, path: str, frames: bytes, status: int, message: str
) -> None:
    async with FakeUpstream([SSE, chunk(frames), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(path))
        assert answer.status == status
        assert json.loads(answer.body)["error"]["message"] == message


RATE = {
    "code": 429,
    "message": "Quota",
    "status": "RESOURCE_EXHAUSTED",
    "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "50s"}],
}


async def test_googles_wait_in_an_error_event_is_told(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, chunk(event({"error": RATE})), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, request(GEMINI))
        assert (answer.status, answer.values("Retry-After")) == (429, [b"50"])
        assert len(upstream.requests) == 1, "longer than a client is made to wait"


async def test_googles_wait_in_an_error_event_is_kept(start_gateway: StartGateway) -> None:
    soon = RATE | {"details": [{"retryDelay": "0.2s"}]}
    good = event({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]})
    first: list[Step] = [SSE, chunk(event({"error": soon})), LAST_CHUNK]
    async with FakeUpstream(first, [SSE, chunk(good), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        began = asyncio.get_running_loop().time()
        answer = await ask(gateway.port, request(GEMINI))
        assert (answer.status, answer.body) == (200, good)
        assert asyncio.get_running_loop().time() - began >= 0.2


# After content the provider's events are its own.


async def test_an_error_event_after_content_passes_as_it_came(start_gateway: StartGateway) -> None:
    error = event({"error": NESTED})
    body = WHOLE.partition(b"data: [DONE]")[0].rpartition(b"data: ")[0] + error
    async with FakeUpstream([SSE, chunk(body), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(CHAT))
        assert answer.status == 200
        assert answer.body.startswith(body)


async def test_a_json_error_for_a_stream_stays_one(start_gateway: StartGateway) -> None:
    body = b'{"error":{"message":"m","param":"p"}}'
    async with FakeUpstream([json_answer(body, status="400 Bad Request")]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            for _ in range(2):
                await client.send(request(CHAT))
                answer = await client.answer()
                assert (answer.status, answer.clean) == (400, True)
                assert answer.body == b'{"error":{"message":"m (param: p)","param":"p"}}'
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"error":{"message":"m","code":400,"metadata":{"raw":"why"}}}', 400, "m (why)"),
        (b'{"detail":[{"loc":["body","n"],"msg":"odd"}]}', 502, "body.n: odd"),
        (
            b'{"error":{"type":"invalid_request_error","message":"m","param":"p"}}',
            400,
            "m (param: p)",
        ),
    ],
)
async def test_an_error_in_a_200_is_told_with_its_detail(
    start_gateway: StartGateway, body: bytes, status: int, message: str
) -> None:
    async with FakeUpstream([json_answer(body)]) as upstream:
        gateway = await start_gateway(upstream.port)
        for path in (CHAT, MESSAGES):
            answer = await ask(gateway.port, request(path))
            told = json.loads(answer.body)
            assert (answer.status, told["error"]["message"]) == (status, message)
            assert ("type" in told) >= (path == MESSAGES)


async def test_an_error_that_is_all_of_a_stream_is_counted_as_one_of_the_providers(
    start_gateway: StartGateway,
) -> None:
    failing = [SSE, chunk(event({"error": {"message": "no", "code": "bad"}})), LAST_CHUNK]
    async with FakeUpstream(failing) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert answer.values("x-gateway-error") == []
        record = await gateway.record()
        assert (record.upstream_status, record.upstream_body) == (200, "json")
        counted = gateway.metrics.snapshot().numbers["gateway_upstream_errors_total"]
        assert list(counted.values()) == [1]
