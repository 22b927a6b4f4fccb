"""Bodies that are no streams, and 200s that are no answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import zlib
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Retry, Timeouts
from gateway.policy.error_body import ErrorBody
from gateway.policy.error_growth import MARKER, MAX_ADDED
from gateway.protocols import openai_chat
from tests.relay.fake_upstream import (
    FIN,
    HOLD,
    LAST_CHUNK,
    RST,
    FakeUpstream,
    Step,
    chunk,
    head,
    json_answer,
)
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.support import PLAIN, after

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

WHOLE_JSON = (
    b'{"id":"c","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"error":null}'
)
ANTHROPIC = b'{"type":"message","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}'
CHAT = "/up/v1/chat/completions"


# Bodies that pass.


async def test_a_body_passes_with_its_length(start_gateway: StartGateway) -> None:
    body = os.urandom(500_000)
    fields = head("200 OK", "Content-Type: audio/wav", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, body]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/v1/audio/speech", b"{}"))
        assert (answer.clean, answer.body) == (True, body)
        assert answer.values("Content-Length") == [b"500000"]
        assert answer.values("Content-Type") == [b"audio/wav"]
        assert (await gateway.record()).bytes_down == len(body)


async def test_a_body_without_length_passes_chunked(start_gateway: StartGateway) -> None:
    for fields, end in (
        (head("200 OK", "Transfer-Encoding: chunked"), chunk(b"abc") + LAST_CHUNK),
        (head("200 OK", "Connection: close"), b"abc"),
    ):
        async with FakeUpstream([fields, end, FIN]) as upstream:
            gateway = await start_gateway(upstream.port)
            answer = await ask(gateway.port, request("/up/x", None, method="GET"))
            assert (answer.clean, answer.body) == (True, b"abc")
            assert answer.values("Transfer-Encoding") == [b"chunked"]
            assert answer.values("Content-Type") == []


async def test_the_head_does_not_wait_for_the_body(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    async with FakeUpstream([head("200 OK", "Content-Length: 4"), more, b"ab", b"cd"]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", None, method="GET"))
            await client.read_head()
            more.set()
            assert await client.read(4) == b"abcd"


@pytest.mark.parametrize(
    "script",
    [
        [head("200 OK", "Content-Length: 9"), b"abc", FIN],
        [head("200 OK", "Content-Length: 9"), b"abc", RST],
        [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"abc"), FIN],
        [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"abc"), RST],
        [head("200 OK", "Connection: close"), b"abc", RST],
        [head("500 Oops", "Content-Length: 9"), b"abc", FIN],
    ],
    ids=["length-fin", "length-rst", "chunked-fin", "chunked-rst", "close-rst", "error-fin"],
)
async def test_a_body_that_is_cut_breaks_the_clients_connection(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/x", None, method="GET"))
        assert not answer.clean
        assert answer.body in (b"abc", b"")
        record = await gateway.record()
        assert record.error_code == "upstream_stream_truncated"


async def test_a_cut_body_for_an_http_10_client_is_a_reset(start_gateway: StartGateway) -> None:
    script: list[Step] = [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"abc"), FIN]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        raw = request("/up/x", None, method="GET", version="1.0")
        assert not (await ask(gateway.port, raw)).clean


async def test_head_keeps_the_length_and_has_no_body(start_gateway: StartGateway) -> None:
    async with FakeUpstream([head("200 OK", "Content-Length: 1234")]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            for _ in range(2):
                await client.send(request("/up/v1/models", None, method="HEAD"))
                answer = await client.answer(method="HEAD")
                assert answer.values("Content-Length") == [b"1234"]
        assert upstream.connections == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_a_status_without_body_has_none(start_gateway: StartGateway, status: str) -> None:
    async with FakeUpstream([head(status, "ETag: x")]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            for _ in range(2):
                await client.send(request("/up/x", None, method="GET"))
                answer = await client.answer()
                assert str(answer.status) in status
                assert answer.values("Transfer-Encoding") == []
                assert answer.values("ETag") == [b"x"]


async def test_a_compressed_body_passes_as_it_came(start_gateway: StartGateway) -> None:
    packed = gzip.compress(b"{}")
    async with FakeUpstream([json_answer(packed, "Content-Encoding: gzip")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(CHAT, b"{}", "Accept-Encoding: gzip"))
        assert answer.body == packed
        assert answer.values("Content-Encoding") == [b"gzip"]


async def test_a_client_that_leaves_a_long_download_ends_it(start_gateway: StartGateway) -> None:
    async with FakeUpstream([head("200 OK", "Content-Length: 10"), b"abc", HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", None, method="GET"))
            await client.read_head()
            client.close()
            async with asyncio.timeout(1):
                await upstream.requests[0].closed.wait()
        record = await gateway.record()
        assert record.error == "The client left before its answer was complete."


async def test_a_slow_download_holds_little_in_memory(start_gateway: StartGateway) -> None:
    size = 30_000_000
    async with FakeUpstream([head("200 OK", f"Content-Length: {size}"), bytes(size)]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port, receive_buffer=4096) as client:
            await client.send(request("/up/x", None, method="GET"))
            await client.read_head()
            await asyncio.sleep(0.1)
            (record,) = gateway.live
            assert record.bytes_down < 10_000_000
            body, clean = await client.answer_body()
            assert (len(body), clean) == (size, True)


# Errors.


@pytest.mark.parametrize("packed", [False, True])
async def test_an_error_says_all_that_it_says_and_no_key(
    start_gateway: StartGateway, packed: bool
) -> None:
    plain = b'{"error":{"message":"Bad key sk-SECRETSECRET0123456789","code":"bad_key"}}'
    told = b'{"error":{"message":"Bad key [redacted] (code: bad_key)","code":"bad_key"}}'
    body = gzip.compress(plain) if packed else plain
    fields = ["X-Request-Id: up-1", "Retry-After: 7"]
    fields += ["Content-Encoding: gzip"] if packed else []
    async with FakeUpstream([json_answer(body, *fields, status="401 Unauthorized")]) as upstream:
        gateway = await start_gateway(upstream.port)
        raw = request(CHAT, b"{}", "Authorization: Bearer sk-SECRETSECRET0123456789")
        answer = await ask(gateway.port, raw)
        assert (answer.status, answer.body) == (401, told)
        assert answer.values("Content-Encoding") == []
        assert answer.values("Retry-After") == [b"7"]
        assert answer.values("x-gateway-error") == []
        record = await gateway.record()
        assert (record.status, record.upstream_status) == (401, 401)
        assert (record.upstream_body, record.error_code) == (ErrorBody.JSON, "bad_key")
        assert record.error is not None
        assert record.error.startswith("Bad key")
        assert record.upstream_request_id == "up-1"
        assert "SECRETSECRET" not in gateway.log.getvalue() + record.error


async def test_of_a_long_error_the_beginning_is_enough(start_gateway: StartGateway) -> None:
    body = b"x " * 2_500_000
    fields = head("500 Oops", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, body]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        message = json.loads(answer.body)["error"]["message"]
        assert message.startswith("x x x")
        assert message.endswith(MARKER)
        assert len(message) <= MAX_ADDED
        record = await gateway.record()
        assert record.upstream_body is ErrorBody.TEXT
        assert record.error is not None
        assert len(record.error) <= 300


# The 200 that is no answer.


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, WHOLE_JSON), (CHAT, b"[{}]"), ("/up/v1/messages", ANTHROPIC), (CHAT, b" 1 ")],
)
async def test_a_whole_json_answer_passes(
    start_gateway: StartGateway, path: str, body: bytes
) -> None:
    async with FakeUpstream([json_answer(body)]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(path))
        if body == b" 1 ":
            assert answer.status == 502
            return
        assert (answer.status, answer.body, answer.clean) == (200, body, True)
        assert answer.values("Content-Length") == [str(len(body)).encode()]


@pytest.mark.parametrize(
    ("content_type", "body", "says"),
    [
        (
            "application/json",
            b'{"error":{"code":502,"message":"Worker crashed"}}',
            "Worker crashed",
        ),
        ("application/json; charset=utf-8", b'{"error":"flat"}', "flat"),
        ("application/json", b'{"type":"error","message":"typed"}', "typed"),
        ("application/problem+json", b'{"object":"error","message":"obj"}', "obj"),
        ("application/json", b'{"choices":[{"mess', "broken JSON. Retry your request."),
        ("application/json", b'{"choices":[{"message":{"content":"an answ', "broken JSON. Retry"),
        ("application/json", b'{"message":"out of memory","x', 'broken JSON ("out of memory"). Re'),
        ("application/json", b"", "an empty body. Retry your request."),
        ("text/html", b"<html><title>Log in</title>", 'page ("Log in"). Is base_url right?'),
        ("application/json", b"<html></html>", "an HTML page"),
        ("text/plain", b"bad key sk-proj-AbCdEf123456789", 'no JSON ("bad key [redacted]"). Is'),
    ],
)
async def test_a_200_that_is_no_answer_is_a_502_that_says_what_came(
    start_gateway: StartGateway, content_type: str, body: bytes, says: str
) -> None:
    fields = head("200 OK", f"Content-Type: {content_type}", f"Content-Length: {len(body)}")
    async with FakeUpstream([fields, body]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.clean) == (502, True)
        providers = b'"error"' in body  # an error object is the provider's own
        assert answer.values("x-gateway-error") == [b"upstream_invalid_response"][providers:]
        message = json.loads(answer.body)["error"]["message"]
        assert says in message
        assert providers or "The provider (127.0.0.1:" in message
        assert answer.values("Content-Type") == [b"application/json"]
        assert answer.values("Content-Length") == [str(len(answer.body)).encode()]
        record = await gateway.record()
        assert (record.status, record.upstream_status) == (502, 200)


async def test_a_200_that_breaks_off_is_truncated(start_gateway: StartGateway) -> None:
    for fields, end in (
        (head("200 OK", "Content-Type: application/json", "Content-Length: 900"), FIN),
        (head("200 OK", "Content-Type: application/json", "Connection: close"), RST),
    ):
        async with FakeUpstream([fields, b'{"choices":', end]) as upstream:
            gateway = await start_gateway(upstream.port)
            answer = await ask(gateway.port)
            assert answer.status == 502
            assert json.loads(answer.body)["error"]["code"] == "upstream_stream_truncated"


async def test_a_200_that_never_ends_is_stalled(start_gateway: StartGateway) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Content-Length: 900")
    async with FakeUpstream([fields, b'{"choices":', HOLD]) as upstream:
        gateway = await start_gateway(upstream.port, timeouts=Timeouts(response=0.1))
        answer = await ask(gateway.port)
        assert (answer.status, answer.values("x-gateway-error")) == (504, [b"upstream_stalled"])
        async with asyncio.timeout(1):
            await upstream.requests[0].closed.wait()


async def test_blank_lines_keep_no_answer_alive(start_gateway: StartGateway) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    blanks: list[Step] = []
    for tenth in range(1, 20):
        blanks += [after(tenth / 10), chunk(b"\n")]
    async with FakeUpstream([fields, *blanks, HOLD]) as upstream:
        timeouts = Timeouts(response=0.5)
        gateway = await start_gateway(upstream.port, timeouts=timeouts, hold_keepalive=0.15)
        answer = await ask(gateway.port, PLAIN)
        assert (answer.status, answer.clean) == (200, False)
        assert answer.body.strip() == b""
        assert len(answer.body) < 8
        assert (await gateway.record()).error_code == "upstream_stalled"


async def test_a_200_that_cannot_be_read_passes(start_gateway: StartGateway) -> None:
    for coding, body in (("gzip", b"no gzip"), ("zz", b"??")):
        async with FakeUpstream([json_answer(body, f"Content-Encoding: {coding}")]) as upstream:
            gateway = await start_gateway(upstream.port)
            answer = await ask(gateway.port)
            assert (answer.status, answer.body) == (200, body)


async def test_a_200_passes_however_deep_it_is(start_gateway: StartGateway) -> None:
    bodies = [
        b'{"choices":[{"message":{"content":"hi"},"logprobs":NaN}],"x":%s1%s}'
        % (b'{"a":' * depth, b"}" * depth)
        for depth in (300, 500, 900, 5000)
    ]
    async with FakeUpstream(*([json_answer(body)] for body in bodies)) as upstream:
        gateway = await start_gateway(upstream.port)
        for body in bodies:
            answer = await ask(gateway.port)
            assert (answer.status, answer.body) == (200, body)
        assert "internal_error" not in gateway.log.getvalue()


async def test_a_compressed_error_in_a_200_is_understood(start_gateway: StartGateway) -> None:
    packed = gzip.compress(b'{"error":{"message":"inside"}}')
    async with FakeUpstream([json_answer(packed, "Content-Encoding: gzip")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert answer.status == 502
        assert b"inside" in answer.body
        assert answer.values("Content-Encoding") == []


async def test_a_packed_array_streams_without_being_held(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    fields = head(
        "200 OK",
        "Content-Type: application/json",
        "Content-Encoding: gzip",
        "Transfer-Encoding: chunked",
    )
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(b"[{}") + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(b",{}]") + packer.flush()
    script: list[Step] = [fields, chunk(first), more, chunk(rest), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1beta/models/g:streamGenerateContent", b"{}"))
            await client.read_head()
            await client.read_until(first)
            more.set()
            await client.read_until(rest + b"\r\n0\r\n\r\n")


async def test_an_array_streams_without_being_held(start_gateway: StartGateway) -> None:
    more = asyncio.Event()
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    script: list[Step] = [fields, chunk(b"[{}"), more, chunk(b",{}]"), LAST_CHUNK]
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/v1beta/models/g:streamGenerateContent", b"{}"))
            await client.read_head()
            await client.read_until(b"[{}")
            more.set()
            await client.read_until(b",{}]\r\n0\r\n\r\n")


async def test_an_array_that_is_an_error_is_asked_for_again(start_gateway: StartGateway) -> None:
    fields = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
    error = b'[{"error":{"code":503,"message":"Busy","status":"UNAVAILABLE"}}]'
    parts: list[Step] = [chunk(error[i : i + 1]) for i in range(len(error))]
    packed = gzip.compress(error)
    scripts: list[list[Step]] = [
        [fields, *parts, LAST_CHUNK],
        [json_answer(packed, "Content-Encoding: gzip")],
        [json_answer(b'[{"candidates":[]}]')],
    ]
    async with FakeUpstream(*scripts) as upstream:
        gateway = await start_gateway(upstream.port, retry=Retry(backoff_initial=0.001))
        answer = await ask(
            gateway.port, request("/up/v1beta/models/g:streamGenerateContent", b"{}")
        )
        assert (answer.status, answer.body) == (200, b'[{"candidates":[]}]')
        assert len(upstream.requests) == 3


async def test_a_200_beyond_the_bound_passes(start_gateway: StartGateway) -> None:
    body = b'{"error":"' + b"x" * 2_000_000 + b'"}'
    async with FakeUpstream([json_answer(body)]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        assert (answer.status, answer.body, answer.clean) == (200, body, True)


@pytest.mark.parametrize(
    ("raw", "keys"),
    [
        (request("/up/v1/other", b'{"stream":true}'), {}),
        (request(CHAT), {"mode": "observe"}),
    ],
    ids=["no-protocol", "observe"],
)
async def test_only_an_answer_to_inference_is_judged(
    start_gateway: StartGateway, raw: bytes, keys: dict[str, str]
) -> None:
    body = b'{"error":{"message":"as it is"}}'
    async with FakeUpstream([json_answer(body)]) as upstream:
        gateway = await start_gateway(upstream.port, **keys)
        answer = await ask(gateway.port, raw)
        assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize(
    ("body", "status", "kind", "code"),
    [
        (
            b'{"error":{"message":"No such model","type":"invalid_request_error",'
            b'"code":"model_not_found","param":"model"}}',
            404,
            "invalid_request_error",
            "model_not_found",
        ),
        (
            b'{"error":{"message":"slow","type":"rate_limit_error"}}',
            429,
            "rate_limit_error",
            None,
        ),
    ],
)
async def test_an_error_object_in_a_200_is_the_http_error_that_it_means(
    start_gateway: StartGateway, body: bytes, status: int, kind: str, code: str | None
) -> None:
    async with FakeUpstream([json_answer(body)]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["type"], error.get("code")) == (status, kind, code)
        assert answer.values("x-gateway-error") == [], "it is the provider's own error"
        assert (answer.values("Retry-After") == [b"5"]) is (status == 429)


async def test_a_rate_limit_always_says_when_to_come_back_and_a_quota_never(
    start_gateway: StartGateway,
) -> None:
    limit = b'{"error":{"message":"slow down","type":"rate_limit_error"}}'
    quota = b'{"error":{"message":"insufficient_quota","code":"insufficient_quota"}}'
    for fields, body, waits in (
        ([], limit, [b"5"]),
        (["Retry-After: 7"], limit, [b"7"]),
        (["retry-after-ms: 70"], limit, []),
        ([], quota, []),
    ):
        script = [json_answer(body, *fields, status="429 Slow Down")]
        async with FakeUpstream(script) as upstream:
            gateway = await start_gateway(upstream.port)
            answer = await ask(gateway.port)
            assert (answer.status, answer.body) == (429, body)
            assert answer.values("Retry-After") == waits


async def test_a_readers_bug_is_logged_and_the_error_passes(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(openai_chat.Reader, "read", fail)
    body = b'{"error":{"message":"no such model"}}'
    async with FakeUpstream([json_answer(body, status="404 No")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request(CHAT, b'{"model":"m"}'))
        assert (answer.status, answer.body) == (404, body)
        await gateway.record()
        assert "internal_error" in gateway.log.getvalue()
