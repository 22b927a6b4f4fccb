"""The programs that system tests start, and a plain HTTP client. Tests nothing itself.

Everything listens on loopback, on a port that was free a moment ago, and is ended with its test.
"""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.rig import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
START_SECONDS = 15.0
CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "Tell me about the tides"}]


def need(program: str) -> str:
    """The path of a program; the test fails with one sentence when there is none."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        pytest.fail(
            f"{program} is not installed: run tests/system/install.sh as root.", pytrace=False
        )
    return path


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; enters once it listens on ``port``."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            _wait_for_port(process, port, log)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    latest = time.monotonic() + START_SECONDS
    while time.monotonic() < latest and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"{process.args!r} did not start: {log.read_text()[-2000:]}", pytrace=False)


@dataclass(frozen=True)
class Server:
    """Something that listens."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        """Its address as a base URL."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def simulator(directory: Path) -> Iterator[Server]:
    """The simulated provider alone."""
    server = Server(free_port(), directory / "sim.log")
    command = [sys.executable, "-m", "gateway", "sim", "--listen", f"127.0.0.1:{server.port}"]
    with running(command, server.port, server.log):
        yield server


@contextmanager
def gateway(directory: Path, providers: dict[str, str], more: str = "") -> Iterator[Server]:
    """The gateway with providers by name and base URL; ``more`` is appended to its config."""
    server = Server(free_port(), directory / "gateway.log")
    tables = [
        f'[providers.{name}]\nbase_url = "{url}"\nproxy = "none"\n'
        for name, url in providers.items()
    ]
    config = directory / "gateway.toml"
    head = f'[server]\nlisten = "127.0.0.1:{server.port}"\ndrain_timeout = 0\n'
    config.write_text("\n".join([head, *tables, more]))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
    with running(command, server.port, server.log):
        yield server


@contextmanager
def nginx(directory: Path, http_block: str, port: int) -> Iterator[Server]:
    """nginx with a server of ``http_block`` that listens on ``port``."""
    program = need("nginx")
    home = directory / f"nginx-{port}"
    home.mkdir()
    # As root, nginx would serve as a user who cannot reach the test's directory.
    user = f"user {pwd.getpwuid(os.geteuid()).pw_name};" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"    {kind}_temp_path {kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (home / "nginx.conf").write_text(
        f"{user}\ndaemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log error.log info;\n"
        f"events {{ worker_connections 512; }}\n"
        f"http {{\n    access_log off;\n{temporary}{http_block}\n}}\n"
    )
    command = [program, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", "error.log"]
    server = Server(port, home / "error.log")
    with running(command, port, directory / f"nginx-{port}.log"):
        yield server


# --- A client -----------------------------------------------------------------------------------


@dataclass
class Answer:
    """What a client saw: ``reads`` are (seconds since the request, bytes)."""

    status: int
    headers: dict[str, str]
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    broken: str | None = None

    @property
    def body(self) -> bytes:
        """All that came."""
        return b"".join(data for _, data in self.reads)

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The JSON of each event, without ``[DONE]``."""
        lines = self.body.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def text(self) -> str:
        """The text of a chat stream."""
        return "".join(
            choice["delta"].get("content") or ""
            for event in self.events()
            for choice in event.get("choices", ())
        )

    def errors(self) -> list[Any]:
        """The errors told inside a stream."""
        return [event["error"] for event in self.events() if "error" in event]


def chat(model: str, *, stream: bool = True, content: str | None = None) -> dict[str, Any]:
    """A chat request."""
    messages = QUESTION if content is None else [{"role": "user", "content": content}]
    return {"model": model, "stream": stream, "messages": messages}


def ask(
    server: Server,
    path: str,
    body: object,
    headers: dict[str, str] | None = None,
    timeout: float = 20,
) -> Answer:
    """Ask once, reading bytes as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        begun = time.monotonic()
        fields = {"Content-Type": "application/json", **(headers or {})}
        connection.putrequest("POST", path, skip_accept_encoding=True)
        data = json.dumps(body).encode()
        for name, value in {**fields, "Content-Length": str(len(data))}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        answer = Answer(
            response.status, {name.lower(): value for name, value in response.getheaders()}
        )
        try:
            while data := response.read1(65536):
                answer.reads.append((time.monotonic() - begun, data))
        except (http.client.IncompleteRead, ConnectionError) as error:
            answer.broken = repr(error)
        return answer
    finally:
        connection.close()


def get(server: Server, path: str) -> Answer:
    """Fetch one of the gateway's own pages."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), [(0.0, response.read())])
    finally:
        connection.close()
