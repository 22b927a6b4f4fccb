"""The runner for systems other than Linux keeps the promise too, as far as a group reaches."""

import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from gateway.sidecar.fallback import ThreadRunner, make_runner
from gateway.sidecar.runner import Runner, SidecarError
from gateway.sidecar.sink import Sink
from gateway.sidecar.status import Reason, State
from tests.sidecar.support import (
    Bench,
    eventually,
    running,
    saved_status,
    spilled,
    unique_sleep,
    within,
)

NUMBERS = b"".join(b"%d\n" % number for number in range(1, 50_001))


@pytest.fixture
async def threads() -> AsyncIterator[ThreadRunner]:
    runner = ThreadRunner()
    await runner.start()
    yield runner
    await within(10, runner.stop(1.0))
    assert not runner.commands


def test_linux_has_the_runner_with_shims() -> None:
    assert type(make_runner()) is (Runner if sys.platform == "linux" else ThreadRunner)


async def test_it_loses_nothing(threads: ThreadRunner, bench: Bench) -> None:
    for _ in range(5):
        command = await threads.spawn(bench.spec("cat; seq 1 50000; exit 3", stdin=b"in\n"))
        status = await within(20, command.ended())
        assert (status.exit_code, status.containment) == (3, "process_group")
        assert status.output.complete
        assert spilled(command) == b"in\n" + NUMBERS
        assert command.tail == NUMBERS[-20_480:]
        assert saved_status(command).output == status.output


async def test_a_signal_is_a_signal(threads: ThreadRunner, bench: Bench) -> None:
    command = await threads.spawn(bench.spec("kill -9 $$"))
    status = await within(5, command.ended())
    assert (status.exit_code, status.signal) == (None, 9)


async def test_an_open_pipe_is_told_and_drained(threads: ThreadRunner, bench: Bench) -> None:
    command = await threads.spawn(bench.spec("echo now; (sleep 0.6; echo late) &"))
    assert (await within(5, command.answered())).state is State.OUTPUT_OPEN
    status = await within(5, command.ended())
    assert (status.state, status.output.complete) == (State.EXITED, True)
    assert spilled(command) == b"now\nlate\n"


async def test_a_timeout_ends_the_group(threads: ThreadRunner, bench: Bench) -> None:
    naps = [unique_sleep() for _ in range(2)]
    script = f"trap '' TERM; {naps[0]} & {naps[1]} & echo on; wait; wait; wait"
    command = await threads.spawn(bench.spec(script, timeout_ms=400))
    assert await eventually(lambda: all(running(nap) for nap in naps))
    status = await within(5, command.ended())
    assert (status.signal, status.timed_out, status.reason) == (9, True, Reason.TIMEOUT)
    assert status.output.complete
    assert await eventually(lambda: not any(running(nap) for nap in naps))


async def test_what_cannot_be_started_is_told(threads: ThreadRunner, bench: Bench) -> None:
    for changed, stage in (({"cwd": "/nonexistent"}, "cwd"), ({"argv": ("no-such",)}, "exec")):
        command = await threads.spawn(bench.spec(**({"argv": ("true",)} | changed)))
        status = await within(5, command.answered())
        assert status.state is State.SPAWN_FAILED
        assert status.spawn_error is not None
        assert (status.spawn_error.stage, status.spawn_error.name) == (stage, "ENOENT")


async def test_stop_leaves_nothing(bench: Bench) -> None:
    nap = unique_sleep()
    runner = ThreadRunner()
    await runner.start()
    command = await runner.spawn(bench.spec(f"trap '' TERM; {nap} & wait; wait"))
    assert await eventually(lambda: bool(running(nap)))
    descriptors = len(os.listdir("/proc/self/fd"))
    await within(10, runner.stop(1.0))
    assert (command.status.signal, command.status.reason) == (
        signal.SIGKILL,
        Reason.SERVER_SHUTDOWN,
    )
    assert running(nap) == []
    assert await eventually(lambda: len(os.listdir("/proc/self/fd")) < descriptors)
    with pytest.raises(SidecarError, match="is stopping"):
        await runner.spawn(bench.spec("true"))


async def test_a_flood_of_small_writes_is_taken_in_by_few_reads(
    threads: ThreadRunner, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int | None] = []
    fill = Sink.fill

    def counted(sink: Sink, pipe: int) -> int | None:
        reads.append(fill(sink, pipe))
        return reads[-1]

    monkeypatch.setattr(Sink, "fill", counted)
    script = "import os\nfor _ in range(30000): os.write(1, b'123456789\\n')"
    command = await threads.spawn(bench.spec(argv=(sys.executable, "-c", script)))
    status = await within(20, command.ended())
    assert (status.output.complete, status.output.bytes) == (True, 300_000)
    assert spilled(command) == b"123456789\n" * 30_000
    assert len(reads) < 200
