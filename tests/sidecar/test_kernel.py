"""Processes are told by pid and start time, and found wherever they have gone."""

import os
import select
import signal
import subprocess

import pytest

from gateway.sidecar import kernel


def test_a_process_that_only_has_the_same_number_is_not_hit() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        there = kernel.process(sleeping.pid)
        assert there is not None
        assert there.parent == os.getpid()
        other = kernel.Process(there.pid, there.parent, there.started - 1, alive=True)
        assert kernel.send(other, signal.SIGKILL) is False
        assert sleeping.poll() is None
        assert kernel.send(there, signal.SIGKILL) is True
        assert sleeping.wait(5) == -signal.SIGKILL
    assert kernel.process(there.pid) is None
    assert kernel.send(there, signal.SIGKILL) is False


def test_without_pidfds_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        there = kernel.process(sleeping.pid)
        assert there is not None
        other = kernel.Process(there.pid, there.parent, there.started - 1, alive=True)
        assert kernel.send(other, signal.SIGKILL) is False
        assert kernel.send(there, signal.SIGKILL) is True
        assert sleeping.wait(5) == -signal.SIGKILL


def test_descendants_are_found_below_and_not_below_who_is_left_out() -> None:
    script = "sleep 60 & setsid sleep 60 & echo $$; wait"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        try:
            below: list[kernel.Process] = []
            for _ in range(500):
                below = kernel.descendants(shell.pid)
                if len(below) == 2:
                    break
                select.select([], [], [], 0.01)
            assert {found.parent for found in below} == {shell.pid}
            mine = {found.pid for found in kernel.descendants(os.getpid())}
            assert mine >= {shell.pid} | {found.pid for found in below}
            without = kernel.descendants(os.getpid(), without={shell.pid})
            assert not {shell.pid, *(found.pid for found in below)} & {f.pid for f in without}
        finally:
            for found in kernel.descendants(shell.pid):
                kernel.send(found, signal.SIGKILL)
            shell.kill()


def test_a_zombie_is_not_alive() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    found = kernel.process(pid)
    assert found is not None
    assert not found.alive
    assert pid not in {child.pid for child in kernel.descendants(os.getpid())}
    os.waitpid(pid, 0)


def test_who_stands_still_cannot_end_in_between() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        assert kernel.standing(sleeping.pid) is kernel.Standing.RUNNING
        sleeping.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, sleeping.pid, os.WSTOPPED | os.WNOWAIT)
        assert kernel.standing(sleeping.pid) is kernel.Standing.STOPPED
        sleeping.kill()
        os.waitid(os.P_PID, sleeping.pid, os.WEXITED | os.WNOWAIT)
        assert kernel.standing(sleeping.pid) is kernel.Standing.ENDING
    assert kernel.standing(sleeping.pid) is kernel.Standing.ENDING


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ({"1": b"S 0"}, kernel.Standing.RUNNING),
        ({"1": b"S 4"}, kernel.Standing.ENDING),
        ({"1": b"Z 4", "2": b"S 64"}, kernel.Standing.RUNNING),
        ({"1": b"Z 4", "2": b"T 64"}, kernel.Standing.STOPPED),
        ({"1": b"T 0", "2": b"R 0"}, kernel.Standing.RUNNING),
        ({"1": b"R 4", "2": b"D 68"}, kernel.Standing.ENDING),
        ({}, kernel.Standing.ENDING),
    ],
)
def test_a_process_that_has_begun_to_exit_is_not_alive_if_no_thread_of_it_is(
    monkeypatch: pytest.MonkeyPatch, threads: dict[str, bytes], expected: kernel.Standing
) -> None:
    def stat(path: str) -> list[bytes]:
        state, flags = threads[path.rpartition("/")[2]].split()
        rest = [b"9", b"0", b"0", b"0", b"0", flags, *[b"0"] * 10, b"%d" % len(threads), b"0", b"7"]
        return [state, *rest]

    monkeypatch.setattr(kernel, "_stat", stat)
    monkeypatch.setattr(os, "listdir", lambda _: list(threads))
    assert kernel.standing(1) is expected
    if threads:
        found = kernel.process(1)
        assert found == kernel.Process(1, 9, 7, expected is not kernel.Standing.ENDING)


def test_the_kernels_refusal_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.prctl(kernel.SET_PDEATHSIG, 1_000)
