"""Spill, head and tail: exact in every cut, and never a hole after a failed write."""

import hashlib
import os
from pathlib import Path

import pytest

from gateway.sidecar.sink import Bounds, Sink

DATA = bytes(range(256)) * 40


class Fed:
    """A sink with a pipe in front of it."""

    def __init__(self, spill: int, bounds: Bounds) -> None:
        self.sink = Sink(spill, bounds)
        self.read, self.write = os.pipe()

    def feed(self, data: bytes, size: int) -> None:
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            assert os.write(self.write, piece) == len(piece)
            assert self.sink.fill(self.read) == len(piece)

    def end(self) -> None:
        os.close(self.write)
        assert self.sink.fill(self.read) == 0
        os.close(self.read)
        self.sink.close()


@pytest.fixture
def spill(tmp_path: Path) -> int:
    return os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


@pytest.mark.parametrize("size", [1, 7, 4_096, len(DATA)])
@pytest.mark.parametrize(("head", "tail"), [(0, 0), (10, 0), (0, 10), (100, 200), (9_000, 9_000)])
def test_head_and_tail_are_the_two_ends_whatever_the_pieces(
    tmp_path: Path, spill: int, size: int, head: int, tail: int
) -> None:
    fed = Fed(spill, Bounds(spill=1 << 20, head=head, tail=tail, sha256=True))
    fed.feed(DATA, size)
    fed.end()
    assert (tmp_path / "output").read_bytes() == DATA
    assert fed.sink.head == DATA[:head]
    rest = DATA[head:]
    assert fed.sink.tail == rest[max(0, len(rest) - tail) :]
    assert (fed.sink.seen, fed.sink.written, fed.sink.size) == (len(DATA),) * 3
    assert fed.sink.sha256 == hashlib.sha256(DATA).hexdigest()
    assert fed.sink.lines == DATA.count(b"\n")
    assert fed.sink.whole


def test_what_fits_into_both_ends_is_there_once(spill: int) -> None:
    fed = Fed(spill, Bounds(spill=1 << 20, head=5, tail=5))
    fed.feed(b"abcdefgh", 3)
    fed.end()
    assert fed.sink.head + fed.sink.tail == b"abcdefgh"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_limit_is_exact_and_the_rest_is_only_counted(
    tmp_path: Path, spill: int, size: int
) -> None:
    fed = Fed(spill, Bounds(spill=100, head=4, tail=4))
    fed.feed(DATA[:100], size)
    within = fed.sink.error
    fed.feed(DATA[100:], 77)
    fed.end()
    assert (tmp_path / "output").read_bytes() == DATA[:100]
    assert (within, fed.sink.error) == (None, "output_limit")
    assert (fed.sink.seen, fed.sink.written) == (len(DATA), 100)
    assert fed.sink.tail == DATA[-4:]
    assert not fed.sink.whole


def test_a_full_disk_is_named_and_the_tail_is_true() -> None:
    fed = Fed(os.open("/dev/full", os.O_WRONLY), Bounds(spill=1 << 20, head=4, tail=4))
    fed.feed(DATA, 1_000)
    fed.end()
    assert (fed.sink.error, fed.sink.seen, fed.sink.written) == ("ENOSPC", len(DATA), 0)
    assert (fed.sink.head, fed.sink.tail) == (DATA[:4], DATA[-4:])
    assert not fed.sink.whole


def test_after_a_failed_write_there_is_a_prefix_and_no_hole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spill: int
) -> None:
    real, calls = os.write, 0

    def short_then_failing(descriptor: int, data: bytes) -> int:
        nonlocal calls
        if descriptor != spill:
            return real(descriptor, data)
        calls += 1
        if calls == 3:
            raise OSError(122, "Disk quota exceeded")
        return real(descriptor, data[:60])

    monkeypatch.setattr(os, "write", short_then_failing)
    fed = Fed(spill, Bounds(spill=1 << 20, head=0, tail=4, sha256=True))
    fed.feed(DATA[:300], 100)
    fed.end()
    assert (tmp_path / "output").read_bytes() == DATA[:100]
    assert (fed.sink.error, fed.sink.written, calls) == ("EDQUOT", 100, 3)
    assert fed.sink.sha256 == hashlib.sha256(DATA[:100]).hexdigest()


def test_a_file_that_another_has_cut_is_not_whole(tmp_path: Path, spill: int) -> None:
    fed = Fed(spill, Bounds(spill=1 << 20, head=0, tail=0))
    fed.feed(DATA, 1_000)
    os.truncate(tmp_path / "output", 10)
    fed.end()
    assert (fed.sink.size, fed.sink.whole) == (10, False)


def test_closing_twice_is_nothing(spill: int) -> None:
    sink = Sink(spill, Bounds(spill=1, head=0, tail=0))
    sink.close()
    sink.close()
    assert sink.size == 0
