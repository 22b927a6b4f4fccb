"""Who dies and what is left: shim, zygote and gateway are killed while commands run."""

import ast
import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gateway.sidecar
from gateway.sidecar import kernel
from gateway.sidecar.runner import Runner
from gateway.sidecar.status import Reason, State, read_status
from tests.sidecar.support import (
    Bench,
    environ,
    eventually,
    kill_hard,
    owner,
    running,
    saved_status,
    shim_of,
    spilled,
    unique_sleep,
    within,
)

ROOT = Path(__file__).parents[2]
PACKAGE = Path(gateway.sidecar.__file__).parent
OUTSIDE = (
    "zygote",
    "shim",
    "launch",
    "sandbox",
    "init",
    "session",
    "priority",
    "control",
    "pipes",
    "flood",
    "family",
    "sink",
    "record",
    "kernel",
)


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_runs_outside_needs_the_standard_library_alone(name: str) -> None:
    tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = {alias.name.split(".")[0] for alias in node.names}
            assert imported <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            if node.module == "gateway.sidecar":
                assert {alias.name for alias in node.names} <= set(OUTSIDE)
            elif node.module.startswith("gateway"):
                assert node.module.removeprefix("gateway.sidecar.") in OUTSIDE
            else:
                assert node.module.split(".")[0] in sys.stdlib_module_names


async def test_the_zygote_has_no_environment_and_hides_its_memory(
    runner: Runner, bench: Bench
) -> None:
    (zygote,) = [found for found in kernel.descendants(os.getpid()) if found.parent == os.getpid()]
    # The files of a process that is not dumpable belong to root.
    assert owner(f"/proc/{zygote.pid}/environ") == 0
    if os.geteuid() == 0:
        assert environ(zygote.pid) == b"PATH=/usr/local/bin:/usr/bin:/bin\0"
    else:
        with pytest.raises(PermissionError):
            environ(zygote.pid)


def test_a_fork_of_what_is_not_dumpable_is_not_dumpable_either() -> None:
    script = (
        "import ctypes, os, sys; sys.path.insert(0, sys.argv[1]); "
        "from gateway.sidecar import kernel; kernel.prctl(kernel.SET_DUMPABLE, 0); "
        "pid = os.fork(); print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True); "
        "pid and os.waitpid(pid, 0)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(ROOT)], capture_output=True, check=True, timeout=20
    )
    assert sorted(said.stdout) == sorted(b"0\n0\n")
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1


async def test_a_killed_shim_leaves_no_orphan_and_is_told(runner: Runner, bench: Bench) -> None:
    naps = [unique_sleep() for _ in range(3)]
    other = await runner.spawn(bench.spec(f"{naps[2]}"))
    command = await runner.spawn(
        bench.spec(f"{naps[0]} & (setsid setsid {naps[1]} >/dev/null 2>&1 &); seq 1 100; wait")
    )
    assert await eventually(
        lambda: command.bytes_spilled == 292 and all(running(nap) for nap in naps)
    )
    kill_hard(shim_of(command))
    status = await within(5, command.answered())
    assert (status.state, status.exit_code) == (State.INTERRUPTED, None)
    assert not status.output.complete
    assert status.output.spill.bytes == 292
    assert len(spilled(command)) == 292
    assert await eventually(lambda: not running(naps[0]) and not running(naps[1]))
    assert running(naps[2])
    assert other.status.state is State.RUNNING
    assert saved_status(command).state is State.RUNNING


async def test_without_the_zygote_commands_go_on_and_new_ones_come(
    runner: Runner, bench: Bench
) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    command = await runner.spawn(bench.spec(f"echo one; read x <{gate}; seq 1 50000; exit 4"))
    shim = shim_of(command)
    zygote = kernel.process(shim.parent)
    assert zygote is not None
    assert zygote.parent == os.getpid()
    kill_hard(zygote)
    second = await runner.spawn(bench.spec("echo two"))
    assert (await within(5, second.ended())).output.complete
    orphaned = kernel.process(shim.pid)
    assert orphaned is not None
    assert (orphaned.started, orphaned.parent != shim.parent) == (shim.started, True)
    gate.write_text("go\n")
    status = await within(10, command.ended())
    assert (status.exit_code, status.output.complete) == (4, True)
    assert status.output.bytes == 288_898


async def test_a_leader_dies_with_its_shim_also_without_a_zygote(
    runner: Runner, bench: Bench
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"exec {nap}"))
    assert await eventually(lambda: bool(running(nap)))
    shim = shim_of(command)
    zygote = kernel.process(shim.parent)
    assert zygote is not None
    kill_hard(zygote)
    kill_hard(shim)
    assert (await within(5, command.ended())).state is State.INTERRUPTED
    assert await eventually(lambda: not running(nap))


_GATEWAY = """
import asyncio, sys
from gateway.sidecar.runner import Runner
from gateway.sidecar.spec import Spec

async def main(directory, script):
    runner = Runner()
    await runner.start()
    for on_gone in ("kill", "finish"):
        await runner.spawn(Spec(
            id=on_gone, directory=f"{directory}/{on_gone}", cwd=directory, on_gone=on_gone,
            env={"PATH": "/bin:/usr/bin"}, command=script, kill_grace_ms=300,
        ))
    print("running", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_when_the_gateway_dies_its_commands_are_killed_or_finish(bench: Bench) -> None:
    naps = [unique_sleep(), unique_sleep()]
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    script = (
        f"{naps[0]} >/dev/null 2>&1 & echo begun; until [ -e go ]; do sleep 0.02; done; "
        "seq 1 50000; exit 3"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _GATEWAY,
        str(bench.directory),
        script,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": os.environ["PATH"]},
    )
    assert process.stdout is not None
    assert await within(20, process.stdout.readline()) == b"running\n"
    assert await eventually(lambda: len(running(naps[0])) == 2)
    process.kill()
    await within(5, process.wait())
    paths = {name: bench.directory / name / "status.json" for name in ("kill", "finish")}

    def state(name: str) -> State:
        return read_status(paths[name].read_bytes()).state

    assert await eventually(lambda: state("kill") is State.EXITED)
    killed = read_status(paths["kill"].read_bytes())
    assert (killed.signal, killed.reason, killed.survivors) == (15, Reason.SERVER_SHUTDOWN, 0)
    assert (bench.directory / "kill" / "output").read_bytes() == b"begun\n"
    assert len(running(naps[0])) == 1
    (bench.directory / "go").touch()
    assert await eventually(lambda: state("finish") is State.EXITED, 10)
    finished = read_status(paths["finish"].read_bytes())
    assert (finished.exit_code, finished.reason) == (3, Reason.EXIT)
    assert finished.output.complete
    assert finished.output.bytes == 288_894 + 6
    # Nobody is left who could end what it has left behind.
    assert await eventually(lambda: not running(naps[0]))
    assert await eventually(lambda: kernel.process(finished.shim.pid) is None)


async def test_a_shim_that_is_stopped_does_not_stop_the_server(bench: Bench) -> None:
    nap = unique_sleep()
    runner = Runner()
    await runner.start()
    command = await runner.spawn(bench.spec(nap))
    assert await eventually(lambda: bool(running(nap)))
    os.kill(shim_of(command).pid, signal.SIGSTOP)
    await within(10, runner.stop(0.5))
    assert command.status.state is State.INTERRUPTED
    assert await eventually(lambda: not running(nap))
