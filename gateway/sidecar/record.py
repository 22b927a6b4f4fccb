"""The report on one command while it is being made; decides nothing about the command.

Its form is the ``detail`` object of the HTTP answer, as far as a shim knows it. It is told to the
gateway as JSON and stands in ``status.json`` beside the spill.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.sidecar.sink import Sink

SPILL = "output"
STATUS = "status.json"
_STATUS_NEW = ".status.new"


class SpawnFailed(Exception):  # noqa: N818 - it names a state of the contract
    """The command was not started; ``stage`` says at what, ``said`` more than the errno does."""

    def __init__(self, stage: str, number: int, said: str | None = None) -> None:
        super().__init__(stage, number, said)
        self.stage = stage
        self.number = number
        self.said = said

    def as_dict(self) -> dict[str, Any]:
        """As it stands in the report."""
        return {
            "stage": self.stage,
            "errno": self.number,
            "name": errno.errorcode.get(self.number, "EIO"),
            "message": self.said or os.strerror(self.number),
        }


@dataclass(slots=True)
class Record:
    """What is known of one command. Times are in seconds of the monotonic clock."""

    id: str
    directory: str
    containment: str
    asked: float
    shim_pid: int = 0
    shim_started: int = 0
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    leader: int | None = None
    state: str = "running"
    reason: str | None = None
    timed_out: bool = False
    exec_at: float | None = None
    exit_at: float | None = None
    eof_at: float | None = None
    wait_status: int | None = None
    survivors: int = 0
    killed: int = 0
    cpu_seconds: float | None = None
    max_rss_kb: int | None = None
    spawn_failed: SpawnFailed | None = None
    warnings: list[str] = field(default_factory=list)

    def as_dict(self, sink: Sink | None, now: float) -> dict[str, Any]:
        """The report as of now."""
        code, number, dumped = read_wait_status(self.wait_status)
        return {
            "id": self.id,
            "state": self.state,
            "exit_code": code,
            "signal": number,
            "signal_name": signal_name(number),
            "core_dumped": dumped,
            "reason": self.reason,
            "timed_out": self.timed_out,
            "output": self._output(sink),
            "survivors": self.survivors,
            "killed": self.killed,
            "containment": self.containment,
            "started_at": self.started_at,
            "duration_ms": _ms(self.exec_at, now if self.exit_at is None else self.exit_at),
            "spawn_ms": _ms(self.asked, self.exec_at),
            "drain_ms": _ms(self.exit_at, self.eof_at),
            "cpu_ms": None if self.cpu_seconds is None else round(self.cpu_seconds * 1000, 1),
            "max_rss_kb": self.max_rss_kb,
            "spawn_error": self.spawn_failed.as_dict() if self.spawn_failed else None,
            "leader": self.leader,
            "shim": {"pid": self.shim_pid, "started": self.shim_started},
            "warnings": [*self.warnings, *self._breaches(sink)],
        }

    def _output(self, sink: Sink | None) -> dict[str, Any]:
        ended = self.state == "exited"
        eof = self.eof_at is not None
        return {
            "complete": ended and eof and sink is not None and sink.whole,
            "open": self.exec_at is not None and not eof,
            "bytes": sink.seen if sink else 0,
            "lines": sink.lines if sink else 0,
            "spill": {
                "path": os.path.join(self.directory, SPILL) if sink else None,
                "bytes": sink.written if sink else 0,
                "sha256": sink.sha256 if sink else None,
                "error": sink.error if sink else None,
            },
        }

    def _breaches(self, sink: Sink | None) -> list[str]:
        """What cannot be, said rather than hidden."""
        if sink is None or sink.error is not None:
            return []
        found = []
        if sink.seen != sink.written:
            found.append(f"the spill lacks {sink.seen - sink.written} bytes and no write failed")
        if sink.size is not None and sink.size != sink.written:
            found.append(f"the spill has {sink.size} bytes, {sink.written} were written to it")
        return found


def read_wait_status(status: int | None) -> tuple[int | None, int | None, bool]:
    """(exit code, signal, core dumped) of what ``waitpid`` said: never both of the first two."""
    if status is None:
        return None, None, False
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status), os.WCOREDUMP(status)
    return os.waitstatus_to_exitcode(status), None, False


def signal_name(number: int | None) -> str | None:
    """``SIGKILL`` for 9; real-time signals without a name of their own are ``SIGRTMIN+n``."""
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def write_status(directory: int, report: dict[str, Any]) -> None:
    """Replace ``status.json`` in a directory as a whole. Raises OSError; the old one stays then."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(_STATUS_NEW, flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(file, 0o600)
        data = json.dumps(report).encode()
        while data:
            data = data[os.write(file, data) :]
    except OSError:
        os.unlink(_STATUS_NEW, dir_fd=directory)
        raise
    finally:
        os.close(file)
    os.rename(_STATUS_NEW, STATUS, src_dir_fd=directory, dst_dir_fd=directory)


def make_directory(path: str) -> tuple[int, int]:
    """Make the directory of one command and its spill; their descriptors.

    Both belong to this user alone, whatever the umask. Raises SpawnFailed, also where the directory
    is there already: two commands never share one.
    """
    try:
        os.mkdir(path, 0o700)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SpawnFailed("directory", error.errno or errno.EIO) from None
    try:
        os.fchmod(directory, 0o700)
        # O_APPEND: what else writes to it cannot make two writers overwrite each other.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        spill = os.open(SPILL, flags, 0o600, dir_fd=directory)
        os.fchmod(spill, 0o600)
    except OSError as error:
        os.close(directory)
        raise SpawnFailed("spill", error.errno or errno.EIO) from None
    return directory, spill


def _ms(start: float | None, end: float | None) -> float | None:
    """Milliseconds between two times; an end before the start is no time at all."""
    if start is None or end is None:
        return None
    return round(max(0.0, end - start) * 1000, 2)
