"""The client's side of an answer: framing, connection fields, and how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.relay.fake_upstream import FakeUpstream, Step, chunk, head
from tests.relay.raw_client import RawClient, ask, request

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

LENGTH: list[Step] = [head("200 OK", "Content-Length: 2"), b"ab"]
CHUNKED: list[Step] = [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"ab"), b"0\r\n\r\n"]


@pytest.mark.parametrize(
    ("script", "version", "asked", "framing", "connection"),
    [
        (LENGTH, "1.1", (), [b"Content-Length"], []),
        (CHUNKED, "1.1", (), [b"Transfer-Encoding"], []),
        (LENGTH, "1.1", ("Connection: close",), [b"Content-Length"], [b"close"]),
        (CHUNKED, "1.1", ("Connection: close",), [b"Transfer-Encoding"], [b"close"]),
        (LENGTH, "1.0", (), [b"Content-Length"], [b"close"]),
        (LENGTH, "1.0", ("Connection: keep-alive",), [b"Content-Length"], [b"keep-alive"]),
        (CHUNKED, "1.0", (), [], [b"close"]),
        (CHUNKED, "1.0", ("Connection: keep-alive",), [], [b"close"]),
    ],
)
async def test_framing_and_connection_fit_the_client(
    start_gateway: StartGateway,
    script: list[Step],
    version: str,
    asked: tuple[str, ...],
    framing: list[bytes],
    connection: list[bytes],
) -> None:
    async with FakeUpstream(script) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            raw = request("/up/x", None, *asked, method="GET", version=version)
            await client.send(raw)
            answer = await client.answer()
            assert (answer.clean, answer.body) == (True, b"ab")
            assert answer.head.startswith(f"HTTP/{version} 200 OK\r\n".encode())
            names = [name for name, _ in answer.fields]
            assert [name for name in names if b"-Length" in name or b"Transfer" in name] == framing
            assert answer.values("Connection") == connection
            if connection == [b"close"]:
                assert await client.reader.read() == b""
            else:
                await client.send(raw)
                assert (await client.answer()).body == b"ab"


@pytest.mark.parametrize(
    ("field", "status", "values"),
    [("X-A: one\r\n two", 200, [b"one two"]), ("X-A: a\rX-B: b", 502, [])],
    ids=["folded", "bare-cr"],
)
async def test_a_provider_cannot_write_header_fields_of_its_own_making(
    start_gateway: StartGateway, field: str, status: int, values: list[bytes]
) -> None:
    async with FakeUpstream([head("200 OK", field, "Content-Length: 0")]) as upstream:
        gateway = await start_gateway(upstream.port)
        answer = await ask(gateway.port, request("/up/x", None, method="GET"))
        assert (answer.status, answer.values("X-A"), answer.values("X-B")) == (status, values, [])


async def test_small_answers_leave_in_one_piece(start_gateway: StartGateway) -> None:
    writes: list[bytes] = []
    async with FakeUpstream(LENGTH) as upstream:
        gateway = await start_gateway(upstream.port)
        async with RawClient(gateway.port) as client:
            await client.send(request("/up/x", None, method="GET"))
            writes.append(await client.reader.read(65536))
        assert writes[0].endswith(b"\r\n\r\nab")
