"""A session at the moments that a running command hits only sometimes: made by hand, not raced."""

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.sidecar import record
from gateway.sidecar.session import Policy, Session
from gateway.sidecar.sink import Bounds, Sink
from tests.sidecar.support import Bench


class Relatives:
    """Processes that are as a test says; ``next_status`` is what the next look finds."""

    def __init__(self) -> None:
        self.wait_status: int | None = None
        self.next_status: int | None = None
        self.alone = False
        self.killed = 0
        self.still = True
        self.sent: list[int] = []

    def watch(self, poll: select.poll) -> None:
        pass

    def reap(self) -> None:
        self.wait_status = self.next_status

    def hold(self) -> bool:
        self.reap()
        return self.still and self.wait_status is None

    def signal(self, number: int) -> None:
        self.sent.append(number)

    def living(self) -> int:
        return 0 if self.alone else 1

    def usage(self) -> tuple[float | None, int | None]:
        return None, None


class Scene:
    """A session whose command has been started at 100.0."""

    def __init__(self, bench: Bench, on_output_open: str = "return", grace: float = 0.0) -> None:
        self.directory, spill = record.make_directory(str(bench.directory / "x"))
        self.read, self.write = os.pipe()
        self.ours, self.theirs = socket.socketpair()
        self.family = Relatives()
        self.record = record.Record(
            id="x", directory=str(bench.directory / "x"), containment="", asked=99.0, exec_at=100.0
        )
        self.session = Session(
            self.record,
            Sink(spill, Bounds(spill=1000, head=10, tail=10)),
            self.family,
            Policy(1.0, 0.05, grace, 1000.0, on_output_open, "kill", "kill"),
            pipe=self.read,
            control=self.theirs,
            directory=self.directory,
        )

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        os.close(self.directory)


@pytest.fixture
def scene(bench: Bench) -> Iterator[Scene]:
    made = Scene(bench)
    yield made
    made.close()


def test_a_pipe_that_somebody_else_has_emptied_does_not_hold_the_session_up(scene: Scene) -> None:
    os.write(scene.write, b"stolen")
    thief = os.open(f"/proc/self/fd/{scene.write}", os.O_RDONLY)
    assert select.select([scene.read], [], [], 0)[0]
    os.read(thief, 100)
    draining = threading.Thread(target=scene.session._drain, args=(select.POLLIN,), daemon=True)
    draining.start()
    draining.join(2)
    assert not draining.is_alive()
    assert scene.record.eof_at is None
    # The others' ends are as they were: a writer that has to wait still waits.
    assert os.get_blocking(thief)
    assert os.get_blocking(scene.write)
    os.close(thief)
    os.close(scene.write)


def test_what_others_have_taken_from_the_pipe_is_not_waited_for(scene: Scene) -> None:
    os.write(scene.write, b"stolen")
    scene.family.next_status = scene.family.wait_status = 0
    scene.session._advance(100.1)
    assert scene.record.state == "running"
    os.read(scene.read, 100)
    scene.session._advance(100.2)
    assert scene.record.state == "output_open"
    assert scene.session._wait(None) is not None
    os.close(scene.write)


@pytest.mark.parametrize("policy", ["return", "wait"])
def test_who_has_ended_just_before_the_timeout_did_not_run_into_it(
    bench: Bench, policy: str
) -> None:
    scene = Scene(bench, policy)
    scene.family.next_status = 0
    os.close(scene.write)
    scene.session._advance(101.5)
    assert (scene.record.wait_status, scene.record.timed_out) == (0, False)
    assert (scene.record.reason, scene.family.sent) == (None, [])
    scene.close()


def test_who_has_ended_just_before_a_kill_was_not_killed(scene: Scene) -> None:
    scene.family.next_status = 0
    scene.ours.sendall(b'{"reason": "killed", "signal": 15}\n')
    scene.session._listen()
    assert (scene.record.wait_status, scene.record.reason) == (0, "exit")
    assert scene.record.warnings == ["processes that it had left behind were ended: killed"]
    os.close(scene.write)


def test_an_output_without_a_writer_is_not_told_as_open(scene: Scene) -> None:
    """The end of the pipe may be there and not have been read yet, where there is no grace."""
    scene.family.next_status = scene.family.wait_status = 0
    os.close(scene.write)
    scene.session._advance(100.1)
    assert scene.record.state == "running"
    scene.session._drain(select.POLLHUP)
    scene.session._advance(100.2)
    assert (scene.record.state, scene.record.reason) == ("exited", "exit")


@pytest.mark.parametrize(
    ("still", "reason", "timed_out"), [(False, "exit", False), (True, "timeout", True)]
)
def test_who_was_gone_when_the_deadline_came_has_ended_by_itself(
    scene: Scene, still: bool, reason: str, timed_out: bool
) -> None:
    """One that is just exiting can neither be collected yet nor be held."""
    scene.family.still = still
    scene.session._advance(101.1)
    assert scene.family.sent
    assert (scene.record.reason, scene.record.timed_out) == (reason, timed_out)
    os.close(scene.write)


def test_nothing_turns_round_while_the_gateway_does_not_read(scene: Scene) -> None:
    """All has been told and all have gone, but the last word is still here."""
    scene.session._end("killed")
    os.close(scene.write)
    scene.family.next_status, scene.family.alone = 0, True
    scene.session._drain(select.POLLIN)
    scene.family.reap()
    for moment in (101.0, 110.0):
        scene.session._advance(moment)
    assert scene.session._final
    assert scene.session._wait(None) is None


def test_a_second_signal_is_sent_and_the_same_one_is_not(scene: Scene) -> None:
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        scene.session._end("killed", number)
    os.close(scene.write)
    asked = [number for number in scene.family.sent if number != signal.SIGCONT]
    assert asked == [signal.SIGINT, signal.SIGTERM]
    assert scene.record.reason == "killed"
