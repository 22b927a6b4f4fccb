"""Builds and runs what a measurement needs: provider, client, nginx, gateway. Judges no figure.

Everything listens on loopback, lives in one temporary directory and ends with it. CPU time is read
from the scheduler's own accounting (``/proc/PID/task/*/schedstat``, nanoseconds), so this is Linux
only.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCES = HERE / "rig"
START_SECONDS = 15.0


class RigError(Exception):
    """The measurement cannot be made; the text is one sentence for a person."""


class WrongAnswerError(RigError):
    """A target did not give back what the provider sent."""


def find_tool(name: str, package: str) -> str:
    """The path of a program. Raises RigError with the name of Debian's package."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
    if path is None:
        raise RigError(
            f"{name} was not found: install it, on Debian with `apt-get install {package}`."
        )
    return path


def build(directory: Path) -> tuple[Path, Path]:
    """Compile provider and client into ``directory``; return their paths."""
    compiler = find_tool("gcc", "gcc libc6-dev")
    made = []
    for name in ("upstream", "client"):
        target = directory / name
        command = [
            compiler,
            "-O2",
            "-Wall",
            "-Wextra",
            "-o",
            str(target),
            str(SOURCES / f"{name}.c"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RigError(f"gcc could not build {name}.c: {done.stderr.strip()[-400:]}")
        made.append(target)
    return made[0], made[1]


def raise_file_limit() -> int:
    """Allow as many open files as the hard limit does, also to children; return the number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# --- Figures of processes -----------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parent = int(stat[stat.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def cpu_ns(pids: list[int]) -> int:
    """CPU time that the processes have used so far, in nanoseconds."""
    total = 0
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
            for thread in threads:
                total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except OSError:
            continue
    return total


def resident_kib(pids: list[int]) -> int:
    """Resident memory of the processes together, in KiB."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
        )
    return total


# --- Processes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What the client talks to. ``pid`` is 0 where its CPU time is not of interest."""

    name: str
    port: int
    prefix: str = ""
    pid: int = 0


class Rig:
    """Starts processes and ends them all; a context manager."""

    def __init__(
        self, directory: Path, *, python: str = sys.executable, pinned: bool = True
    ) -> None:
        self.directory = directory
        self.python = python
        self.files = raise_file_limit()
        self._stack = ExitStack()
        self._proxy_core, self._rig_core = _cores() if pinned else ("", "")
        self._upstream, self._client = build(directory)
        self._count = 0
        # nginx's worker may run as another user and has to reach its directory.
        directory.chmod(0o755)

    def __enter__(self) -> Rig:
        process = self._start([str(self._upstream), "0"], self._rig_core, stdout=subprocess.PIPE)
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith("LISTENING "):
            raise RigError("the simulated provider did not start.")
        self.upstream_port = int(line.split()[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(
        self, command: list[str], core: str, *, stdout: int | IO[str], cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        pinned = self._on(core, command)
        log = self._stack.enter_context((self.directory / f"log-{self._count}.txt").open("w"))
        self._count += 1
        process = subprocess.Popen(pinned, stdout=stdout, stderr=log, text=True, cwd=cwd)
        self._stack.callback(_end, process)
        return process

    @staticmethod
    def _on(core: str, command: list[str]) -> list[str]:
        return [find_tool("taskset", "util-linux"), "-c", core, *command] if core else command

    def direct(self) -> Target:
        """The provider itself, as the base of added latency."""
        return Target("direct", self.upstream_port)

    def nginx(self) -> Target:
        """Start nginx."""
        program = find_tool("nginx", "nginx-light")
        port = free_port()
        home = self.directory / f"nginx-{self._count}"
        home.mkdir()
        text = (HERE / "nginx.conf.in").read_text()
        values = {
            "FILES": self.files,
            "CONNECTIONS": self.files - 100,
            "UPSTREAM": self.upstream_port,
            "LISTEN": port,
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        (home / "nginx.conf").write_text(text)
        command = [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "error.log"]
        process = self._start(command, self._proxy_core, stdout=subprocess.DEVNULL)
        _wait_for_port(process, port, "nginx")
        return Target("nginx", port, "", process.pid)

    def gateway(self, more: str = "") -> Target:
        """Start the gateway with everything on, as it is installed; ``more`` is for its config."""
        port = free_port()
        config = self.directory / f"gateway-{self._count}.toml"
        config.write_text(
            f'[server]\nlisten = "127.0.0.1:{port}"\ndrain_timeout = 0\n\n'
            f'[log]\nformat = "json"\n\n'
            f'[providers.bench]\nbase_url = "http://127.0.0.1:{self.upstream_port}"\n'
            f'proxy = "none"\n\n{more}'
        )
        command = [self.python, "-m", "gateway", "serve", "--config", str(config)]
        log = self._stack.enter_context((self.directory / f"log-out-{self._count}.txt").open("w"))
        process = self._start(command, self._proxy_core, stdout=log, cwd=ROOT)
        _wait_for_http(process, f"http://127.0.0.1:{port}/healthz", self.directory)
        return Target("gateway", port, "/bench", process.pid)

    # The client.

    def _client_command(self, target: Target, path: str, arguments: list[str]) -> list[str]:
        command = [
            str(self._client),
            "-p",
            str(target.port),
            "-P",
            target.prefix + path,
            *arguments,
        ]
        return self._on(self._rig_core, command)

    def ask(self, target: Target, path: str, arguments: list[str]) -> dict[str, Any]:
        """Run the client once; return its figures. Raises WrongAnswerError if any was."""
        command = self._client_command(target, path, [*arguments, "-t", "90"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if figures["failed"] or figures["wrong"]:
            raise WrongAnswerError(
                f"{target.name}: {figures['wrong']} answers were wrong, {figures['failed']} failed:"
                f" {'; '.join(figures['errors']) or 'no reason given'}"
            )
        return figures

    @contextmanager
    def idle_streams(self, target: Target, path: str, count: int) -> Iterator[None]:
        """Keep ``count`` streams open, each of which has had its first event and waits for more."""
        arguments = ["-w", "-c", str(count), "-m", "bench-n3-i600000000-s40", "-t", "120"]
        command = self._client_command(target, path, arguments)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            if line.strip() != "READY":
                raise RigError(f"{target.name} did not open {count} streams: {line.strip()}")
            yield
        finally:
            if process.stdin:
                process.stdin.close()
            _end(process)


def _cores() -> tuple[str, str]:
    """Cores for the proxy under test and for everything else; two are needed to tell them apart."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RigError("two CPU cores are needed: one for the proxy, one for provider and client.")
    return str(cores[0]), str(cores[1])


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and whatever it started."""
    members = family(process.pid) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        for pid in members:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        process.wait(5)
    if process.stdout:
        process.stdout.close()


def _wait_for_port(process: subprocess.Popen[str], port: int, name: str) -> None:
    latest = time.monotonic() + START_SECONDS
    while time.monotonic() < latest and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RigError(f"{name} did not start listening.")


def _wait_for_http(process: subprocess.Popen[str], url: str, directory: Path) -> None:
    # A proxy that the environment names must not be asked for loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    latest = time.monotonic() + START_SECONDS
    while time.monotonic() < latest and process.poll() is None:
        try:
            with opener.open(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    logs = sorted(directory.glob("log-*.txt"), key=lambda path: path.stat().st_mtime)
    tail = " ".join("".join(path.read_text()[-600:] for path in logs).split())
    raise RigError(f"the gateway did not start: {tail[-600:] or 'it said nothing'}")
