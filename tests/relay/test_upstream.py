"""Connections to providers: exact bytes, proxies, TLS, the pool, dead connections."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.model import Provider, Retry
from gateway.relay.network import find_proxy
from gateway.relay.upstream import Endpoint
from tests.relay import tls
from tests.relay.fake_upstream import FIN, HOLD, RST, FakeUpstream, Step, head, json_answer
from tests.relay.raw_client import RawClient, ask, request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.relay.conftest import StartGateway

OK = json_answer(b"{}")


# Where a request goes.


async def endpoint(base_url: str, proxy: str = "none") -> Endpoint:
    provider = Provider(name="p", base_url=base_url)
    return Endpoint(provider, find_proxy(base_url, proxy), None)


@pytest.mark.parametrize(
    ("base_url", "rest", "target"),
    [
        ("http://h", b"/v1/x?a", b"/v1/x?a"),
        ("http://h/", b"/v1/x", b"/v1/x"),
        ("http://h/api", b"/v1/x", b"/api/v1/x"),
        ("http://h/api/", b"/v1/x", b"/api/v1/x"),
        ("http://h", b"", b"/"),
        ("http://h", b"?x", b"/?x"),
        ("http://h/api", b"", b"/api"),
        ("http://h/api", b"?x", b"/api?x"),
    ],
)
async def test_a_target_is_the_base_path_and_what_followed_the_name(
    base_url: str, rest: bytes, target: bytes
) -> None:
    assert (await endpoint(base_url)).target(rest) == target


async def test_a_proxy_without_a_tunnel_is_asked_for_whole_urls() -> None:
    plain = await endpoint("http://h:81/api", "http://user:pass@proxy:3128")
    assert plain.target(b"/x") == b"http://h:81/api/x"
    assert plain.proxy_fields == [("Proxy-Authorization", "Basic dXNlcjpwYXNz")]
    tunnelled = await endpoint("https://h/api", "http://user:pass@proxy:3128")
    assert tunnelled.target(b"/x") == b"/api/x"
    assert tunnelled.proxy_fields == []


# Exact bytes.


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/org%2Fname%3Ax%28a%29?sig=a%2Bb+c&e=%e4%BD&empty=&flag",
        "/v1/x?",
        "//v1//x//",
        "/v1/./a/../b",
        "/v1/x?a=/?b=?c",
        "/v1/a;b=c,d|e'(f)!*~$@:[]^`{}\"<>",
        "/v1/x?q=a b".replace(" ", "%20"),
        "/v1/%zz%",
        "",
        "?x=1",
    ],
)
async def test_the_request_line_keeps_every_byte(start_gateway: StartGateway, target: str) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up" + target, None, method="GET"))
        assert answer.status == 200
        expected = target if target.startswith("/") else "/" + target
        assert upstream.requests[0].line == f"GET {expected} HTTP/1.1".encode()


TARGETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
VALUES = st.binary(min_size=0, max_size=60).map(
    lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F).strip(b" \t")
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tail=TARGETS, query=TARGETS, up=VALUES, down=VALUES)
async def test_targets_and_header_values_pass_whatever_bytes_they_hold(
    start_gateway: StartGateway, tail: str, query: str, up: bytes, down: bytes
) -> None:
    answer_head = b"HTTP/1.1 200 OK\r\nX-Down: %b\r\nContent-Length: 0\r\n\r\n" % down
    async with FakeUpstream([answer_head]) as upstream:
        gateway = await start_gateway(upstream.port)
        target = f"/v1/{tail}?{query}".encode()
        raw = b"GET /up%b HTTP/1.1\r\nHost: h\r\nX-Up: %b\r\n\r\n" % (target, up)
        answer = await ask(gateway.port, raw)
        assert answer.status == 200
        assert answer.values("X-Down") == [down]
        (seen,) = upstream.requests
        assert seen.line == b"GET %b HTTP/1.1" % target
        assert seen.values("X-Up") == [up]


async def test_header_fields_keep_order_case_and_repeats_both_ways(
    start_gateway: StartGateway,
) -> None:
    fields = ("X-b: 2", "x-A: 1", "X-b: 3", "User-Agent: me", "COOKIE: a=1", "Cookie: b=2")
    back = ("X-Z: 1", "set-cookie: a=1", "Set-Cookie: b=2", "x-Y: 2", "SERVER: s", "Date: then")
    async with FakeUpstream([head("299 Quite Fine", *back, "Content-Length: 0")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/x", None, *fields, method="GET"))
        sent = upstream.requests[0].head.decode().split("\r\n")[1:-2]
        assert sent == [f"Host: 127.0.0.1:{upstream.port}", *fields]
        assert answer.head.startswith(b"HTTP/1.1 299 Quite Fine\r\n")
        came = [b": ".join(field).decode() for field in answer.fields]
        assert came[: len(back) + 1] == [*back, "Content-Length: 0"]
        assert [name for name, _ in answer.fields[len(back) + 1 :]] == [
            b"x-gateway-request-id", b"x-gateway-attempts", b"x-gateway-provider"
        ]  # fmt: skip


async def test_nothing_is_invented_in_either_direction(start_gateway: StartGateway) -> None:
    async with FakeUpstream([head("200 OK", "Content-Length: 1"), b"x"]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/x", b"ab"))
        sent = upstream.requests[0].head.decode().split("\r\n")[1:-2]
        assert [line.partition(":")[0] for line in sent] == ["Host", "Content-Length"]
        assert {name for name, _ in answer.fields if not name.startswith(b"x-gateway-")} == {
            b"Content-Length"
        }


async def test_many_and_long_header_fields_pass(start_gateway: StartGateway) -> None:
    fields = [f"X-{number}: {number}" for number in range(300)] + ["X-Long: " + "a" * 60_000]
    async with FakeUpstream([head("200 OK", *fields, "Content-Length: 0")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/x", None, *fields, method="GET"))
        assert answer.status == 200
        for lines in (upstream.requests[0].head, answer.head):
            assert all(f"\r\n{field}\r\n".encode() in lines for field in fields)


async def test_a_redirect_is_not_followed_and_cookies_are_not_kept(
    start_gateway: StartGateway,
) -> None:
    redirect = head("302 Found", "Location: /there", "Set-Cookie: a=1", "Content-Length: 0")
    async with FakeUpstream([redirect]) as upstream:
        gateway = await start_gateway(upstream.port)
        for _ in range(2):
            answer = await ask(gateway.port, request("/up/here", None, method="GET"))
            assert (answer.status, answer.values("Location")) == (302, [b"/there"])
        assert len(upstream.requests) == 2
        assert upstream.requests[1].values("Cookie") == []


async def test_the_gateways_key_takes_the_place_of_the_clients(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gateway.config.credentials import Secret

    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port, api_key=Secret("env:K", "own-key"))
        await ask(gateway.port, request("/up/x?key=theirs&b=1", b"{}", "x-api-key: theirs"))
        await ask(gateway.port, request("/up/x", b"{}"))
        first, second = upstream.requests
        assert first.line == b"POST /x?b=1 HTTP/1.1"
        assert first.values("x-api-key") == [b"own-key"]
        assert second.values("Authorization") == [b"Bearer own-key"]
        assert b"theirs" not in first.head


# The pool.


async def test_a_connection_serves_again(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        for method in ("POST", "GET", "HEAD", "DELETE"):
            body = b"{}" if method == "POST" else None
            await ask(gateway.port, request("/up/v1/chat/completions", body, method=method))
            if method == "HEAD":
                upstream.scripts = [[OK]]
            if method == "GET":
                upstream.scripts = [[head("200 OK", "Content-Length: 7")]]
        assert upstream.connections == 1


async def test_a_pooled_connection_that_had_died_is_replaced_at_once(
    start_gateway: StartGateway,
) -> None:
    for end, size in ((FIN, 10), (RST, 10), (FIN, 500_000)):
        async with FakeUpstream([OK], [end], [OK]) as upstream:
            gateway = await start_gateway(upstream.port)
            bodies = [b"1" * size, b"2" * size]
            first, second = [await ask(gateway.port, request(body=body)) for body in bodies]
            assert (first.status, second.status) == (200, 200)
            sent = [seen.body for seen in upstream.requests]
            assert sent == [bodies[0], bodies[1], bodies[1]]
            assert [seen.connection for seen in upstream.requests] == [1, 1, 2]
            assert second.values("x-gateway-attempts") == [b"1"]


async def test_the_replacement_is_never_a_pooled_one(start_gateway: StartGateway) -> None:
    release = asyncio.Event()
    async with FakeUpstream([release, OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        asking = [asyncio.create_task(ask(gateway.port)) for _ in range(4)]
        await upstream.wait_for(4)
        release.set()
        await asyncio.gather(*asking)
        upstream.scripts = [*upstream.scripts * 4, [FIN], [OK]]
        assert (await ask(gateway.port)).status == 200
        assert upstream.requests[4].connection <= 4
        assert upstream.requests[5].connection == 5


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_fresh_connection_that_dies_is_not_replaced(
    start_gateway: StartGateway, method: str
) -> None:
    async with FakeUpstream([FIN], [OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        body = b"{}" if method == "POST" else None
        answer = await ask(gateway.port, request("/up/v1/chat/completions", body, method=method))
        assert answer.status == 502
        assert b"may have been processed" in answer.body
        assert answer.values("x-gateway-error") == [b"upstream_stream_truncated"]
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("answer_begins", [b"HTTP/1.1 20", head("100 Continue")])
async def test_a_pooled_connection_that_had_begun_to_answer_is_not_replaced(
    start_gateway: StartGateway, answer_begins: bytes
) -> None:
    async with FakeUpstream([OK], [answer_begins, FIN], [OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port)
        assert (await ask(gateway.port)).status == 502
        assert len(upstream.requests) == 2


async def test_a_body_that_cannot_be_sent_twice_gets_a_fresh_connection(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([OK], [OK], [OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port)
        await ask(gateway.port, request("/up/v1/files", b"x" * 300_000))
        await ask(gateway.port)
        assert [seen.connection for seen in upstream.requests] == [1, 2, 1]


async def test_what_comes_on_an_idle_connection_is_not_taken_for_an_answer(
    start_gateway: StartGateway,
) -> None:
    pause = asyncio.Event()
    stray = json_answer(b'"stray"')
    async with FakeUpstream([OK, pause, stray], [OK]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port)
        pause.set()
        await asyncio.sleep(0.02)
        assert (await ask(gateway.port)).body == b"{}"
        assert upstream.connections == 2


@pytest.mark.parametrize("status", ["408 Late", "503 Busy", "200 OK"])
async def test_nobody_gets_the_answer_to_a_request_that_a_stray_one_was_taken_for(
    start_gateway: StartGateway, status: str
) -> None:
    """A server's answer that nobody has asked for crosses with the next request."""
    late = asyncio.Event()
    stray = json_answer(b"{}" if status[0] != "2" else b"", status=status)
    scripts: tuple[list[Step], ...] = (
        [OK],
        [stray, late, json_answer(b'{"id":"Y"}')],
        [OK],
        [OK],
        [OK],
    )
    async with FakeUpstream(*scripts) as upstream:
        retry = Retry(backoff_initial=0.001, backoff_max=0.001)
        gateway = await start_gateway(upstream.port, retry=retry)
        await ask(gateway.port)
        assert (await ask(gateway.port)).body == b"{}"
        late.set()
        assert (await ask(gateway.port)).body == b"{}"
        assert (await ask(gateway.port)).body == b"{}"


async def test_upstream_sockets_notice_a_peer_that_is_gone(start_gateway: StartGateway) -> None:
    async with FakeUpstream([HOLD]) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request())
            await upstream.wait_for(1)
            (protocol,) = gateway.relay._upstreams._connector._acquired
            opened = protocol.transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


# TLS and proxies.


async def test_tls_with_an_authority_of_ones_own(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    ca_file, context = tls.make(tmp_path)
    async with FakeUpstream([OK], tls=context) as upstream:
        base_url = f"https://127.0.0.1:{upstream.port}"
        gateway = await start_gateway(None, base_url=base_url, ca_file=str(ca_file))
        for _ in range(2):
            assert (await ask(gateway.port)).status == 200
        assert upstream.connections == 1
        strict = await start_gateway(None, base_url=base_url)
        answer = await ask(strict.port)
        assert answer.status == 502
        assert answer.values("x-gateway-error") == [b"upstream_unreachable"]
        assert b"TLS" in answer.body
        assert b"ca_file" in answer.body


async def test_a_plain_provider_behind_a_proxy(start_gateway: StartGateway) -> None:
    async with FakeUpstream([OK]) as proxy:
        url = f"http://user:secret@127.0.0.1:{proxy.port}"
        gateway = await start_gateway(None, base_url="http://provider.test:81/api", proxy=url)
        for _ in range(2):
            assert (await ask(gateway.port, request("/up/v1/x%2Fy?", b"{}"))).status == 200
        first, second = proxy.requests
        assert first.line == b"POST http://provider.test:81/api/v1/x%2Fy? HTTP/1.1"
        assert first.values("Host") == [b"provider.test:81"]
        assert first.values("Proxy-Authorization") == [b"Basic dXNlcjpzZWNyZXQ="]
        assert second.values("Proxy-Authorization") == [b"Basic dXNlcjpzZWNyZXQ="]


async def test_a_tls_provider_behind_a_proxy_named_by_the_environment(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca_file, context = tls.make(tmp_path)
    asked: list[bytes] = []
    async with FakeUpstream([OK], tls=context) as upstream:

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", upstream.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

        server = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{port}")
        base_url = f"https://127.0.0.1:{upstream.port}"
        gateway = await start_gateway(None, base_url=base_url, ca_file=str(ca_file), proxy="env")
        for _ in range(2):
            assert (await ask(gateway.port)).status == 200
        assert upstream.connections == 1
        assert asked[0].startswith(f"CONNECT 127.0.0.1:{upstream.port} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n" in asked[0]
        assert upstream.requests[0].values("Proxy-Authorization") == []
        await gateway.relay.close()
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
