"""The first process of a sandbox and its shim; a shell is in the place of what makes sandboxes."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.sidecar import kernel, sandbox
from gateway.sidecar.record import SpawnFailed
from gateway.sidecar.runner import Runner
from gateway.sidecar.status import Reason, State
from tests.sidecar.support import (
    PATH,
    Bench,
    eventually,
    running,
    shim_of,
    unique_sleep,
    within,
)

WRAP = ("/bin/sh", "-c", 'exec "$@"', "sh")
"""Lets everything through: what is not the sandbox's own doing is as in one."""


def descriptors(pid: int) -> list[str]:
    """What a process has open."""
    return [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def wrap(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script, "sh")


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 137", 137, None), ("kill -9 $$", None, 9), ("kill $$", None, 15)],
)
async def test_how_the_leader_ended_is_told_from_within(
    runner: Runner, bench: Bench, script: str, code: int | None, number: int | None
) -> None:
    command = await runner.spawn(bench.spec(f"echo out; echo err >&2; {script}", wrap=WRAP))
    status = await within(10, command.ended())
    assert (status.exit_code, status.signal, status.reason) == (code, number, Reason.EXIT)
    assert (status.survivors, status.killed, status.warnings) == (0, 0, ())
    assert (status.output.complete, command.head) == (True, b"out\nerr\n")
    assert status.containment == "pidns"
    await within(5, command.closed())


async def test_what_makes_the_sandbox_has_neither_output_nor_environment(
    runner: Runner, bench: Bench
) -> None:
    noisy = wrap(f'echo noise; echo noise >&2; env >{bench.directory}/env; exec "$@"')
    given = {"PATH": PATH, "ODD": "a\udcffb", "LD_PRELOAD": "/no/such.so"}
    command = await runner.spawn(bench.spec(argv=("env",), wrap=noisy, env=given))
    await within(10, command.ended())
    said = [line for line in command.head.splitlines() if b"preloaded" not in line]
    assert sorted(said) == [
        b"LD_PRELOAD=/no/such.so",
        b"ODD=a\xffb",
        b"PATH=" + PATH.encode(),
    ]
    assert command.head.count(b"cannot be preloaded") == 1
    assert "such.so" not in (bench.directory / "env").read_text()


async def test_the_command_gets_its_output_and_nothing_else(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(
        bench.spec(argv=("/bin/ls", "/proc/self/fd"), wrap=WRAP, stdin=b"in")
    )
    await within(10, command.ended())
    assert command.head == b"0\n1\n2\n3\n"
    command = await runner.spawn(bench.spec("cat; cut -d' ' -f6,7 /proc/self/stat", wrap=WRAP))
    await within(10, command.ended())
    session, terminal = command.head.split()
    assert (int(session), terminal) == (command.status.leader, b"0")


@pytest.mark.parametrize(
    ("argv", "stage", "name"),
    [
        (("no-such-program",), "exec", "ENOENT"),
        (("/etc/passwd",), "exec", "EACCES"),
        (("/bin/echo", "a\0b"), "exec", "EINVAL"),
        (("/bin/echo", "\ud800"), "exec", "EINVAL"),
        (("/bin/echo", "x" * 200_000), "exec", "E2BIG"),
    ],
)
async def test_what_cannot_be_executed_within_is_no_failed_command(
    runner: Runner, bench: Bench, argv: tuple[str, ...], stage: str, name: str
) -> None:
    command = await runner.spawn(bench.spec(argv=argv, wrap=WRAP))
    status = await within(10, command.ended())
    assert (status.state, status.exit_code) == (State.SPAWN_FAILED, None)
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == (stage, name)


@pytest.mark.parametrize(
    ("wrapped", "said"),
    [
        (wrap("echo 'it is forbidden.' >&2; exit 3"), "it is forbidden"),
        (("/bin/false",), "it ended without a word"),
        (("/no/such/program",), "/no/such/program: No such file or directory"),
    ],
)
async def test_a_sandbox_that_cannot_be_made_runs_nothing_and_says_why(
    runner: Runner, bench: Bench, wrapped: tuple[str, ...], said: str
) -> None:
    command = await runner.spawn(bench.spec("echo x", wrap=wrapped))
    status = await within(10, command.ended())
    assert (status.state, status.exit_code, status.output.bytes) == (State.SPAWN_FAILED, None, 0)
    assert status.spawn_error is not None
    assert status.spawn_error.stage == "sandbox"
    assert status.spawn_error.message == f"no sandbox could be made: {said}"
    await within(5, command.closed())


async def test_a_sandbox_that_never_comes_about_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    quiet, hung_up = socket.socketpair()
    box = sandbox.Sandbox(bench.spec("true", wrap=WRAP).request(0.0), [], write)
    failure = box.await_start(0.01, quiet.fileno())
    assert isinstance(failure, SpawnFailed)
    assert (failure.stage, failure.as_dict()["name"]) == ("sandbox", "EPERM")
    box.report.close()
    box = sandbox.Sandbox(bench.spec("true", wrap=WRAP).request(0.0), [], write)
    # Somebody else holds the other end, as a sandbox that hangs does.
    held = box._theirs.dup()
    failure = box.await_start(0.01, quiet.fileno())
    assert failure is not None
    assert failure.as_dict()["name"] == "ETIMEDOUT"
    held.close()
    box.report.close()
    box = sandbox.Sandbox(bench.spec("true", wrap=WRAP).request(0.0), [], write)
    held = box._theirs.dup()
    held.send(b"leader")
    hung_up.close()
    failure = box.await_start(10, quiet.fileno())
    assert failure is not None
    assert failure.as_dict()["name"] == "ECANCELED"
    assert box.leader is None
    held.close()
    quiet.close()
    box.report.close()
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("gone", [False, True], ids=["killed", "gone"])
async def test_what_nobody_waits_for_any_more_is_not_started(
    runner: Runner, bench: Bench, gone: bool
) -> None:
    """The sandbox takes its time, and somebody changes his mind."""
    slow = wrap(f'touch {bench.directory}/asked; sleep 0.5; exec "$@"')
    early: list[Any] = []
    spec = bench.spec(f"touch {bench.directory}/ran", wrap=slow)
    starting = asyncio.ensure_future(runner.spawn(spec, early.append))
    assert await eventually((bench.directory / "asked").exists)
    if gone:
        starting.cancel()  # its end of the connection is closed, as by the death of the gateway
    else:
        early[0].kill(signal.SIGTERM)
        status = (await within(5, starting)).status
        assert status.state is State.SPAWN_FAILED
        assert status.spawn_error is not None
        assert status.spawn_error.name == "ECANCELED"
    await asyncio.sleep(0.7)
    assert not (bench.directory / "ran").exists()


async def test_what_an_end_left_unread_hides_nothing_of_what_was_said(bench: Bench) -> None:
    read, write = os.pipe()
    box = sandbox.Sandbox(bench.spec("true", wrap=WRAP).request(0.0), [], write)
    box.report.send(b"go")
    box._theirs.send(b"ended 256 0.1 10")
    box._theirs.close()
    box.report.setblocking(False)
    assert [told.words for told in box.hear()] == [[b"ended", b"256", b"0.1", b"10"], []]
    box.report.close()
    os.close(read)
    os.close(write)


async def test_limits_are_those_of_the_command(runner: Runner, bench: Bench) -> None:
    """What is enough for the command is not for the process that starts it."""
    limits = {"as": 12 << 20, "nofile": 99, "core": 0}
    command = await runner.spawn(
        bench.spec(argv=("/bin/sh", "-c", "ulimit -v; ulimit -n"), wrap=WRAP, limits=limits)
    )
    await within(10, command.ended())
    assert command.head == b"12288\n99\n"


async def test_what_was_left_behind_is_told_waited_for_and_ended(
    runner: Runner, bench: Bench
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"{nap} & exit 4", wrap=WRAP, output_grace_ms=50))
    status = await within(10, command.answered())
    assert (status.state, status.exit_code, status.survivors) == (State.OUTPUT_OPEN, 4, 1)
    command.kill()
    status = await within(10, command.ended())
    assert (status.exit_code, status.reason, status.survivors) == (4, Reason.EXIT, 0)
    assert (status.killed, running(nap)) == (1, [])
    assert any("left behind were ended: killed" in said for said in status.warnings)


async def test_whoever_ends_the_sandbox_ends_the_command(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("echo on; exec sleep 60", wrap=WRAP))
    while not command.bytes_seen:
        await within(5, command.changed())
    (init,) = [
        p for p in kernel.descendants(shim_of(command).pid) if p.pid != command.status.leader
    ]
    leader = kernel.process(command.status.leader or 0)
    assert leader is not None
    os.kill(init.pid, signal.SIGKILL)
    # A sandbox takes its processes along; a shell does not.
    kernel.send(leader, signal.SIGKILL)
    status = await within(10, command.ended())
    assert (status.signal, status.exit_code, command.head) == (9, None, b"on\n")


async def test_the_time_and_the_memory_are_those_of_the_command(
    runner: Runner, bench: Bench
) -> None:
    busy = "a = bytearray(60_000_000)\nwhile __import__('time').process_time() < 0.2: pass"
    command = await runner.spawn(
        bench.spec(argv=(sys.executable, "-I", "-S", "-c", busy), wrap=WRAP)
    )
    status = await within(10, command.ended())
    assert status.cpu_ms is not None
    assert status.max_rss_kb is not None
    assert 200 <= status.cpu_ms < 2_000
    assert 58_000 < status.max_rss_kb < 120_000


async def test_a_sandbox_is_never_left_out(bench: Bench) -> None:
    from gateway.sidecar.fallback import ThreadRunner

    runner = ThreadRunner()
    await runner.start()
    command = await runner.spawn(bench.spec(f"touch {bench.directory}/ran", wrap=WRAP))
    status = await within(5, command.ended())
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == ("sandbox", "ENOSYS")
    assert not (bench.directory / "ran").exists()
    await runner.stop(1.0)


async def test_shims_leave_no_descriptor_of_a_sandbox_open(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("echo on; sleep 60", wrap=WRAP))
    while not command.bytes_seen:
        await within(5, command.changed())
    names = descriptors(shim_of(command).pid)
    assert not [name for name in names if "sandbox" in name]
    assert len([name for name in names if name.startswith("pipe:")]) == 1
    command.kill(9)
    await within(5, command.closed())
    assert await eventually(lambda: kernel.process(command.status.leader or 0) is None)
