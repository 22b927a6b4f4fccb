"""What a command can stop, with SIGSTOP, does not keep anybody waiting for ever."""

import asyncio
import os
import signal

import pytest

from gateway.sidecar import runner as module
from gateway.sidecar import watch
from gateway.sidecar.runner import Runner
from gateway.sidecar.status import State
from tests.sidecar.site import Site
from tests.sidecar.support import Bench, eventually, running, shim_of, spilled, unique_sleep, within


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LATE", 0.3)
    monkeypatch.setattr(watch, "_AGAIN", 0.1)
    monkeypatch.setattr(module, "_TAKE_SECONDS", 0.4)


async def test_a_command_that_stops_its_shim_is_ended_with_all_that_it_started(
    runner: Runner, bench: Bench
) -> None:
    naps = [unique_sleep(), unique_sleep()]
    script = f"setsid {naps[0]} & echo begun; kill -STOP $PPID; {naps[1]}"
    command = await within(10, runner.spawn(bench.spec(script, timeout_ms=300)))
    status = await within(10, command.ended())
    assert (status.state, status.output.complete) == (State.INTERRUPTED, False)
    assert await eventually(lambda: not any(map(running, naps)))
    assert (await within(5, (await runner.spawn(bench.spec("true"))).ended())).exit_code == 0


async def test_a_shim_that_is_stopped_before_it_has_told_of_the_start(
    runner: Runner, bench: Bench
) -> None:
    """A race that the command may win."""
    nap = unique_sleep()
    for _ in range(5):
        command = await within(
            10, runner.spawn(bench.spec(f"kill -STOP $PPID; {nap}", timeout_ms=50))
        )
        assert (await within(10, command.ended())).state is State.INTERRUPTED
    assert await eventually(lambda: not running(nap))


async def test_one_that_is_late_and_works_is_ended_in_the_end_only(
    runner: Runner, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[float] = []
    began = asyncio.get_running_loop().time()
    monkeypatch.setattr(watch, "LOST", 1.0)
    command = await runner.spawn(bench.spec("sleep 60"))
    watching = watch.Watch(
        shim_of(command).pid, lambda: ended.append(asyncio.get_running_loop().time() - began)
    )
    watching.expect(0.2, lambda: False)
    assert await eventually(lambda: bool(ended))
    assert 1.1 < ended[0] < 3
    watching.expect(0.0, lambda: False)
    watching.stop()
    watching.expect(0.0, lambda: True)
    await asyncio.sleep(0.5)
    assert len(ended) == 1
    command.kill(signal.SIGKILL)
    await within(5, command.closed())


@pytest.mark.parametrize("way", ["kill", "delete"])
async def test_a_kill_and_a_deletion_end_what_is_stopped(site: Site, way: str) -> None:
    nap = unique_sleep()
    got = await site.run(f"sleep 0.2; kill -STOP $PPID; {nap}", background=True)
    assert await eventually(lambda: bool(running(nap)))
    if way == "kill":
        told = await site.ask("POST", f"/{got.id}/kill?wait_ms=9000", json={})
        assert (told.detail["state"], told.json["complete"]) == ("interrupted", False)
    else:
        assert (await site.ask("DELETE", f"/{got.id}")).status == 204
    assert await eventually(lambda: not running(nap))


async def test_a_zygote_that_is_stopped_is_woken(runner: Runner, bench: Bench) -> None:
    first = await runner.spawn(bench.spec("sleep 60"))
    zygote = shim_of(first).parent
    os.kill(zygote, signal.SIGSTOP)
    command = await within(10, runner.spawn(bench.spec("echo x")))
    assert (await within(5, command.ended())).output.complete
    assert shim_of(first).parent == zygote


async def test_a_zygote_that_cannot_be_woken_is_replaced_and_nothing_runs_twice(
    runner: Runner, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await runner.spawn(bench.spec("sleep 60"))
    monkeypatch.setattr(module._Zygote, "wake", lambda _: None)
    os.kill(shim_of(first).parent, signal.SIGSTOP)
    ran = bench.directory / "ran"
    command = await within(10, runner.spawn(bench.spec(f"echo x | tee -a {ran}")))
    assert (await within(5, command.ended())).output.complete
    assert (spilled(command), ran.read_text()) == (b"x\n", "x\n")
    assert first.status.state is State.RUNNING
