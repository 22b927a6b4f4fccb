"""A gateway from start to stop: what it serves, how it drains, why it cannot start."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app.gateway import Gateway, StartError
from tests.app.support import chat, configured

Start = Callable[..., Awaitable[Gateway]]


async def test_the_simulated_provider_is_reached_through_the_relay(
    start: Start, client: aiohttp.ClientSession
) -> None:
    gateway = await start()
    url = f"{gateway.url}/sim/v1/chat/completions"
    async with client.post(url, json=chat("sim-ok")) as response:
        body = await response.text()
    assert response.status == 200
    assert response.headers["x-gateway-provider"] == "sim"
    assert body.endswith("data: [DONE]\n\n")


async def test_a_cut_is_in_the_answer_and_in_the_metrics(
    start: Start, client: aiohttp.ClientSession
) -> None:
    gateway = await start()
    url = f"{gateway.url}/sim/v1/chat/completions"
    async with client.post(url, json=chat("sim-bare-eof")) as response:
        events = (await response.text()).strip().split("\n\n")
    assert json.loads(events[-1][6:])["error"]["code"] == "upstream_stream_truncated"
    assert await gateway.idle(1.0)
    async with client.get(f"{gateway.url}/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    ends = [
        sample
        for family in families
        for sample in family.samples
        if sample.name == "gateway_stream_ends_total"
    ]
    assert [(end.labels["verdict"], end.value) for end in ends] == [("bare_eof", 1.0)]


async def test_an_open_stream_is_listed_with_whose_it_is(
    start: Start, client: aiohttp.ClientSession
) -> None:
    gateway = await start()
    url = f"{gateway.url}/sim/v1/chat/completions"
    headers = {"user-agent": "opencode/1.18.33", "x-session-affinity": "ses_1"}
    async with client.post(url, json=chat("sim-stall,after=2"), headers=headers) as response:
        await response.content.readany()
        async with client.get(f"{gateway.url}/-/streams") as page:
            (row,) = (await page.json())["streams"]
    assert row["provider"] == "sim"
    assert row["client_app"] == "opencode"
    assert row["session"] == "ses_1"
    assert row["phase"] == "in_text"
    assert row["model"] == "sim-stall,after=2"


async def test_health_and_unknown_pages(start: Start, client: aiohttp.ClientSession) -> None:
    gateway = await start()
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/-/", 200), ("/-/nothing", 404)):
        async with client.get(gateway.url + path) as response:
            assert response.status == status, path
    async with client.post(gateway.url + "/metrics") as response:
        assert response.status == 405


async def test_draining_refuses_new_requests_and_lets_the_running_finish(
    start: Start, client: aiohttp.ClientSession
) -> None:
    gateway = await start()
    url = f"{gateway.url}/sim/v1/chat/completions"
    async with client.post(url, json=chat("sim-ok,every=0.02,words=30")) as running:
        await running.content.readany()
        drained = asyncio.ensure_future(gateway.drain())
        await asyncio.sleep(0)
        async with client.post(url, json=chat("sim-ok")) as refused:
            assert refused.status == 503
            assert refused.headers["x-gateway-error"] == "gateway_draining"
            assert "retry-after" in refused.headers
        async with client.get(f"{gateway.url}/readyz") as ready:
            assert ready.status == 503
        async with client.get(f"{gateway.url}/healthz") as healthy:
            assert healthy.status == 200
        assert (await running.text()).endswith("data: [DONE]\n\n")
    await drained


async def test_what_outlasts_the_drain_is_told_the_truth(
    start: Start, client: aiohttp.ClientSession
) -> None:
    gateway = await start("drain_timeout = 0.1\n")
    url = f"{gateway.url}/sim/v1/chat/completions"
    async with client.post(url, json=chat("sim-stall,after=2")) as running:
        await running.content.readany()
        await gateway.drain()
        events = (await running.text()).strip().split("\n\n")
    assert json.loads(events[-1][6:])["error"]["code"] == "gateway_draining"


async def test_a_taken_port_is_one_sentence(start: Start) -> None:
    first = await start()
    second = configured(f"127.0.0.1:{first.address.port}")
    with pytest.raises(StartError, match=f"{first.address} is in use by another program"):
        await second.start()


async def test_a_unix_socket_is_served_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    gateway = configured(f"unix:{path}")
    await gateway.start()
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        session.get("http://gateway/healthz") as response,
    ):
        assert response.status == 200
    await gateway.stop()
    assert not path.exists()


async def test_a_socket_that_a_dead_process_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    gateway = configured(f"unix:{path}")
    await gateway.start()
    await gateway.stop()


@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "precious"
    if kind == "file":
        path.write_text("keep", encoding="utf-8")
    else:
        path.mkdir()
    with pytest.raises(StartError, match="exists and is no socket"):
        await configured(f"unix:{path}").start()
    assert path.exists()


async def test_a_host_that_is_none_is_one_sentence() -> None:
    with pytest.raises(StartError, match="names no host"):
        await configured("..:80").start()


async def test_a_socket_in_use_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    first = configured(f"unix:{path}")
    await first.start()
    with pytest.raises(StartError, match="in use by another program"):
        await configured(f"unix:{path}").start()
    assert path.exists(), "the socket of the one that runs must stay"
    await first.stop()
