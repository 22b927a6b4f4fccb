"""A sidecar on a loopback port, and clients of it, for the tests of its HTTP."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.config.credentials import Secret
from gateway.config.model import Exec
from gateway.observe.exec_metrics import ExecMetrics
from gateway.sidecar.server import Sidecar

TOKENS = ("file:/tokens/one", "file:/tokens/two")
"""Names of tokens; the token itself is made from the name."""


def token(name: str = TOKENS[0]) -> str:
    """The token of that name."""
    return f"{name[-3:]}-" + "t" * 40


def settings(directory: Path, **changed: Any) -> Exec:
    """An ``[exec]`` table that works here, whoever runs the tests."""
    repo = directory / "repo"
    repo.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "enabled": True,
        "listen": "127.0.0.1:0",
        "token": TOKENS,
        "tokens": tuple(Secret(name, token(name)) for name in TOKENS),
        "allowed_roots": (str(repo),),
        "allow_root": True,
        "spill_dir": str(directory / "spill"),
        "min_free": 0,
    }
    return Exec(**(given | changed))


@dataclass(frozen=True, slots=True)
class Got:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return str(self.json["id"])

    @property
    def text(self) -> str:
        return str(self.json["text"])

    @property
    def detail(self) -> Any:
        return self.json["detail"]


class Site:
    """A running sidecar with a client for each token."""

    def __init__(self, directory: Path, exec_: Exec, environ: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.exec_ = exec_
        self.metrics = ExecMetrics()
        self.sidecar = Sidecar(exec_, self.metrics, environ or {})
        self.session = aiohttp.ClientSession()

    @property
    def repo(self) -> Path:
        return self.directory / "repo"

    @property
    def url(self) -> str:
        return self.sidecar.address.url

    @property
    def service(self) -> Any:
        return self.sidecar._service

    async def start(self) -> None:
        await self.sidecar.start()

    async def close(self) -> None:
        await self.session.close()
        await self.sidecar.stop()

    async def ask(
        self,
        method: str,
        path: str = "",
        *,
        owner: str | None = TOKENS[0],
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Got:
        """Send a request and read its answer."""
        sent = {} if owner is None else {"Authorization": f"Bearer {token(owner)}"}
        async with (
            asyncio.timeout(20),
            self.session.request(
                method, f"{self.url}/v1/exec{path}", headers=sent | (headers or {}), **more
            ) as response,
        ):
            return Got(response.status, response.headers, await response.read())

    async def run(self, command: str, *, headers: dict[str, str] | None = None, **more: Any) -> Got:
        """Run a shell command; short times, so that no test is long."""
        body = {"command": command, "kill_grace_ms": 300, "output_grace_ms": 200} | more
        return await self.ask("POST", json=body, headers=headers)

    async def output(self, id_: str, **headers: str) -> Got:
        """The whole output, or a part."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("GET", f"/{id_}/output", headers=sent)

    async def final(self, id_: str) -> Got:
        """The answer when the command and its output have ended."""
        while True:
            got = await self.ask("GET", f"/{id_}?wait_ms=5000")
            if got.detail["state"] not in ("queued", "running", "output_open"):
                return got

    def spill(self, id_: str) -> Path:
        """The file with the output."""
        return Path(self.exec_.spill_dir, id_, "output")

    def number(self, name: str, *labels: str) -> float:
        """A metric as it stands."""
        return self.metrics.snapshot().numbers[name].get(labels, 0)


def changed(exec_: Exec, **values: Any) -> Exec:
    """The same table with other values."""
    return msgspec.structs.replace(exec_, **values)


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    name: str
    id: str | None
    data: Any


def events(body: bytes) -> Iterator[Event]:
    """The whole events of a stream."""
    for block in body.split(b"\n\n")[:-1]:
        fields = dict(
            line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":")
        )
        if fields:
            id_ = fields.get(b"id")
            yield Event(
                fields[b"event"].decode(),
                None if id_ is None else id_.decode(),
                json.loads(fields[b"data"]),
            )
