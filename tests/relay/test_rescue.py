"""Requests that are saved by another try, at the same provider or another; and those that are not.

Each failure is made on a real socket; what the client sees, how often the provider was asked, and
what was counted is checked together.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Retry, Server, Timeouts
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
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import DONE, FINISH, ROLE, WHOLE, event, last_error, text
from tests.relay.support import BUSY, CHAT, FAST, GOOD, JSON, PLAIN, after, counted, with_backup

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

OVERLOADED = event({"error": {"message": "Overloaded", "type": "overloaded_error"}})
INVALID = event({"error": {"message": "no such tool", "type": "invalid_request_error"}})


BEFORE_CONTENT: dict[str, list[Step]] = {
    "bare end": [SSE, chunk(ROLE), LAST_CHUNK],
    "empty": [SSE, LAST_CHUNK],
    "torn": [SSE, chunk(ROLE[:-9]), LAST_CHUNK],
    "missing last chunk": [SSE, chunk(ROLE), FIN],
    "reset": [SSE, chunk(ROLE), RST],
    "only [DONE]": [SSE, chunk(DONE), LAST_CHUNK],
    "keepalives only": [SSE, chunk(b": ping\n\n"), LAST_CHUNK],
    "overloaded": [SSE, chunk(OVERLOADED), LAST_CHUNK],
    "status 500": [json_answer(b'{"error":{"message":"x"}}', status="500 Oops")],
    "status 529": [json_answer(b'{"error":{"message":"x"}}', status="529 Overloaded")],
    "status 429": [json_answer(b'{"error":{"message":"slow down"}}', status="429 Slow Down")],
    "HTML in a 200": [
        head("200 OK", "Content-Type: text/html", "Content-Length: 13"),
        b"<html>x</html",
    ],
    "error object in a 200": [json_answer(b'{"error":{"message":"worker crashed","code":502}}')],
    "broken JSON in a 200": [json_answer(b'{"choices": [')],
    "short JSON": [
        head("200 OK", "Content-Type: application/json", "Content-Length: 99"),
        b"{",
        FIN,
    ],
    "no HTTP": [b"what?\r\n\r\n", FIN],
}


@pytest.mark.parametrize("script", BEFORE_CONTENT.values(), ids=BEFORE_CONTENT)
async def test_what_fails_before_content_is_rescued_unseen(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean, answer.body) == (200, True, WHOLE)
        assert answer.values("x-gateway-attempts") == [b"2"]
        assert len(upstream.requests) == 2
        assert upstream.requests[0].body == upstream.requests[1].body
        record = await gateway.record()
        assert record.rescued
        assert record.error is None
        assert sum(counted(gateway, "gateway_rescued_total").values()) == 1
        assert sum(counted(gateway, "gateway_retries_total").values()) == 1


FINAL: dict[str, tuple[list[Step], int]] = {
    "invalid request": ([json_answer(b'{"error":{}}', status="400 Bad")], 400),
    "authentication": ([json_answer(b'{"error":{}}', status="401 Who")], 401),
    "too large": ([json_answer(b"", status="413 Big")], 413),
    "quota as 429": (
        [json_answer(b'{"error":{"code":"insufficient_quota"}}', status="429 Pay")],
        429,
    ),
    "the provider says no": (
        [json_answer(b"{}", "x-should-retry: false", status="503 No")],
        503,
    ),
    "asked to wait too long": (
        [json_answer(b"{}", "Retry-After: 3600", status="429 Later")],
        429,
    ),
    "quota in a 200": (
        [json_answer(b'{"error":{"message":"You exceeded your current quota","code":429}}')],
        429,
    ),
    "an invalid request in-band": ([SSE, chunk(ROLE + INVALID), LAST_CHUNK], 400),
}


@pytest.mark.parametrize(("script", "status"), FINAL.values(), ids=FINAL)
async def test_what_cannot_become_right_is_asked_once(
    start_gateway: StartGateway, script: list[Step], status: int
) -> None:
    async with FakeUpstream(script, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert answer.status == status
        assert len(upstream.requests) == 1
        assert counted(gateway, "gateway_retries_total") == {}


async def test_an_error_that_stays_reaches_the_client_as_it_came(
    start_gateway: StartGateway,
) -> None:
    body = b'{"error": {"message":"still\\u0020broken", "id": 1.0}}'
    script = [json_answer(body, "retry-after-ms: 1", "X-Its-Own: 1", status="503 Still Broken")]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (503, body)
        assert answer.head.startswith(b"HTTP/1.1 503 Still Broken\r\n")
        assert answer.values("X-Its-Own") == [b"1"]
        assert answer.values("x-gateway-attempts") == [b"4"]
        assert len(upstream.requests) == 4


async def test_nothing_is_tried_again_once_content_was_handed_on(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("Hel")), FIN], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert answer.body.startswith(ROLE + text("Hel"))
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"
        assert len(upstream.requests) == 1


async def test_with_hold_finish_a_cut_after_content_is_rescued_once(
    start_gateway: StartGateway,
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    cut: list[Step] = [SSE, chunk(ROLE + text("Hel") + usage), LAST_CHUNK]
    async with FakeUpstream(cut, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold="finish")
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (200, WHOLE)
        assert counted(gateway, "gateway_discarded_tokens_total") == {("up",): 7.0}
        assert (await gateway.record()).tokens_discarded == 7
    async with FakeUpstream(cut, cut, GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold="finish")
        answer = await ask(gateway.port)
        assert answer.status == 502
        assert len(upstream.requests) == 2


async def test_a_stall_before_content_is_rescued(start_gateway: StartGateway) -> None:
    timeouts = Timeouts(first_event=0.1, silent_phase=0.1)
    async with FakeUpstream([SSE, chunk(ROLE), HOLD], [SSE, HOLD], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, timeouts=timeouts)
        answer = await ask(gateway.port)
        assert answer.body == WHOLE
        assert counted(gateway, "gateway_retries_total") == {("up", "stalled"): 2.0}
        for seen in upstream.requests[:2]:
            async with asyncio.timeout(1):
                await seen.closed.wait()


async def test_a_connect_failure_is_tried_again_on_any_path(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1, retry=FAST)
    answer = await ask(gateway.port, request("/up/v1/files", None, method="GET"))
    assert answer.status == 502
    assert answer.values("x-gateway-attempts") == [b"4"]


@pytest.mark.parametrize(("ambiguous", "asked"), [(0, 1), (1, 2), (2, 3)])
async def test_what_may_have_been_billed_is_sent_as_often_as_is_allowed(
    start_gateway: StartGateway, ambiguous: int, asked: int
) -> None:
    retry = Retry(max_retries=5, backoff_initial=0.001, budget=100.0, ambiguous=ambiguous)
    async with FakeUpstream([FIN]) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        answer = await ask(gateway.port, PLAIN)
        assert answer.status == 502
        assert b"may have been processed" in answer.body
        assert len(upstream.requests) == asked


async def test_a_request_of_no_protocol_is_never_sent_twice(start_gateway: StartGateway) -> None:
    for script in ([FIN], [json_answer(b"{}", status="503 No")]):
        async with FakeUpstream(script, [json_answer(b"{}")]) as upstream:
            gateway = await start_gateway(upstream.port, retry=FAST)
            answer = await ask(gateway.port, request("/up/v1/files", b"{}"))
            assert answer.status in (502, 503)
            assert len(upstream.requests) == 1


UNREADABLE = (
    b'{"model":"m","stream":true,"background":true,"input":"\\ud83d' + b"a" * 5_000_000 + b'"}'
)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":true,"background":true}',
        b'{"model":"m","stream":true,"background":1}',
        b'{"model":"m","stream":true,"deferred":true}',
        b'{"model":"m","stream":true,"conversation":"conv_1"}',
        b'{"model":"m","stream":true,"conversation":{"id":"conv_1"}}',
        UNREADABLE,
    ],
    ids=["background", "odd", "deferred", "conversation", "object", "unread"],
)
async def test_what_leaves_something_behind_is_never_asked_for_twice(
    start_gateway: StartGateway, body: bytes
) -> None:
    async with FakeUpstream([SSE, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, request("/up/v1/responses", body))
        assert answer.status == 502
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/up/api/paas/v4/async/chat/completions",
        "/up/async/chat/completions",
        "/up/api/v3/batch/chat/completions",
        "/up/api/v1/chats/c1/completions",
        "/up/api/v1/agents/a1/completions",
        "/up/v1/conversations/c1/responses",
        "/up/api/v3/context/chat/completions",
    ],
)
@pytest.mark.parametrize("script", [[FIN], BUSY], ids=["dead", "busy"])
async def test_a_job_is_made_once(
    start_gateway: StartGateway, path: str, script: list[Step]
) -> None:
    keep = [json_answer(b"{}")]
    async with FakeUpstream(keep, script) as upstream, FakeUpstream(GOOD) as other:
        gateway = await start_gateway(upstream.port, retry=FAST, **with_backup(other.port))
        await ask(gateway.port, request("/up/v1/models", method="GET"))
        job = request(path, b'{"model":"m","messages":[],"stream":true}')
        assert (await ask(gateway.port, job)).status in (502, 503)
        assert (len(upstream.requests), len(other.requests)) == (2, 0)


async def test_a_job_is_known_by_the_whole_path(start_gateway: StartGateway) -> None:
    async with FakeUpstream(BUSY) as upstream:
        base = f"http://127.0.0.1:{upstream.port}/api/v3/batch"
        gateway = await start_gateway(upstream.port, retry=FAST, base_url=base)
        for body in (b'{"messages":[]}', b'{"messages":[],"stream":true}'):
            assert (await ask(gateway.port, request(CHAT, body))).status == 503
        assert len(upstream.requests) == 2
        assert upstream.requests[0].head.startswith(b"POST /api/v3/batch/v1/chat/completions ")


XAI = b'{"code":"Client specified an invalid argument","error":"Incorrect API key provided"}'


@pytest.mark.parametrize("hold", ["first_content", "finish"])
@pytest.mark.parametrize(
    "script",
    [
        [json_answer(XAI)],
        [SSE, chunk(b"data: " + XAI + b"\n\n"), LAST_CHUNK],
        [SSE, chunk(b": ping\n\ndata: " + XAI + b"\n\n"), LAST_CHUNK],
    ],
    ids=["JSON", "first", "behind a keepalive"],
)
@pytest.mark.parametrize("path", [CHAT, "/up/v1/completions", "/up/v1/responses", "/up/messages"])
async def test_an_error_whose_code_stands_beside_its_text_is_judged_by_it(
    start_gateway: StartGateway, script: list[Step], path: str, hold: str
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, retry=FAST, hold=hold, **with_backup(second.port))
        answer = await ask(gateway.port, request(path, b'{"model":"m","stream":true}'))
        assert answer.status == 400
        assert b"Incorrect API key provided" in answer.body
        assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_a_wait_in_the_head_of_a_stream_is_not_that_of_its_error(
    start_gateway: StartGateway,
) -> None:
    """Anthropic sends ``retry-after`` with answers, too."""
    fields = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
    late = [head("200 OK", *fields, "retry-after: 43"), chunk(ROLE + OVERLOADED), LAST_CHUNK]
    spent = event({"error": {"type": "rate_limit_error", "message": "Your credit balance is low"}})
    never = [head("200 OK", *fields, "retry-after: 1"), chunk(spent), LAST_CHUNK]
    async with FakeUpstream(late, GOOD, never) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).body == WHOLE
        assert len(upstream.requests) == 2
        assert (await ask(gateway.port)).status == 429
        assert len(upstream.requests) == 3


@pytest.mark.parametrize(("ambiguous", "asked"), [(0, 1), (1, 2)])
async def test_an_answer_that_cannot_be_parsed_may_have_been_billed(
    start_gateway: StartGateway, ambiguous: int, asked: int
) -> None:
    script: list[Step] = [head("200 OK", "Content-Length: 2", "Content-Length: 3"), b"{}"]
    retry = Retry(max_retries=5, backoff_initial=0.001, budget=100.0, ambiguous=ambiguous)
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        answer = await ask(gateway.port, PLAIN)
        assert answer.status == 502
        assert b"is no valid HTTP" in answer.body
        assert len(upstream.requests) == asked


async def test_what_has_been_accepted_is_not_asked_for_again(start_gateway: StartGateway) -> None:
    accepted = [head("202 Accepted", "Content-Type: text/plain", "Content-Length: 6"), b"queued"]
    async with FakeUpstream(accepted) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.body) == (202, b"queued")
        assert len(upstream.requests) == 1


CREATED = event({"type": "response.created", "response": {}})
OVERLOADED_EVENT = event({"type": "error", "error": {"type": "overloaded_error"}})
MCP = b'{"model":"m","stream":true,"tools":[{"type":"mcp","server_url":"https://x"}],"input":"x"}'


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        (BUSY, 4),
        ([SSE, chunk(b": ping\n\n" + OVERLOADED_EVENT), FIN], 4),
        ([SSE, chunk(CREATED + OVERLOADED_EVENT), FIN], 1),
        ([json_answer(b"<html>late</html>", status="504 Late")], 1),
        ([SSE, chunk(b": ping\n\n"), LAST_CHUNK], 1),
        (
            [
                SSE,
                chunk(event({"type": "response.output_item.added", "item": {"type": "mcp_call"}})),
                LAST_CHUNK,
            ],
            1,
        ),
        ([FIN], 1),
        ([head("200 OK", "Content-Type: application/json", "Content-Length: 9"), b"{", FIN], 1),
    ],
    ids=["busy", "overloaded", "later", "late", "nothing yet", "called", "no answer", "short"],
)
async def test_a_tool_of_another_server_is_not_used_twice(
    start_gateway: StartGateway, script: list[Step], asked: int
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port, retry=FAST, hold="finish", **with_backup(second.port)
        )
        answer = await ask(gateway.port, request("/up/v1/responses", MCP))
        assert (len(first.requests), len(second.requests)) == (asked, 0)
        explained = b"a tool of another server may have been used" in answer.body
        # The provider's own words speak for themselves.
        assert explained == (asked == 1 and answer.status == 502)


PART = b'{"id":"r","output":[{"type":"mcp_call","name":"send_mail","output":"sent"}'
FAILED_LATER = event(
    {
        "type": "response.failed",
        "response": {"error": {"code": "server_error"}, "output": [{"type": "mcp_call"}]},
    }
)


@pytest.mark.parametrize(
    "script",
    [
        [head("200 OK", "Content-Type: application/json", "Content-Length: 900"), PART, FIN],
        [json_answer(PART)],
        [json_answer(PART + b"]}", status="500 Oops")],
        [SSE, chunk(FAILED_LATER), LAST_CHUNK],
    ],
    ids=["short", "broken", "status", "failed"],
)
async def test_a_call_that_the_answer_shows_is_not_made_twice(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    """As with a stored prompt, of whose tools the request says nothing."""
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        asking = request("/up/v1/responses", b'{"model":"m","prompt":{"id":"p"},"input":"x"}')
        assert (await ask(gateway.port, asking)).status >= 500
        assert len(upstream.requests) == 1


async def test_an_error_without_its_blank_line_is_an_event_as_any(
    start_gateway: StartGateway,
) -> None:
    script: list[Step] = [SSE, chunk(CREATED + OVERLOADED_EVENT[:-2]), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, request("/up/v1/responses", MCP))
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("field", "asked"),
    [("x-gateway-no-retry: 1", 1), ("x-stainless-retry-count: 1", 2), ("x-other: 1", 4)],
)
async def test_what_the_client_says_bounds_the_tries(
    start_gateway: StartGateway, field: str, asked: int
) -> None:
    async with FakeUpstream([SSE, LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, request(CHAT, b'{"stream":true}', field))
        assert len(upstream.requests) == asked


async def test_an_observed_provider_is_asked_once(start_gateway: StartGateway) -> None:
    async with FakeUpstream([json_answer(b"{}", status="503 No")], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, mode="observe")
        assert (await ask(gateway.port)).status == 503
        assert len(upstream.requests) == 1


async def test_a_client_that_leaves_during_the_wait_ends_the_tries(
    start_gateway: StartGateway,
) -> None:
    retry = Retry(backoff_initial=30.0, backoff_max=30.0)
    async with FakeUpstream([SSE, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            async with asyncio.timeout(5):
                await upstream.wait_for(1)
            # The answer's end is on its way; what follows is the wait.
            await asyncio.sleep(0.05)
            client.close()
            record = await gateway.record()
        assert record.status == 499
        assert len(upstream.requests) == 1
        assert len(gateway.live) == 0


async def test_a_24_megabyte_body_is_sent_again_byte_for_byte(start_gateway: StartGateway) -> None:
    body = b'{"stream":true,"x":"' + b"a" * (24 << 20) + b'"}'
    async with FakeUpstream([SSE, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, request(CHAT, body))
        assert answer.body == WHOLE
        assert [seen.body == body for seen in upstream.requests] == [True, True]


async def test_the_retry_budget_bounds_what_a_dead_provider_sees(
    start_gateway: StartGateway,
) -> None:
    retry = Retry(backoff_initial=0.001, backoff_max=0.001, budget=0.2, budget_floor=4)
    async with FakeUpstream([SSE, LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        answers = [await ask(gateway.port) for _ in range(40)]
        assert {answer.status for answer in answers} == {502}
        # A fifth of forty requests.
        assert len(upstream.requests) == 40 + 8
        assert counted(gateway, "gateway_retry_budget_exhausted_total")[("up",)] >= 30


async def test_a_finish_frame_in_the_last_try_is_no_rescue_of_a_failure(
    start_gateway: StartGateway,
) -> None:
    """A retried request that fails in the end is not counted as saved."""
    cut: list[Step] = [SSE, chunk(ROLE + text("a")), LAST_CHUNK]
    async with FakeUpstream([SSE, LAST_CHUNK], cut) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert FINISH not in answer.body
        assert not (await gateway.record()).rescued
        assert counted(gateway, "gateway_rescued_total") == {}


async def test_a_body_too_large_to_be_kept_is_sent_once(start_gateway: StartGateway) -> None:
    body = b'{"stream":true,"x":"' + b"a" * 5000 + b'"}'
    async with FakeUpstream([SSE, LAST_CHUNK], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, server=Server(retry_body=1000))
        answer = await ask(gateway.port, request(CHAT, body))
        assert answer.status == 502
        assert [seen.body for seen in upstream.requests] == [body]


# What is no answer, and what is one.


async def test_a_dead_pooled_connection_is_replaced_whatever_the_size_of_the_body(
    start_gateway: StartGateway,
) -> None:
    """It is told in the middle of the request, which cannot have been worked on."""
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                fields = (await reader.readuntil(b"\r\n\r\n")).lower()
                size = int(fields.partition(b"content-length:")[2].split()[0])
                seen.append(size)
                if len(seen) == 2:
                    writer.transport.abort()
                    return
                await reader.readexactly(size)
                writer.write(json_answer(JSON))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        gateway = await start_gateway(
            server.sockets[0].getsockname()[1], retry=Retry(max_retries=0)
        )
        large = b'{"model":"m","x":"' + b"a" * 8_000_000 + b'"}'
        assert (await ask(gateway.port, PLAIN)).status == 200
        answer = await ask(gateway.port, request(CHAT, large))
        assert (answer.status, answer.body) == (200, JSON)
        assert answer.values("x-gateway-attempts") == [b"1"]
        assert seen == [len(PLAIN.partition(b"\r\n\r\n")[2]), len(large), len(large)]


async def test_a_part_of_a_head_is_no_dead_connection(start_gateway: StartGateway) -> None:
    part = b"HTTP/1.1 200 OK\r\nContent-Ty"
    for end in (FIN, RST):
        async with FakeUpstream([json_answer(JSON)], [part, after(0.05), end]) as upstream:
            gateway = await start_gateway(upstream.port, retry=Retry(max_retries=0))
            assert (await ask(gateway.port, PLAIN)).status == 200
            assert (await ask(gateway.port, PLAIN)).status == 502
            assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    "script",
    [
        [SSE, LAST_CHUNK],
        [json_answer(b"<html></html>")],
        [json_answer(b"")],
    ],
    ids=["bare end", "page", "empty"],
)
async def test_who_says_that_asking_again_is_of_no_use_is_asked_once(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    first, *rest = script
    assert isinstance(first, bytes)
    told = first.replace(b"\r\n", b"\r\nx-should-retry: false\r\n", 1)
    async with FakeUpstream([told, *rest], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).status == 502
        assert len(upstream.requests) == 1


async def test_a_pooled_connection_that_worked_for_a_while_is_not_taken_for_dead(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent may have been processed: it counts as ambiguous, not as stale."""
    monkeypatch.setattr("gateway.relay.failures.STALE_SECONDS", 0.0)
    async with FakeUpstream([json_answer(JSON)], [FIN], [json_answer(JSON)]) as upstream:
        gateway = await start_gateway(upstream.port, retry=Retry(max_retries=0))
        assert (await ask(gateway.port, PLAIN)).status == 200
        assert (await ask(gateway.port, PLAIN)).status == 502
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("field", [b'"background":true', b'"conversation":"c"'])
async def test_what_leaves_something_behind_is_never_risked_on_a_pooled_connection(
    start_gateway: StartGateway, field: bytes
) -> None:
    body = b'{"model":"m",%b}' % field
    async with FakeUpstream([json_answer(JSON)], [json_answer(b'{"id":"r"}')]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, PLAIN)
        await ask(gateway.port, request("/up/v1/responses", body))
        assert [seen.connection for seen in upstream.requests] == [1, 2]


@pytest.mark.parametrize(
    ("method", "path", "connection"),
    [
        ("POST", "/up/v1/messages/batches", 2),
        ("POST", "/up/v1/responses/r/cancel", 2),
        ("PATCH", "/up/v1/anything", 2),
        ("POST", "/up/v1/embeddings?x=1", 1),
        ("POST", "/up/v1beta/models/m:countTokens", 1),
        ("GET", "/up/v1/batches", 1),
        ("DELETE", "/up/v1/files/f", 1),
    ],
)
async def test_what_may_change_something_is_never_risked_on_a_pooled_connection(
    start_gateway: StartGateway, method: str, path: str, connection: int
) -> None:
    """A batch must not be made twice because a connection was dead; an embedding may."""
    body = None if method in ("GET", "DELETE") else b'{"requests":[]}'
    async with FakeUpstream([json_answer(JSON)], [json_answer(b"{}")]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, PLAIN)
        await ask(gateway.port, request(path, body, method=method))
        assert [seen.connection for seen in upstream.requests] == [1, connection]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/up/v1/files", b"--x\r\n\r\nfile\r\n--x--"),
        ("POST", "/up/v1/messages/batches", b'{"requests":[]}'),
        ("POST", "/up/v1/threads/runs", b'{"assistant_id":"a","stream":true}'),
        ("POST", "/up/v1/threads/t/runs", b'{"assistant_id":"a","stream":true}'),
        ("POST", "/up/v1/images/generations", b'{"prompt":"a","stream":true}'),
        ("DELETE", "/up/v1/batches/1", None),
        ("GET", "/up/docs", None),
    ],
)
async def test_one_protocol_for_all_paths_makes_no_inference_of_them(
    start_gateway: StartGateway, method: str, path: str, body: bytes | None
) -> None:
    script = [json_answer(b"{}", status="500 Oops")]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, protocol="openai_chat")
        fields = ["Content-Type: multipart/form-data; boundary=x"] if path.endswith("files") else []
        await ask(gateway.port, request(path, body, *fields, method=method))
        assert len(upstream.requests) == 1


async def test_one_protocol_for_all_paths_reads_streams_on_any_of_them(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, protocol="openai_chat")
        answer = await ask(gateway.port, request("/up/odd/path", b'{"stream":true}'))
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"


@pytest.mark.parametrize("path", ["/up/v1/images/generations", "/up/v1/threads/t/runs"])
async def test_one_protocol_for_all_paths_does_not_misread_other_streams(
    start_gateway: StartGateway, path: str
) -> None:
    done = event({"type": "image_generation.completed"})
    async with FakeUpstream([SSE, chunk(done), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, protocol="openai_chat")
        answer = await ask(gateway.port, request(path, b'{"prompt":"a","stream":true}'))
        assert (answer.status, answer.clean, answer.body) == (200, True, done)


@pytest.mark.parametrize("path", ["agents/a1", "v1/sessions/s", "conversations/c"])
async def test_a_message_that_is_stored_is_sent_once(
    start_gateway: StartGateway, path: str
) -> None:
    script = [json_answer(b"{}", status="500 Oops")]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        await ask(gateway.port, request(f"/up/{path}/messages", b'{"content":"x"}'))
        assert len(upstream.requests) == 1


ANSWERS: dict[str, tuple[bytes, str]] = {
    "a failed background response": (
        b'{"object":"response","status":"failed","error":{"code":"server_error"}}',
        "application/json",
    ),
    "JSON with a byte order mark": (b"\xef\xbb\xbf" + JSON, "application/json"),
    "lines of JSON": (JSON + b"\n" + JSON + b"\n", "application/json"),
    "deep JSON": (b'{"choices":' + b"[" * 5000 + b"]" * 5000 + b"}", "application/json"),
    "an answer with an empty error": (
        JSON[:-1] + b',"error":{"code":0,"message":""}}',
        "application/json",
    ),
    "UTF-16": ("\ufeff{}".encode("utf-16-le"), "application/json"),
}


@pytest.mark.parametrize(("body", "content_type"), ANSWERS.values(), ids=ANSWERS)
async def test_odd_answers_are_answers(
    start_gateway: StartGateway, body: bytes, content_type: str
) -> None:
    fields = head("200 OK", f"Content-Type: {content_type}", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, body]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.body) == (200, body)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("content_type", ["application/json", "text/html", "text/plain"])
async def test_a_stream_called_something_else_is_handed_on_event_by_event(
    start_gateway: StartGateway, content_type: str
) -> None:
    go = asyncio.Event()
    fields = head("200 OK", f"Content-Type: {content_type}", "Transfer-Encoding: chunked")
    script: list[Step] = [fields, chunk(ROLE + text("a")), go, chunk(FINISH + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            await client.read_head()
            await client.read_until(b'"a"')
            go.set()
            await client.read_until(DONE)


async def test_a_compressed_answer_without_its_end_is_tried_again(
    start_gateway: StartGateway,
) -> None:
    packed = gzip.compress(JSON)
    cut = json_answer(packed[:-8], "Content-Encoding: gzip")
    async with FakeUpstream([cut], [json_answer(JSON)]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port, PLAIN)).body == JSON
        assert len(upstream.requests) == 2


QUOTAS = [
    b'{"error":"insufficient_quota"}',
    b'{"code":"insufficient_quota","message":"x"}',
    b'{"detail":{"code":"insufficient_quota"}}',
    b'{"error":{"message":"You exceeded your current quota, please check your plan and billing."}}',
    b'{"type":"error","error":{"type":"rate_limit_error","message":"You have reached your specified'
    b' API usage limits."}}',
]


def _words_in(body: bytes) -> str:
    return "insufficient_quota" if b"insufficient_quota" in body else "You "


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("body", QUOTAS)
async def test_a_quota_in_any_words_is_asked_once(
    start_gateway: StartGateway, body: bytes, status: int
) -> None:
    async with FakeUpstream([json_answer(body, status=f"{status} Pay")]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert answer.status == status
        assert _words_in(body) in json.loads(answer.body)["error"]["message"]
        assert answer.values("Retry-After") == []
        assert len(upstream.requests) == 1


# Counts, and what goes elsewhere.


async def test_an_answer_that_broke_off_after_a_retry_is_no_rescue(
    start_gateway: StartGateway,
) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Content-Length: 3000000")
    broken: list[Step] = [fields, b"{" + b" " * 2_000_000, FIN]
    async with FakeUpstream([json_answer(b"{}", status="503 No")], broken) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert not answer.clean
        assert not (await gateway.record()).rescued
        errors = counted(gateway, "gateway_upstream_errors_total")
        assert errors == {("up", "503", "json"): 1.0}


async def test_tokens_of_every_try_that_was_thrown_away_are_counted(
    start_gateway: StartGateway,
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
    cut: list[Step] = [SSE, chunk(ROLE + text("a") + usage), LAST_CHUNK]
    async with FakeUpstream(cut) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold="finish")
        assert (await ask(gateway.port)).status == 502
        await gateway.record()
        assert counted(gateway, "gateway_discarded_tokens_total") == {("up",): 30.0}


async def test_a_rate_limit_that_links_to_the_page_on_billing_is_none_of_credit(
    start_gateway: StartGateway,
) -> None:
    body = (
        b'{"error":{"message":"Rate limit reached. You can increase it by adding a payment method'
        b' at https://platform.example/account/billing.","type":"requests",'
        b'"code":"rate_limit_exceeded"}}'
    )
    limit = json_answer(body, status="429 Slow Down")
    async with FakeUpstream([limit], [json_answer(JSON)]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port, PLAIN)).body == JSON


async def test_an_error_whose_body_breaks_off_is_an_error_all_the_same(
    start_gateway: StartGateway,
) -> None:
    fields = head("503 No", "Content-Type: application/json", "Content-Length: 99")
    async with FakeUpstream([fields, b'{"err', FIN], [json_answer(JSON)]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port, PLAIN)).body == JSON
    async with FakeUpstream([fields, b'{"err', FIN]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.clean) == (503, True)
        assert 'broke off: {"err' in json.loads(answer.body)["error"]["message"]
        assert len(upstream.requests) == 4


@pytest.mark.parametrize("first", [b"d", b"dat", b"\n", b" ", b":", b"even"])
async def test_how_an_undeclared_stream_is_cut_into_reads_does_not_matter(
    start_gateway: StartGateway, first: bytes
) -> None:
    whole = first + (b"\n" if first.isspace() else b"")
    rest = {b"d": b"ata", b"dat": b"a", b":": b" x\n\ndata", b"even": b"t: x\ndata"}.get(
        first, b"data"
    )
    body = whole + rest + WHOLE[4:]
    go = asyncio.Event()
    fields = head("200 OK", "Content-Type: text/plain", "Transfer-Encoding: chunked")
    script: list[Step] = [fields, chunk(first), go, chunk(body[len(first) :]), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        asking = asyncio.ensure_future(ask(gateway.port))
        await upstream.wait_for(1)
        await asyncio.sleep(0.05)
        go.set()
        answer = await asking
        assert (answer.status, answer.body) == (200, body)
        assert len(upstream.requests) == 1


async def test_json_that_begins_with_a_blank_line_is_read_as_json(
    start_gateway: StartGateway,
) -> None:
    go = asyncio.Event()
    fields = head("200 OK", "Content-Type: application/json", f"Content-Length: {len(JSON) + 1}")
    async with FakeUpstream([fields, b"\n", go, JSON]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        asking = asyncio.ensure_future(ask(gateway.port))
        await upstream.wait_for(1)
        await asyncio.sleep(0.05)
        go.set()
        answer = await asking
        assert (answer.status, answer.body) == (200, b"\n" + JSON)


async def test_the_limit_of_a_hold_is_that_of_the_request_and_not_of_each_try(
    start_gateway: StartGateway,
) -> None:
    created = b'data: {"type":"response.created","response":{"id":"r"}}\n\n'
    wait = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, wait.set)
    first: list[Step] = [SSE, chunk(created), wait, LAST_CHUNK]
    async with FakeUpstream(first, [SSE, chunk(created), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_max=0.3)
        async with RawClient(gateway.port) as client:
            started = asyncio.get_running_loop().time()
            await client.send(request("/up/v1/responses", b'{"stream":true}'))
            await client.read_head()
            assert asyncio.get_running_loop().time() - started < 0.45


async def test_what_google_says_of_the_wait_is_what_the_client_is_told(
    start_gateway: StartGateway,
) -> None:
    body = (
        b'{"error":{"status":"RESOURCE_EXHAUSTED","message":"m","details":[{"retryDelay":"50s"}]}}'
    )
    async with FakeUpstream([json_answer(body, status="429 Slow")]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        path = "/up/v1beta/models/m:generateContent"
        answer = await ask(gateway.port, request(path, b"{}"))
        assert answer.values("Retry-After") == [b"50"]
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":500,"error":"Internal Server Error"}',
        b'{"code":500,"msg":"404 NOT_FOUND","success":false}',
        b'{"detail":"boom"}',
    ],
)
async def test_an_error_of_any_shape_in_a_200_is_no_answer(
    start_gateway: StartGateway, body: bytes
) -> None:
    async with FakeUpstream([json_answer(body)], GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).body == WHOLE


async def test_tokens_that_were_held_for_a_client_that_left_are_counted(
    start_gateway: StartGateway,
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
    async with FakeUpstream([SSE, chunk(ROLE + text("a") + usage), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, hold="finish")
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            await upstream.wait_for(1)
            await asyncio.sleep(0.05)
            client.close()
            await gateway.record()
        assert counted(gateway, "gateway_discarded_tokens_total") == {("up",): 15.0}


async def test_a_drain_in_the_middle_of_a_long_event_breaks_the_connection(
    start_gateway: StartGateway,
) -> None:
    long = event({"choices": [{"index": 0, "delta": {"content": "x" * 6_000_000}}]})
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), chunk(long), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request(CHAT))
            await client.read_head()
            await asyncio.sleep(0.3)
            gateway.relay.interrupt()
            body, clean = await client.answer_body()
        assert not clean
        assert b"gateway_draining" not in body


async def test_blank_lines_do_not_decide_what_an_answer_is(start_gateway: StartGateway) -> None:
    """Some providers send them for as long as their JSON takes."""
    blank = b"\n" * 5000
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    for body in (JSON, WHOLE):
        script: list[Step] = [fields, chunk(blank), after(0.05), chunk(body), LAST_CHUNK]
        async with FakeUpstream(script) as upstream:
            gateway = await start_gateway(upstream.port, retry=FAST)
            answer = await ask(gateway.port)
            assert (answer.clean, answer.body) == (True, blank + body)
            assert len(upstream.requests) == 1


async def test_blank_bytes_without_end_are_not_held_without_end(
    start_gateway: StartGateway,
) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    blank = b" " * 70_000
    script: list[Step] = [fields, chunk(blank), after(0.05), chunk(JSON), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port)).body == blank + JSON


async def test_a_compressed_stream_called_text_is_an_answer(start_gateway: StartGateway) -> None:
    packed = gzip.compress(b"\n" + WHOLE)
    fields = ("Content-Type: text/plain", "Content-Encoding: gzip")
    whole = head("200 OK", *fields, f"Content-Length: {len(packed)}") + packed
    async with FakeUpstream([whole]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (200, packed)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("before", [b": ping\n\n", b"\n\n", b": ping\n"])
async def test_a_final_error_behind_keepalives_is_asked_for_once(
    start_gateway: StartGateway, before: bytes
) -> None:
    error = b'{"error":{"message":"long","type":"invalid_request_error","code":"context_length"}}'
    script: list[Step] = [SSE, chunk(before), after(0.05), chunk(error), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert answer.status == 400
        assert json.loads(answer.body)["error"]["message"].startswith("long")
        assert len(upstream.requests) == 1
