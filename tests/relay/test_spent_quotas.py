"""A quota that is used up is asked for once, however deep in an error it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.relay.fake_upstream import LAST_CHUNK, SSE, FakeUpstream, Step, chunk, json_answer
from tests.relay.raw_client import ask
from tests.relay.support import FAST, GOOD, PLAIN, with_backup

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def failing(kind: str, error: Mapping[str, object], status: str) -> list[Step]:
    """An error in one of the three forms that it can come in."""
    body = json.dumps({"error": error}).encode()
    if kind == "stream":
        return [SSE, chunk(b"data: " + body + b"\n\n"), LAST_CHUNK]
    return [json_answer(body, status=status) if kind == "http" else json_answer(body)]


@nested
@pytest.mark.parametrize("kind", ["http", "stream", "json"])
async def test_a_nested_quota_is_asked_once_and_of_nobody_else(
    start_gateway: StartGateway, error: Mapping[str, object], kind: str
) -> None:
    script = failing(kind, error, "429 Pay")
    async with FakeUpstream(script) as upstream, FakeUpstream(GOOD) as other:
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


@pytest.mark.parametrize("kind", ["http", "stream", "json"])
@pytest.mark.parametrize(("told", "tries"), [("5ms", 4), ("35.883s", 1)])
async def test_a_limit_that_says_in_words_when_to_come_back_is_waited_for_or_told(
    start_gateway: StartGateway, kind: str, told: str, tries: int
) -> None:
    said = f"Rate limit reached: Limit 1, Used 1. Please try again in {told}."
    error = {"message": said, "code": "rate_limit_exceeded", "type": "tokens"}
    script = failing(kind, error, "429 Slow")
    # It costs nothing of the budget, which is the waiting's own.
    retry = msgspec.structs.replace(FAST, budget=0.0, budget_floor=1)
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        answer = await (ask(gateway.port) if kind == "stream" else ask(gateway.port, PLAIN))
        assert len(upstream.requests) == tries
        if tries == 1:
            assert answer.values("Retry-After") == [b"36"]


@pytest.mark.parametrize(
    ("error", "fields", "tries"),
    [
        ({"code": "rate_limit_error", "type": "invalid_request_error"}, [], 4),
        ({"type": "invalid_request_error", "code": None}, [], 4),
        ({"type": "invalid_request_error", "code": "context_length_exceeded"}, [], 1),
        ({"type": "too_many_tokens_error", "code": "token_quota_exceeded"}, [], 4),
        ({"type": "quota_exceeded"}, ["Retry-After: 0.01"], 4),
        ({"type": "quota_exceeded"}, [], 1),
        ({"type": "insufficient_quota"}, ["Retry-After: 0.01"], 1),
        ({"code": "1113"}, ["Retry-After: 0.01"], 1),
    ],
)
async def test_a_429_is_a_limit_whatever_else_it_is_called(
    start_gateway: StartGateway, error: Mapping[str, object], fields: list[str], tries: int
) -> None:
    body = json.dumps({"error": {"message": "This would exceed the limit.", **error}}).encode()
    async with FakeUpstream([json_answer(body, *fields, status="429 Slow")]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, PLAIN)
        assert len(upstream.requests) == tries


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
        (500, {"message": "x", "code": "1113"}),
        (503, {"message": "x", "code": 1308}),
        (503, {"message": "This request requires more credits", "code": 402}),
        (429, {"message": "Budget has been exceeded! Max budget: 10", "type": "budget_exceeded"}),
        (429, {"message": "You have no credits remaining.", "code": "429"}),
        (429, {"message": "Weekly/Monthly Limit Exhausted.", "code": "1310"}),
        (429, {"message": "[1310][x]", "code": "1310", "type": "rate_limit_error"}),
        (429, {"message": "Extra usage is required.", "type": "rate_limit_error"}),
        (429, {"message": "terminated", "type": "access_terminated"}),
        (200, {"message": "Your prepayment credits are depleted.", "status": "RESOURCE_EXHAUSTED"}),
        (200, {"message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}),
        (200, {"message": "refused", "code": "data_inspection_failed"}),
        (200, {"message": "too long", "http_status_code": 422}),
        (200, {"message": "token expired", "code": "forbidden"}),
        (200, {"message": "no", "type": "unauthorized"}),
    ],
)
async def test_what_money_or_a_key_is_missing_for_is_asked_once(
    start_gateway: StartGateway, status: int, error: Mapping[str, object]
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
