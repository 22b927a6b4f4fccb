"""When a provider, or one model of it, is not asked for a while, and who learns of that."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.config.model import Circuit, Config, Retry
from gateway.observe.metrics import Metrics
from tests.relay.fake_upstream import LAST_CHUNK, SSE, FakeUpstream, chunk, json_answer
from tests.relay.raw_client import RawClient, ask, request
from tests.relay.streams import DONE, FINISH, ROLE, WHOLE, text
from tests.relay.support import BUSY, CHAT, FAST, GOOD, PLAIN, backup, counted, with_backup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.relay.conftest import StartGateway


async def test_an_unreachable_provider_is_not_asked_for_a_while(
    start_gateway: StartGateway,
) -> None:
    gateway = await start_gateway(
        1, retry=Retry(max_retries=0), circuit=Circuit(failures=2, open_for=30.0)
    )
    codes = [(await ask(gateway.port)).values("x-gateway-error")[0] for _ in range(4)]
    assert codes == [b"upstream_unreachable"] * 2 + [b"upstream_unavailable"] * 2
    answer = await ask(gateway.port)
    assert answer.status == 503
    assert 1 <= int(answer.values("Retry-After")[0]) <= 30


async def test_an_open_circuit_goes_straight_to_the_fallback(start_gateway: StartGateway) -> None:
    async with FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            1,
            retry=Retry(max_retries=0),
            circuit=Circuit(failures=1, open_for=30.0),
            **with_backup(second.port),
        )
        for _ in range(3):
            assert (await ask(gateway.port)).body == WHOLE
        attempts = counted(gateway, "gateway_attempts_total")
        assert attempts[("up", "connect")] == 1
        assert attempts[("backup", "answered")] == 3


async def test_server_errors_open_no_circuit_without_a_fallback(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([json_answer(b"{}", status="500 Oops")]) as upstream:
        gateway = await start_gateway(
            upstream.port, retry=Retry(max_retries=0), circuit=Circuit(failures=1, open_for=30.0)
        )
        assert [(await ask(gateway.port)).status for _ in range(4)] == [500] * 4


async def test_one_overloaded_model_does_not_stop_the_others(start_gateway: StartGateway) -> None:
    bad = [json_answer(b"{}", status="500 Oops")]
    async with FakeUpstream(bad, bad, GOOD) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=Retry(max_retries=0),
            circuit=Circuit(failures=2, open_for=30.0),
            **with_backup(second.port),
        )
        for model in (b"big", b"big", b"big", b"small"):
            body = b'{"model":"%b","stream":true}' % model
            assert (await ask(gateway.port, request(CHAT, body))).body == WHOLE
        asked = [json.loads(seen.body)["model"] for seen in first.requests]
        assert asked == ["big", "big", "small"]


@pytest.mark.parametrize(
    ("target", "body", "field"),
    [
        ("/up/v1/fine_tuning/jobs", b'{"model":"m"}', "x-other: 1"),
        ("/up/v1/responses", b'{"model":"m","previous_response_id":"r"}', "x-other: 1"),
        (CHAT, b'{"model":"m"}', "x-gateway-no-retry: 1"),
    ],
    ids=["no inference", "bound", "no retry"],
)
async def test_a_request_that_has_nowhere_to_go_has_no_part_in_the_circuit_of_a_model(
    start_gateway: StartGateway, target: str, body: bytes, field: str
) -> None:
    async with FakeUpstream(BUSY) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port, circuit=Circuit(failures=2, open_for=30.0), **with_backup(second.port)
        )
        asking = request(target, body, field)
        for _ in range(4):
            assert b"busy" in (await ask(gateway.port, asking)).body
        assert (await ask(gateway.port)).body == WHOLE
        assert len(first.requests) == 5
        await ask(gateway.port)  # the second failure opens it
        assert b"busy" in (await ask(gateway.port, asking)).body
        assert (await ask(gateway.port)).body == WHOLE
        assert len(first.requests) == 7


async def test_a_circuit_that_opens_between_two_tries_does_not_hide_what_was_said(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(BUSY) as first:
        gateway = await start_gateway(
            first.port, retry=FAST, circuit=Circuit(failures=2, open_for=30.0), **with_backup(1)
        )
        answer = await ask(gateway.port)
        assert answer.status == 503
        assert json.loads(answer.body)["error"]["message"] == "busy"
        assert len(first.requests) == 2
        record = await gateway.record()
        assert (record.provider, record.upstream_status) == ("up", 503)


async def test_an_open_circuit_does_not_make_requests_wait(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(1, retry=FAST, circuit=Circuit(failures=1, open_for=30.0))
    await ask(gateway.port)
    async with asyncio.timeout(2):
        answer = await ask(gateway.port)
    assert answer.values("x-gateway-error") == [b"upstream_unavailable"]
    assert counted(gateway, "gateway_circuit_open")[("up",)] == 1.0


async def test_the_metric_follows_a_circuit_through_its_states(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open after a failure, half open while one try finds out, open again when that failed."""
    seen: list[float] = []
    monkeypatch.setattr(Metrics, "circuit", lambda _self, _name, value: seen.append(value))
    circuit = Circuit(failures=1, open_for=0.001)
    gateway = await start_gateway(1, retry=Retry(max_retries=0), circuit=circuit)
    async with asyncio.timeout(5):
        while len(seen) < 3:
            await ask(gateway.port)
    assert seen[:3] == [1.0, 0.5, 1.0]


class OneStream:
    """A provider that can be reached for one connection only; its stream goes on until ``go``."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SSE + chunk(ROLE + text("a")))
        await self.go.wait()
        writer.write(chunk(FINISH + DONE) + LAST_CHUNK)
        await writer.drain()
        writer.close()


@pytest.fixture
async def provider() -> AsyncIterator[OneStream]:
    one = OneStream()
    await one.open()
    yield one
    one.go.set()
    one.close()


async def test_a_probe_closes_the_circuit_when_its_answer_begins(
    start_gateway: StartGateway, provider: OneStream
) -> None:
    """A stream can go on for minutes: nobody else has to wait for its end."""
    provider.close()
    gateway = await start_gateway(provider.port, circuit=Circuit(failures=1, open_for=0.2))
    assert (await ask(gateway.port)).values("x-gateway-error") == [b"upstream_unreachable"]
    await provider.open(provider.port)
    await asyncio.sleep(0.25)
    async with RawClient(gateway.port) as probe, RawClient(gateway.port) as other:
        for client in (probe, other):
            await client.send(request(CHAT))
            assert b" 200 " in (await client.read_head())
        assert counted(gateway, "gateway_circuit_open")[("up",)] == 0.0


async def test_a_stream_from_before_an_outage_does_not_close_the_circuit(
    start_gateway: StartGateway, provider: OneStream
) -> None:
    gateway = await start_gateway(provider.port, circuit=Circuit(failures=2, open_for=30.0))
    async with RawClient(gateway.port) as client:
        await client.send(request(CHAT))
        await client.read_until(b'"a"')
        provider.close()
        codes = [(await ask(gateway.port, PLAIN)).values("x-gateway-error") for _ in range(3)]
        assert codes[-1] == [b"upstream_unavailable"]
        provider.go.set()
        await client.read_until(DONE)
        await gateway.record(4)
    answer = await ask(gateway.port, PLAIN)
    assert answer.values("x-gateway-error") == [b"upstream_unavailable"]


async def test_the_wait_that_is_told_is_that_of_the_circuit_that_is_open(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(BUSY) as first:
        gateway = await start_gateway(
            first.port, circuit=Circuit(failures=1, open_for=9.0), **with_backup(1)
        )
        await ask(gateway.port)
        gateway.relay._destinations["up"].health.models.of("m")._opened_at -= 6.0
        answer = await ask(gateway.port)
        assert answer.status == 503
        assert answer.values("Retry-After") == [b"3"]


async def test_a_probe_that_the_models_circuit_forbids_makes_room_for_the_next(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(GOOD) as first:
        gateway = await start_gateway(
            first.port, circuit=Circuit(failures=1, open_for=9.0), **with_backup(1)
        )
        health = gateway.relay._destinations["up"].health
        now = asyncio.get_running_loop().time()
        health.provider.note_failure(now - 10.0)
        health.models.of("m").note_failure(now)
        body = b'{"model":"%b","stream":true}'
        assert (await ask(gateway.port, request(CHAT, body % b"m"))).status == 503
        assert (await ask(gateway.port, request(CHAT, body % b"other"))).body == WHOLE


async def test_a_request_from_before_a_reload_says_nothing_about_the_new_circuit(
    start_gateway: StartGateway,
) -> None:
    circuit = Circuit(failures=2, open_for=30.0)
    slow = Retry(max_retries=1, backoff_initial=0.4, backoff_max=0.4)
    async with FakeUpstream(GOOD) as upstream:
        gateway = await start_gateway(1, retry=slow, circuit=circuit)
        asking = asyncio.ensure_future(ask(gateway.port))
        await asyncio.sleep(0.1)
        new = {"up": backup(upstream.port, circuit=circuit)}
        gateway.metrics.configure(new)
        gateway.relay.configure(Config(providers=new, unavailable={}))
        await asking
        assert counted(gateway, "gateway_circuit_open") == {("up",): 0.0}
        assert (await ask(gateway.port)).status == 200


@pytest.mark.parametrize("changed", [{}, {"circuit": Circuit(failures=9)}])
async def test_a_reload_forgets_nothing_of_a_provider_that_stays(
    start_gateway: StartGateway, changed: dict[str, Circuit]
) -> None:
    retry = Retry(backoff_initial=0.001, backoff_max=0.001, budget=0.0, budget_floor=2)
    async with FakeUpstream(BUSY) as upstream:
        gateway = await start_gateway(upstream.port, retry=retry)
        await ask(gateway.port)
        provider = gateway.relay._destinations["up"].provider
        again = {"up": msgspec.structs.replace(provider, hold="finish", **changed)}
        gateway.relay.configure(Config(providers=again, unavailable={}))
        await ask(gateway.port)
        assert len(upstream.requests) == (6 if changed else 4)
