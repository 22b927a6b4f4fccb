"""The processes of a command: who can be held, and who has ended by itself."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gateway.sidecar import fallback, family, kernel

MakeFamily = Callable[[subprocess.Popen[bytes]], family.Family]


@pytest.fixture(params=["descendants", "group"])
def make(request: pytest.FixtureRequest) -> MakeFamily:
    if request.param == "group":
        return fallback.ProcessGroup
    return lambda leader: family.Descendants(leader.pid)


def start(script: str) -> subprocess.Popen[bytes]:
    """A leader in a group of its own that has said that it is there."""
    leader = subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    assert leader.stdout is not None
    leader.stdout.readline()
    return leader


def ended(held: family.Family) -> int | None:
    """The wait status, as soon as there is one."""
    for _ in range(500):
        held.reap()
        if held.wait_status is not None:
            break
        select.select([], [], [], 0.01)
    return held.wait_status


def test_who_is_held_gets_the_next_signal_before_it_can_end(make: MakeFamily) -> None:
    with start("trap 'exit 7' TERM; echo; while :; do :; done") as leader:
        held = make(leader)
        assert held.hold()
        assert held.hold(), "it stands still already"
        assert kernel.is_stopped(leader.pid)
        held.signal(signal.SIGTERM)
        held.signal(signal.SIGCONT)
        assert ended(held) == 7 << 8
        assert not held.hold()
        leader.returncode = 7


def test_who_has_stopped_itself_can_be_held(make: MakeFamily) -> None:
    with start("echo; kill -STOP $$; exit 5") as leader:
        held = make(leader)
        while not kernel.is_stopped(leader.pid):
            select.select([], [], [], 0.01)
        assert held.hold()
        held.signal(signal.SIGKILL)
        assert ended(held) == signal.SIGKILL
        leader.returncode = -9


def test_who_has_ended_cannot_be_held(make: MakeFamily) -> None:
    with start("echo; exit 3") as leader:
        os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        held = make(leader)
        assert not held.hold()
        assert held.wait_status == 3 << 8
        leader.returncode = 3


@pytest.mark.parametrize("standing", list(kernel.Standing))
def test_a_leader_that_hangs_in_the_kernel_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, standing: kernel.Standing
) -> None:
    monkeypatch.setattr(family, "HOLD", 0.02)
    monkeypatch.setattr(kernel, "standing", lambda _: standing)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as leader:
        held = family.Descendants(leader.pid)
        began = time.monotonic()
        assert held.hold() is (standing is not kernel.Standing.ENDING)
        assert time.monotonic() - began < 2
        leader.kill()
        assert ended(held) == signal.SIGKILL
        leader.returncode = -9
