"""The promise: what a command writes is all there, however it ends and whoever holds its pipe."""

import asyncio
import base64
import hashlib
import os
import resource
import select
import signal
import socket
import subprocess
import time

import pytest

from gateway.sidecar import record, session
from gateway.sidecar.command import Command
from gateway.sidecar.link import connect
from gateway.sidecar.runner import Runner
from gateway.sidecar.sink import Bounds, Sink
from gateway.sidecar.status import Reason, State, Status
from tests.sidecar.support import (
    Bench,
    eventually,
    modes,
    running,
    saved_status,
    shim_of,
    spilled,
    unique_sleep,
    within,
)

NUMBERS = b"".join(b"%d\n" % number for number in range(1, 50_001))


# --- complete output --------------------------------------------------------------------------


async def test_a_fast_producer_loses_nothing(runner: Runner, bench: Bench) -> None:
    for _ in range(20):
        command = await runner.spawn(bench.spec("seq 1 50000", want_sha256=True))
        status = await within(20, command.ended())
        assert status.output.complete
        assert (status.output.bytes, status.output.lines) == (288_894, 50_000)
        assert status.output.spill.sha256 == hashlib.sha256(NUMBERS).hexdigest()
        assert spilled(command) == NUMBERS
        assert command.head == NUMBERS[:8_192]
        assert command.tail == NUMBERS[-20_480:]


def test_ending_at_process_exit_would_lose_output() -> None:
    """The negative control: the same check fails for what does not wait for the pipe's end."""
    losing = 0
    for _ in range(5):
        read, write = os.pipe()
        with subprocess.Popen(["bash", "-c", "sleep 0.05 & seq 1 50000"], stdout=write) as process:
            os.close(write)
            kept = bytearray()
            while process.poll() is None:
                kept += os.read(read, 4_096)
                # A consumer with something else to do, as an event loop is.
                time.sleep(0.001)
            os.close(read)
        losing += bytes(kept) != NUMBERS
    assert losing


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("seq 1 1000; echo err > /dev/stderr; seq 1 3", b"err\n1\n2\n3\n"),
        ("seq 1 1000; echo out > /dev/stdout; seq 1 3", b"out\n1\n2\n3\n"),
        ("seq 1 1000; echo x | tee /dev/stderr; seq 1 3", b"x\nx\n1\n2\n3\n"),
        ("seq 1 1000; echo d | dd of=/dev/stdout status=none; seq 1 3", b"d\n1\n2\n3\n"),
    ],
)
async def test_opening_its_own_output_by_name_truncates_nothing(
    runner: Runner, bench: Bench, script: str, expected: bytes
) -> None:
    command = await runner.spawn(bench.spec(script))
    status = await within(10, command.ended())
    thousand = b"".join(b"%d\n" % number for number in range(1, 1_001))
    assert status.output.complete
    assert spilled(command) == thousand + expected


async def test_both_streams_keep_their_order(runner: Runner, bench: Bench) -> None:
    script = "for i in 1 2 3; do echo o$i; echo e$i >&2; done; exit 128"
    command = await runner.spawn(bench.spec(script))
    status = await within(10, command.ended())
    assert command.head == b"o1\ne1\no2\ne2\no3\ne3\n"
    assert (status.exit_code, command.tail) == (128, b"")


async def test_a_line_of_twenty_megabytes_and_its_end_are_kept(
    runner: Runner, bench: Bench
) -> None:
    command = await runner.spawn(bench.spec("head -c 20000000 /dev/zero | tr '\\0' x; echo"))
    status = await within(20, command.ended())
    assert (status.output.complete, status.output.bytes, status.output.lines) == (
        True,
        20_000_001,
        1,
    )
    assert command.head == b"x" * 8_192
    assert command.tail == b"x" * 20_479 + b"\n"


async def test_bytes_are_not_text(runner: Runner, bench: Bench) -> None:
    script = r"printf 'ok\360\377\000\342\202'; sleep 0.05; printf '\254end\n'"
    command = await runner.spawn(bench.spec(script))
    await within(10, command.ended())
    assert spilled(command) == b"ok\xf0\xff\x00\xe2\x82\xacend\n"


async def test_a_slow_disk_loses_nothing_and_is_no_open_pipe(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("seq 1 50000", sink_delay_ms=150, output_grace_ms=20))
    status = await within(20, command.answered())
    assert status.state is State.EXITED
    assert status.output.complete
    assert spilled(command) == NUMBERS


async def test_lines_are_not_counted_without_end(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("yes | head -c 70000000"))
    status = await within(30, command.ended())
    assert (status.output.complete, status.output.bytes) == (True, 70_000_000)
    assert status.output.lines is None


# --- how it ended -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "number", "name"),
    [
        ("exit 0", 0, None, None),
        ("exit 300", 44, None, None),
        ("no-such-program", 127, None, None),
        ("exit 137", 137, None, None),
        ("echo part; kill -9 $$", None, 9, "SIGKILL"),
        ("kill -SEGV $$", None, 11, "SIGSEGV"),
    ],
)
async def test_a_signal_is_never_an_exit_code(
    runner: Runner, bench: Bench, script: str, code: int | None, number: int | None, name: str
) -> None:
    command = await runner.spawn(bench.spec(script))
    status = await within(10, command.ended())
    assert (status.exit_code, status.signal, status.signal_name) == (code, number, name)
    assert (status.reason, status.timed_out) == (Reason.EXIT, False)
    assert status.output.complete


async def test_the_file_says_the_same_as_the_message(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("echo x; exit 3"))
    status = await within(10, command.ended())
    said = saved_status(command)
    assert (said.exit_code, said.output.bytes, said.state) == (3, 2, State.EXITED)
    assert said.output == status.output
    assert sorted(modes(command.spec.directory)) == [".", "output", "status.json"]


async def test_only_this_user_can_read_it_whatever_the_umask(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("umask", umask=0o077))
    await within(10, command.ended())
    assert modes(command.spec.directory) == {".": 0o700, "output": 0o600, "status.json": 0o600}
    assert command.head == b"0077\n"


# --- who holds the output open ----------------------------------------------------------------


async def test_return_answers_and_drains_on(runner: Runner, bench: Bench) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    command = await runner.spawn(bench.spec(f"echo started; (read x <{gate}; echo late) &"))
    status = await within(5, command.answered())
    assert (status.state, status.exit_code, status.reason) == (State.OUTPUT_OPEN, 0, Reason.EXIT)
    assert status.output.open
    assert not status.output.complete
    assert status.survivors >= 1
    assert command.head == b"started\n"
    assert saved_status(command).state is State.OUTPUT_OPEN
    gate.write_text("go\n")
    status = await within(5, command.ended())
    assert (status.state, status.exit_code, status.reason) == (State.EXITED, 0, Reason.EXIT)
    assert status.output.complete
    assert spilled(command) == b"started\nlate\n"


async def test_return_does_not_drain_for_ever(runner: Runner, bench: Bench) -> None:
    nap = unique_sleep()
    command = await runner.spawn(
        bench.spec(f"echo started; {nap} &", output_grace_ms=50, max_background_ms=300)
    )
    assert (await within(5, command.answered())).state is State.OUTPUT_OPEN
    status = await within(5, command.ended())
    assert (status.exit_code, status.reason) == (0, Reason.OUTPUT_OPEN)
    assert (status.survivors, running(nap)) == (0, [])


async def test_wait_waits_for_the_late_line(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(
        bench.spec("echo now; (sleep 0.5; echo late) &", on_output_open="wait", output_grace_ms=50)
    )
    status = await within(5, command.answered())
    assert (status.state, status.exit_code) == (State.EXITED, 0)
    assert status.output.complete
    assert command.head == b"now\nlate\n"
    assert status.drain_ms is not None
    assert status.drain_ms > 300


async def test_wait_ends_with_the_timeout(runner: Runner, bench: Bench) -> None:
    nap = unique_sleep()
    command = await runner.spawn(
        bench.spec(f"echo now; {nap} &", on_output_open="wait", timeout_ms=400)
    )
    status = await within(5, command.answered())
    # It has ended by itself: what ran into the timeout is the wait for what it had left behind.
    assert (status.exit_code, status.reason, status.timed_out) == (0, Reason.OUTPUT_OPEN, True)
    assert (status.killed, status.survivors, running(nap)) == (1, 0, [])


async def test_to_end_what_was_left_behind_does_not_change_how_the_command_ended(
    runner: Runner, bench: Bench
) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"echo now; {nap} &", output_grace_ms=50))
    assert (await within(5, command.answered())).state is State.OUTPUT_OPEN
    command.kill(signal.SIGTERM, Reason.CLIENT_GONE)
    status = await within(5, command.ended())
    assert (status.exit_code, status.reason, status.timed_out) == (0, Reason.EXIT, False)
    assert (status.killed, status.survivors, running(nap)) == (1, 0, [])
    assert any("left behind were ended: client_gone" in said for said in status.warnings)


async def test_kill_ends_the_holder_and_keeps_the_exit_code(runner: Runner, bench: Bench) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"echo started; {nap} &", on_output_open="kill"))
    status = await within(5, command.answered())
    assert (status.state, status.exit_code, status.reason) == (
        State.EXITED,
        0,
        Reason.OUTPUT_OPEN,
    )
    assert status.output.complete
    assert (status.killed, status.survivors, running(nap)) == (1, 0, [])


async def test_a_child_with_an_output_of_its_own_survives(runner: Runner, bench: Bench) -> None:
    nap = unique_sleep()
    command = await runner.spawn(bench.spec(f"echo started; {nap} >/dev/null 2>&1 &"))
    status = await within(5, command.answered())
    assert (status.state, status.exit_code, status.survivors) == (State.EXITED, 0, 1)
    assert status.output.complete
    assert await eventually(lambda: len(running(nap)) == 1)
    assert command in runner.commands
    command.kill()
    await within(5, command.closed())
    assert running(nap) == []
    assert command not in runner.commands


# --- time and kill ----------------------------------------------------------------------------


async def test_what_left_the_session_and_ignores_sigterm_is_gone_after_a_timeout(
    runner: Runner, bench: Bench
) -> None:
    naps = [unique_sleep() for _ in range(4)]
    script = (
        f"{naps[0]} & setsid {naps[1]} & (setsid setsid {naps[2]} >/dev/null 2>&1 &) ; "
        f"bash -c \"trap '' TERM; {naps[3]} & wait; wait\" & echo begin; wait; echo never"
    )
    command = await runner.spawn(bench.spec(script, timeout_ms=500))
    assert await eventually(lambda: all(running(nap) for nap in naps), 3)
    status = await within(5, command.ended())
    assert (status.timed_out, status.reason, status.survivors) == (True, Reason.TIMEOUT, 0)
    assert [running(nap) for nap in naps] == [[], [], [], []]
    assert status.killed >= 5
    assert status.output.complete
    assert command.head.startswith(b"begin\n")
    assert b"never" not in command.head


async def test_who_ignores_sigterm_gets_sigkill_after_the_grace(
    runner: Runner, bench: Bench
) -> None:
    script = "trap '' TERM; echo on; while :; do sleep 0.05; done"
    command = await runner.spawn(bench.spec(script, timeout_ms=300, kill_grace_ms=300))
    status = await within(5, command.ended())
    assert (status.exit_code, status.signal, status.timed_out) == (None, 9, True)
    assert status.duration_ms is not None
    assert 590 <= status.duration_ms < 2_000


async def test_last_words_are_kept(runner: Runner, bench: Bench) -> None:
    script = "trap 'seq 1 50000; exit 5' TERM; echo on; while :; do sleep 0.02; done"
    command = await runner.spawn(bench.spec(script, timeout_ms=300, kill_grace_ms=10_000))
    status = await within(15, command.ended())
    assert (status.exit_code, status.signal, status.reason) == (5, None, Reason.TIMEOUT)
    assert status.output.complete
    assert spilled(command).endswith(NUMBERS)


async def test_a_stopped_process_can_end_itself(runner: Runner, bench: Bench) -> None:
    script = "trap 'echo bye; exit 6' TERM; echo on; kill -STOP $$; echo never"
    command = await runner.spawn(bench.spec(script, timeout_ms=300, kill_grace_ms=10_000))
    status = await within(5, command.ended())
    assert (status.exit_code, command.head) == (6, b"on\nbye\n")


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
async def test_a_clean_exit_is_never_told_as_an_end_that_came_first(
    runner: Runner, bench: Bench, number: signal.Signals | None
) -> None:
    """The deadline, or a kill, meets the very end of commands: before it, after it, within it."""
    ended: list[Status] = []

    async def one(sleep: float) -> None:
        timeout = 30 if number is None else 20_000
        command = await runner.spawn(bench.spec(f"exec sleep {sleep:.4f}", timeout_ms=timeout))
        if number is not None:
            await asyncio.sleep(0.03)
            command.kill(number)
        ended.append(await within(10, command.ended()))

    for batch in range(20):
        await asyncio.gather(*(one(0.022 + (batch + step / 5) / 2_000) for step in range(5)))
    by_itself = [status for status in ended if status.signal is None]
    assert len(ended) == 100
    assert by_itself, "none of them met its end"
    for status in by_itself:
        assert (status.exit_code, status.reason, status.timed_out) == (0, Reason.EXIT, False)
    for status in ended:
        if status.signal is not None:
            assert status.reason is (Reason.TIMEOUT if number is None else Reason.KILLED)


async def test_kill_with_a_signal_and_a_reason(runner: Runner, bench: Bench) -> None:
    script = "trap 'echo int; exit 7' INT; echo on; while :; do sleep 0.02; done"
    command = await runner.spawn(bench.spec(script, kill_grace_ms=10_000))
    while not command.bytes_seen:
        await within(5, command.changed())
    command.kill(2, Reason.CLIENT_GONE)
    status = await within(5, command.ended())
    assert (status.exit_code, status.reason) == (7, Reason.CLIENT_GONE)


async def test_a_second_kill_is_more_urgent(runner: Runner, bench: Bench) -> None:
    script = "trap '' TERM; echo on; while :; do sleep 0.02; done"
    command = await runner.spawn(bench.spec(script, kill_grace_ms=60_000))
    while not command.bytes_seen:
        await within(5, command.changed())
    command.kill()
    command.kill(9)
    status = await within(5, command.ended())
    assert (status.signal, status.reason) == (9, Reason.KILLED)


async def test_a_stranger_that_holds_the_pipe_does_not_hold_the_answer(
    runner: Runner, bench: Bench
) -> None:
    command = await runner.spawn(bench.spec("echo x; exec sleep 60", timeout_ms=300))
    while not command.bytes_seen:
        await within(5, command.changed())
    # As a daemon does that was handed the descriptor: no process of the command.
    held = os.open(f"/proc/{command.status.leader}/fd/1", os.O_WRONLY)
    try:
        status = await within(5, command.ended())
    finally:
        os.close(held)
    assert (status.state, status.reason, status.survivors) == (State.EXITED, Reason.TIMEOUT, 0)
    assert status.output.open
    assert not status.output.complete
    assert any("held open" in warning for warning in status.warnings)


class Immortal:
    """Processes that hang in the kernel: no signal ends them."""

    wait_status: int | None = None
    alone = False
    killed = 3
    rounds = 0

    def watch(self, poll: select.poll) -> None:
        pass

    def reap(self) -> None:
        pass

    def hold(self) -> bool:
        return True

    def signal(self, number: int) -> None:
        self.rounds += number == signal.SIGKILL

    def living(self) -> int:
        return 3

    def usage(self) -> tuple[float | None, int | None]:
        return None, None


async def test_what_cannot_be_killed_is_said_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    monkeypatch.setattr(session, "GIVE_UP", 0.2)
    directory, spill = record.make_directory(str(bench.directory / "x"))
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    command = Command(bench.spec("true"))
    await connect(command, ours, lambda _: None)
    made = record.Record(id="x", directory="/x", containment="subreaper", asked=0.0, exec_at=0.0)
    family = Immortal()
    policy = session.Policy(0.0, 0.05, 1.0, 1.0, "return", "kill", "kill")
    loop = session.Session(
        made,
        Sink(spill, Bounds(spill=100, head=10, tail=10)),
        family,
        policy,
        pipe=read,
        control=theirs,
        directory=directory,
    )
    await within(5, asyncio.to_thread(loop.run, None, 0.01))
    theirs.close()
    os.close(write)
    os.close(directory)
    status = await within(5, command.ended())
    assert (status.exit_code, status.signal, status.survivors) == (None, None, 3)
    assert not status.output.complete
    assert any("could not be killed" in warning for warning in status.warnings)
    assert family.rounds > 3


# --- bounds and faults ------------------------------------------------------------------------


async def test_the_spill_ends_exactly_at_its_limit(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("yes", max_output_bytes=10_000_001))
    status = await within(10, command.ended())
    assert status.reason is Reason.OUTPUT_LIMIT
    assert (status.output.spill.bytes, status.output.spill.error) == (10_000_001, "output_limit")
    assert not status.output.complete
    assert len(spilled(command)) == 10_000_001


async def test_drain_lets_it_run_on_and_keeps_the_true_end(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(
        bench.spec("seq 1 50000", max_output_bytes=1_000, on_output_limit="drain")
    )
    status = await within(10, command.ended())
    assert (status.exit_code, status.reason) == (0, Reason.EXIT)
    assert (status.output.bytes, status.output.spill.bytes) == (288_894, 1_000)
    assert not status.output.complete
    assert command.tail == NUMBERS[-20_480:]


async def test_output_that_just_fits_is_complete(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("seq 1 50000", max_output_bytes=288_894))
    assert (await within(10, command.ended())).output.complete


async def test_a_full_disk_stops_neither_the_command_nor_its_end(
    runner: Runner, bench: Bench
) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    command = await runner.spawn(bench.spec(f"read x <{gate}; seq 1 50000; echo END"))
    limit = 100_000
    resource.prlimit(shim_of(command).pid, resource.RLIMIT_FSIZE, (limit, limit))
    gate.write_text("go\n")
    status = await within(10, command.ended())
    assert (status.exit_code, status.reason) == (0, Reason.EXIT)
    assert (status.output.spill.error, status.output.spill.bytes) == ("EFBIG", limit)
    assert status.output.bytes == len(NUMBERS) + 4
    assert not status.output.complete
    assert command.tail == (NUMBERS + b"END\n")[-20_480:]
    assert spilled(command) == NUMBERS[:limit]


async def test_who_tampers_with_the_spill_is_found_out(runner: Runner, bench: Bench) -> None:
    os.mkfifo(bench.directory / "gate")
    command = await runner.spawn(bench.spec("seq 1 10; read x < gate", cwd=str(bench.directory)))
    while command.bytes_spilled < 21:
        await within(5, command.changed())
    os.truncate(command.spill_path, 5)
    (bench.directory / "gate").write_text("go\n")
    status = await within(5, command.ended())
    assert not status.output.complete
    assert any("spill" in warning for warning in status.warnings)


async def test_a_follower_can_read_what_grows(runner: Runner, bench: Bench) -> None:
    gate = bench.directory / "gate"
    os.mkfifo(gate)
    command = await runner.spawn(bench.spec(f"echo one; read x <{gate}; echo two"))
    while command.bytes_spilled < 4:
        await within(5, command.changed())
    assert spilled(command) == b"one\n"
    assert command.status.state is State.RUNNING
    gate.write_text("go\n")
    await within(5, command.ended())
    assert spilled(command) == b"one\ntwo\n"


async def test_news_of_progress_is_rare(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("for i in $(seq 1 100); do echo $i; sleep 0.005; done"))
    news, began = 0, asyncio.get_running_loop().time()
    while not command.status.final:
        await within(10, command.changed())
        news += 1
    took = asyncio.get_running_loop().time() - began
    assert 2 <= news <= took * 20 + 3


async def test_standard_input_is_what_was_given(runner: Runner, bench: Bench) -> None:
    stdin = base64.b64encode(os.urandom(3 << 20))
    command = await runner.spawn(bench.spec("cat", stdin=stdin))
    status = await within(10, command.ended())
    assert status.output.complete
    assert spilled(command) == stdin


async def test_standard_input_that_nobody_reads_holds_nothing_up(
    runner: Runner, bench: Bench
) -> None:
    command = await runner.spawn(bench.spec("exec <&-; seq 1 50000", stdin=bytes(8 << 20)))
    status = await within(10, command.ended())
    assert status.output.complete
    assert spilled(command) == NUMBERS


async def test_without_input_and_terminal_nothing_waits(runner: Runner, bench: Bench) -> None:
    script = "cat; echo rc=$?; (read x </dev/tty) 2>/dev/null; echo tty=$?"
    command = await runner.spawn(bench.spec(script))
    await within(5, command.ended())
    assert command.head == b"rc=0\ntty=1\n"


async def test_nobody_can_take_from_the_output_what_was_written_to_it(
    runner: Runner, bench: Bench
) -> None:
    """Some scripts ask on standard error and read the answer from there, as from a terminal."""
    command = await runner.spawn(
        bench.spec(
            "stat -Lc %a /dev/stdout /dev/stderr; echo more >/dev/stderr; echo >>/dev/stdout"
        )
    )
    await within(5, command.ended())
    assert command.head == b"200\n200\nmore\n\n"
