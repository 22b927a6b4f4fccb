"""Two thousand streams, two hundred at a time, cut anywhere and chunked at random.

The gateway runs as a process of its own. What is expected comes from the samples' own marks (where
the finish ends), not from the code under test.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.streams.events import Verdict
from tests.samples.catalog import SHORT, Sample

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAMS = 2000
AT_ONCE = 200
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:streamGenerateContent?alt=sse",
}
WHOLE = [
    sample
    for sample in SHORT
    if sample.protocol in PATHS
    and sample.verdict in (Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL)
    and sample.data.endswith((b"\n\n", b"\r\n\r\n"))
]
LOST = b"Upstream connection lost"
ENDS = ("clean", "fin", "rst")


@dataclass
class Plan:
    """One stream: these bytes of the sample, in these pieces, ended in this way."""

    sample: Sample
    size: int
    end: str
    pieces: list[bytes]

    @property
    def complete(self) -> bool:
        """Whether the finish is among the bytes."""
        return self.sample.completes_at is not None and self.size >= self.sample.completes_at

    @property
    def whole(self) -> bool:
        """Whether nothing was cut off at all."""
        return self.size == len(self.sample.data) and self.end == "clean"


def make_plan(seed: int) -> Plan:
    rng = random.Random(seed)
    sample = rng.choice(WHOLE)
    size = len(sample.data) if rng.random() < 0.5 else rng.randrange(len(sample.data) + 1)
    pieces, start = [], 0
    while start < size:
        step = rng.choice((1, 3, 20, 200, 2000))
        pieces.append(sample.data[start : min(size, start + step)])
        start += step
    return Plan(sample, size, rng.choice(ENDS), pieces)


async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The provider: the request's id says which stream it is."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(fields[b"Content-Length"]))
        plan = make_plan(int(fields[b"x-request-id"].removeprefix(b"soak-")))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for piece in plan.pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
        if plan.end == "clean":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if plan.end == "rst":
            # A reset throws away what the other side has not read yet.
            await asyncio.sleep(0.3)
            opened = writer.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
    finally:
        writer.close()


async def ask(port: int, seed: int) -> tuple[int, bytes, bool]:
    """The client: status, body, and whether the body ended in good order."""
    plan = make_plan(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = b'{"stream": true, "model": "m"}'
        writer.write(
            b"POST /t%b HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
            b"x-request-id: soak-%d\r\nContent-Length: %d\r\n\r\n%b"
            % (PATHS[plan.sample.protocol].encode(), seed, len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        if b"chunked" not in head.lower():
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return status, await reader.readexactly(length), True
        got = bytearray()
        while size := int(await reader.readline(), 16):
            got += await reader.readexactly(size)
            await reader.readexactly(2)
        return status, bytes(got), await reader.readexactly(2) == b"\r\n"
    except asyncio.IncompleteReadError:
        return 0, b"", False
    finally:
        writer.close()


def check(seed: int, status: int, body: bytes, clean: bool) -> str:
    """What is wrong with an answer; empty for nothing."""
    plan = make_plan(seed)
    data = plan.sample.data
    if not clean:
        return "the answer broke off"
    if plan.whole:
        return "" if body == data else "a whole stream was changed"
    if plan.complete:
        kept = data[: plan.sample.completes_at]
        return "" if status == 200 and body.startswith(kept) and LOST not in body else "no finish"
    if status != 200:
        return "" if status == 502 and LOST in body else f"status {status}"
    if LOST not in body:
        return "a cut stream ended like a whole one"
    before = body[: body.index(LOST)]
    handed_on = before[: max(before.rfind(b"\n\n") + 2, before.rfind(b"\r\n\r\n") + 4)]
    return "" if data.startswith(handed_on) else "bytes before the cut were changed"


async def soak(port: int) -> list[str]:
    """All streams; a list of what went wrong."""
    gate = asyncio.Semaphore(AT_ONCE)
    faults: list[str] = []

    async def one(seed: int) -> None:
        async with gate:
            fault = check(seed, *await ask(port, seed))
        if fault:
            plan = make_plan(seed)
            faults.append(f"{seed} {plan.sample.file}[:{plan.size}] {plan.end}: {fault}")

    await asyncio.gather(*(one(seed) for seed in range(STREAMS)))
    return faults


def resident(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@pytest.fixture
async def provider() -> AsyncIterator[int]:
    server = await asyncio.start_server(provide, "127.0.0.1", 0, backlog=512)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@pytest.mark.timeout(120)
async def test_two_thousand_streams_lose_no_byte_and_no_verdict(
    provider: int, tmp_path: Path
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(
        '[server]\nlisten = "127.0.0.1:0"\n[log]\nformat = "json"\n'
        f'[providers.t]\nbase_url = "http://127.0.0.1:{provider}"\n',
        encoding="utf-8",
    )
    log = tmp_path / "log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway",
            "serve",
            "--config",
            str(config),
            stderr=sink,
            stdout=sink,
        )
    try:
        port = await listening_port(log)
        assert await soak(port) == []
        settled = resident(process.pid)
        assert await soak(port) == []
        assert resident(process.pid) <= settled * 1.1
    finally:
        process.terminate()
        assert await process.wait() == 0
    verdicts_are_true(log)


async def listening_port(log: Path) -> int:
    for _ in range(200):
        for fields in lines_of(log):
            if fields["event"] == "listening":
                return int(fields["address"].rpartition(":")[2])
        await asyncio.sleep(0.05)
    raise AssertionError("the gateway did not start")


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def verdicts_are_true(log: Path) -> None:
    """Each request's log line must say what became of its stream."""
    requests = [line for line in lines_of(log) if line["event"] == "request"]
    assert len(requests) == 2 * STREAMS
    for line in requests:
        plan = make_plan(int(line["request_id"].removeprefix("soak-")))
        if plan.complete:
            assert line["verdict"] == plan.sample.verdict, line
        elif plan.end == "clean":
            assert line["verdict"] in ("bare_eof", "torn", "empty"), line
        else:
            assert line["verdict"] == "reset", line
