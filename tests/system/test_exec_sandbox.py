"""A command in a real sandbox ends, is timed, killed and told of as one outside of it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.sidecar import isolation, kernel, sandbox
from gateway.sidecar.status import Reason, State, Status
from tests.app.test_exec_process import Served
from tests.sidecar.support import (
    eventually,
    kill_hard,
    running,
    shim_of,
    spilled,
    succeeds,
    unique_sleep,
    within,
)
from tests.system.support import need

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.sidecar.command import Command
    from gateway.sidecar.runner import Runner
    from tests.sidecar.conftest import MakeSite
    from tests.sidecar.support import Bench


@pytest.fixture
def wrap() -> tuple[str, ...]:
    """A sandbox that can be made here."""
    program = need("bwrap")
    trial = (*isolation.bwrap_argv(program, roots=(), cwd="/"), "/bin/sh", "-c", ":")
    assert succeeds(*trial), "no sandbox can be made here"
    return isolation.bwrap_argv(program, roots=[], cwd="/")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    yield made
    await made.close()


async def told(command: Command) -> None:
    """Wait until it has written something."""
    while not command.bytes_seen:
        await within(5, command.changed())


@pytest.mark.parametrize(
    ("script", "code", "name"),
    [
        ("exit 0", 0, None),
        ("exit 137", 137, None),
        ("no-such-program", 127, None),
        ("kill -9 $$", None, "SIGKILL"),
        ("kill -SEGV $$", None, "SIGSEGV"),
        ("kill -TERM $$", None, "SIGTERM"),
    ],
)
async def test_a_signal_is_a_signal(
    runner: Runner, bench: Bench, wrap: tuple[str, ...], script: str, code: int | None, name: str
) -> None:
    command = await runner.spawn(bench.spec(f"echo x > /dev/stderr; {script}", wrap=wrap))
    status = await within(10, command.ended())
    assert (status.exit_code, status.signal_name, status.reason) == (code, name, Reason.EXIT)
    assert status.output.complete
    assert spilled(command).startswith(b"x\n")


async def test_nobody_is_invented_who_was_left_behind(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    for _ in range(30):
        script = "sleep 0.01 & seq 1 20000 | head -n 1; (exit 3) & wait"
        command = await runner.spawn(bench.spec(script, wrap=wrap))
        status = await within(10, command.ended())
        assert (status.survivors, status.killed, status.warnings) == (0, 0, ())
        assert (status.exit_code, command.head) == (0, b"1\n")
        await within(5, command.closed())


async def test_what_runs_on_is_answered_and_what_it_writes_is_kept(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    seen = isolation.bwrap_argv(wrap[0], roots=[str(bench.directory)], cwd="/")
    script = f"echo started; (read x <{gate}; echo late) & exit 3"
    command = await runner.spawn(bench.spec(script, wrap=seen))
    status = await within(10, command.answered())
    assert (status.state, status.exit_code, status.reason) == (State.OUTPUT_OPEN, 3, Reason.EXIT)
    assert (status.survivors, status.output.open, status.output.complete) == (1, True, False)
    gate.write_text("go\n")
    status = await within(10, command.ended())
    assert (status.state, status.exit_code, status.survivors) == (State.EXITED, 3, 0)
    assert status.output.complete
    assert spilled(command) == b"started\nlate\n"
    await within(5, command.closed())


async def test_the_late_line_is_waited_for(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    late = bench.spec(
        "echo now; (sleep 0.5; echo late) &", on_output_open="wait", output_grace_ms=50, wrap=wrap
    )
    command = await runner.spawn(late)
    status = await within(10, command.answered())
    assert (status.exit_code, status.reason, status.output.complete) == (0, Reason.EXIT, True)
    assert spilled(command) == b"now\nlate\n"


async def test_who_holds_the_output_is_ended_where_that_is_asked_for(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    naps = [unique_sleep() for _ in range(2)]
    script = f"setsid setsid {naps[0]} & {naps[1]} & echo now"
    command = await runner.spawn(bench.spec(script, on_output_open="kill", wrap=wrap))
    status = await within(10, command.answered())
    assert (status.exit_code, status.reason) == (0, Reason.OUTPUT_OPEN)
    assert (status.killed, status.survivors) == (2, 0)
    assert not any(running(nap) for nap in naps)
    assert status.output.complete
    await within(5, command.closed())


async def test_who_has_an_output_of_its_own_survives_until_it_is_ended(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"setsid {nap} >/dev/null 2>&1 & echo x", wrap=wrap))
    status = await within(10, command.answered())
    assert (status.state, status.exit_code, status.survivors) == (State.EXITED, 0, 1)
    assert status.output.complete
    assert await eventually(lambda: len(running(nap)) == 1)
    command.kill()
    await within(5, command.closed())
    assert running(nap) == []


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
async def test_nobody_is_left_and_only_the_command_is_asked_to_end(
    runner: Runner, bench: Bench, wrap: tuple[str, ...], number: signal.Signals | None
) -> None:
    naps = [unique_sleep() for _ in range(3)]
    script = (
        f"{naps[0]} & setsid setsid {naps[1]} & "
        f"bash -c \"trap '' TERM; {naps[2]} & wait; wait\" & echo begin; wait"
    )
    timeout = 700 if number is None else 20_000
    command = await runner.spawn(bench.spec(script, wrap=wrap, timeout_ms=timeout))
    assert await eventually(lambda: all(running(nap) for nap in naps), 3)
    if number is not None:
        command.kill(number)
    status = await within(10, command.ended())
    assert status.signal == (number or signal.SIGTERM)
    assert status.reason is (Reason.TIMEOUT if number is None else Reason.KILLED)
    # The shell, three naps, and the shell around the third.
    assert (status.killed, status.survivors, status.output.complete) == (5, 0, True)
    assert [running(nap) for nap in naps] == [[], [], []]
    await within(5, command.closed())


async def test_a_clean_exit_is_no_timeout(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    ended: list[Status] = []

    async def one(sleep: float) -> None:
        spec = bench.spec(f"exec sleep {sleep:.4f}", timeout_ms=50, wrap=wrap)
        ended.append(await within(10, (await runner.spawn(spec)).ended()))

    for batch in range(20):
        await asyncio.gather(*(one(0.042 + (batch + step / 4) / 2_000) for step in range(4)))
    assert {status.signal for status in ended} == {None, signal.SIGTERM}
    for status in ended:
        by_itself = status.signal is None
        assert status.exit_code == (0 if by_itself else None)
        assert (status.reason is Reason.EXIT, status.timed_out) == (by_itself, not by_itself)


@pytest.mark.parametrize("which", [0, 1])
async def test_who_ends_the_sandbox_ends_all_of_it(
    runner: Runner, bench: Bench, wrap: tuple[str, ...], which: int
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"echo on; setsid {nap} & wait", wrap=wrap))
    await told(command)
    assert await eventually(lambda: bool(running(nap)))
    (sleeping,) = running(nap)
    found = [p for p in kernel.descendants(shim_of(command).pid) if p.pid != sleeping]
    outer, init = [p for p in found if p.pid != command.status.leader]
    kill_hard((outer, init)[which])
    status = await within(10, command.ended())
    assert (status.signal, status.exit_code, status.survivors) == (9, None, 0)
    assert running(nap) == []


async def test_a_shim_that_is_killed_takes_the_sandbox_along(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"echo on; setsid {nap} & wait", wrap=wrap))
    await told(command)
    assert await eventually(lambda: bool(running(nap)))
    kill_hard(shim_of(command))
    assert (await within(10, command.ended())).state is State.INTERRUPTED
    assert await eventually(lambda: running(nap) == [])


async def test_a_gateway_that_is_killed_leaves_nobody_in_a_sandbox(served: Served) -> None:
    need("bwrap")
    await served.start(isolation="bwrap")
    nap = unique_sleep()
    asked = await served.command(f"echo on; setsid {nap} & wait", background=True)
    assert await eventually(lambda: bool(running(nap)))
    served.process.kill()
    await served.process.communicate()
    assert await eventually(lambda: running(nap) == [])
    record = served.spill_dir / asked["id"] / "status.json"
    assert await eventually(lambda: b'"state": "exited"' in record.read_bytes())
    assert b'"reason": "server_shutdown"' in record.read_bytes()
    assert b'"signal": 15' in record.read_bytes()


async def test_a_command_can_neither_forge_its_end_nor_end_the_first_process(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    script = (
        "for fd in $(seq 0 30); do echo ended 0 0 0 >/proc/1/fd/$fd; done 2>/dev/null\n"
        "echo x 2>/dev/null >/proc/1/mem; cat /proc/1/environ; readlink /proc/1/fd/*\n"
        "for signal in KILL STOP TERM INT HUP PIPE CHLD; do kill -$signal 1; done\n"
        "ls /proc/self/fd; exit 7"
    )
    command = await runner.spawn(bench.spec(script, wrap=wrap))
    status = await within(10, command.ended())
    assert (status.exit_code, status.survivors, status.warnings) == (7, 0, ())
    assert command.head.splitlines()[-4:] == [b"0", b"1", b"2", b"3"]
    assert b"->" not in command.head
    assert command.head.count(b"Permission denied") >= 1


async def test_memory_and_time_are_told_of_the_command(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    script = "head -c 60000000 /dev/zero | tail -c 50000000 | wc -c"
    command = await runner.spawn(bench.spec(script, wrap=wrap))
    status = await within(10, command.ended())
    assert command.head == b"50000000\n"
    assert status.max_rss_kb is not None
    assert 48_000 < status.max_rss_kb < 100_000
    assert status.cpu_ms


async def test_a_sandbox_that_cannot_be_made_is_no_failed_command(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    broken = (wrap[0], "--bind", "/no/such/directory", "/mnt", *wrap[1:])
    command = await runner.spawn(bench.spec("echo x", wrap=broken))
    status = await within(10, command.ended())
    assert (status.state, status.exit_code) == (State.SPAWN_FAILED, None)
    assert status.spawn_error is not None
    assert status.spawn_error.stage == "sandbox"
    assert status.spawn_error.message.startswith("no sandbox could be made: bwrap: ")
    assert "/no/such/directory" in status.spawn_error.message


async def test_an_interpreter_that_the_sandbox_hides_can_be_read_all_the_same(
    runner: Runner, bench: Bench, wrap: tuple[str, ...]
) -> None:
    prefix = Path(sandbox.PLACES[0])
    above = str(prefix.parent)
    if above == "/":
        pytest.skip("this Python lies where everything does")
    hiding = isolation.bwrap_argv(wrap[0], roots=[], cwd="/", hidden=[above])
    command = await runner.spawn(bench.spec(f"ls {above}", wrap=hiding))
    status = await within(10, command.ended())
    assert (status.exit_code, command.head) == (0, f"{prefix.name}\n".encode())


async def test_a_stream_ends_with_the_last_line_of_what_was_left_behind(
    make_site: MakeSite, wrap: tuple[str, ...]
) -> None:
    assert wrap
    site = await make_site(isolation="bwrap")
    got = await site.run("echo now; (sleep 0.4; echo late) & exit 2", output_grace_ms=50)
    assert (got.json["exit_code"], got.json["output_open"], got.json["complete"]) == (
        2,
        True,
        False,
    )
    followed = await site.ask("GET", f"/{got.id}/output?follow=1")
    assert followed.body == b"now\nlate\n"
    after = await site.ask("GET", f"/{got.id}")
    assert (after.json["complete"], after.json["exit_code"]) == (True, 2)
