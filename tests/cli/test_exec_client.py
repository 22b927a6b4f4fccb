"""One command across broken connections: nothing twice, and what is missing is known."""

import base64
from typing import Any

import pytest

from gateway.cli import exec_client
from gateway.cli.exec_client import Run
from gateway.cli.exec_wire import Endpoint


@pytest.fixture
def run() -> Run:
    return Run(Endpoint("unix:/no/such/socket", "token"), {"command": "x"})


def pieces(run: Run, *events: dict[str, Any]) -> list[bytes]:
    found = []
    for event in events:
        piece = run._piece(event)
        run.received += len(piece)
        found.append(piece)
    return found


def test_what_came_before_is_not_taken_twice(run: Run) -> None:
    assert pieces(
        run,
        {"offset": 0, "len": 4, "text": "abcd"},
        {"offset": 2, "len": 4, "text": "cdef"},
        {"offset": 0, "len": 3, "text": "abc"},
        {"offset": 6, "len": 2, "b64": base64.b64encode(b"\xff\0").decode()},
    ) == [b"abcd", b"ef", b"", b"\xff\0"]
    assert not run.lost


def test_a_gap_is_noticed(run: Run) -> None:
    assert pieces(run, {"offset": 5, "len": 1, "text": "x"}) == [b"x"]
    assert (run.lost, run.received) == (True, 6)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"exit_code": 0}, 0),
        ({"exit_code": 44}, 44),
        ({"exit_code": None, "signal": 9}, 137),
        ({"exit_code": 5, "timed_out": True}, 124),
        ({"exit_code": None, "signal": None}, 125),
    ],
)
def test_an_answer_is_an_exit_code(answer: dict[str, Any], code: int) -> None:
    assert exec_client.exit_code(answer) == code


def test_a_command_that_was_never_sent_is_not_killed(run: Run) -> None:
    assert not run.kill()
    assert not run.asked
