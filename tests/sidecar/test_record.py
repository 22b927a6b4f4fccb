"""The report says what is known, never both a code and a signal, and never hides a breach."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.sidecar import record
from gateway.sidecar.record import Record, SpawnFailed
from gateway.sidecar.sink import Bounds, Sink
from gateway.sidecar.status import Status, read_status


def made(**changed: Any) -> Record:
    given: dict[str, Any] = {"id": "x", "directory": "/d", "containment": "subreaper", "asked": 1.0}
    return Record(**(given | changed))


def ended_sink(tmp_path: Path) -> Sink:
    spill = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)
    return Sink(spill, Bounds(spill=100, head=0, tail=0))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, (None, None, False)),
        (0, (0, None, False)),
        (3 << 8, (3, None, False)),
        (9, (None, 9, False)),
        (11 | 0x80, (None, 11, True)),
    ],
)
def test_a_wait_status_is_a_code_or_a_signal(
    status: int | None, expected: tuple[int | None, int | None, bool]
) -> None:
    assert record.read_wait_status(status) == expected


def test_each_signal_has_a_name() -> None:
    assert record.signal_name(None) is None
    assert record.signal_name(9) == "SIGKILL"
    assert record.signal_name(40) == "SIGRTMIN+6"


def test_complete_needs_the_end_of_output_as_well(tmp_path: Path) -> None:
    sink = ended_sink(tmp_path)
    sink.close()
    whole = made(state="exited", exec_at=1.0, exit_at=2.0, eof_at=3.0, wait_status=0)
    assert whole.as_dict(sink, 4.0)["output"]["complete"] is True
    lacks: list[dict[str, Any]] = [{"eof_at": None}, {"state": "running"}, {"state": "output_open"}]
    for lacking in lacks:
        other = made(**({"state": "exited", "exec_at": 1.0, "eof_at": 3.0} | lacking))
        assert other.as_dict(sink, 4.0)["output"]["complete"] is False


def test_bytes_that_are_missing_without_a_reason_are_said(tmp_path: Path) -> None:
    sink = ended_sink(tmp_path)
    sink.seen = 7
    sink.close()
    said = made(state="exited", eof_at=3.0).as_dict(sink, 4.0)
    assert said["output"]["complete"] is False
    assert said["warnings"] == ["the spill lacks 7 bytes and no write failed"]


def test_the_times_are_differences(tmp_path: Path) -> None:
    timed = made(exec_at=1.004, exit_at=2.004, eof_at=2.504)
    said = timed.as_dict(None, 9.0)
    assert (said["spawn_ms"], said["duration_ms"], said["drain_ms"]) == (4.0, 1_000.0, 500.0)
    early = made(exec_at=1.0, exit_at=2.0, eof_at=1.5)
    assert early.as_dict(None, 9.0)["drain_ms"] == 0.0


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    failed = made(state="spawn_failed", spawn_failed=SpawnFailed("cwd", errno.ENOENT))
    directory = os.open(tmp_path, os.O_RDONLY)
    record.write_status(directory, failed.as_dict(None, 2.0))
    os.close(directory)
    said = read_status((tmp_path / "status.json").read_bytes())
    assert isinstance(said, Status)
    assert said.spawn_error is not None
    assert (said.spawn_error.name, said.final) == ("ENOENT", True)
    fields = json.loads((tmp_path / "status.json").read_bytes())
    assert set(fields) == set(Status.__struct_fields__)


def test_a_status_that_cannot_be_written_leaves_the_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    record.write_status(directory, {"a": 1})

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            record.write_status(directory, {"a": 2})
    os.close(directory)
    assert [entry.name for entry in tmp_path.iterdir()] == ["status.json"]
    assert json.loads((tmp_path / "status.json").read_bytes()) == {"a": 1}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(SpawnFailed) as failed:
        record.make_directory(str(tmp_path / "link"))
    assert (failed.value.stage, failed.value.number) == ("directory", errno.EEXIST)
    with pytest.raises(SpawnFailed) as failed:
        record.make_directory(str(tmp_path / "no" / "parent"))
    assert failed.value.number == errno.ENOENT


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        directory, spill = record.make_directory(str(tmp_path / "x"))
    except SpawnFailed:
        # A directory that even its owner may not open, for a moment: root may.
        assert mask == 0o777
        assert os.geteuid() != 0
        return
    finally:
        os.umask(old)
    os.close(directory)
    os.close(spill)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "x" / "output").stat().st_mode & 0o777 == 0o600
