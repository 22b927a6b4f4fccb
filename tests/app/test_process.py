"""The process around a gateway: start, signals, exit codes, no traceback for a user's mistake."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING

import aiohttp

from tests.app.support import chat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.app.gateway import Gateway


async def run(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def output(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def listening(process: asyncio.subprocess.Process) -> str:
    """The address that a started server names in its log."""
    assert process.stderr is not None
    async with asyncio.timeout(20):
        while line := (await process.stderr.readline()).decode():
            if line.startswith("{") and (fields := json.loads(line))["event"] == "listening":
                return str(fields["address"])
    raise AssertionError("it did not start")


async def test_sigterm_drains_and_exits_with_zero() -> None:
    process = await run("serve", "--listen", "127.0.0.1:0")
    address = await listening(process)
    url = f"http://{address}/sim/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=chat("sim-ok,words=20,every=0.02")) as running,
    ):
        await running.content.readany()
        process.send_signal(signal.SIGTERM)
        assert (await running.text()).endswith("data: [DONE]\n\n")
    assert (await output(process))[0] == 0


async def test_a_second_signal_ends_it_at_once() -> None:
    process = await run("serve", "--listen", "127.0.0.1:0")
    address = await listening(process)
    url = f"http://{address}/sim/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=chat("sim-stall")) as running,
    ):
        await running.content.readany()
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        assert process.returncode is None, "the first one waits for the stream"
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(3):
            told = await running.text()
        code, _, err = await output(process)
    assert code == 0
    assert "gateway_draining" in told
    assert "client_gone" not in err
    assert "Traceback" not in err


async def test_sighup_takes_a_new_config_and_refuses_a_bad_one(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:0"\n', encoding="utf-8")
    process = await run("serve", "--config", str(file))
    url = f"http://{await listening(process)}"

    async def told(event: str) -> dict[str, object]:
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        async with asyncio.timeout(20):
            while fields := json.loads(await process.stderr.readline()):
                if fields["event"] == event:
                    return dict(fields)
        raise AssertionError(event)

    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/mine/v1/chat/completions", json={}) as response:
            assert response.status == 404
        file.write_text(
            f'[server]\nlisten = "127.0.0.1:0"\n[providers.mine]\nbase_url = "{url}/sim"\n',
            encoding="utf-8",
        )
        await told("reloaded")
        url_of_mine = f"{url}/mine/v1/chat/completions"
        async with session.post(url_of_mine, json=chat("sim-ok", stream=False)) as response:
            assert response.status == 200
        file.write_text("[provders]\n", encoding="utf-8")
        refused = await told("reload_refused")
        assert "did you mean" in str(refused["faults"]) or "providers" in str(refused["faults"])
        async with session.post(url_of_mine, json=chat("sim-ok", stream=False)) as response:
            assert response.status == 200
    process.terminate()
    assert (await output(process))[0] == 0


async def test_a_taken_port_is_one_sentence_and_exit_code_one(
    start: Callable[..., Awaitable[Gateway]],
) -> None:
    first = await start()
    for command in ("serve", "sim"):
        process = await run(command, "--listen", str(first.address))
        code, out, err = await output(process)
        assert code == 1
        assert out == ""
        assert err.startswith("gateway: ")
        assert str(first.address) in err
        assert err.count("\n") == 1


async def test_the_simulated_provider_alone() -> None:
    process = await run("sim", "--listen", "127.0.0.1:0")
    url = await listening(process)
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as response:
        assert "sim-bare-eof" in await response.text()
    process.terminate()
    assert (await output(process))[0] == 0


async def test_the_rehearsal_shows_both_sides_the_log_line_and_the_metric() -> None:
    code, out, err = await output(await run("try"))
    assert code == 0
    assert err == ""
    assert "The stream just ended" in out
    assert "ERROR upstream_stream_truncated" in out
    assert "stream_cut: request_id=" in out
    assert "gateway_stream_ends_total{" in out
