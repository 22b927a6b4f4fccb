"""Writes log lines to a stream that may stop taking them. Never makes who logs wait.

Standard error is often a pipe, and whoever reads it may hang; a full pipe would then stop the event
loop in the middle of a log line, and with it every request.
"""

from __future__ import annotations

import atexit
import queue
import threading
from typing import TextIO

LINES = 10_000
"""Lines that wait to be written; beyond them lines are dropped and counted."""

_FLUSH_SECONDS = 1.0


class LineWriter:
    """Writes whole lines at once; a reader that has gone away breaks nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        """Write one line, without its line end."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return


class QueuedWriter:
    """Writes lines from a thread of its own, in order; ``dropped`` counts the ones that did not fit
    since the last that did.
    """

    def __init__(self, stream: TextIO, lines: int = LINES) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(lines)
        self._writer = LineWriter(stream)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, line: str) -> None:
        """Queue one line, or drop it where the reader is too far behind."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Write what waits, as far as that goes in so many seconds."""
        atexit.unregister(self.close)
        try:
            self._lines.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                self._writer.write(
                    f'{{"event":"log_lines_dropped","level":"warning","lines":{dropped}}}'
                )
            self._writer.write(line)
