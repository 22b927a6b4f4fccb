"""The whole with the sidecar in a process of its own: refusals, secrets, kill -9, the end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.app.support import chat
from tests.sidecar.support import eventually, running, unique_sleep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc, prctl")

TOKEN = "t" * 40
KEY = "sk-LEAK9-abcdefghijklmnop"

WITHOUT_CAPABILITIES = """
import ctypes, os, sys
for number in range(64):
    ctypes.CDLL(None).prctl(24, number, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Root that may do no more than any user: what is its own it may read, and nothing else."""


class Served:
    """``gateway serve`` with a sidecar."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self.exec_url = ""
        self.log: list[dict[str, Any]] = []
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "run it first"
        return self._process

    async def close(self) -> None:
        """End it, however it stands."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    @property
    def repo(self) -> Path:
        return self.directory / "repo"

    @property
    def spill_dir(self) -> Path:
        return self.directory / "spill"

    def write(self, **changed: object) -> Path:
        """The configuration; None leaves a key out."""
        self.repo.mkdir(exist_ok=True)
        (self.directory / "token").write_text(TOKEN, encoding="utf-8")
        given = {
            "enabled": True,
            "listen": "127.0.0.1:0",
            "token": f"file:{self.directory}/token",
            "allowed_roots": [str(self.repo)],
            "spill_dir": str(self.spill_dir),
            "allow_root": True,
            "min_free": 0,
        } | changed
        lines = [
            f"{key} = {json.dumps(value)}" for key, value in given.items() if value is not None
        ]
        file = self.directory / "gateway.toml"
        file.write_text(
            '[server]\nlisten = "127.0.0.1:0"\n[providers.openai]\napi_key = "env:MY_KEY"\n[exec]\n'
            + "\n".join(lines),
            encoding="utf-8",
        )
        return file

    async def run(self, file: Path, *, capable: bool = True) -> None:
        """Start it; ``output`` or ``listening`` follows."""
        before = [] if capable else ["-c", WITHOUT_CAPABILITIES]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *before,
            *("-m", "gateway", "serve", "--config", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "MY_KEY": KEY},
        )

    async def start(self, *, capable: bool = True, **changed: object) -> None:
        """Start it and wait until it listens."""
        await self.run(self.write(**changed), capable=capable)
        self.address = (await self.told("listening"))["address"]
        self.exec_url = f"http://{(await self.told('exec_listening'))['address']}/v1/exec"

    async def told(self, event: str) -> dict[str, Any]:
        """The next line of the log about this."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            while line := (await self.process.stderr.readline()).decode():
                assert line.startswith("{"), line
                self.log.append(json.loads(line))
                if self.log[-1]["event"] == event:
                    return self.log[-1]
        raise AssertionError(f"{event} was not told")

    async def output(self) -> tuple[int, str]:
        """Exit code and the rest of standard error."""
        async with asyncio.timeout(20):
            out, err = await self.process.communicate()
        assert out == b""
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()

    async def ask(self, method: str, path: str = "", **more: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            asyncio.timeout(20),
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.exec_url + path, **more) as response,
        ):
            told: dict[str, Any] = await response.json()
            return told

    async def command(self, command: str, **more: Any) -> dict[str, Any]:
        return await self.ask("POST", json={"command": command, "kill_grace_ms": 300} | more)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    yield made
    await made.close()


# --- refusals ------------------------------------------------------------------------------------

AS_ROOT: tuple[dict[str, object], str] = (
    {"allow_root": False},
    "exec would run commands as root",
)
AS_A_USER: tuple[dict[str, object], str] = (
    {"isolation": "uid", "run_as": "root"},
    "Isolation 'uid' needs a gateway that runs as root",
)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"token": None}, "exec.token is not set"),
        ({"token": "file:/no/such/token"}, "exec.token names the file /no/such/token"),
        AS_ROOT if os.geteuid() == 0 else AS_A_USER,
        ({"isolation": "uid", "run_as": "no-such-user"}, "exec.run_as names no-such-user"),
        ({"spill_dir": "/proc/none/spill"}, "exec.spill_dir (/proc/none/spill) cannot be used"),
    ],
)
async def test_what_must_be_configured_otherwise_is_one_sentence_and_exit_code_two(
    changed: dict[str, object], words: str, served: Served
) -> None:
    await served.run(served.write(**changed))
    code, err = await served.output()
    assert code == 2
    assert err.startswith("gateway: ")
    assert words in err
    assert err.count("\n") == 1
    assert TOKEN not in err


async def test_a_missing_sandbox_is_a_refusal(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(served.directory))
    await served.run(served.write(isolation="bwrap"))
    code, err = await served.output()
    assert (code, err.count("\n")) == (2, 1)
    assert "install bubblewrap" in err


async def test_an_address_that_is_taken_is_exit_code_one(served: Served) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        await served.run(served.write(listen=f"127.0.0.1:{port}"))
        code, err = await served.output()
    assert (code, err.count("\n")) == (1, 1)
    assert "exec.listen" in err


# --- secrets -------------------------------------------------------------------------------------

PROBE = (
    "CONTROL=ctl-VALUE sleep 5 >/dev/null 2>&1 & sleep 0.2; kill -STOP $!;"
    " cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -ao 'sk-LEAK9\\|ctl-VALUE'"
    " | sort -u; kill -9 $!"
)


async def test_a_command_of_the_same_user_cannot_read_the_keys(served: Served) -> None:
    """It can read what is readable, as the control shows: the gateway is not."""
    await served.start(capable=os.geteuid() != 0)
    got = await served.command(PROBE)
    assert got["text"] == "ctl-VALUE\n"
    peek = await served.command(f"head -c 1 /proc/{served.process.pid}/mem")
    assert "Permission denied" in peek["text"]
    assert re.search(r"Max core file size +0 +0 ", text_of(served.process.pid, "limits"))


def text_of(pid: int, name: str) -> str:
    """One of the files about a process; empty where it has gone."""
    return _bytes(Path(f"/proc/{pid}/{name}")).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_no_key_is_in_the_log_or_the_environment_of_a_command(served: Served) -> None:
    await served.start(env_allow=["MY_KEY", "PATH"])
    got = await served.command("env")
    assert KEY not in json.dumps(got)
    assert "MY_KEY" in got["detail"]["warnings"][0]
    served.process.terminate()
    code, err = await served.output()
    assert code == 0
    assert KEY not in err + json.dumps(served.log)
    assert TOKEN not in err + json.dumps(served.log)


# --- the end -------------------------------------------------------------------------------------


async def test_kill_9_leaves_the_output_a_true_record_and_nobody_behind(served: Served) -> None:
    await served.start()
    nap = unique_sleep()
    got = await served.command(f"seq 1 50000; setsid {nap} & {nap}", background=True)
    spill = Path(got["spill"]["path"])
    assert await eventually(lambda: spill.stat().st_size == 288_894 and len(running(nap)) == 2)
    served.process.kill()
    await served.process.communicate()
    assert await eventually(lambda: not running(nap))
    assert await eventually(lambda: _children_of_init_named("zygote.py") == [])
    assert _bytes(spill) == b"".join(b"%d\n" % number for number in range(1, 50_001))
    await served.start()
    told = await served.ask("GET", f"/{got['id']}?wait_ms=5000")
    assert (told["detail"]["state"], told["detail"]["reason"]) == ("exited", "server_shutdown")
    assert (told["exit_code"], told["signal"]) == (None, 15)
    assert told["spill"]["bytes"] == 288_894
    assert "shut down" in told["text"]


def _children_of_init_named(name: str) -> list[str]:
    """Processes that nobody has started any more, of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and name.encode() in _bytes(entry / "cmdline"):
            fields = _bytes(entry / "stat").rpartition(b")")[2].split()
            if fields and fields[1] == b"1" and fields[0] != b"Z":
                found.append(entry.name)
    return found


async def test_sigterm_ends_commands_while_streams_may_finish(served: Served) -> None:
    await served.start()
    nap = unique_sleep()
    asked = asyncio.ensure_future(served.command(f"echo begun; {nap}"))
    assert await eventually(lambda: bool(running(nap)))
    url = f"http://{served.address}/sim/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=chat("sim-ok,words=40,every=0.03")) as stream,
    ):
        await stream.content.readany()
        served.process.send_signal(signal.SIGTERM)
        got = await asked
        assert (got["detail"]["reason"], got["signal"]) == ("server_shutdown", 15)
        assert not stream.content.is_eof(), "neither waits for the other"
        assert (await stream.text()).endswith("data: [DONE]\n\n")
    code, err = await served.output()
    assert code == 0
    assert "Traceback" not in err
    assert not running(nap)


async def test_a_second_signal_does_not_wait_for_what_ignores_the_first(served: Served) -> None:
    await served.start()
    nap = unique_sleep()
    asked = asyncio.ensure_future(
        served.command(f"trap '' TERM; echo on; {nap}; {nap}", kill_grace_ms=60_000)
    )
    assert await eventually(lambda: bool(running(nap)))
    served.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.3)
    assert served.process.returncode is None, "it has its grace"
    began = asyncio.get_running_loop().time()
    served.process.send_signal(signal.SIGTERM)
    got = await asked
    assert (got["detail"]["reason"], got["signal"]) == ("server_shutdown", 9)
    code, err = await served.output()
    assert asyncio.get_running_loop().time() - began < 2.2
    assert code == 0
    assert "Traceback" not in err
    assert not running(nap)


async def test_the_metrics_and_a_reload_know_the_sidecar(served: Served) -> None:
    await served.start()
    await served.command("exit 3")
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{served.address}/metrics") as response,
    ):
        text = await response.text()
    assert 'gateway_exec_requests_total{outcome="nonzero"} 1.0' in text
    assert "gateway_exec_incomplete_total" in text
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{served.address}/v1/exec") as response,
    ):
        assert response.status == 404, "commands are not on the relay's listener"
    served.write(max_running=2)
    served.process.send_signal(signal.SIGHUP)
    assert (await served.told("reloaded"))["restart_needed_for"] == ["exec"]
