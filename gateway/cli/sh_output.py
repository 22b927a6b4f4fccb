"""What `gateway sh` prints of an output: all that fits, or the answer's text; cuts nothing itself.

Nothing is printed before the end, for only then it is known what fits, unless a command runs for
long: then its beginning is, for whoever looks at what a command in the background has written.
"""

from __future__ import annotations

import signal

from gateway.cli import exec_caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType
    from typing import Any

SMALL = 28 << 10
"""Bytes that fit in any case."""

KEPT = 256 << 10
"""Bytes of output that may still be shown whole; no answer shows more."""

LIVE_AFTER = 2.0
LIVE_BYTES = 4 << 10
LIVE_LINES = 250
"""The beginning that is shown early is within that of the text, which has 8 KiB or 570 lines."""


class Output:
    """The output of one command, as far as it may be printed."""

    def __init__(self) -> None:
        self.left = False
        """Whether the reader of standard output has."""
        self._kept = bytearray()
        self._printed = 0
        self._live = False

    def watch(self) -> None:
        """Print the beginning if nothing else is printed for a while."""
        signal.signal(signal.SIGALRM, self._go_live)
        signal.setitimer(signal.ITIMER_REAL, LIVE_AFTER)

    def _go_live(self, *_: int | FrameType | None) -> None:
        self._live = True
        self._print_beginning()

    def add(self, piece: bytes) -> None:
        """The next bytes of the output."""
        if len(self._kept) < KEPT:
            self._kept += piece[: KEPT - len(self._kept)]
            if self._live:
                self._print_beginning()

    def finish(self, answer: Mapping[str, Any], received: int) -> None:
        """Print what is not printed yet."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        kept, early = bytes(self._kept), bytes(self._kept[: self._printed])
        if is_all(answer, kept, received):
            self._write(kept[self._printed :])
            return
        text = str(answer.get("text") or "").encode()
        below = text.partition(b"\n")[2]
        if text.startswith(early):
            rest = text[len(early) :]
        elif below.startswith(early):
            # The notice above the beginning stands at the end as well.
            rest = below[len(early) :]
        else:
            rest = b"\n" + text
        # No newline at its end: some agents cut again what has a line more than the text.
        self._write(rest + b"\n" * (exec_caller.is_terminal(1) and not rest.endswith(b"\n")))

    def give_up(self) -> None:
        """There will be no answer: print what there is, as far as it fits."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._write(bytes(self._kept[self._printed : SMALL]))

    def _print_beginning(self) -> None:
        beginning = bytes(self._kept[:LIVE_BYTES])
        lines = beginning.split(b"\n", LIVE_LINES)
        if len(lines) > LIVE_LINES:
            beginning = beginning[: len(beginning) - len(lines[-1])]
        if len(beginning) > self._printed:
            piece = beginning[self._printed :]
            self._printed = len(beginning)
            self._write(piece)

    def _write(self, data: bytes) -> None:
        try:
            exec_caller.write(data)
        except OSError:
            self.left = True


def is_all(answer: Mapping[str, Any], kept: bytes, received: int) -> bool:
    """Whether the bytes themselves say everything: the command just ended, and they fit."""
    detail = answer.get("detail") or {}
    # Escaped, what is binary takes more room: it is cut that would fit as it is.
    binary = (detail.get("output") or {}).get("encoding") == "binary" and received <= SMALL
    return bool(
        answer.get("complete")
        and (binary or not answer.get("truncated"))
        and answer.get("signal") is None
        and not answer.get("timed_out")
        and detail.get("reason", "exit") == "exit"
        and len(kept) == received == (answer.get("spill") or {}).get("bytes")
    )
