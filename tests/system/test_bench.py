"""The benchmark tells a right answer from a wrong one, so that a fast wrong proxy cannot win."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from bench.exec import Shell
from bench.rig import WrongAnswerError, free_port
from tests.system.support import ROOT, need, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCES = ROOT / "bench" / "rig"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the two programs."""
    directory = tmp_path_factory.mktemp("rig")
    for name in ("upstream", "client"):
        source = str(SOURCES / f"{name}.c")
        command = [need("gcc"), "-O2", "-Wall", "-Wextra", "-Werror", "-o", name, source]
        subprocess.run(command, cwd=directory, check=True, timeout=60)
    return directory


@pytest.fixture
def upstream(built: Path, tmp_path: Path) -> Iterator[int]:
    port = free_port()
    with running([str(built / "upstream"), str(port)], port, tmp_path / "upstream.log"):
        yield port


def load(built: Path, port: int, *options: str) -> Any:
    command = [str(built / "client"), "-p", str(port), "-t", "10", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return json.loads(done.stdout)


def relay_once(port: int, mangle: Callable[[bytes], bytes]) -> int:
    """Relay one connection to ``port``, with what comes back mangled; return where to connect."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with listener, client, socket.create_connection(("127.0.0.1", port)) as upstream:
            upstream.sendall(client.recv(65536))
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                answer += upstream.recv(65536)
            client.sendall(mangle(answer))
            client.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    address: tuple[str, int] = listener.getsockname()
    return address[1]


@pytest.mark.parametrize(
    "options",
    [
        ("-c", "4", "-r", "20", "-m", "bench-n50-i0"),
        ("-c", "4", "-r", "8", "-m", "bench-n600-i0-c250"),
        ("-c", "4", "-r", "20", "-m", "bench-n5-i500-a1"),
        ("-c", "4", "-r", "20", "-s", "0"),
        ("-c", "2", "-r", "8", "-m", "bench-n1-i0", "-B", "200000"),
    ],
    ids=["chat", "64k", "messages", "json", "prompt"],
)
def test_answers_straight_from_the_provider_are_right(
    built: Path, upstream: int, options: tuple[str, ...]
) -> None:
    figures = load(built, upstream, *options)
    assert figures["ok"] == int(options[3])
    assert (figures["failed"], figures["wrong"], figures["errors"]) == (0, 0, [])


def _event(answer: bytes) -> bytes:
    """The second event with its chunk framing, as it stands in the answer."""
    start = answer.index(b"data: ", answer.index(b"@"))
    chunk = answer.rindex(b"\r\n", 0, start - 2) + 2
    return answer[chunk : answer.index(b"\n\n\r\n", start) + 4]


@pytest.mark.parametrize(
    ("mangle", "word"),
    [
        (lambda answer: answer.replace(b"xxxxx xxxxx", b"xxxxx yxxxx", 1), "checksum wrong"),
        (lambda answer: answer.replace(_event(answer), b"", 1), "4 of 5 events"),
        (lambda answer: answer.replace(_event(answer), _event(answer) * 2, 1), "6 of 5 events"),
        (lambda answer: answer.replace(b"[DONE]", b"[GONE]"), "wrong answer"),
    ],
    ids=["a byte changed", "an event lost", "an event twice", "another ending"],
)
def test_an_answer_that_was_changed_on_the_way_is_wrong(
    built: Path, upstream: int, mangle: Callable[[bytes], bytes], word: str
) -> None:
    port = relay_once(upstream, mangle)
    figures = load(built, port, "-m", "bench-n5-i0")
    assert figures["wrong"] == 1
    assert word in figures["errors"][0]


def test_a_prompt_that_was_changed_on_the_way_is_an_error(built: Path, upstream: int) -> None:
    request = (
        b"POST / HTTP/1.1\r\nHost: x\r\nX-Body-Sum: 0123456789abcdef\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", upstream), timeout=5) as client:
        client.sendall(request)
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")


@pytest.mark.timeout(120)
def test_the_benchmark_runs_and_states_figures(tmp_path: Path) -> None:
    need("nginx")
    need("taskset")
    stored = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.run", "--quick", "--only", "paced", "json"]
    done = subprocess.run(
        [*command, "--json", str(stored)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(stored.read_text())["figures"]
    assert 0 < figures["paced_ratio"] < 50
    assert figures["json_us"] > 0


def test_each_protocol_has_its_figure() -> None:
    command = [sys.executable, "bench/micro.py", "--events", "200", "--reps", "1"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == [
        "chat",
        "completions",
        "responses",
        "messages",
        "gemini",
    ]


@pytest.mark.timeout(120)
def test_the_benchmark_of_the_sidecar_runs_and_states_figures(tmp_path: Path) -> None:
    stored = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.exec", "--quick", "--json", str(stored)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(stored.read_text())["figures"]
    assert 0 < figures["seq_throughput"] < 10
    assert 0 < figures["memory_shim_mib"] < 32
    assert figures["relay_p50"] > 0


def test_an_output_that_lacks_a_byte_ends_the_run(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("printf 12345", 5)
    with pytest.raises(WrongAnswerError, match="5 of 6 bytes"):
        shell.run("printf 12345", 6)
