"""Specs, and looking for processes, for the tests of the sidecar."""

import asyncio
import itertools
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from gateway.sidecar import kernel
from gateway.sidecar.command import Command
from gateway.sidecar.spec import Spec
from gateway.sidecar.status import Status, read_status

PATH = "/usr/local/bin:/usr/bin:/bin"

T = TypeVar("T")

_ids = itertools.count(1)


class Bench:
    """A directory for spills, and specs that fit it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def spec(self, command: str | None = None, **changed: Any) -> Spec:
        """A spec for a shell command, or for ``argv``; short times, so that no test is long."""
        number = f"x{next(_ids)}"
        given: dict[str, Any] = {
            "id": number,
            "directory": str(self.directory / number),
            "cwd": "/",
            "env": {"PATH": PATH},
            "command": command,
            "timeout_ms": 20_000,
            "kill_grace_ms": 300,
            "output_grace_ms": 200,
        }
        return Spec(**(given | changed))


def spilled(command: Command) -> bytes:
    """What the spill holds."""
    return Path(command.spill_path).read_bytes()


def saved_status(command: Command) -> Status:
    """What ``status.json`` says."""
    return read_status(Path(command.spec.directory, "status.json").read_bytes())


def modes(directory: str) -> dict[str, int]:
    """The permissions of a directory (".") and of what is in it, by name."""
    found = {entry.name: entry.stat().st_mode & 0o777 for entry in Path(directory).iterdir()}
    return found | {".": Path(directory).stat().st_mode & 0o777}


def owner(path: str) -> int:
    """The uid that a file belongs to."""
    return Path(path).stat().st_uid


def exists(path: str) -> bool:
    """Whether there is such a file."""
    return Path(path).exists()


def environ(pid: int) -> bytes:
    """The environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def succeeds(*argv: str) -> bool:
    """Run a program; whether it ended well."""
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def unique_sleep() -> str:
    """A ``sleep`` of about an hour that no other test or person has started."""
    return f"sleep {random.randint(3_600_000_000, 3_999_999_999) / 1_000_000:.6f}"


def running(words: str) -> list[int]:
    """The living processes whose command line holds these words, and is not a shell's script."""
    found = []
    wanted = words.replace(" ", "\0").encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(wanted):
                found.append(int(entry.name))
    return found


async def eventually(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait until something holds; whether it came to that."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not true():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def within(seconds: float, what: Awaitable[T]) -> T:
    """The result of what takes no longer than that."""
    return await asyncio.wait_for(what, seconds)


def shim_of(command: Command) -> kernel.Process:
    """The process that looks after a command."""
    found = kernel.process(command.status.shim.pid)
    assert found is not None
    assert found.started == command.status.shim.started
    return found


def kill_hard(process: kernel.Process) -> None:
    """As the out-of-memory killer does."""
    os.kill(process.pid, signal.SIGKILL)


def peak_kib(pid: int) -> int:
    """The largest resident size that a process has had, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError("a process without a size")
