"""From fork to exec: what the leader gets, what it does not, and how a failed start is told."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.sidecar.runner import Runner
from gateway.sidecar.status import State
from tests.sidecar.support import Bench, saved_status, spilled, within

ROOT = Path(__file__).parents[2]


async def test_a_directory_that_is_gone_is_not_a_failed_command(
    runner: Runner, bench: Bench
) -> None:
    gone = bench.directory / "gone"
    gone.mkdir()
    descriptor = os.open(gone, os.O_RDONLY | os.O_DIRECTORY)
    gone.rmdir()
    try:
        for cwd_fd in (descriptor, None):
            command = await runner.spawn(bench.spec("echo x", cwd=str(gone), cwd_fd=cwd_fd))
            status = await within(5, command.answered())
            assert (status.state, status.exit_code) == (State.SPAWN_FAILED, None)
            assert status.spawn_error is not None
            assert (status.spawn_error.stage, status.spawn_error.name) == ("cwd", "ENOENT")
            assert status.spawn_error.errno == errno.ENOENT
            assert status.spawn_error.message == "No such file or directory"
            assert not status.output.complete
            assert saved_status(command).state is State.SPAWN_FAILED
            await within(5, command.closed())
    finally:
        os.close(descriptor)


async def test_a_directory_of_path_that_does_not_have_the_program_does_not_forbid_it(
    runner: Runner, bench: Bench
) -> None:
    """The system says so of a directory that may not be read, and of one in the program's place."""
    (bench.directory / "closed").mkdir(mode=0)
    (bench.directory / "wrong" / "no-such-program").mkdir(parents=True)
    path = f"{bench.directory}/closed:{bench.directory}/wrong:/bin"
    command = await runner.spawn(bench.spec(argv=("no-such-program",), env={"PATH": path}))
    status = await within(5, command.answered())
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == ("exec", "ENOENT")
    forbidden = bench.directory / "wrong" / "forbidden"
    forbidden.write_text("")
    command = await runner.spawn(bench.spec(argv=("forbidden",), env={"PATH": path}))
    status = await within(5, command.answered())
    assert status.spawn_error is not None
    assert status.spawn_error.name == "EACCES"


@pytest.mark.parametrize(
    ("argv", "stage", "name"),
    [
        (("no-such-program",), "exec", "ENOENT"),
        (("/etc/passwd",), "exec", "EACCES"),
        (("/bin/echo", "a\0b"), "exec", "EINVAL"),
        (("/bin/echo", "x" * 200_000), "exec", "E2BIG"),
    ],
)
async def test_what_cannot_be_executed_is_told_by_errno(
    runner: Runner, bench: Bench, argv: tuple[str, ...], stage: str, name: str
) -> None:
    command = await runner.spawn(bench.spec(argv=argv))
    status = await within(5, command.answered())
    assert status.state is State.SPAWN_FAILED
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == (stage, name)


async def test_a_directory_is_never_shared_by_two_commands(runner: Runner, bench: Bench) -> None:
    spec = bench.spec("echo one")
    first = await runner.spawn(spec)
    await within(5, first.ended())
    second = await runner.spawn(spec)
    status = await within(5, second.ended())
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == ("directory", "EEXIST")
    assert spilled(first) == b"one\n"


async def test_argv_is_found_in_the_path_of_the_command(runner: Runner, bench: Bench) -> None:
    program = bench.directory / "bin" / "mine"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho mine "$1"\n')
    program.chmod(0o755)
    spec = bench.spec(argv=("mine", "a b"), env={"PATH": str(program.parent)})
    command = await runner.spawn(spec)
    await within(5, command.ended())
    assert command.head == b"mine a b\n"


async def test_the_environment_is_exactly_what_was_given(
    runner: Runner, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-LEAK9")
    given = {"PATH": "/bin:/usr/bin", "ODD": "a\udcffb", "MY_TOKEN": "asked-for"}
    command = await runner.spawn(bench.spec(argv=("env",), env=given))
    await within(5, command.ended())
    assert sorted(command.head.splitlines()) == [
        b"MY_TOKEN=asked-for",
        b"ODD=a\xffb",
        b"PATH=/bin:/usr/bin",
    ]


async def test_neither_zygote_nor_shim_holds_the_environment_of_the_gateway(
    runner: Runner, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = await runner.spawn(
        bench.spec("cat /proc/$PPID/environ; read -r x </proc/$PPID/stat; echo; echo $x")
    )
    await within(5, command.ended())
    if os.geteuid() == 0:
        assert command.head.startswith(b"PATH=/usr/local/bin:/usr/bin:/bin\0\n")
    else:
        assert b"Permission denied" in command.head.splitlines()[0]


async def test_the_leader_has_three_descriptors_and_no_ignored_signal(
    runner: Runner, bench: Bench
) -> None:
    command = await runner.spawn(bench.spec(argv=("ls", "/proc/self/fd"), stdin=b"x"))
    await within(5, command.ended())
    # The last is the directory that is being listed.
    assert command.head.split() == [b"0", b"1", b"2", b"3"]
    command = await runner.spawn(bench.spec(argv=("grep", "Sig[IB]", "/proc/self/status")))
    await within(5, command.ended())
    # Those above 28 are the C library's own, and no program may set them.
    assert [int(mask, 16) & 0xFFFFFFF for mask in command.head.split()[1::2]] == [0, 0]


async def test_limits_and_privileges(runner: Runner, bench: Bench) -> None:
    script = (
        "ulimit -c; ulimit -n; ulimit -v; cat /proc/self/oom_score_adj; "
        "grep NoNewPrivs /proc/self/status"
    )
    limits = {"core": 0, "nofile": 333, "as": 1 << 30}
    command = await runner.spawn(bench.spec(script, limits=limits))
    await within(5, command.ended())
    assert command.head.split() == [
        b"0",
        b"333",
        b"1048576",
        b"500",
        b"NoNewPrivs:",
        b"1",
    ]


async def test_a_limit_above_the_hard_one_is_lowered_to_it(runner: Runner, bench: Bench) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = await runner.spawn(bench.spec("ulimit -n", limits={"nofile": hard + 1}))
    await within(5, command.ended())
    assert command.head == b"%d\n" % hard


async def test_the_size_of_files_is_limited_for_the_command_and_not_for_its_output(
    runner: Runner, bench: Bench
) -> None:
    script = "head -c 300000 /dev/zero > big; wc -c < big; seq 1 50000"
    spec = bench.spec(script, cwd=str(bench.directory), limits={"fsize": 100_000})
    command = await runner.spawn(spec)
    status = await within(5, command.ended())
    assert b"100000\n" in command.head
    assert status.output.complete
    assert status.output.bytes > 280_000


async def test_the_leader_is_in_a_session_of_its_own(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("cut -d ' ' -f 1,5,6 /proc/$$/stat"))
    status = await within(5, command.ended())
    assert {int(number) for number in command.head.split()} == {status.leader}


ORDINARY = """
import json, os, sys
from gateway.sidecar import kernel, launch
from gateway.sidecar.record import SpawnFailed
kernel.prctl(kernel.SET_DUMPABLE, 1)  # loads what that user may not be able to read
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    launch.launch(json.load(sys.stdin), launch.Files(1, None, None), os.pipe()[0])
except SpawnFailed as failure:
    print(failure.stage, failure.number)
"""
"""Starts a command as a gateway does that is not root, whoever runs the tests."""


def test_another_user_without_root_is_refused(bench: Bench) -> None:
    request = bench.spec("id", run_as=(0, 0)).request(0.0)
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY], input=json.dumps(request), cwd=ROOT, text=True,
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    assert done.stdout == f"run_as {errno.EPERM}\n"


async def test_the_directory_that_was_opened_counts_not_its_name(
    runner: Runner, bench: Bench
) -> None:
    there, moved = bench.directory / "there", bench.directory / "moved"
    there.mkdir()
    descriptor = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
    there.rename(moved)
    there.mkdir()
    try:
        command = await runner.spawn(bench.spec("pwd -P", cwd=str(there), cwd_fd=descriptor))
    finally:
        os.close(descriptor)
    await within(5, command.ended())
    assert command.head == f"{moved}\n".encode()
