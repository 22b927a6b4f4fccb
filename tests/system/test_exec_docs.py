"""What README.md and docs/exec.md tell people to type about commands works as it is written."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.system.support import ROOT, need

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ("README.md", "docs/exec.md")
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
EXPORTS = re.compile(r"```sh\n(export GATEWAY_EXEC.*?)```", re.DOTALL)
STEPS = re.compile(r"```sh\n(mkdir .*?)```", re.DOTALL)
TOML = re.compile(r"```toml\n(\[exec\].*?)```", re.DOTALL)
SEQ = "".join(f"{number}\n" for number in range(1, 50_001))


class Place:
    """A machine on which the paths of the pages exist, below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.repo = directory / "repo"
        self.socket = directory / "exec.sock"
        # ``gateway`` itself, wherever it is installed.
        self.program = f"{shlex.quote(sys.executable)} -m gateway"

    def here(self, text: str) -> str:
        """The same text with the paths of this place."""
        moved = {
            "/run/gateway/exec.sock": str(self.socket),
            "/etc/gateway/exec.token": f"{self.directory}/exec.token",
            "/repo": str(self.repo),
        }
        for path, other in moved.items():
            text = text.replace(path, other)
        return text

    def sh(self, script: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run it as a person does."""
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = ["bash", "-c", script]
        return subprocess.run(
            argv, cwd=cwd or self.directory, env=env, text=True, capture_output=True, timeout=40,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@contextmanager
def serving(place: Place) -> Iterator[None]:
    """The gateway with the configuration that docs/exec.md shows."""
    (table,) = TOML.findall((ROOT / "docs/exec.md").read_text())
    more = f'spill_dir = "{place.directory}/spill"\nmin_free = 0\n'
    more += f"allow_root = {str(os.geteuid() == 0).lower()}\n"
    config = place.directory / "gateway.toml"
    config.write_text(f'[server]\nlisten = "127.0.0.1:0"\n\n{place.here(table)}{more}')
    log = (place.directory / "log").open("wb")
    with log, subprocess.Popen(
        [sys.executable, "-m", "gateway", "serve", "--config", str(config)],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
    ) as process:  # fmt: skip
        try:
            latest = time.monotonic() + 15
            while not _listens(place.socket) and time.monotonic() < latest:
                assert process.poll() is None, (place.directory / "log").read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            assert process.wait(20) == 0


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    made.repo.mkdir()
    need("openssl")
    # As the comment in the configuration says.
    done = made.sh("openssl rand -hex 32 > exec.token && chmod 600 exec.token")
    assert done.returncode == 0, done.stderr
    with serving(made):
        yield made


def test_the_steps_for_ones_own_machine_work(tmp_path: Path) -> None:
    need("openssl"), need("curl")
    (steps,) = STEPS.findall((ROOT / "docs/exec.md").read_text())
    here = Place(tmp_path)
    program = tmp_path / "gateway"
    program.write_text(f'#!/bin/sh\nexec {here.program} "$@"\n')
    program.chmod(0o755)
    # What differs here: the port of the relay, who it is, and the room on the disk.
    table = '[server]\nlisten = "127.0.0.1:0"\n\n[exec]\nmin_free = 0\n'
    table += f"allow_root = {json.dumps(os.geteuid() == 0)}\n"
    steps = steps.replace("[exec]\n", table)
    home = shlex.quote(str(tmp_path))
    done = here.sh(f"export HOME={home} PATH={home}:$PATH\n{steps}echo; kill $! && wait $!")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(SEQ)
    told = json.loads(done.stdout.removeprefix(SEQ))
    assert told["complete"] is True
    assert Path(told["spill"]["path"]).read_text() == SEQ


def test_the_requests_with_curl_are_answered(place: Place) -> None:
    need("curl")
    blocks = [block for page in PAGES for block in CONSOLE.findall((ROOT / page).read_text())]
    asked = [place.here(block.removeprefix("$ ")) for block in blocks if "/v1/exec" in block]
    assert len(asked) >= 2
    for command in asked:
        done = place.sh(command)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["complete"] is True
        if "seq 1 50000" in command:
            assert Path(told["spill"]["path"]).read_text() == SEQ


def test_the_programs_for_people_and_agents_run(place: Place) -> None:
    (exports,) = EXPORTS.findall((ROOT / "README.md").read_text())
    exports = place.here(exports)
    done = place.sh(f"{exports}{place.program} exec -- seq 1 50000", place.repo)
    assert (done.returncode, done.stdout) == (0, SEQ), done.stderr
    done = place.sh(f"{exports}{place.program} exec --shell 'pwd; exit 7'", place.repo)
    assert (done.returncode, done.stdout) == (7, f"{place.repo}\n"), done.stderr
    done = place.sh(f"{exports}{place.program} sh -c 'seq 1 50000'", place.repo)
    assert done.returncode == 0, done.stderr
    assert "\n49999\n50000\n" in done.stdout
    assert str(place.directory / "spill") in done.stdout
    unreached = f"{exports}GATEWAY_EXEC_ENDPOINT=unix:{place.directory}/none "
    done = place.sh(f"{unreached}{place.program} sh -c 'echo ran'", place.repo)
    assert (done.returncode, done.stdout) == (125, "")
    done = place.sh(f"{unreached}GATEWAY_EXEC_FALLBACK=1 {place.program} sh -c 'echo ran'")
    assert (done.returncode, done.stdout) == (0, "ran\n")
