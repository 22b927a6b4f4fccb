"""The official Node SDKs, streaming through the gateway: whole answers equal, every cut raises."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.system.support import Server, need

HERE = Path(__file__).parent / "node"
CLIENTS = ("openai.chat", "openai.responses", "anthropic.create", "anthropic.stream")
WHOLE = ("sim-ok", "sim-crlf", "sim-keepalive", "sim-no-blank", "sim-linger,for=5")
CUT = (
    "sim-bare-eof",
    "sim-cut",
    "sim-short-chunk",
    "sim-reset",
    "sim-torn",
    "sim-half-finish",
    "sim-done-only",
    "sim-empty",
    "sim-error-event",
    "sim-error-flat",
    "sim-error-half",
    "sim-error-done",
    "sim-html-200",
)


@pytest.fixture(scope="session")
def sdks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SDKs of the lock file, installed into a directory of their own."""
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "stream.mjs"):
        shutil.copy(HERE / name, directory)
    done = subprocess.run(
        [need("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"npm could not install the SDKs: {done.stderr[-1000:]}", pytrace=False)
    return directory


def stream(sdks: Path, jobs: list[dict[str, str]]) -> list[Any]:
    """What each job's caller saw."""
    done = subprocess.run(
        [need("node"), "stream.mjs"],
        cwd=sdks,
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: list[Any] = json.loads(done.stdout)
    assert len(seen) == len(jobs)
    return seen


@pytest.mark.timeout(240)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_whole_answer_is_the_same_as_without_the_gateway(
    sdks: Path, sim: Server, gateway: Server, client: str
) -> None:
    direct = {"client": client, "base": sim.url, "model": "sim-ok"}
    jobs = [{"client": client, "base": f"{gateway.url}/up", "model": model} for model in WHOLE]
    expected, *seen = stream(sdks, [direct, *jobs])
    assert expected["error"] is None
    assert len(expected["text"]) > 50
    assert dict(zip(WHOLE, seen, strict=True)) == dict.fromkeys(WHOLE, expected)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_cut_raises(sdks: Path, gateway: Server, client: str) -> None:
    jobs = [{"client": client, "base": f"{gateway.url}/up", "model": model} for model in CUT]
    seen = stream(sdks, jobs)
    silent = [model for model, what in zip(CUT, seen, strict=True) if what["error"] is None]
    assert silent == []
