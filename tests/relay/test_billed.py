"""Tries that may have cost money although no content was read: tried again within bounds, and never
elsewhere.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Timeouts
from tests.relay.fake_upstream import (
    FIN,
    HOLD,
    LAST_CHUNK,
    RST,
    SSE,
    FakeUpstream,
    Step,
    chunk,
    head,
    json_answer,
)
from tests.relay.raw_client import ask, request
from tests.relay.streams import ROLE, event, text
from tests.relay.support import BUSY, FAST, GOOD, JSON, PLAIN, with_backup

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

UNREAD = event({"novel": "y" * 3000})


@pytest.mark.parametrize(
    "script",
    [
        [SSE, chunk(ROLE + b'data: {"novel":1}\n\n'), LAST_CHUNK],
        [SSE, chunk(ROLE + UNREAD + event({"error": {"type": "overloaded_error"}})), LAST_CHUNK],
        [SSE, chunk(ROLE + UNREAD), HOLD],
    ],
    ids=["unknown", "error", "stall"],
)
async def test_what_could_not_be_read_counts_as_content(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=FAST,
            hold="finish",
            max_event=1024,
            timeouts=Timeouts(gap=0.2, gap_alive=0.2, silent_phase=0.2, first_event=1),
            **with_backup(second.port),
        )
        assert (await ask(gateway.port)).status >= 500
        assert (len(first.requests), len(second.requests)) == (2, 0)


@pytest.mark.parametrize(
    "script",
    [
        [SSE, chunk(b": processing\n\n"), chunk(JSON), LAST_CHUNK],
        [SSE, chunk(ROLE + text("a")[:-9]), LAST_CHUNK],
        [SSE, chunk(ROLE + text("a")[:-9]), FIN],
        [SSE, chunk(ROLE + text("a")[:-9]), HOLD],
        [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"dat"), HOLD],
    ],
    ids=[
        "JSON behind a comment",
        "torn",
        "torn and reset",
        "torn and silent",
        "unknown",
    ],
)
async def test_a_part_of_an_event_or_of_broken_http_goes_nowhere_else(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        silence = Timeouts(gap=0.1, gap_alive=0.1, silent_phase=0.1, first_event=1)
        gateway = await start_gateway(
            first.port, retry=FAST, timeouts=silence, **with_backup(second.port)
        )
        assert (await ask(gateway.port)).status >= 500
        assert (len(first.requests), len(second.requests)) == (4, 0)


def of_response(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields})


CREATED = of_response("response.created", response={"id": "r", "status": "in_progress"})
SHUT = {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbGVk", "summary": []}
GEMINI = "beta/models/m:streamGenerateContent?alt=sse"
THOUGHT = {"text": "", "thoughtSignature": "c2VhbGVk"}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
MESSAGE = {"type": "message", "id": "msg_1", "content": []}
OPEN = {"type": "reasoning", "id": "rs_1", "summary": []}
COUNTED = {"id": "r", "status": "failed", "usage": {"output_tokens": 5000}}
FAILED = {"error": {"code": "server_error", "message": "m"}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}}
SIGNED = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta"}}
STARTED = {"type": "message_start", "message": {"model": "m", "usage": {"output_tokens": 2}}}


@pytest.mark.parametrize(
    ("path", "events", "asked"),
    [
        ("/responses", CREATED, 1),
        ("/responses", CREATED + of_response("response.output_item.done", item=SHUT), 0),
        ("/responses", of_response("response.failed", response=COUNTED | FAILED), 0),
        ("/responses", CREATED + of_response("response.output_item.added", item=OPEN), 0),
        (GEMINI, event({"candidates": [{"content": {"parts": [{"text": ""}]}}]}), 1),
        (GEMINI, event({"candidates": [{"content": {"parts": [THOUGHT]}}]}), 0),
        ("/responses", CREATED + of_response("response.output_item.added", item=SEARCH), 0),
        ("/responses", CREATED + of_response("response.output_item.added", item=MESSAGE), 1),
        ("/messages", event(STARTED), 1),
        ("/messages", event(STARTED) + event(BLOCK), 0),
        ("/messages", event(STARTED) + event(BLOCK) + event(SIGNED), 0),
        ("/chat/completions", ROLE + event({"choices": [], "usage": {"completion_tokens": 9}}), 0),
    ],
    ids=[
        "begun",
        "sealed",
        "counted",
        "opened",
        "empty",
        "thought",
        "search",
        "message",
        "greeting",
        "thinking",
        "signature",
        "usage",
    ],
)
async def test_hidden_work_is_not_asked_for_a_second_time_elsewhere(
    start_gateway: StartGateway, path: str, events: bytes, asked: int
) -> None:
    async with FakeUpstream([SSE, chunk(events), RST]) as first, FakeUpstream(BUSY) as second:
        gateway = await start_gateway(first.port, retry=FAST, **with_backup(second.port))
        body = b'{"model":"m","stream":true}'
        assert (await ask(gateway.port, request(f"/up/v1{path}", body))).status >= 500
        assert (len(first.requests), len(second.requests)) == (4, asked)


async def test_reasoning_that_comes_whole_is_content(start_gateway: StartGateway) -> None:
    shown = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I thought"}]}
    events = CREATED + of_response("response.output_item.done", item=shown)
    async with FakeUpstream([SSE, chunk(events), RST]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port, retry=FAST, hold="finish", **with_backup(second.port)
        )
        body = b'{"model":"m","stream":true}'
        assert (await ask(gateway.port, request("/up/v1/responses", body))).status >= 500
        assert (len(first.requests), len(second.requests)) == (2, 0)


async def test_content_beside_an_error_was_made(start_gateway: StartGateway) -> None:
    both = event({"choices": [{"delta": {"content": "a"}, "finish_reason": "network_error"}]})
    async with FakeUpstream([SSE, chunk(both), LAST_CHUNK]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, retry=FAST, **with_backup(second.port))
        assert (await ask(gateway.port)).status >= 500
        assert second.requests == []


@pytest.mark.parametrize("status", ["200 OK", "502 Bad"])
async def test_an_error_that_counts_tokens_was_worked_on(
    start_gateway: StartGateway, status: str
) -> None:
    error = {"error": {"message": "m", "type": "server_error"}}
    for tokens, asked in ((0, 1), (500, 0)):
        body = json.dumps(error | {"usage": {"completion_tokens": tokens}}).encode()
        async with (
            FakeUpstream([json_answer(body, status=status)]) as first,
            FakeUpstream(BUSY) as second,
        ):
            gateway = await start_gateway(first.port, retry=FAST, **with_backup(second.port))
            assert (await ask(gateway.port, PLAIN)).status >= 500
            assert (len(first.requests), len(second.requests)) == (4, asked)
