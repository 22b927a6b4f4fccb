"""Keepalives to a client that waits: while a stream is held, and in its long silences."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Provider, Retry, Timeouts
from gateway.relay.pulse import AUTO_SECONDS, interval
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
from tests.relay.streams import DONE, FINISH, ROLE, WHOLE, event, last_error, text
from tests.relay.support import CHAT, FAST, after, with_backup

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

BEAT = b":\n\n"


def without_beats(body: bytes) -> bytes:
    return body.replace(BEAT, b"")


async def test_a_held_stream_shows_life_and_is_whole_in_the_end(
    start_gateway: StartGateway,
) -> None:
    go = asyncio.Event()
    async with FakeUpstream([SSE, chunk(ROLE), go, chunk(WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold_keepalive=0.05)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            head = await client.read_head()
            assert head.startswith(b"HTTP/1.1 200 ")
            await client.read_until(BEAT + b"\r\n")
            await client.read_until(BEAT + b"\r\n")
            go.set()
            body, clean = await client.answer_body()
        assert clean
        assert without_beats(body) == ROLE + WHOLE


async def test_a_retry_after_the_head_is_out_fills_the_same_answer(
    start_gateway: StartGateway,
) -> None:
    timeouts = Timeouts(silent_phase=0.2, first_event=0.2)
    good = [SSE, chunk(WHOLE), LAST_CHUNK]
    async with FakeUpstream([SSE, chunk(ROLE), HOLD], good) as upstream:
        gateway = await start_gateway(
            upstream.port, hold_keepalive=0.05, retry=FAST, timeouts=timeouts
        )
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (200, True)
        assert answer.body.startswith(BEAT)
        assert without_beats(answer.body) == WHOLE
        assert (await gateway.record()).rescued


async def test_what_fails_for_good_is_then_told_in_band(start_gateway: StartGateway) -> None:
    timeouts = Timeouts(silent_phase=0.15, first_event=0.15)
    async with FakeUpstream([SSE, chunk(ROLE), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, hold_keepalive=0.05, timeouts=timeouts)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (200, True)
        assert last_error(answer.body)["code"] == "upstream_stalled"
        assert ROLE not in answer.body


async def test_a_refusal_after_the_head_is_out_keeps_the_providers_words(
    start_gateway: StartGateway,
) -> None:
    timeouts = Timeouts(silent_phase=0.15, first_event=0.15)
    refusal = json_answer(
        b'{"error":{"message":"no such tool","type":"invalid_request_error","code":"bad"}}',
        status="400 Bad",
    )
    async with FakeUpstream([SSE, chunk(ROLE), HOLD], [refusal]) as upstream:
        gateway = await start_gateway(
            upstream.port, hold_keepalive=0.05, retry=FAST, timeouts=timeouts
        )
        answer = await ask(gateway.port)
        assert answer.status == 200
        told = last_error(answer.body)
        assert told["message"] == "no such tool (code: bad)"
        assert (told["type"], told["code"]) == ("invalid_request_error", "bad")


async def test_the_providers_own_error_event_is_handed_on_after_the_head(
    start_gateway: StartGateway,
) -> None:
    go = asyncio.Event()
    error = event({"error": {"message": "no", "type": "invalid_request_error", "own": 1}})
    async with FakeUpstream([SSE, chunk(ROLE), go, chunk(error), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold_keepalive=0.05)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            await client.read_head()
            await client.read_until(BEAT + b"\r\n")
            go.set()
            body, clean = await client.answer_body()
        assert clean
        assert without_beats(body) == ROLE + error


async def test_an_answer_of_another_kind_does_not_fit_the_head(
    start_gateway: StartGateway,
) -> None:
    timeouts = Timeouts(silent_phase=0.15, first_event=0.15)
    async with FakeUpstream([SSE, chunk(ROLE), HOLD], [json_answer(b"{}")]) as upstream:
        gateway = await start_gateway(
            upstream.port,
            hold_keepalive=0.05,
            retry=Retry(max_retries=1, backoff_initial=0.001),
            timeouts=timeouts,
        )
        answer = await ask(gateway.port)
        assert last_error(answer.body)["code"] == "upstream_invalid_response"


async def test_long_silences_of_a_stream_are_filled_between_events(
    start_gateway: StartGateway,
) -> None:
    go = asyncio.Event()
    torn = text("b")
    script: list[Step] = [SSE, chunk(ROLE + text("a")), go, chunk(torn[:9])]
    async with FakeUpstream([*script, chunk(torn[9:] + FINISH + DONE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, keepalive=0.05)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            await client.read_head()
            await client.read_until(BEAT + b"\r\n")
            go.set()
            body, clean = await client.answer_body()
        assert clean
        assert without_beats(body) == torn + FINISH + DONE


@pytest.mark.parametrize(
    ("keepalive", "client", "seconds"),
    [
        ("auto", "127.0.0.1", None),
        ("auto", "::1", None),
        ("auto", "", None),
        ("auto", "10.0.0.7", AUTO_SECONDS),
        ("auto", "fe80::1%eth0", AUTO_SECONDS),
        ("off", "10.0.0.7", None),
        (7.0, "127.0.0.1", 7.0),
    ],
)
def test_who_gets_keepalives(keepalive: str | float, client: str, seconds: float | None) -> None:
    provider = Provider(name="p", base_url="http://x", keepalive=keepalive)
    assert interval(provider, client) == seconds


async def test_a_final_error_of_another_kind_is_told_in_its_own_words_and_once(
    start_gateway: StartGateway,
) -> None:
    timeouts = Timeouts(silent_phase=0.15, first_event=0.15)
    quota = json_answer(b'{"error":{"message":"pay: q","type":"insufficient_quota","code":"q"}}')
    async with FakeUpstream([SSE, chunk(ROLE), HOLD], [quota]) as upstream:
        gateway = await start_gateway(
            upstream.port, hold_keepalive=0.05, retry=FAST, timeouts=timeouts
        )
        told = last_error((await ask(gateway.port)).body)
        assert (told["type"], told["code"]) == ("insufficient_quota", "q")
        assert told["message"] == "pay: q (type: insufficient_quota)"
        assert len(upstream.requests) == 2


async def test_no_keepalive_of_a_stream_comes_before_a_json_answer(
    start_gateway: StartGateway,
) -> None:
    """The timer of the stream that failed must not fire while the next answer is judged."""
    go = asyncio.Event()
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
    slow: list[Step] = [
        head("200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}"),
        go,
    ]
    async with FakeUpstream([SSE, LAST_CHUNK], [*slow, body]) as upstream:
        gateway = await start_gateway(upstream.port, hold_keepalive=0.3, retry=FAST)
        asking = asyncio.ensure_future(ask(gateway.port))
        await upstream.wait_for(2)
        await asyncio.sleep(0.1)
        go.set()
        answer = await asking
        assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (CHAT, b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'),
        (
            "/up/v1beta/models/m:streamGenerateContent",
            b'[{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}]',
        ),
    ],
)
async def test_a_slow_json_answer_to_a_request_for_a_stream_gets_no_head_of_a_stream(
    start_gateway: StartGateway, target: str, body: bytes
) -> None:
    fields = head("200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, after(0.3), body]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.1)
        answer = await ask(gateway.port, request(target, b'{"stream":true}'))
        assert (answer.status, answer.clean, answer.body) == (200, True, body)
        assert answer.values("Content-Length") == [str(len(body)).encode()]
        assert len(upstream.requests) == 1


async def test_a_stream_called_something_else_is_shown_to_live_once_it_has_begun(
    start_gateway: StartGateway,
) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    script: list[Step] = [fields, chunk(ROLE), after(0.3), chunk(WHOLE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, hold_keepalive=0.05)
        answer = await ask(gateway.port)
        assert answer.body.startswith(BEAT)
        assert without_beats(answer.body) == ROLE + WHOLE


async def test_keepalives_go_on_after_a_try_that_was_no_stream(
    start_gateway: StartGateway,
) -> None:
    page = b"<html>x</html"
    html = [head("200 OK", "Content-Type: text/html", f"Content-Length: {len(page)}"), page]
    first: list[Step] = [SSE, chunk(ROLE), after(0.15), LAST_CHUNK]
    good: list[Step] = [after(0.9), SSE, chunk(WHOLE), LAST_CHUNK]
    async with FakeUpstream(first, html, good) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.05)
        answer = await ask(gateway.port)
        assert without_beats(answer.body) == WHOLE
        assert answer.body.count(BEAT) > 8


async def test_the_head_of_a_keepalive_is_that_of_the_provider_it_names(
    start_gateway: StartGateway,
) -> None:
    of_one = head(
        "200 OK",
        "Content-Type: text/event-stream; charset=utf-8",
        "Transfer-Encoding: chunked",
        "x-request-id: of-one",
    )
    async with (
        FakeUpstream([of_one, chunk(ROLE), LAST_CHUNK]) as one,
        FakeUpstream([after(0.4), SSE, chunk(WHOLE), LAST_CHUNK]) as two,
    ):
        gateway = await start_gateway(one.port, hold_keepalive=0.15, **with_backup(two.port))
        answer = await ask(gateway.port)
        assert without_beats(answer.body) == WHOLE
        assert answer.values("x-gateway-provider") == [b"backup"]
        assert answer.values("x-request-id") == []
        assert answer.values("Content-Type") == [b"text/event-stream; charset=utf-8"]


@pytest.mark.parametrize("hold", ["first_content", "finish"])
async def test_a_byte_order_mark_that_is_not_first_any_more_is_left_out(
    start_gateway: StartGateway, hold: str
) -> None:
    mark = b"\xef\xbb\xbf"
    async with FakeUpstream([SSE, after(0.2), chunk(mark + WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(
            upstream.port, hold=hold, hold_keepalive=0.1, explicit=frozenset({"hold_keepalive"})
        )
        answer = await ask(gateway.port)
        assert answer.body.startswith(BEAT)
        assert without_beats(answer.body) == WHOLE
    async with FakeUpstream([SSE, chunk(mark + WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold=hold)
        assert (await ask(gateway.port)).body == mark + WHOLE


async def test_a_compressed_stream_that_does_not_fit_the_head_is_refused_at_once(
    start_gateway: StartGateway,
) -> None:
    packed = gzip.compress(WHOLE)
    fields = ("Content-Type: text/event-stream", "Content-Encoding: gzip")
    whole = head("200 OK", *fields, f"Content-Length: {len(packed)}") + packed
    first: list[Step] = [SSE, chunk(ROLE), after(0.2), LAST_CHUNK]
    async with FakeUpstream(first, [whole]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.1)
        answer = await ask(gateway.port)
        assert last_error(answer.body)["code"] == "upstream_invalid_response"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("status", ["201 Created", "206 Partial Content"])
async def test_a_stream_with_another_status_does_not_fill_a_head_that_is_out(
    start_gateway: StartGateway, status: str
) -> None:
    kind = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
    other: list[Step] = [head(status, *kind), chunk(WHOLE), LAST_CHUNK]
    first: list[Step] = [SSE, chunk(ROLE), after(0.2), LAST_CHUNK]
    async with FakeUpstream(first, other) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.1)
        answer = await ask(gateway.port)
        assert last_error(answer.body)["code"] == "upstream_invalid_response"
        assert len(upstream.requests) == 2


async def test_a_stream_without_a_type_fills_a_head_that_is_out(
    start_gateway: StartGateway,
) -> None:
    other: list[Step] = [head("200 OK", "Transfer-Encoding: chunked"), chunk(WHOLE), LAST_CHUNK]
    first: list[Step] = [SSE, chunk(ROLE), after(0.2), LAST_CHUNK]
    async with FakeUpstream(first, other) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST, hold_keepalive=0.1)
        assert without_beats((await ask(gateway.port)).body) == WHOLE
