"""HTTP errors on the wire: what is sent instead of a body fits its header fields, in any coding,
and bodies without end, size or sense cost little.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import time
import tracemalloc
import zlib
from functools import partial
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard

from gateway.config.model import Retry
from gateway.policy.error_growth import MARKER
from gateway.relay import held_error
from tests.relay.fake_upstream import (
    FIN,
    HOLD,
    FakeUpstream,
    Step,
    chunk,
    head,
)
from tests.relay.raw_client import RawClient, ask, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.relay.conftest import StartGateway
    from tests.relay.raw_client import Answer

CHAT = "/up/v1/chat/completions"
ERROR = b'{"error":{"message":"No","code":"bad_tool_call"}}'
GROWN = b'{"error":{"message":"No (code: bad_tool_call)","code":"bad_tool_call"}}'
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, compresslevel=1),
    "br": partial(brotli.compress, quality=1),
    "zstd": zstandard.ZstdCompressor(level=1).compress,
}
OF_THE_OLD_BODY = (
    "ETag: x", "Content-MD5: x", "Digest: x", "Repr-Digest: x", "Content-Digest: x",
    "Accept-Ranges: bytes",
)  # fmt: skip


def answer_with(body: bytes, kind: str, *fields: str, status: str = "400 Bad Request") -> bytes:
    return head(status, f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields) + body


def message_of(answer: Answer) -> str:
    message = json.loads(answer.body)["error"]["message"]
    assert isinstance(message, str)
    return message


# What is sent fits its header fields.


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/octet-stream", ERROR, "400 Bad Request"),
        ("application/json; charset=utf-8", ERROR, "400 Bad Request"),
        ("text/html", PAGE, "502 Bad Gateway"),
        ("text/plain", b"", "503 Service Unavailable"),
    ],
)
async def test_the_fields_describe_the_body_that_is_sent(
    start_gateway: StartGateway, kind: str, body: bytes, status: str
) -> None:
    fields = (*OF_THE_OLD_BODY, "X-Should-Retry: false", "Request-Id: r-1")
    async with FakeUpstream([answer_with(body, kind, *fields, status=status)]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request(CHAT))
            answer = await client.answer()
            assert (answer.clean, answer.status) == (True, int(status[:3]))
            assert answer.values("Content-Type") == [b"application/json"]
            assert answer.values("Content-Length") == [str(len(answer.body)).encode()]
            for field in OF_THE_OLD_BODY:
                assert answer.values(field.partition(":")[0]) == []
            assert answer.values("X-Should-Retry") == [b"false"]
            assert answer.values("Request-Id") == [b"r-1"]
            await client.send(request(CHAT))
            assert (await client.answer()).body == answer.body, "the framing was right"


@pytest.mark.parametrize("coding", [*CODINGS, "gzip, br"])
async def test_a_compressed_error_is_read_and_told_plain(
    start_gateway: StartGateway, coding: str
) -> None:
    body = ERROR
    for each in coding.split(", "):
        body = CODINGS[each](body)
    script = answer_with(body, "application/json", f"Content-Encoding: {coding}")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.clean, answer.body) == (True, GROWN)
        assert answer.values("Content-Encoding") == []
        assert (await gateway.record()).error_code == "bad_tool_call"


async def test_an_error_that_says_all_keeps_its_bytes_and_fields(
    start_gateway: StartGateway,
) -> None:
    body = b' {"error" : {"message":"N\\u006f"}}\n'
    async with FakeUpstream([answer_with(body, "application/json; x=y", "ETag: e")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.body == body
        assert answer.values("Content-Type") == [b"application/json; x=y"]
        assert answer.values("ETag") == [b"e"]


async def test_a_coding_that_is_not_known_passes_as_it_came(start_gateway: StartGateway) -> None:
    script = answer_with(
        b"\x01\x02\x03", "application/json", "Content-Encoding: aws-chunked", "ETag: e"
    )
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean, answer.body) == (400, True, b"\x01\x02\x03")
        assert answer.values("Content-Encoding") == [b"aws-chunked"]
        assert answer.values("ETag") == [b"e"]


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_error_that_is_corrupt_or_cut_is_told_as_such(
    start_gateway: StartGateway, coding: str
) -> None:
    packed = CODINGS[coding](json.dumps({"detail": "x" * 50_000}).encode())
    for body in (packed[: len(packed) // 2], b"no such coding"):
        script = answer_with(body, "application/json", f"Content-Encoding: {coding}")
        async with FakeUpstream([script]) as upstream:
            gateway = await start_gateway(upstream.port)
            answer = await ask(gateway.port)
            assert (answer.status, answer.clean) == (400, True)
            assert answer.values("Content-Encoding") == []
            assert any(words in message_of(answer) for words in ("cannot be read", "broke off: xx"))


async def test_the_phrase_that_counts_is_the_one_that_the_client_gets(
    start_gateway: StartGateway,
) -> None:
    """Only a message that is the phrase makes clients look at the rest, where a full context is."""
    body = b'{"error":{"message":"Bad Request","param":"request entity too large"}}'
    async with FakeUpstream(
        [answer_with(body, "application/json", status="400 Nope")],
        [answer_with(body, "application/json", status="400 Bad Request")],
    ) as upstream:
        gateway = await start_gateway(upstream.port)
        assert message_of(await ask(gateway.port)) == "Bad Request"
        assert message_of(await ask(gateway.port)) == "param: request entity too large"


async def test_nothing_is_nothing_in_any_coding(start_gateway: StartGateway) -> None:
    script = answer_with(b"", "application/json", "Content-Encoding: gzip")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.clean
        assert "gave no reason" in message_of(answer)


# Who is not told anything.


async def test_an_observed_provider_speaks_for_itself(start_gateway: StartGateway) -> None:
    packed = gzip.compress(ERROR)
    script = answer_with(packed, "application/json", "Content-Encoding: gzip", "ETag: e")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port, mode="observe")
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (400, packed)
        assert answer.values("ETag") == [b"e"]


async def test_the_answer_to_head_has_no_body(start_gateway: StartGateway) -> None:
    script = head(
        "404 Not Found", "Content-Type: application/json", "Content-Length: 99", "ETag: e"
    )
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(CHAT, None, method="HEAD"))
        assert (answer.status, answer.body) == (404, b"")
        assert answer.values("Content-Length") == [b"99"]
        assert answer.values("ETag") == [b"e"]


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("application/json", ERROR, GROWN),
        ("application/problem+json", ERROR, GROWN),
        ("application/json", b'{"detail":"x"}', b'{"detail":"x"}'),
        ("text/html", PAGE, PAGE),
        ("text/plain", b"no", b"no"),
    ],
)
async def test_of_a_request_of_no_protocol_only_a_message_grows(
    start_gateway: StartGateway, kind: str, body: bytes, told: bytes
) -> None:
    async with FakeUpstream([answer_with(body, kind)]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/v1/files", b"{}"))
        assert (answer.status, answer.body) == (400, told)


@pytest.mark.parametrize("coding", ["identity", *CODINGS])
async def test_a_text_of_a_request_of_no_protocol_says_when_to_come_back(
    start_gateway: StartGateway, coding: str
) -> None:
    body = CODINGS.get(coding, bytes)(b"slow down")
    script = answer_with(
        body, "text/plain", f"Content-Encoding: {coding}", "ETag: e", status="429 Slow"
    )
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/v1/files", b"{}"))
        assert (answer.status, answer.body) == (429, body)
        assert answer.values("Retry-After") == [b"5"]
        assert answer.values("ETag") == [b"e"]


async def test_an_error_to_head_is_not_counted_as_empty(start_gateway: StartGateway) -> None:
    async with FakeUpstream([head("404 Not Found", "Content-Length: 99")]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port, request(CHAT, None, method="HEAD"))
        assert (await gateway.record()).upstream_body is None


@pytest.mark.parametrize(
    "damage", [lambda packed: packed + b"junk", lambda packed: packed[:-12]], ids=["more", "less"]
)
async def test_of_a_compressed_error_that_is_damaged_what_can_be_read_is_told(
    start_gateway: StartGateway, damage: Callable[[bytes], bytes]
) -> None:
    script = answer_with(damage(gzip.compress(ERROR)), "application/json", "Content-Encoding: gzip")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        assert "No (code: bad_" in message_of(await ask(gateway.port))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain; charset=ISO-8859-1", "Ungültig".encode("latin-1")),
        ("application/json; charset=iso-8859-1", '{"detail":"Ungültig"}'.encode("latin-1")),
        ("application/json", '{"detail":"Ungültig"}'.encode("utf-16")),
        ("text/plain; charset=iso-8859-1", "Ungültig".encode()),
    ],
)
async def test_a_body_in_another_encoding_is_read_in_that(
    start_gateway: StartGateway, kind: str, body: bytes
) -> None:
    async with FakeUpstream([answer_with(body, kind)]) as upstream:
        gateway = await start_gateway(upstream.port)
        assert message_of(await ask(gateway.port)) == "Ungültig"
        assert (await gateway.record()).error == "Ungültig"


# Bodies that mean harm.


@pytest.mark.parametrize("coding", BOMBS)
async def test_a_bomb_is_expanded_a_little(start_gateway: StartGateway, coding: str) -> None:
    bomb = BOMBS[coding](b'{"error":{"message":"' + b"x" * (64 << 20) + b'"}}')
    script = answer_with(bomb, "application/json", f"Content-Encoding: {coding}", status="500 Oops")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port)
        tracemalloc.start()
        answer = await ask(gateway.port)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (answer.status, answer.clean) == (500, True)
        assert "xxx" in message_of(answer) or "cannot be read" in message_of(answer)
        assert peak < 64 << 20


async def test_an_error_without_end_is_cut_and_the_provider_left(
    start_gateway: StartGateway,
) -> None:
    endless: list[Step] = [head("500 Oops", "Transfer-Encoding: chunked")]
    endless += [chunk(b"x" * 65_536)] * 10_000
    async with FakeUpstream([*endless, HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (500, True)
        assert message_of(answer).endswith(MARKER)
        async with asyncio.timeout(5):
            await (await upstream.wait_for(1)).closed.wait()


@pytest.mark.parametrize("unclaimed", [False, True])
async def test_an_error_that_comes_too_slowly_is_told_as_far_as_it_has_come(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch, unclaimed: bool
) -> None:
    monkeypatch.setattr(held_error, "ERROR_SECONDS", 0.1)
    more = asyncio.Event()
    slow = head("500 Oops", "Content-Type: application/json", f"Content-Length: {len(ERROR)}")
    async with FakeUpstream([slow, ERROR[:-20], more, ERROR[-20:]]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1/files" if unclaimed else CHAT))
            await client.read_head()
            more.set()
            body, clean = await client.answer_body()
            assert clean
            if unclaimed:
                assert body == ERROR, "it goes on as it comes"
            else:
                assert "broke off: No" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize("framing", ["Content-Length: 999", "Transfer-Encoding: chunked"])
async def test_an_error_that_breaks_off_is_told_as_far_as_it_has_come(
    start_gateway: StartGateway, framing: str
) -> None:
    part = ERROR[:-20] if "Length" in framing else chunk(ERROR[:-20])
    script: list[Step] = [head("500 Oops", "Content-Type: application/json", framing), part, FIN]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (500, True)
        assert "broke off: No" in message_of(answer)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/up/v1/files", ("Content-Type: application/json",)),
        (CHAT, ("Content-Type: application/json", "Content-Encoding: aws-chunked")),
    ],
)
async def test_what_breaks_off_and_cannot_be_told_breaks_off(
    start_gateway: StartGateway, path: str, fields: tuple[str, ...]
) -> None:
    script: list[Step] = [head("500 Oops", *fields, "Content-Length: 99"), b'{"detail":"', FIN]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(path))
        assert (answer.status, answer.clean, answer.body) == (500, False, b'{"detail":"')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":' * 10_000 + b"1" + b"}" * 10_000, "too deep to be read"),
        (
            b'{"error":{"message":"m","details":' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
            "too deep to be read: m",
        ),
        (b"\0" * 50_000, "gave no reason"),
        (b"\xff\xfd\xfc text", "text"),
        (b'{"error":{"message":"a\xff\0b"}}', "b"),
        (b'{"error":{"message":"' + b"5 MB " * 1_000_000 + b'"}}', "5 MB 5 MB"),
        (b"<html><title>" + b"<b>" * 300_000, "a web page"),
    ],
)
async def test_a_body_without_sense_is_told_in_one_sentence(
    start_gateway: StartGateway, body: bytes, words: str
) -> None:
    script: list[Step] = [answer_with(body, "application/json", status="422 Unprocessable Entity")]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (422, True)
        assert words in message_of(answer)
        record = await gateway.record()
        assert len(record.error or "") <= 300
        assert "\0" not in gateway.log.getvalue()


async def test_an_error_that_is_deep_keeps_its_status(start_gateway: StartGateway) -> None:
    body = b'{"error":' + b"[" * 500 + b'"x"' + b"]" * 500 + b"}"
    async with FakeUpstream([answer_with(body, "application/json")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.values("x-gateway-error")) == (400, [])
        assert "internal_error" not in gateway.log.getvalue()


_WIDE = {
    "objects": b'{"error":{"message":"m","code":"c"},"a":[' + b"{}," * 340_000 + b"{}]}",
    "numbers": b'{"error":{"message":"m","code":"c","a":[' + b"1," * 500_000 + b"1]}}",
    "members": b'{"error":{"message":"m","code":"c"},' + b'"k":{},' * 140_000 + b'"a":0}',
    "no dialect": b'{"detail":"m","a":[' + b"{}," * 340_000 + b"{}]}",
}


@pytest.mark.parametrize("body", _WIDE.values(), ids=_WIDE.keys())
async def test_a_megabyte_is_read_once_and_holds_nobody_up(
    start_gateway: StartGateway, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def counting(read: Callable[..., object]) -> Callable[..., object]:
        def counted(data: bytes | str, *rest: object, **named: object) -> object:
            nonlocal reads
            reads += len(data) > 100_000
            return read(data, *rest, **named)

        return counted

    for place in ("gateway.streams.lenient.loads", "gateway.streams.lenient.strictly"):
        module, _, name = place.rpartition(".")
        monkeypatch.setattr(place, counting(getattr(importlib.import_module(module), name)))
    monkeypatch.setattr(json, "loads", counting(json.loads))
    assert len(body) < 1024 * 1024
    script: list[Step] = [answer_with(body, "application/json", status="503 Unavailable")]
    cookies = "Cookie: " + "; ".join(f"k{at}=v-{at:06}" for at in range(700))
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port, retry=Retry(max_retries=0))
        began = time.process_time()
        answer = await ask(gateway.port, request(CHAT, b'{"model":"m"}', cookies))
        took = time.process_time() - began
    assert (answer.status, answer.clean) == (503, True)
    assert reads <= 3
    assert took < 0.5


def fails(*_: object) -> None:
    raise RuntimeError("a fault of ours")


@pytest.mark.parametrize("place", ["passage.note_error", "error_answers.enrich"])
async def test_a_fault_of_reading_leaves_the_providers_error(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(f"gateway.relay.{place}", fails)
    body = gzip.compress(ERROR)
    script: list[Step] = [answer_with(body, "application/json", "Content-Encoding: gzip")]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (400, body)
        assert answer.values("Content-Encoding") == [b"gzip"]
        assert gateway.log.getvalue().count('"event":"internal_error"') == 1


# When to come back.

_FAR = b"Wed, 01 Jan 2120 00:00:00 GMT"


@pytest.mark.parametrize(
    ("status", "body", "fields", "waits", "asked"),
    [
        (429, b'{"error":{"message":"slow","type":"rate_limit_error"}}', (), [b"5"], 2),
        (429, b"slow down", (), [b"5"], 2),
        (429, PAGE, (), [b"5"], 2),
        (429, b"", ("Retry-After: 0",), [b"0"], 2),
        (429, b"", ("Retry-After: ",), [b"5"], 2),
        (429, b"", ("Retry-After: soon",), [b"5"], 2),
        (429, b"", ("Retry-After: Wed, 01 Jan 2020 00:00:00 GMT",), [b"5"], 2),
        (429, b"", ("Retry-After: Wed, 01 Jan 2120 00:00:00 GMT",), [_FAR], 1),
        (429, b"", ("Retry-After: soon", "retry-after-ms: 9"), [b"soon"], 2),
        (429, b'{"error":{"message":"m","code":"insufficient_quota"}}', (), [], 1),
        (
            503,
            b'{"error":{"message":"m","code":"insufficient_quota"}}',
            ("Retry-After: 0",),
            [b"0"],
            1,
        ),
        (503, b'{"error":{"message":"m"}}', ("Retry-After: 0",), [b"0"], 2),
        (413, b"too big", (), [], 1),
        (400, b"no", (), [], 1),
    ],
)
async def test_a_rate_limit_says_when_in_whatever_form_it_came(
    start_gateway: StartGateway,
    status: int,
    body: bytes,
    fields: tuple[str, ...],
    waits: list[bytes],
    asked: int,
) -> None:
    retry = Retry(max_retries=1, backoff_initial=0.001, backoff_max=0.002, budget=100.0)
    script = answer_with(body, "application/json", *fields, status=f"{status} Words")
    async with FakeUpstream([script]) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        answer = await ask(gateway.port, request(CHAT, b'{"model":"m"}'))
        assert answer.status == status
        assert answer.values("Retry-After") == waits
        assert len(upstream.requests) == asked
