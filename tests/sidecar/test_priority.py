"""A command and what drains it give way: their niceness, and that of their sessions."""

import errno
import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.sidecar import kernel, priority
from gateway.sidecar.runner import Runner
from tests.sidecar.support import Bench, eventually, shim_of, within

OWN = os.getpriority(os.PRIO_PROCESS, 0)
LOWERED = min(19, OWN + priority.NICE)


class Writes:
    """Stands in for the kernel: refuses with these errors, one by one, then takes what comes."""

    def __init__(self, *errors: int) -> None:
        self._errors = list(errors)
        self.taken: list[tuple[str, bytes]] = []
        self.asked = 0

    def __call__(self, descriptor: int, data: bytes) -> int:
        self.asked += 1
        if self._errors and (number := self._errors.pop(0)):
            raise OSError(number, os.strerror(number))
        self.taken.append((os.readlink(f"/proc/self/fd/{descriptor}"), data))
        return len(data)


@pytest.fixture
def sleeper() -> Iterator[kernel.Process]:
    """A process with a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        found = kernel.process(process.pid)
        assert found is not None
        yield found
        process.kill()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel without autogroups has another file opened instead."""
    if not Path("/proc/self/autogroup").exists():
        (tmp_path / "autogroup").touch()
        real = os.open
        monkeypatch.setattr(os, "open", lambda _path, flags: real(tmp_path / "autogroup", flags))


def niceness_of_session(pid: int) -> int:
    """Of a session is shown "/autogroup-123 nice 5", of the first one of a machine nothing."""
    try:
        told = Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return priority.NICE
    return int(told[2]) if told else priority.NICE


async def test_a_command_and_its_drain_are_nice(runner: Runner, bench: Bench) -> None:
    command = await runner.spawn(bench.spec("nice; exec sleep 60"))
    leader, shim = command.status.leader, shim_of(command).pid
    assert leader is not None
    for pid in (leader, shim):
        assert os.getpriority(os.PRIO_PROCESS, pid) == LOWERED
        # Of one that is not shared with the gateway, which would be made nice with it.
        assert os.getsid(pid) != os.getsid(0)
        assert await eventually(lambda pid=pid: niceness_of_session(pid) == priority.NICE)  # type: ignore[misc]
    assert os.getpriority(os.PRIO_PROCESS, 0) == OWN
    command.kill()
    await within(5, command.ended())
    assert command.head == b"%d\n" % LOWERED


@pytest.mark.usefixtures("groups")
def test_a_session_is_tried_again_ever_more_seldom(
    sleeper: kernel.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes one of them in a tenth of a second where there is no privilege."""
    writes = Writes(*[errno.EAGAIN] * 8)
    monkeypatch.setattr(os, "write", writes)
    lowering = priority.Lowering(sleeper)
    now, pauses = 1000.0, []
    while lowering.next_at != math.inf:
        before = writes.asked
        lowering.advance(now)
        lowering.advance(now)
        assert writes.asked == before + 1
        pauses.append(round(lowering.next_at - now, 3))
        now = lowering.next_at
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, math.inf]
    assert [data for _, data in writes.taken] == [b"5"]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.ESRCH])
def test_what_is_refused_for_good_is_left(
    sleeper: kernel.Process, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "write", writes := Writes(number))
    lowering = priority.Lowering(sleeper)
    lowering.advance(0.0)
    assert (lowering.next_at, writes.asked) == (math.inf, 1)


@pytest.mark.usefixtures("groups")
def test_a_process_that_has_the_number_of_one_that_ended_is_left_alone(
    sleeper: kernel.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", writes := Writes())
    other = kernel.Process(sleeper.pid, sleeper.parent, sleeper.started + 1, alive=True)
    lowering = priority.Lowering(other)
    lowering.advance(0.0)
    assert (lowering.next_at, writes.asked) == (math.inf, 0)


def test_a_process_that_has_ended_is_no_fault(sleeper: kernel.Process) -> None:
    gone = kernel.Process(2**30, 1, sleeper.started, alive=True)
    lowering = priority.Lowering(gone)
    lowering.advance(0.0)
    assert lowering.next_at == math.inf


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(("refused", "asked"), [(0, 1), (2, 3), (50, priority.TRIES)])
def test_a_process_that_lowers_itself_does_not_try_for_ever(
    monkeypatch: pytest.MonkeyPatch, refused: int, asked: int
) -> None:
    writes, nice = Writes(*[errno.EAGAIN] * refused), []
    monkeypatch.setattr(os, "write", writes)
    monkeypatch.setattr(os, "setpriority", lambda *given: nice.append(given))
    monkeypatch.setattr(priority, "FIRST_PAUSE", 0)
    priority.lower()
    assert writes.asked == asked
    assert nice == [(os.PRIO_PROCESS, 0, OWN + priority.NICE)]
