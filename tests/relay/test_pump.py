"""Streams on real sockets: every byte, whole events, honest ends, one clock."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Timeouts
from gateway.streams.events import Verdict
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
)
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import DONE, FINISH, ROLE, WHOLE, event, last_error, text
from tests.relay.support import after

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

CLOSE_SSE = head("200 OK", "Content-Type: text/event-stream", "Connection: close")

GZIPPED = head(
    "200 OK",
    "Content-Type: text/event-stream",
    "Content-Encoding: gzip",
    "Transfer-Encoding: chunked",
)


async def test_a_whole_stream_passes_byte_for_byte(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, chunk(WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean, answer.body) == (200, True, WHOLE)
        assert answer.values("Content-Type") == [b"text/event-stream"]
        assert answer.values("x-accel-buffering") == [b"no"]
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.COMPLETE
        assert (record.status, record.protocol, record.attempts) == (200, "openai_chat", 1)
        assert record.bytes_down == len(WHOLE)
        assert record.first_byte_at is not None
        assert record.overhead is not None
        assert 0 < record.overhead < 1


async def test_no_event_waits_for_the_next_one(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    script: list[Step] = [SSE, chunk(ROLE + text("a")), more, chunk(FINISH + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            assert await client.read_until(b"\r\n") == b"%x\r\n" % len(ROLE + text("a"))
            assert await client.read(len(ROLE + text("a"))) == ROLE + text("a")
            more.set()
            assert (await client.read_until(LAST_CHUNK)).endswith(DONE + b"\r\n" + LAST_CHUNK)


async def test_nothing_leaves_before_the_first_content(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    async with FakeUpstream([SSE, chunk(ROLE), more, chunk(text("a")), FIN]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.reader.read(1)
            more.set()
            assert b"200" in await client.read_head()


async def test_the_request_may_choose_to_hold_less(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    async with FakeUpstream([SSE, chunk(ROLE), more, FIN]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            body = b'{"stream":true}'
            await client.send(
                request("/up/v1/chat/completions", body, "X-Gateway-Hold: first_event")
            )
            await client.read_head()
        assert upstream.requests[0].values("X-Gateway-Hold") == []


async def test_an_unknown_hold_is_told(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1)
    raw = request("/up/v1/chat/completions", b"{}", "X-Gateway-Hold: sometimes")
    answer = await ask(gateway.port, raw)
    assert answer.status == 400
    assert "first_event, first_content, finish" in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ([SSE, chunk(ROLE + text("a")), LAST_CHUNK, HOLD], Verdict.BARE_EOF),
        ([SSE, chunk(ROLE + text("a")), FIN], Verdict.RESET),
        ([SSE, chunk(ROLE + text("a")), RST], Verdict.RESET),
        ([SSE, chunk(ROLE + text("a"))[:-1], FIN], Verdict.RESET),
        ([SSE, chunk(ROLE + text("a") + b'data: {"cho'), LAST_CHUNK], Verdict.TORN),
        ([SSE, chunk(ROLE + text("a") + DONE), LAST_CHUNK], Verdict.DONE_WITHOUT_FINISH),
        ([CLOSE_SSE, ROLE + text("a"), FIN], Verdict.BARE_EOF),
        ([CLOSE_SSE, ROLE + text("a"), RST], Verdict.RESET),
    ],
    ids=["bare-eof", "fin", "rst", "in-chunk", "torn", "done-only", "until-close", "close-rst"],
)
async def test_a_cut_after_content_is_told_in_band_and_ends_cleanly(
    start_gateway: StartGateway, script: list[Step], verdict: Verdict
) -> None:
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (200, True)
        assert answer.body.startswith(ROLE + text("a") + b"data: ")
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"
        assert b"[DONE]" not in answer.body
        assert len(upstream.requests) == 1
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is verdict
        assert '"event":"stream_cut"' in gateway.log.getvalue()


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ([SSE, LAST_CHUNK], 502, "upstream_stream_truncated"),
        ([SSE, chunk(ROLE), FIN], 502, "upstream_stream_truncated"),
        ([SSE, chunk(ROLE), HOLD], 504, "upstream_stalled"),
        ([SSE, HOLD], 504, "upstream_stalled"),
    ],
    ids=["empty", "cut", "stalled", "stalled-first"],
)
async def test_a_stream_that_fails_before_content_is_an_http_error(
    start_gateway: StartGateway, script: list[Step], status: int, code: str
) -> None:
    async with FakeUpstream(script) as upstream:
        timeouts = Timeouts(first_event=0.05, silent_phase=0.05)
        gateway = await start_gateway(upstream.port, timeouts=timeouts)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (status, True)
        error = json.loads(answer.body)["error"]
        assert error["code"] == code
        assert "retry your request" in error["message"].lower()
        assert answer.values("x-gateway-error") == [code.encode()]
        assert answer.values("x-gateway-provider") == [b"up"]
        assert answer.values("x-gateway-attempts") == [b"1"]
        assert len(answer.values("x-gateway-request-id")[0]) == 32
        assert answer.values("Content-Type") == [b"application/json"]
        record = await gateway.record()
        assert (record.status, record.error_code) == (status, code)


async def test_an_error_event_that_comes_first_is_an_http_error_in_the_providers_words(
    start_gateway: StartGateway,
) -> None:
    error = {"error": {"message": "Too busy", "type": "overloaded_error", "code": "busy"}}
    fields = head("200 OK", "Content-Type: text/event-stream", "X-Request-Id: r-1", "ETag: e")
    async with FakeUpstream([fields, event(error), FIN]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.status == 529
        told = json.loads(answer.body)["error"]
        assert (told["message"], told["type"], told["code"]) == (
            "Too busy", "overloaded_error", "busy"
        )  # fmt: skip
        assert answer.values("X-Request-Id") == [b"r-1"]
        assert answer.values("ETag") == []
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.PROVIDER_ERROR
        assert record.upstream_request_id == "r-1"


async def test_a_stall_after_content_is_told_and_the_provider_is_left(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(gap=0.05, gap_alive=0.05))
        answer = await ask(gateway.port)
        assert answer.clean
        assert last_error(answer.body)["code"] == "upstream_stalled"
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()
        assert '"event":"stream_stalled"' in gateway.log.getvalue()


async def test_a_comment_does_not_move_the_deadline(start_gateway: StartGateway) -> None:
    never = asyncio.Event()
    comments: list[Step] = []
    for _ in range(30):
        pause = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01 * len(comments) / 2, pause.set)
        comments += [pause, chunk(b": alive\n\n")]
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), *comments, never]) as upstream:
        timeouts = Timeouts(gap=0.1, gap_alive=0.1)
        gateway = await start_gateway(upstream.port, timeouts=timeouts)
        started = asyncio.get_running_loop().time()
        answer = await ask(gateway.port)
        assert asyncio.get_running_loop().time() - started < 0.25
        assert last_error(answer.body)["code"] == "upstream_stalled"
        assert b": alive\n\n" in answer.body


async def test_progress_keeps_a_stream_alive_far_beyond_the_gap(
    start_gateway: StartGateway,
) -> None:
    script: list[Step] = [SSE, chunk(ROLE + text("a"))]
    for number in range(10):
        pause = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05 * (number + 1), pause.set)
        script += [pause, chunk(text("b"))]
    async with FakeUpstream([*script, chunk(FINISH + DONE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(gap=0.25, gap_alive=0.25))
        answer = await ask(gateway.port)
        assert answer.body.endswith(FINISH + DONE)


async def test_a_finished_stream_ends_soon_although_the_provider_lingers(
    start_gateway: StartGateway,
) -> None:
    later = asyncio.Event()
    script: list[Step] = [SSE, chunk(WHOLE), later, LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with asyncio.timeout(1):
            answer = await ask(gateway.port)
        assert (answer.clean, answer.body) == (True, WHOLE)
        # Its end is awaited in the background, and then the connection serves again.
        later.set()
        await asyncio.sleep(0.05)
        await ask(gateway.port)
        assert upstream.connections == 1


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/up/v1/completions", b'"prompt":["a","b"]'),
        ("/up/v1/chat/completions", b'"n":"2"'),
    ],
)
async def test_each_choice_that_was_asked_for_is_waited_for(
    start_gateway: StartGateway, path: str, asked: bytes
) -> None:
    def of(index: int, reason: str | None = None) -> bytes:
        part = {"text": "a"} if path.endswith("/v1/completions") else {"delta": {"content": "a"}}
        return event({"choices": [{"index": index, "finish_reason": reason, **part}]})

    parts = of(0) + of(0, "stop"), of(1) + of(1, "stop") + DONE
    script: list[Step] = [SSE, chunk(parts[0]), after(0.3), chunk(parts[1]), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(linger=0.1))
        body = b'{"model":"m","stream":true,%b}' % asked
        assert (await ask(gateway.port, request(path, body))).body == b"".join(parts)


async def test_a_reset_after_the_finish_hurts_nobody(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, chunk(WHOLE), RST]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.clean, answer.body) == (True, WHOLE)


async def test_an_http_10_client_gets_the_cut_told_and_then_a_broken_connection(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(version="1.0"))
        assert answer.status == 200
        assert answer.values("Transfer-Encoding") == []
        assert not answer.clean
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"


async def test_an_http_10_client_gets_a_whole_stream_until_close(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(version="1.0"))
        assert (answer.clean, answer.body) == (True, WHOLE)
        assert answer.values("Connection") == [b"close"]


async def test_a_compressed_stream_passes_as_it_came_and_is_read_on_the_side(
    start_gateway: StartGateway,
) -> None:
    packed = gzip.compress(WHOLE)
    async with FakeUpstream([GZIPPED, chunk(packed), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.clean, answer.body) == (True, packed)
        assert answer.values("Content-Encoding") == [b"gzip"]
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.COMPLETE


async def test_a_cut_compressed_stream_breaks_the_connection(start_gateway: StartGateway) -> None:
    packed = gzip.compress(ROLE + text("a"))
    async with FakeUpstream([GZIPPED, chunk(packed), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.clean, answer.body) == (False, packed)


async def test_a_stream_that_is_asked_for_is_asked_for_uncompressed(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(WHOLE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        path, body = "/up/v1/chat/completions", b'{"stream":true}'
        await ask(gateway.port, request(path, body, "Accept-Encoding: gzip, br"))
        await ask(gateway.port, request(path, body))
        await ask(gateway.port, request(path, b'{"model":"m"}', "Accept-Encoding: gzip, br"))
        sent = [seen.values("Accept-Encoding") for seen in upstream.requests]
        assert sent == [[b"identity"], [], [b"gzip, br"]]


async def test_observe_changes_nothing_and_knows_everything(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    script: list[Step] = [SSE, chunk(ROLE), more, chunk(text("a") + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, mode="observe")
        async with RawClient(gateway.port) as client:
            path, body = "/up/v1/chat/completions", b'{"stream":true}'
            await client.send(request(path, body, "Accept-Encoding: gzip"))
            await client.read_head()
            assert (await client.read_until(ROLE)).endswith(ROLE)
            more.set()
            assert (await client.read_until(LAST_CHUNK)).endswith(DONE + b"\r\n" + LAST_CHUNK)
        assert upstream.requests[0].values("Accept-Encoding") == [b"gzip"]
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.DONE_WITHOUT_FINISH


async def test_a_stream_of_no_known_protocol_passes_at_once_and_ends_as_it_ends(
    start_gateway: StartGateway,
) -> None:
    more = asyncio.Event()
    script: list[Step] = [SSE, more, chunk(b"data: tick\n\n"), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(first_event=0.02))
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1/threads/t/events", None, method="GET"))
            await client.read_head()
            await asyncio.sleep(0.05)
            more.set()
            assert (await client.answer_body()) == (b"data: tick\n\n", True)
        record = await gateway.record()
        assert record.protocol == "generic"
        assert record.stream is not None
        assert record.stream.verdict is Verdict.OPAQUE


async def test_a_client_that_leaves_mid_stream_ends_the_upstream_request(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        for number, leave in enumerate(("close", "reset"), 1):
            async with RawClient(gateway.port) as client:
                await client.send(request())
                await client.read_head()
                getattr(client, leave)()
                seen = await upstream.wait_for(number)
                async with asyncio.timeout(1):
                    await seen.closed.wait()
            record = await gateway.record(number)
            assert record.stream is not None
            assert record.stream.verdict is Verdict.CLIENT_GONE
            assert record.status == 200
            assert record.error == "The client left before its answer was complete."
        assert len(gateway.live) == 0


async def test_a_client_that_leaves_after_done_had_a_whole_answer(
    start_gateway: StartGateway,
) -> None:
    later = asyncio.Event()
    async with FakeUpstream([SSE, chunk(WHOLE), later, LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_until(DONE)
        record = await gateway.record()
        assert record.stream is not None
        assert (record.stream.verdict, record.error) == (Verdict.COMPLETE, None)
        later.set()
        await asyncio.sleep(0.02)
        await ask(gateway.port)
        assert upstream.connections == 1


async def test_a_client_that_is_blocked_and_leaves_ends_the_upstream_request(
    start_gateway: StartGateway,
) -> None:
    flood = chunk(text("x" * 60_000)) * 4
    async with FakeUpstream([SSE, chunk(ROLE), *[flood] * 200, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request())
            await client.read_head()
            await asyncio.sleep(0.1)
            client.close()
            seen = await upstream.wait_for(1)
            async with asyncio.timeout(1):
                await seen.closed.wait()
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.CLIENT_GONE


async def test_a_slow_client_slows_the_provider_and_is_no_stall(
    start_gateway: StartGateway,
) -> None:
    flood = chunk(text("x" * 60_000)) * 4
    script: list[Step] = [SSE, chunk(ROLE), *[flood] * 100, chunk(FINISH + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(gap=0.2, gap_alive=0.2))
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request())
            await client.read_head()
            before = _resident()
            await asyncio.sleep(0.5)
            (record,) = gateway.live
            assert record.stream is not None
            # What is neither with the client nor in a socket's buffer is little.
            assert record.stream.bytes_received < 8_000_000
            assert _resident() - before < 8_000_000
            body, clean = await client.answer_body()
            assert clean
            assert body.endswith(FINISH + DONE)
        assert (await gateway.record()).stream.verdict is Verdict.COMPLETE


async def test_the_time_in_which_a_client_takes_nothing_is_left_out(
    start_gateway: StartGateway,
) -> None:
    long, more = text("x" * 6_000_000), asyncio.Event()
    script: list[Step] = [SSE, chunk(long), more, chunk(FINISH + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(gap=0.3, gap_alive=0.3))
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request())
            await client.read_head()
            await asyncio.sleep(0.4)
            # Once it has all of the first event, the provider has its full time for the next one.
            reading = asyncio.create_task(client.answer_body())
            (record,) = gateway.live
            while record.bytes_down < len(long):  # noqa: ASYNC110 - a plain counter
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            more.set()
            body, clean = await reading
        assert (body == long + FINISH + DONE, clean) == (True, True)


async def test_what_came_before_a_cut_is_not_lost_on_a_slow_client(
    start_gateway: StartGateway,
) -> None:
    long, more = text("x" * 6_000_000), asyncio.Event()
    async with FakeUpstream([SSE, chunk(long), more, chunk(text("tail")), FIN]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request())
            await client.read_head()
            await asyncio.sleep(0.1)
            more.set()
            await asyncio.sleep(0.1)
            body, clean = await client.answer_body()
        assert clean
        assert body.startswith(long + text("tail"))
        assert last_error(body)["code"] == "upstream_stream_truncated"


async def test_a_hundred_and_fifty_streams_run_at_once(start_gateway: StartGateway) -> None:
    go_on = asyncio.Event()
    script: list[Step] = [SSE, chunk(ROLE + text("a")), go_on, chunk(FINISH + DONE), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        asking = [asyncio.create_task(ask(gateway.port)) for _ in range(150)]
        await upstream.wait_for(150)
        go_on.set()
        answers = await asyncio.gather(*asking)
        assert {answer.body for answer in answers} == {ROLE + text("a") + FINISH + DONE}
        assert upstream.connections == 150


@pytest.mark.parametrize("receive_buffer", [None, 4096])
async def test_a_whole_held_stream_leaves_at_its_end(
    start_gateway: StartGateway, receive_buffer: int | None
) -> None:
    long = ROLE + text("y" * 700_000) + FINISH
    async with FakeUpstream([SSE, chunk(long), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, hold="finish")
        async with RawClient(gateway.port, receive_buffer=receive_buffer) as client:
            await client.send(request())
            await client.read_head()
            await asyncio.sleep(0.05)
            assert await client.answer_body() == (long, True)


async def test_what_comes_at_the_moment_of_the_deadline_counts(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(gap=0.1, gap_alive=0.1))
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            # The loop stands still, and then finds the data and the timer at once.
            upstream.writers[0].write(chunk(text("b") + FINISH + DONE) + LAST_CHUNK)
            time.sleep(0.15)  # noqa: ASYNC251
            body, clean = await client.answer_body()
        assert (body, clean) == (ROLE + text("a") + text("b") + FINISH + DONE, True)


async def test_an_event_of_several_megabytes_passes_whole(start_gateway: StartGateway) -> None:
    long = text("y" * 3_000_000)
    async with FakeUpstream([SSE, chunk(long), chunk(FINISH + DONE), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.clean
        assert answer.body == long + FINISH + DONE


async def test_a_responses_stream_is_held_only_so_long(start_gateway: StartGateway) -> None:
    created = b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'
    async with FakeUpstream([SSE, chunk(created), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, hold_max=0.05)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1/responses"))
            await client.read_head()
            assert (await client.read_until(created)).endswith(created)


async def test_an_interrupted_stream_is_told_that_the_gateway_ends(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, chunk(ROLE + text("a")), HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await client.read_head()
            gateway.relay.interrupt()
            body, clean = await client.answer_body()
        assert clean
        assert last_error(body)["code"] == "gateway_draining"
        record = await gateway.record()
        assert record.stream is not None
        assert record.stream.verdict is Verdict.DRAINED
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "203 Other"])
@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/octet-stream", "text/event-stream"]
)
async def test_a_stream_is_read_whatever_it_is_called(
    start_gateway: StartGateway, status: str, content_type: str
) -> None:
    fields = [f"Content-Type: {content_type}"] if content_type else []
    cut = [head(status, *fields, "Transfer-Encoding: chunked"), chunk(ROLE + text("Hel"))]
    async with FakeUpstream([*cut, LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.status == int(status[:3])
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"
        record = await gateway.record()
        assert record.error_code == "upstream_stream_truncated"
        assert "without a finish event" in str(record.error)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/event-stream", b'{"error":{"message":"invalid key","type":"invalid_api_key"}}'),
        ("text/event-stream", b"<html><title>Bad Gateway</title>"),
        ("text/plain", b"busy!"),
        ("", b"<html>"),
        ("", b"nothing here"),
    ],
)
async def test_a_body_that_is_no_stream_is_no_answer_to_a_request_for_one(
    start_gateway: StartGateway, content_type: str, body: bytes
) -> None:
    fields = [f"Content-Type: {content_type}"] if content_type else []
    script = [head("200 OK", *fields, f"Content-Length: {len(body)}"), body]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.status >= 400
        providers = b'"error"' in body
        assert answer.values("x-gateway-error") == [b"upstream_invalid_response"][providers:]


async def test_a_whole_json_answer_called_a_stream_passes(start_gateway: StartGateway) -> None:
    body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
    fields = head("200 OK", "Content-Type: text/event-stream", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, body]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body, answer.clean) == (200, body, True)


async def test_the_providers_words_in_a_stream_reach_the_log(start_gateway: StartGateway) -> None:
    error = event({"error": {"message": "GPU on fire", "type": "server_error", "code": "hot"}})
    async with FakeUpstream([SSE, chunk(ROLE + text("a") + error), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port)
        record = await gateway.record()
        assert (record.error_code, record.error) == ("hot", "GPU on fire")


EARLY = event(
    {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": "stop"}]}
)


async def test_a_pause_behind_an_early_finish_ends_no_answer(start_gateway: StartGateway) -> None:
    late = after(0.3)
    rest = text("the answer") + FINISH + DONE
    async with FakeUpstream([SSE, chunk(EARLY), late, chunk(rest), LAST_CHUNK]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(linger=0.05))
        answer = await ask(gateway.port)
        assert (answer.body, answer.clean) == (EARLY + rest, True)


@pytest.mark.parametrize("end", [FIN, RST, LAST_CHUNK])
async def test_half_an_answer_behind_an_early_finish_is_no_whole_one(
    start_gateway: StartGateway, end: Step
) -> None:
    async with FakeUpstream([SSE, chunk(EARLY), chunk(text("half")), end]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert b"upstream_stream_truncated" in answer.body
