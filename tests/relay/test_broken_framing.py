"""A provider whose answer stops being HTTP in the middle: told at once, as a broken transport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.relay import tls
from tests.relay.fake_upstream import FIN, HOLD, LAST_CHUNK, RST, SSE, FakeUpstream, chunk, head
from tests.relay.raw_client import ask, request
from tests.relay.streams import ROLE, WHOLE, last_error, text
from tests.relay.support import CHAT, FAST, GOOD, JSON, PLAIN, after, with_backup

if TYPE_CHECKING:
    from pathlib import Path

    from tests.relay.conftest import StartGateway
    from tests.relay.fake_upstream import Step

BYTES = head("200 OK", "Content-Type: application/octet-stream", "Transfer-Encoding: chunked")
IN_PIECES = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
NO_CHUNK = b"zz\r\n"
ANOTHER_ANSWER = head("500 Internal Server Error", "Content-Length: 0")
GET = request("/up/v1/files/f/content", None, method="GET")

then = pytest.mark.parametrize("end", [FIN, RST, HOLD], ids=lambda end: end.value)
rubbish = pytest.mark.parametrize("rubbish", [NO_CHUNK, ANOTHER_ANSWER], ids=["line", "answer"])


def broken(start: bytes, first: bytes, rubbish: bytes, end: Step) -> list[Step]:
    return [start, after(0.02), chunk(first), after(0.06), rubbish, after(0.1), end]


@then
@rubbish
async def test_a_stream_that_the_client_has_seen_ends_with_an_error_at_once(
    start_gateway: StartGateway, rubbish: bytes, end: Step
) -> None:
    async with FakeUpstream(broken(SSE, ROLE + text("a"), rubbish, end)) as upstream:
        gateway = await start_gateway(upstream.port)
        async with asyncio.timeout(3):
            answer = await ask(gateway.port)
        assert last_error(answer.body)["code"] == "upstream_stream_truncated"
        assert answer.clean
        assert (await gateway.record()).stream.verdict == "reset"


@then
async def test_a_stream_that_is_held_is_tried_again(start_gateway: StartGateway, end: Step) -> None:
    async with FakeUpstream(broken(SSE, ROLE, NO_CHUNK, end), GOOD) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        async with asyncio.timeout(3):
            answer = await ask(gateway.port)
        assert answer.status == 200
        assert len(upstream.requests) == 2


@then
async def test_an_answer_in_one_piece_is_tried_again_once_and_never_elsewhere(
    start_gateway: StartGateway, end: Step
) -> None:
    script = broken(IN_PIECES, JSON[:-5], NO_CHUNK, end)
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, retry=FAST, **with_backup(second.port))
        async with asyncio.timeout(3):
            answer = await ask(gateway.port, PLAIN)
        assert answer.status == 502
        assert (len(first.requests), len(second.requests)) == (2, 0)


@then
@rubbish
@pytest.mark.parametrize("mode", ["protect", "observe"])
@pytest.mark.parametrize(
    ("start", "asked"),
    [(BYTES, GET), (SSE, GET), (SSE, request(CHAT))],
    ids=["bytes", "events", "inference"],
)
async def test_what_passes_as_it_comes_is_broken_off(
    start_gateway: StartGateway, start: bytes, asked: bytes, mode: str, rubbish: bytes, end: Step
) -> None:
    part = text("a")
    async with FakeUpstream(broken(start, part, rubbish, end)) as upstream:
        gateway = await start_gateway(upstream.port, mode=mode)
        async with asyncio.timeout(3):
            answer = await ask(gateway.port, asked)
        assert answer.body.startswith(part)
        told = asked is not GET and mode == "protect"
        assert answer.clean is told


async def test_it_is_told_at_once_over_tls_too(start_gateway: StartGateway, tmp_path: Path) -> None:
    """There the connection ends only when the provider has agreed to its end."""
    ca_file, context = tls.make(tmp_path)
    async with FakeUpstream(broken(BYTES, b"abc", NO_CHUNK, after(5)), tls=context) as upstream:
        base_url = f"https://127.0.0.1:{upstream.port}"
        gateway = await start_gateway(None, base_url=base_url, ca_file=str(ca_file))
        async with asyncio.timeout(3):
            answer = await ask(gateway.port, GET)
        assert (answer.body, answer.clean) == (b"abc", False)


async def test_what_follows_a_whole_answer_does_not_hurt_it(start_gateway: StartGateway) -> None:
    script: list[Step] = [IN_PIECES, after(0.05), chunk(JSON) + LAST_CHUNK + NO_CHUNK, HOLD]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.body, answer.clean) == (200, JSON, True)


# All in one read.

WHOLE_JSON = head("200 OK", "Content-Type: application/json", f"Content-Length: {len(JSON)}") + JSON
INTERIM = head("103 Early Hints", "Link: x")


@pytest.mark.parametrize("stray", [b"stray", b"\0", b"\n", NO_CHUNK, b"\r\n\r\n"])
@pytest.mark.parametrize("before", [b"", INTERIM], ids=["at once", "after an interim answer"])
@pytest.mark.parametrize(
    ("answer", "asked", "body"),
    [
        (WHOLE_JSON, PLAIN, JSON),
        (IN_PIECES + chunk(JSON) + LAST_CHUNK, PLAIN, JSON),
        (SSE + chunk(WHOLE) + LAST_CHUNK, request(CHAT), WHOLE),
        (head("200 OK", "Content-Length: 0"), GET, b""),
    ],
    ids=["length", "chunks", "stream", "empty"],
)
async def test_bytes_behind_a_whole_answer_cost_nothing_but_the_connection(
    start_gateway: StartGateway,
    answer: bytes,
    asked: bytes,
    body: bytes,
    before: bytes,
    stray: bytes,
) -> None:
    async with FakeUpstream([before + answer + stray], [before + answer]) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        for _ in range(2):
            told = await ask(gateway.port, asked)
            assert (told.status, told.clean, told.body) == (200, True, body)
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("at", range(1, 5))
async def test_the_end_of_a_head_may_come_in_two_reads(
    start_gateway: StartGateway, at: int
) -> None:
    answer = WHOLE_JSON + b"stray"
    cut = answer.index(b"\r\n\r\n") + at
    script: list[Step] = [answer[:cut], after(0.05), answer[cut:]]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        assert (await ask(gateway.port, PLAIN)).body == JSON
        assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("rest", "end"), [(NO_CHUNK, HOLD), (NO_CHUNK, FIN), (NO_CHUNK, RST), (b"", FIN), (b"", RST)]
)
async def test_the_words_of_an_error_that_breaks_off_are_read(
    start_gateway: StartGateway, rest: bytes, end: Step
) -> None:
    quota = b'{"error":{"message":"pay","code":"insufficient_quota"}}'
    fields = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    script: list[Step] = [head("429 Pay", *fields) + chunk(quota) + rest, end]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=FAST)
        answer = await ask(gateway.port)
        assert answer.status == 429
        assert b"insufficient_quota" in answer.body
        assert len(upstream.requests) == 1
