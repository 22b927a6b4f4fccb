"""The runner: many commands at once, a bounded stop, and nothing that the loop has to wait for."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.sidecar import runner as module
from gateway.sidecar.runner import Runner, SidecarError
from gateway.sidecar.status import Reason, State
from tests.sidecar.support import (
    Bench,
    eventually,
    kill_hard,
    peak_kib,
    running,
    shim_of,
    spilled,
    unique_sleep,
    within,
)


async def test_twenty_at_once_keep_their_outputs_apart(runner: Runner, bench: Bench) -> None:
    async def one(number: int) -> None:
        script = f'for n in $(seq 1 2000); do echo "id-{number} line $n"; done'
        command = await runner.spawn(bench.spec(script))
        status = await command.ended()
        assert status.output.complete
        expected = b"".join(b"id-%d line %d\n" % (number, line) for line in range(1, 2_001))
        assert spilled(command) == expected

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(number))
    assert await eventually(lambda: not runner.commands)


async def test_300_megabytes_need_little_memory(runner: Runner, bench: Bench) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    script = f"head -c 300000000 /dev/zero; exec >/dev/null 2>&1; read x <{gate}"
    command = await runner.spawn(bench.spec(script))
    while command.bytes_spilled < 300_000_000:
        await within(30, command.changed())
    assert peak_kib(shim_of(command).pid) < 40_000
    gate.write_text("go\n")
    status = await within(10, command.ended())
    assert (status.output.complete, status.output.bytes) == (True, 300_000_000)
    os.unlink(command.spill_path)


async def test_stop_ends_everything_in_time(bench: Bench) -> None:
    naps = [unique_sleep() for _ in range(3)]
    runner = Runner()
    await runner.start()
    polite = await runner.spawn(bench.spec(naps[0], kill_grace_ms=60_000))
    deaf = await runner.spawn(
        bench.spec(f"trap '' TERM; {naps[1]} & wait; wait", kill_grace_ms=60_000)
    )
    left = await runner.spawn(bench.spec(f"{naps[2]} >/dev/null 2>&1 &"))
    assert (await within(5, left.ended())).survivors == 1
    assert await eventually(lambda: all(running(nap) for nap in naps))
    began = asyncio.get_running_loop().time()
    await within(10, runner.stop(1.0))
    assert asyncio.get_running_loop().time() - began < 3
    assert (polite.status.signal, polite.status.reason) == (15, Reason.SERVER_SHUTDOWN)
    assert (deaf.status.signal, deaf.status.reason) == (9, Reason.SERVER_SHUTDOWN)
    assert [running(nap) for nap in naps] == [[], [], []]
    with pytest.raises(SidecarError, match="is stopping"):
        await runner.spawn(bench.spec("true"))


async def test_a_caller_that_gives_up_while_it_starts_leaves_nothing(
    runner: Runner, bench: Bench
) -> None:
    nap = unique_sleep()
    for delay in (0.0, 0.002, 0.005, 0.01):
        task = asyncio.ensure_future(runner.spawn(bench.spec(nap)))
        await asyncio.sleep(delay)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).kill(9)
    assert await eventually(lambda: not runner.commands)
    assert await eventually(lambda: not running(nap))


async def test_a_zygote_that_cannot_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ZYGOTE", Path("/nonexistent/zygote.py"))
    runner = Runner()
    with pytest.raises(SidecarError, match="does not start"):
        await runner.start()
    await runner.stop()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    runner = Runner()
    with pytest.raises(SidecarError, match="cannot start: No such file"):
        await runner.start()
    await runner.stop()


async def test_a_zygote_that_dies_with_a_request_is_asked_again(
    runner: Runner, bench: Bench
) -> None:
    first = await runner.spawn(bench.spec("true"))
    await within(5, first.closed())
    sleeping = await runner.spawn(bench.spec("sleep 60"))
    zygote = shim_of(sleeping).parent
    # It has the request in its socket, and will never read it.
    os.kill(zygote, signal.SIGSTOP)
    spawning = asyncio.ensure_future(runner.spawn(bench.spec("echo once")))
    await asyncio.sleep(0.1)
    assert not spawning.done()
    os.kill(zygote, signal.SIGKILL)
    command = await within(10, spawning)
    assert (await within(5, command.ended())).output.complete
    assert spilled(command) == b"once\n"
    assert sleeping.status.state is State.RUNNING


async def test_news_come_to_everyone_and_late_ones_do_not_wait(
    runner: Runner, bench: Bench
) -> None:
    command = await runner.spawn(bench.spec("sleep 0.1; echo x"))
    statuses = await within(5, asyncio.gather(*(command.ended() for _ in range(3))))
    assert {status.exit_code for status in statuses} == {0}
    await within(5, command.closed())
    await within(1, command.changed())
    await within(1, command.answered())
    command.kill()


async def test_nothing_happens_while_nothing_happens(runner: Runner, bench: Bench) -> None:
    """An idle command costs no wakeup: neither the gateway, nor its shim, nor the zygote."""
    command = await runner.spawn(bench.spec("exec sleep 60"))
    shim = shim_of(command)

    def switches() -> list[str]:
        return [
            line
            for pid in (shim.pid, shim.parent)
            for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
            if line.startswith("voluntary_ctxt_switches")
        ]

    await asyncio.sleep(0.1)
    before = switches()
    await asyncio.sleep(0.4)
    assert switches() == before
    kill_hard(shim)
    assert (await within(5, command.ended())).state is State.INTERRUPTED
