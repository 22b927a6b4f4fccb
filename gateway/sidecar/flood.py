"""Tells a flood of small writes from other output, and leaves it to itself for a moment; takes
nothing out of the pipe.

Each write of a few bytes would wake the drain; gathered, they cost a third less.
"""

from __future__ import annotations

import select
import time
from typing import Final

GATHER: Final = 0.0005
"""Seconds that a flood is left to itself."""

SMALL_READS: Final = 8
"""So many in a row, each as soon as the one before it was written down, are a flood."""


class Flood:
    """What the last reads of one pipe were like; ``capacity`` is what it holds, in bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_reads = 0
        self._read_at = 0.0
        self._soon = self._gathered = False

    def gather(self, events: int) -> None:
        """Before a read: let more come, unless it is the end that the poll has told of."""
        self._soon = time.monotonic() - self._read_at < GATHER
        full = self._small_reads >= SMALL_READS
        self._gathered = self._soon and full and not events & select.POLLHUP
        if self._gathered:
            # In a process or a thread that has nothing else to do.
            time.sleep(GATHER)  # noqa: TID251

    def note(self, size: int) -> None:
        """After a read of ``size`` bytes."""
        # What fills the pipe while it is left to itself is not slowed down a second time.
        small = size < self._capacity // (2 if self._gathered else 8)
        self._small_reads = self._small_reads + 1 if small and self._soon else 0
        self._read_at = time.monotonic()
