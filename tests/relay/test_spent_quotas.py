"""A quota that is used up is asked for once, however deep in an error it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.relay.fake_upstream import LAST_CHUNK, SSE, FakeUpstream, chunk, json_answer
from tests.relay.raw_client import ask
from tests.relay.support import FAST, GOOD, PLAIN, with_backup

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

SPENT = {
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "type": "insufficient_quota",
}
NESTED = {
    "raw text": {"message": "x", "code": 429, "metadata": {"raw": json.dumps({"error": SPENT})}},
    "raw text of a 5xx": {
        "message": "x",
        "code": 502,
        "metadata": {"raw": json.dumps({"error": SPENT})},
    },
    "an error in an error": {"message": "x", "error": SPENT},
    "details": {"message": "x", "details": "insufficient_quota"},
}
nested = pytest.mark.parametrize("error", NESTED.values(), ids=NESTED)


@nested
@pytest.mark.parametrize("kind", ["http", "stream", "json"])
async def test_a_nested_quota_is_asked_once_and_of_nobody_else(
    start_gateway: StartGateway, error: dict[str, object], kind: str
) -> None:
    body = json.dumps({"error": error}).encode()
    steps = {
        "http": [json_answer(body, status="429 Pay")],
        "stream": [SSE, chunk(b"data: " + body + b"\n\n"), LAST_CHUNK],
        "json": [json_answer(body)],
    }
    async with FakeUpstream(steps[kind]) as upstream, FakeUpstream(GOOD) as other:
        gateway = await start_gateway(upstream.port, retry=FAST, **with_backup(other.port))
        answer = await (ask(gateway.port) if kind == "stream" else ask(gateway.port, PLAIN))
        assert answer.status >= 400
        assert (len(upstream.requests), len(other.requests)) == (1, 0)


async def test_a_limit_that_says_when_to_come_back_passes(start_gateway: StartGateway) -> None:
    error = {
        "message": "You exceeded your current quota",
        "code": 429,
        "details": [{"retryDelay": "0.01s"}],
    }
    limited = chunk(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
    async with FakeUpstream([SSE, limited, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).status == 200
        assert len(upstream.requests) == 2


async def test_a_200_that_is_a_rate_limit_waits_as_its_header_says(
    start_gateway: StartGateway,
) -> None:
    body = b'{"error":{"message":"slow down","type":"rate_limit_error","code":429}}'
    async with FakeUpstream([json_answer(body, "Retry-After: 3600")], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.values("Retry-After")) == (429, [b"3600"])
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, {"message": "user quota is not enough", "code": "insufficient_user_quota"}),
        (503, {"message": "Monthly quota exceeded", "type": "quota_exceeded"}),
        (500, {"message": "pay first", "type": "billing_error"}),
        (503, {"message": "This request requires more credits", "code": 402}),
        (429, {"message": "Budget has been exceeded! Max budget: 10", "type": "budget_exceeded"}),
        (429, {"message": "You have no credits remaining.", "code": "429"}),
        (200, {"message": "token expired", "code": "forbidden"}),
        (200, {"message": "no", "type": "unauthorized"}),
    ],
)
async def test_what_money_or_a_key_is_missing_for_is_asked_once(
    start_gateway: StartGateway, status: int, error: dict[str, object]
) -> None:
    body = json.dumps({"error": error}).encode()
    script = [json_answer(body, status=f"{status} Said")]
    async with FakeUpstream(script) as upstream, FakeUpstream(GOOD) as other:
        gateway = await start_gateway(upstream.port, retry=FAST, **with_backup(other.port))
        assert (await ask(gateway.port, PLAIN)).status >= 400
        assert (len(upstream.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize(
    ("body", "fields", "tries"),
    [
        (b'{"code":401,"msg":"token expired or incorrect","success":false}', [], 1),
        (b'{"code":1001,"msg":"Authentication parameter not received","success":false}', [], 1),
        (b'{"code":500,"msg":"try again","success":false}', [], 4),
        (b'{"error":{"type":"overloaded_error","message":"busy"}}', [], 4),
        (
            b'{"error":{"type":"overloaded_error","message":"busy"}}',
            ["x-should-retry: false"],
            1,
        ),
    ],
)
async def test_an_error_in_a_200_is_final_where_it_says_so(
    start_gateway: StartGateway, body: bytes, fields: list[str], tries: int
) -> None:
    async with FakeUpstream([json_answer(body, *fields)]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, PLAIN)
        assert len(upstream.requests) == tries
