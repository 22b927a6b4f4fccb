"""An endpoint to run commands at, and the commands that use it, as processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_endpoint import TOKEN, Endpoint

ROOT = Path(__file__).parents[2]

Done = subprocess.CompletedProcess[bytes]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = Endpoint(tmp_path)
    yield endpoint
    endpoint.close()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """What the caller's environment says of the endpoint."""
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n", encoding="utf-8")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "GATEWAY_EXEC_ENDPOINT": f"unix:{tmp_path / 'exec.sock'}",
        "GATEWAY_EXEC_TOKEN_FILE": str(token),
    }


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where the caller stands."""
    folder = tmp_path / "a directory"
    folder.mkdir()
    return folder


@pytest.fixture
def gateway(variables: dict[str, str], here: Path) -> Callable[..., Done]:
    """Calls `gateway WORDS...` and waits for it."""

    def call(*words: str, env: dict[str, str] | None = None, **options: Any) -> Done:
        given = {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        return subprocess.run(
            [sys.executable, "-m", "gateway", *words],
            env=variables | (env or {}),
            capture_output=True,
            timeout=30,
            check=False,
            **{"cwd": here, **given, **options},
        )

    return call


@pytest.fixture
def start(variables: dict[str, str], here: Path) -> Iterator[Callable[..., Any]]:
    """Starts `gateway WORDS...`; what is left at the end of the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*words: str, **options: Any) -> subprocess.Popen[bytes]:
        # Under nohup it would be ignored, here and in what is started.
        inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", *words],
            env=variables,
            cwd=here,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )
        signal.signal(signal.SIGHUP, inherited)
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
