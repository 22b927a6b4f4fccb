"""`gateway sh` and `gateway exec` against `gateway serve`, with the endpoint that it really has."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Done
from tests.cli.fake_endpoint import TOKEN, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sidecar needs Linux")

Gateway = Callable[..., Done]
Start = Callable[..., subprocess.Popen[bytes]]

CONFIG = """
[server]
listen = "127.0.0.1:0"

[exec]
enabled = true
listen = "unix:{folder}/exec.sock"
token = "file:{folder}/token"
allowed_roots = ["{roots}"]
spill_dir = "{folder}/spill"
min_free = "1MiB"
allow_root = true
max_running = 2
max_queued = 0
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a gateway that is there for all tests."""
    folder = tmp_path_factory.mktemp("served")
    config = folder / "g.toml"
    roots = tmp_path_factory.getbasetemp()
    config.write_text(CONFIG.format(folder=folder, roots=roots), encoding="utf-8")
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o600)
    log = folder / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(config)],
            cwd=ROOT,
            stdout=file,
            stderr=file,
        )
    try:
        listens = folder / "exec.sock"
        wait_until(lambda: listens.exists() or server.poll() is not None)
        assert server.poll() is None, log.read_text(encoding="utf-8")
        yield folder
        assert server.poll() is None, log.read_text(encoding="utf-8")[-4000:]
    finally:
        server.terminate()
        server.wait(20)
    assert TOKEN not in log.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def at_the_served(served: Path, variables: dict[str, str]) -> None:
    del variables["GATEWAY_EXEC_ENDPOINT"], variables["GATEWAY_EXEC_TOKEN_FILE"]
    variables["GATEWAY_EXEC_CONFIG"] = str(served / "g.toml")


def test_a_long_output_is_bounded_and_its_file_has_all_of_it(gateway: Gateway) -> None:
    done = gateway("sh", "-c", "seq 1 50000")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    lines = text.split("\n")
    assert len(lines) <= 2000
    assert len(done.stdout) <= 28_672
    assert lines[1] == "1"
    assert lines[-2] == "50000"
    assert lines[0] == lines[-1]
    found = re.search(r"the whole output is in (/\S+)\.\]$", text)
    assert found
    whole = Path(found.group(1)).read_bytes()
    assert whole == b"".join(b"%d\n" % number for number in range(1, 50_001))


def test_it_is_a_shell(gateway: Gateway, here: Path) -> None:
    done = gateway("sh", "-c", 'cat; pwd; echo "$0 $1" >&2; exit 3', "a", "b c", input=b"in\n")
    assert (done.returncode, done.stdout) == (3, f"in\n{here}\na b c\n".encode())
    done = gateway("sh", "-c", "printf 'no newline \\377'")
    assert done.stdout == b"no newline \xff"
    assert gateway("sh", "-c", "true").stdout == b""
    assert gateway("sh", "-c", "no-such-command").returncode == 127
    assert gateway("sh", "-c", "kill -9 $$").returncode == 137
    assert gateway("sh", "--timeout", "0.3", "-c", "sleep 30").returncode == 124


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_what_a_command_makes_is_for_whom_the_caller_says(
    gateway: Gateway, here: Path, mask: int
) -> None:
    before = os.umask(mask)
    try:
        assert gateway("sh", "-c", f"echo x >sh{mask}").returncode == 0
        assert gateway("exec", "--shell", f"echo x >exec{mask}").returncode == 0
    finally:
        os.umask(before)
    for name in ("sh", "exec"):
        assert (here / f"{name}{mask}").stat().st_mode & 0o777 == 0o666 & ~mask


def test_the_command_sees_neither_the_token_nor_the_way_to_it(gateway: Gateway) -> None:
    seen = gateway("sh", "-c", "env", env={"VARIABLE": "value", "COPY": TOKEN}).stdout
    assert b"VARIABLE=value\n" in seen
    assert b"GATEWAY_EXEC" not in seen
    assert TOKEN.encode() not in seen


@pytest.mark.parametrize("command", ["sh", "exec"])
def test_a_signal_ends_the_command_and_what_it_started(
    command: str, start: Start, here: Path
) -> None:
    script = "(setsid sleep 300 & echo $! > pid; wait) & trap 'echo end' EXIT; wait"
    words = ["-c", script] if command == "sh" else ["--shell", script]
    process = start(command, *words)
    pid = here / "pid"
    wait_until(lambda: pid.exists() and pid.read_text(encoding="utf-8").strip())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=15)
    assert process.returncode == 143
    assert not os.path.exists(f"/proc/{pid.read_text(encoding='utf-8').strip()}")


def test_a_caller_that_is_killed_takes_the_command_along(start: Start, here: Path) -> None:
    process = start("sh", "-c", "echo $$ > pid; exec sleep 300")
    pid = here / "pid"
    wait_until(lambda: pid.exists() and pid.read_text(encoding="utf-8").strip())
    process.kill()
    number = pid.read_text(encoding="utf-8").strip()
    wait_until(lambda: not os.path.exists(f"/proc/{number}"))


def test_output_is_live_and_whole(gateway: Gateway, start: Start, here: Path) -> None:
    process = start("exec", "--shell", "echo first; while [ ! -e go ]; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    here.joinpath("go").touch()
    assert process.wait(10) == 0
    done = gateway("exec", "--", "seq", "1", "300000")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 300_001))


def test_a_connection_that_breaks_loses_nothing(
    gateway: Gateway, served: Path, tmp_path: Path
) -> None:
    """A proxy breaks the first connections in the middle of an event."""
    sizes = [300, 100_000, 1_000_000]

    def relay(client: socket.socket) -> None:
        left = sizes.pop(0) if sizes else -1
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(served / "exec.sock"))
            threading.Thread(target=copy, args=(client, server, -1), daemon=True).start()
            copy(server, client, left)

    def copy(source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left and (data := source.recv(left if left > 0 else 65536)):
                target.sendall(data)
                left -= len(data) if left > 0 else 0
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                threading.Thread(target=relay, args=(client,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        path = tmp_path / "proxy.sock"
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        words = ["exec", "--endpoint", f"unix:{path}", "--", "seq", "1", "300000"]
        done = gateway(*words)
        listener.shutdown(socket.SHUT_RDWR)
    assert (done.returncode, done.stderr, sizes) == (0, b"", [])
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 300_001))


def test_an_output_that_is_held_open_is_no_whole_one(gateway: Gateway) -> None:
    done = gateway("exec", "--shell", "sleep 30 & echo started")
    assert (done.returncode, done.stdout) == (123, b"started\n")
    assert b"left behind holds it open" in done.stderr


def test_what_was_not_started_is_told(gateway: Gateway, here: Path) -> None:
    done = gateway("exec", "--", "no-such-program")
    assert (done.returncode, done.stdout) == (127, b"")
    done = gateway("exec", "--cwd", "/", "--", "pwd")
    assert done.returncode == 125
    assert b"exec.allowed_roots" in done.stderr
    here.joinpath("wrong").write_text("w" * 40, encoding="utf-8")
    done = gateway("sh", "--token-file", "wrong", "-c", "true")
    assert done.returncode == 125
    assert b"refused the token" in done.stderr


def test_one_in_the_background_is_there(gateway: Gateway) -> None:
    done = gateway("exec", "--background", "--json", "--", "sleep", "0.1")
    assert done.returncode == 0
    assert json.loads(done.stdout)["detail"]["state"] == "running"


def test_who_comes_while_it_is_busy_waits(gateway: Gateway, start: Start, here: Path) -> None:
    running = [start("sh", "-c", f"touch {number}; sleep 2") for number in (1, 2)]
    wait_until(lambda: here.joinpath("1").exists() and here.joinpath("2").exists())
    done = gateway("sh", "-c", "echo ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")
    assert [process.wait(10) for process in running] == [0, 0]
