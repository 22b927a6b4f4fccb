"""`gateway exec` passes output on as it comes, and says when it is not all."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import exec_command
from tests.cli.conftest import Done
from tests.cli.fake_endpoint import Endpoint, wait_until

Gateway = Callable[..., Done]
Start = Callable[..., subprocess.Popen[bytes]]


def test_a_command_and_its_arguments_stand_behind_two_dashes(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    done = gateway("exec", "--", "printf", "%s\n", "--json", "a b", "--")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"--json\na b\n--\n", b"")
    assert endpoint.requests[0]["argv"] == ["printf", "%s\n", "--json", "a b", "--"]
    assert endpoint.requests[0]["cwd"] == str(here)


def test_a_command_line_is_for_the_shell(endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("exec", "--shell", "echo $((1 + 1)); exit 9")
    assert (done.returncode, done.stdout) == (9, b"2\n")
    assert endpoint.requests[0]["command"] == "echo $((1 + 1)); exit 9"


def test_directory_and_timeout_are_the_requests(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    here.joinpath("sub").mkdir()
    done = gateway("exec", "--cwd", "sub", "--timeout", "0.3", "--shell", "pwd; sleep 30")
    assert (done.returncode, done.stdout) == (124, f"{here / 'sub'}\n".encode())
    assert b"ran into its timeout" in done.stderr
    assert endpoint.requests[0]["timeout_ms"] == 300


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["ls"],
        ["--"],
        ["ls", "--", "ls"],
        ["--shell", "x", "--", "ls"],
        ["--tim", "3", "--", "ls"],
    ],
)
def test_bad_usage_runs_nothing(words: list[str], endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("exec", *words)
    assert (done.returncode, done.stdout, endpoint.asked) == (2, b"", [])
    assert b"usage: gateway exec" in done.stderr


def test_output_comes_as_it_is_written(endpoint: Endpoint, start: Start, here: Path) -> None:
    process = start("exec", "--shell", "echo first; while [ ! -e go ]; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    here.joinpath("go").touch()
    assert process.wait(10) == 0


def test_output_is_passed_byte_for_byte(endpoint: Endpoint, gateway: Gateway) -> None:
    data = os.urandom(200_000)
    assert gateway("exec", "--", "cat", input=data).stdout == data


def test_a_broken_stream_goes_on_where_it_was(endpoint: Endpoint, gateway: Gateway) -> None:
    endpoint.break_after = [1, 100_000, 200_000]
    done = gateway("exec", "--", "seq", "1", "50000")
    assert (done.returncode, done.stderr) == (0, b"")
    came = [
        int(headers["last-event-id"]) for method, _, headers in endpoint.asked if method == "GET"
    ]
    assert came == sorted(came)
    assert came[0] > 0
    assert came[1] >= 100_000
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 50_001))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_command(name: str, endpoint: Endpoint, start: Start) -> None:
    number = getattr(signal, f"SIG{name}")
    process = start("exec", "--shell", "trap 'echo end; exit' TERM; echo begun; sleep 30 & wait")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(number)
    output, error = process.communicate(timeout=10)
    assert (process.returncode, output, error) == (128 + number, b"end\n", b"")


@pytest.mark.parametrize("words", [["exec", "--shell"], ["sh", "-c"]])
def test_a_signal_ends_a_command_that_was_not_heard_of_yet(
    words: list[str], endpoint: Endpoint, start: Start
) -> None:
    endpoint.told.clear()
    process = start(*words, "sleep 30")
    wait_until(lambda: endpoint.commands)
    process.terminate()
    assert process.wait(10) == 143
    wait_until(lambda: endpoint.commands["x_1"].ended)
    assert len(endpoint.requests) == 1
    endpoint.told.set()


def test_a_reader_that_has_left_ends_the_command(endpoint: Endpoint, start: Start) -> None:
    process = start("exec", "--", "yes")
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(10) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    wait_until(lambda: endpoint.commands["x_1"].process.returncode is not None)


def test_an_endpoint_that_is_busy_is_asked_again_when_it_says(
    endpoint: Endpoint, gateway: Gateway
) -> None:
    endpoint.refuse = [(429, {"Retry-After": "0.2"}, {})] * 2
    done = gateway("exec", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")
    assert len(endpoint.asked) == 3
    assert len({headers["idempotency-key"] for _, _, headers in endpoint.asked}) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((429, {"Retry-After": "61"}, {"error": {"message": "Too many."}}), b"is busy, and"),
        ((403, {}, {"error": {"message": "cwd is not within."}}), b"refused: cwd is not within."),
        ((503, {}, {"error": {"message": "The disk is full."}}), b"refused: The disk is full."),
        ((404, {}, {}), b"answered 404: is it the endpoint for shell commands?"),
        ((200, {}, {"models": []}), b"What answers there is not the endpoint"),
    ],
)
def test_a_refusal_is_one_sentence(
    answer: Any, words: bytes, endpoint: Endpoint, gateway: Gateway
) -> None:
    endpoint.refuse = [answer]
    done = gateway("exec", "--", "true")
    assert (done.returncode, done.stdout) == (125, b"")
    assert words in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_program_that_is_not_there_is_127(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    done = gateway("exec", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (127, b"")
    assert b"No such file or directory" in done.stderr
    here.joinpath("text").write_text("x", encoding="utf-8")
    assert gateway("exec", "--", "./text").returncode == 126


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"complete": False}, b"The output is not complete."),
        (
            {"complete": False, "detail.output.spill.error": "ENOSPC"},
            b"The output is not complete (ENOSPC).",
        ),
        ({"complete": False, "output_open": True}, b"left behind holds it open"),
        ({"detail.output.bytes": 99}, b"4 of 99 bytes came."),
    ],
)
def test_an_output_that_is_not_complete_is_no_success(
    changes: dict[str, Any], words: bytes, endpoint: Endpoint, gateway: Gateway
) -> None:
    endpoint.changes = changes
    done = gateway("exec", "--", "echo", "all")
    assert (done.returncode, done.stdout) == (exec_command.INCOMPLETE, b"all\n")
    assert words in done.stderr
    assert str(endpoint.commands["x_1"].spill).encode() in done.stderr
    done = gateway("exec", "--shell", "exit 3")
    assert done.returncode == 3


def test_an_end_that_nobody_saw_is_125(endpoint: Endpoint, gateway: Gateway) -> None:
    endpoint.changes = {"exit_code": None, "complete": False, "detail.state": "interrupted"}
    done = gateway("exec", "--", "true")
    assert done.returncode == 125
    assert b"what watched the command died" in done.stderr


def test_the_whole_answer_is_one_line_of_json(endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("exec", "--json", "--shell", "echo out; exit 5")
    assert done.returncode == 5
    answer = json.loads(done.stdout)
    assert (answer["text"], answer["exit_code"], answer["complete"]) == ("out\n", 5, True)
    assert done.stdout.count(b"\n") == 1


def test_one_in_the_background_is_not_waited_for(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    done = gateway("exec", "--background", "--shell", "while [ ! -e go ]; do sleep 0.02; done")
    assert (done.returncode, done.stdout) == (0, b"x_1\n")
    assert endpoint.commands["x_1"].process.poll() is None
    here.joinpath("go").touch()
    wait_until(lambda: endpoint.commands["x_1"].ended)
    done = gateway("exec", "--background", "--json", "--", "true")
    assert json.loads(done.stdout)["id"] == "x_2"


def test_a_terminal_sees_the_progress(endpoint: Endpoint, start: Start, here: Path) -> None:
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, b"\x18\x00\x50\x00\0\0\0\0")
        process = start("exec", "--shell", "seq 1 5000; sleep 0.8", stderr=slave)
        assert process.stdout is not None
        assert len(process.stdout.read().splitlines()) == 5000
        assert process.wait(10) == 0
        seen = os.read(master, 4096)
    finally:
        os.close(master)
        os.close(slave)
    assert b"23.9 kB, 1 s" in seen
    assert seen.endswith(b"\r\x1b[K")


@pytest.mark.parametrize(
    ("received", "seconds", "shown"),
    [
        (0, 0.4, "0 B, 0 s"),
        (999, 1.0, "999 B, 1 s"),
        (1000, 2.6, "1.0 kB, 3 s"),
        (2_500_000, 61, "2.5 MB, 61 s"),
        (7_000_000_000_000, 1, "7000.0 GB, 1 s"),
    ],
)
def test_the_progress_is_bytes_and_seconds(received: int, seconds: float, shown: str) -> None:
    assert exec_command.line(received, seconds) == shown


def test_help_tells_the_exit_codes(gateway: Gateway) -> None:
    done = gateway("exec", "--help")
    assert done.returncode == 0
    for code in (b"123", b"124", b"125", b"128+N"):
        assert code in done.stdout
    assert b"exec" in gateway("--help").stdout
