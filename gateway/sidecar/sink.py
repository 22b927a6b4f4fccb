"""Where a command's output goes: spill, head, tail and counts; never stops taking it in.

The spill is always an exact prefix of the output. After the first failed write nothing more is
written to it, so that there is no hole; what comes is still counted and still reaches the tail.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import hashlib

CHUNK = 1 << 20
"""Bytes per read: a pipe of this size is emptied by one call."""

COUNTED = 64 << 20
"""Line ends are counted in so many bytes; beyond it would cost as much as all the rest."""

OUTPUT_LIMIT = "output_limit"
"""What stands for the name of an errno when the spill has been filled as far as was allowed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept, in bytes; ``delay`` is in seconds and makes each write slow, for tests."""

    spill: int
    head: int
    tail: int
    sha256: bool = False
    delay: float = 0.0


class Sink:
    """Takes the output of one command; owns the descriptor of the spill."""

    def __init__(self, spill: int, bounds: Bounds, path: str | None = None) -> None:
        """``path`` is where the spill has to be found in the end; None: wherever it is."""
        self._spill = spill
        self._path = path
        self._bounds = bounds
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._head = bytearray()
        self._tail = bytearray()
        self._hash = _sha256() if bounds.sha256 else None
        self.seen = 0
        """Bytes that the command has written."""
        self.written = 0
        """Bytes of them that are in the spill."""
        self.size: int | None = None
        """The size of the file when it was closed."""
        self.error: str | None = None
        """The name of the first error of writing, or ``output_limit``."""
        self._lines = 0

    @property
    def lines(self) -> int | None:
        """Line ends so far; None once there was too much to count."""
        return self._lines if self.seen <= COUNTED else None

    @property
    def head(self) -> bytes:
        """The first bytes."""
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The last bytes, without those of the head."""
        return bytes(self._tail[max(0, len(self._tail) - self._bounds.tail) :])

    @property
    def sha256(self) -> str | None:
        """Of what is in the spill, in hex; None where it was not asked for."""
        return None if self._hash is None else self._hash.hexdigest()

    @property
    def whole(self) -> bool:
        """All that was seen is in the file, as far as is known by now."""
        same_size = self.size is None or self.size == self.seen
        return self.error is None and self.seen == self.written and same_size

    def fill(self, pipe: int) -> int | None:
        """Read once from a pipe and keep it; the bytes read, 0 at its end.

        None where a pipe that does not block is empty. Raises OSError where it cannot be read.
        """
        try:
            size = os.readv(pipe, [self._buffer])
        except BlockingIOError:
            return None
        if size:
            self._take(size)
        return size

    def close(self) -> None:
        """Close the spill and look at its size; errors are kept, not raised. A second is nothing.

        The buffer is given up too: whoever holds a closed sink holds little more than its tail.
        """
        if self._spill < 0:
            return
        spill, self._spill = self._spill, -1
        try:
            found = os.fstat(spill)
            self.size = found.st_size
            self._check_place(found)
        except OSError as error:
            self._failed(error)
        try:
            # Network file systems report a full disk here.
            os.close(spill)
        except OSError as error:
            self._failed(error)
        self._view.release()
        self._buffer = bytearray()

    def _check_place(self, found: os.stat_result) -> None:
        """What has been unlinked, or moved away, nobody can read: not a byte of it is saved."""
        if self._path is None:
            return
        try:
            there = os.stat(self._path, follow_symlinks=False)
            if not os.path.samestat(there, found):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError:
            self.written = self.size = 0
            raise

    def _take(self, size: int) -> None:
        self.seen += size
        if self.seen <= COUNTED:
            self._lines += self._buffer.count(b"\n", 0, size)
        if self.error is None:
            room = self._bounds.spill - self.written
            self._write(self._view[: min(size, room)])
            if self.error is None and size > room:
                self.error = OUTPUT_LIMIT
        lacking = max(0, self._bounds.head - len(self._head))
        if lacking:
            self._head += self._view[: min(lacking, size)]
        if size > lacking:
            self._keep_last(self._view[lacking:size])

    def _keep_last(self, data: memoryview) -> None:
        keep = self._bounds.tail
        if len(data) >= keep:
            self._tail[:] = data[len(data) - keep :]
            return
        self._tail += data
        # Cutting at each small piece would copy the whole tail each time.
        if len(self._tail) > 2 * keep + 65536:
            del self._tail[: len(self._tail) - keep]

    def _write(self, data: memoryview) -> None:
        if self._bounds.delay:
            # Not a loop's thread: a shim, or a thread of the fallback, has nothing else to do.
            time.sleep(self._bounds.delay)  # noqa: TID251
        try:
            while data:
                size = os.write(self._spill, data)
                self.written += size
                if self._hash is not None:
                    self._hash.update(data[:size])
                data = data[size:]
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if self.error is None:
            self.error = errno.errorcode.get(error.errno or 0, "EIO")


def _sha256() -> hashlib._Hash:
    # Only for those who want it: OpenSSL takes milliseconds and megabytes to load.
    import hashlib

    return hashlib.sha256()
