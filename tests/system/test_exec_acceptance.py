"""The promise of the sidecar where it is hard to keep: under load, and whoever is killed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.sidecar import kernel
from gateway.sidecar.fallback import ThreadRunner
from gateway.sidecar.session import Session
from tests.app.test_exec_process import Served
from tests.sidecar.support import eventually, running, unique_sleep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.sidecar.conftest import MakeSite
    from tests.sidecar.site import Got, Site

TIMES = 200
SEQ = "".join(f"{number}\n" for number in range(1, 50_001)).encode()
FLOOD = "seq 1 400000000"
"""Prints for longer than any of these tests takes."""


@pytest.fixture
def load() -> Iterator[None]:
    """Every core has something else to do, twice over."""
    burn = [sys.executable, "-c", "while True: pass"]
    burning = [subprocess.Popen(burn) for _ in range(2 * len(os.sched_getaffinity(0)))]
    yield
    for process in burning:
        process.kill()
        process.wait()


def slow_sink(site: Site, monkeypatch: pytest.MonkeyPatch, delay_ms: int) -> None:
    """Each write of a spill takes so much longer."""
    planner = type(site.service._planner)
    plan = planner.spec
    monkeypatch.setattr(
        planner, "spec", lambda *given: dataclasses.replace(plan(*given), sink_delay_ms=delay_ms)
    )


def faults(site: Site, got: Got) -> list[str]:
    """What is not as it has to be of an answer to ``seq 1 50000``."""
    output, text = site.spill(got.id).read_bytes(), got.text.splitlines()
    found = {
        "status": got.status == 200,
        "exit code": got.json["exit_code"] == 0,
        "complete": got.json["complete"] is True,
        "bytes": got.json["spill"]["bytes"] == len(output) == 288_894,
        "lines": got.json["spill"]["lines"] == 50_000,
        "file": output == SEQ,
        "first line": text[1:2] == ["1"],
        "last line": text[-2:-1] == ["50000"],
        "notice": str(site.spill(got.id)) in text[0] and text[0] == text[-1],
    }
    return [name for name, holds in found.items() if not holds]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("load")
async def test_two_hundred_in_a_row_are_whole_under_load_and_with_a_slow_sink(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await make_site()
    slow_sink(site, monkeypatch, 10)
    for _ in range(TIMES):
        got = await site.run("seq 1 50000", output_grace_ms=20)
        assert faults(site, got) == []
        assert (await site.output(got.id)).body == SEQ
        await site.ask("DELETE", f"/{got.id}")


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("load")
async def test_an_answer_at_the_end_of_the_process_does_not_pass_the_same_check(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: one rule is changed, and the end of the leader is that of its output.

    With the rule as it is, the same thread passes.
    """
    monkeypatch.setattr("gateway.sidecar.server.make_runner", ThreadRunner)
    site = await make_site()
    slow_sink(site, monkeypatch, 10)
    assert faults(site, await site.run("seq 1 50000")) == []

    def finished(session: Session, _: float) -> bool:
        return session._record.exit_at is not None

    monkeypatch.setattr(Session, "_finished", finished)
    found = [faults(site, await site.run("seq 1 50000")) for _ in range(10)]
    assert all(found)
    assert all("file" in each and "complete" in each for each in found)


# --- whoever is killed ---------------------------------------------------------------------------


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    yield made
    await made.close()


class Flood:
    """A command that floods, with two processes that have left its session."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.nap = unique_sleep()
        self.id = ""

    async def begin(self, command: str = FLOOD) -> None:
        """Until some megabytes are in its spill."""
        script = f"setsid {self.nap} & setsid setsid {self.nap} & {command}"
        got = await self.served.command(script, background=True)
        self.id = got["id"]
        assert await eventually(lambda: self.size > 4 << 20 and len(running(self.nap)) == 2)

    @property
    def spill(self) -> Path:
        return self.served.spill_dir / self.id / "output"

    @property
    def size(self) -> int:
        return self.spill.stat().st_size

    def processes(self) -> tuple[kernel.Process, kernel.Process]:
        """The zygote and the shim."""
        (zygote,) = (p for p in children(self.served.process.pid) if is_ours(p))
        (shim,) = (p for p in children(zygote.pid) if is_ours(p))
        return zygote, shim

    async def answer(self) -> dict[str, Any]:
        """The last word on it."""
        while True:
            told = await self.served.ask("GET", f"/{self.id}?wait_ms=5000")
            if told["detail"]["state"] not in ("running", "output_open"):
                return told

    def check(self, told: dict[str, Any]) -> None:
        """The spill is a beginning of what was printed, and the answer knows its size."""
        output = self.spill.read_bytes()
        count = output.count(b"\n")
        assert count > 500_000
        whole = b"".join(b"%d\n" % number for number in range(1, count + 1))
        assert output.startswith(whole)
        # A kernel's buffer may end within a line where the one who prints is killed.
        assert (b"%d\n" % (count + 1)).startswith(output[len(whole) :])
        assert told["spill"]["bytes"] == len(output)


def content(told: dict[str, Any]) -> bytes:
    """What is in the file that an answer names."""
    return Path(told["spill"]["path"]).read_bytes()


def children(pid: int) -> list[kernel.Process]:
    return [found for found in kernel.descendants(pid) if found.parent == pid]


def is_ours(process: kernel.Process) -> bool:
    """Whether it is a zygote or a shim, and no command."""
    try:
        return b"zygote.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return False


def gone(process: kernel.Process) -> bool:
    """Whether it has ended, be it that its parent has not looked yet."""
    found = kernel.process(process.pid)
    return found is None or found.started != process.started or not found.alive


async def test_a_gateway_that_is_killed_in_the_middle(served: Served) -> None:
    await served.start()
    flood = Flood(served)
    await flood.begin()
    ours = flood.processes()
    served.process.kill()
    await served.process.communicate()
    assert await eventually(lambda: not running(flood.nap) and all(map(gone, ours)))
    await served.start()
    told = await flood.answer()
    assert (told["detail"]["state"], told["detail"]["reason"]) == ("exited", "server_shutdown")
    assert (told["exit_code"], told["signal"], told["complete"]) == (None, 15, True)
    flood.check(told)


async def test_a_shim_that_is_killed_in_the_middle(served: Served) -> None:
    await served.start()
    flood = Flood(served)
    await flood.begin()
    _, shim = flood.processes()
    os.kill(shim.pid, 9)
    told = await flood.answer()
    assert told["detail"]["state"] == "interrupted"
    assert (told["exit_code"], told["signal"], told["complete"]) == (None, None, False)
    assert "complete" in told["text"]
    flood.check(told)
    assert await eventually(lambda: not running(flood.nap))
    assert (await served.command("seq 1 50000"))["spill"]["bytes"] == 288_894
    served.process.kill()
    await served.process.communicate()
    await served.start()
    again = await flood.answer()
    assert (again["detail"]["state"], again["complete"]) == ("interrupted", False)
    flood.check(again)


async def test_a_shim_and_the_gateway_that_are_killed_together(served: Served) -> None:
    await served.start()
    flood = Flood(served)
    await flood.begin()
    zygote, shim = flood.processes()
    os.kill(shim.pid, 9)
    served.process.kill()
    await served.process.communicate()
    assert await eventually(lambda: not running(flood.nap) and gone(zygote))
    await served.start()
    told = await flood.answer()
    assert (told["detail"]["state"], told["complete"]) == ("interrupted", False)
    flood.check(told)


async def test_a_zygote_that_is_killed_in_the_middle(served: Served) -> None:
    await served.start()
    flood = Flood(served)
    await flood.begin("seq 1 2000000; sleep 0.5; seq 1 50000; exit 3")
    zygote, shim = flood.processes()
    os.kill(zygote.pid, 9)
    other = await served.command("seq 1 50000")
    assert (other["complete"], other["spill"]["bytes"]) == (True, 288_894)
    assert not gone(shim)
    told = await served.ask("GET", f"/{flood.id}?wait_ms=5000")
    while told["detail"]["state"] == "running":
        told = await served.ask("GET", f"/{flood.id}?wait_ms=5000")
    assert (told["detail"]["state"], told["exit_code"]) == ("output_open", 3)
    killed = await served.ask("POST", f"/{flood.id}/kill?wait_ms=5000", json={})
    assert (killed["detail"]["state"], killed["complete"]) == ("exited", True)
    assert not running(flood.nap)
    assert flood.spill.read_bytes().endswith(SEQ)
    assert killed["spill"]["bytes"] == flood.size == 14_888_896 + 288_894


async def test_a_zygote_and_then_the_gateway(served: Served) -> None:
    await served.start()
    flood = Flood(served)
    await flood.begin()
    zygote, shim = flood.processes()
    os.kill(zygote.pid, 9)
    assert await eventually(lambda: gone(zygote))
    served.process.kill()
    await served.process.communicate()
    assert await eventually(lambda: not running(flood.nap) and gone(shim))
    await served.start()
    told = await flood.answer()
    assert (told["detail"]["state"], told["detail"]["reason"]) == ("exited", "server_shutdown")
    flood.check(told)


# --- what it costs a command ---------------------------------------------------------------------


async def test_a_child_with_its_own_output_costs_no_wait(served: Served) -> None:
    """And a command that holds nothing open is answered when it ends, not a grace later."""
    await served.start()
    took = []
    for _ in range(20):
        began = time.monotonic()
        await served.command("echo started; sleep 30 >/dev/null 2>&1 &", output_grace_ms=5000)
        took.append(time.monotonic() - began)
    assert sorted(took)[10] < 1.0


async def test_many_clients_under_load_get_their_own_output(served: Served, load: None) -> None:
    await served.start(max_running=8, max_queued=64)
    commands = [f"seq {number} {number + 50_000}" for number in range(40)]
    answers = await asyncio.gather(*(served.command(command) for command in commands))
    for number, told in enumerate(answers):
        whole = "".join(f"{n}\n" for n in range(number, number + 50_001)).encode()
        assert content(told) == whole
        assert told["complete"] is True
