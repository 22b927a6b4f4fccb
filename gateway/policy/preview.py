"""What is shown of a command's output, and where it is cut. Never alters or reads the output file.

The runner keeps the first and the last bytes of an output; the whole stands in a file, the spill.
From those bytes this makes two things:

- :func:`preview`, the fields ``head`` and ``tail`` of an answer, with counts of what lies between;
- :func:`compose`, the one ``text`` that an agent hands to its model: the whole output if it fits,
  else head, a marker and tail between two notices of exactly what was left out.

Counts are of the output's own bytes and of its newlines, never of what is shown for them. A text
that is shorter than the output says so; so does one whose output may not be all there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.policy.preview_notice import CutNotice, Facts, marker, of_whole
from gateway.policy.preview_render import (
    Encoding,
    Look,
    drawn_over,
    encoding_of,
    invalid_bytes,
    render,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_LINES = 5
"""A notice, a line of the head, a marker, a line of the tail, a notice."""

MIN_BYTES = 2048
"""Room for two notices and something between them."""

NO_OUTPUT = "(no output)"

_LOOK = Look()
_NEWLINE_WITHIN = 1024
_SHARES = 4
_NEAR_ENOUGH = 64
_HEAD_SHARE = 2 / 7
"""Of what fits, the head gets 2/7 (8 of 28 KiB): errors come last."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most lines, and bytes as UTF-8, of a text.

    Raises ``ValueError`` below ``MIN_LINES`` and ``MIN_BYTES``: the notices would not fit.
    """

    lines: int = 2000
    bytes: int = 28_672

    def __post_init__(self) -> None:
        if self.lines < MIN_LINES or self.bytes < MIN_BYTES:
            raise ValueError(f"a text needs {MIN_LINES} lines and {MIN_BYTES} bytes or more")


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The part of ``detail.output`` that shows the output.

    ``head_bytes`` + ``tail_bytes`` + ``omitted_bytes`` are the output's bytes. ``invalid_utf8``
    counts the bytes shown that are no UTF-8.
    """

    head: str
    tail: str
    head_bytes: int
    tail_bytes: int
    omitted_bytes: int
    omitted_lines: int | None
    truncated_preview: bool
    encoding: Encoding
    invalid_utf8: int


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent hands to its model, and what of the output is not in it."""

    text: str
    truncated: bool
    omitted_bytes: int
    omitted_lines: int | None


class Kept:
    """The bytes of one output that are known, its first ones and its last ones, and its facts.

    ``head`` and ``tail`` may overlap. If they are all of it, ``head`` becomes all and ``tail``
    nothing; else both are cut where a reader can bear it.
    """

    def __init__(self, head: bytes, tail: bytes, facts: Facts, look: Look = _LOOK) -> None:
        whole = _whole(head, tail, facts.bytes)
        self.is_whole = whole is not None
        if whole is not None:
            self.head, self.tail = whole, b""
            facts = msgspec.structs.replace(facts, lines=whole.count(b"\n"))
        else:
            self.head = head[: head_end(head, len(head))]
            self.tail = tail[tail_start(tail, 0) :]
        self.facts = facts
        if b"\n" not in self.head and b"\n" not in self.tail:
            # Where no newline is, a carriage return may well be what ends the lines.
            look = msgspec.structs.replace(look, cr="keep")
        self.look = look
        self.encoding = encoding_of(self._settled(self.head), self._settled(self.tail))

    def text(self, piece: bytes) -> str:
        """A piece of the output as text."""
        return render(self._settled(piece), self.encoding, self.look)

    def drawn_over(self, *pieces: bytes) -> int:
        """How many states of lines in these pieces are not shown."""
        return sum(drawn_over(self._settled(each), self.encoding, self.look) for each in pieces)

    def invalid(self) -> int:
        """How many of the kept bytes are no UTF-8."""
        return sum(invalid_bytes(self._settled(piece)) for piece in (self.head, self.tail))

    def omitted(self, head: bytes, tail: bytes) -> tuple[int, int | None]:
        """The bytes and the newlines that are neither in ``head`` nor in ``tail``."""
        left = self.facts.bytes - len(head) - len(tail)
        if self.facts.lines is None:
            return left, None
        return left, self.facts.lines - head.count(b"\n") - tail.count(b"\n")

    def _settled(self, piece: bytes) -> bytes:
        """``piece`` without a character that is begun at its end, as long as more may come."""
        if not self.facts.open:
            return piece
        return piece[: len(piece) - _begun(piece)] or piece


def _whole(head: bytes, tail: bytes, size: int) -> bytes | None:
    unseen = size - len(head)
    if unseen <= 0:
        return head[:size]
    return None if unseen > len(tail) else head + tail[len(tail) - unseen :]


def preview(kept: Kept) -> Preview:
    """The head and the tail of an output; all of it in ``head`` if nothing lies between them."""
    omitted, omitted_lines = kept.omitted(kept.head, kept.tail)
    return Preview(
        head=kept.text(kept.head),
        tail=kept.text(kept.tail),
        head_bytes=len(kept.head),
        tail_bytes=len(kept.tail),
        omitted_bytes=omitted,
        omitted_lines=omitted_lines,
        truncated_preview=omitted > 0,
        encoding=kept.encoding,
        invalid_utf8=kept.invalid(),
    )


def compose(kept: Kept, bounds: Bounds) -> Text:
    """The text of an answer: within ``bounds``, whatever the output."""
    if kept.is_whole:
        text = _all(kept)
        if len(text.encode()) <= bounds.bytes and count_lines(text) <= bounds.lines:
            return Text(text=text, truncated=False, omitted_bytes=0, omitted_lines=0)
    # As many as carriage returns, wherever it is cut.
    most = sum(piece.count(b"\r") for piece in (kept.head, kept.tail))
    notice = CutNotice(kept.facts, bounds.bytes // 3, most if kept.look.cr == "collapse" else 0)
    between = len(marker(kept.facts.bytes, kept.facts.lines).encode())
    newlines = 4  # after the first notice, the head, the marker and the tail
    room = bounds.bytes - 2 * notice.longest - between - newlines
    head, tail = _pieces(kept, room, bounds.lines - 3)
    omitted = kept.omitted(head, tail)
    shown, end, said = (
        kept.text(head),
        kept.text(tail),
        notice.text(*omitted, kept.drawn_over(head, tail)),
    )
    return Text(
        text=f"{said}\n{_ended(shown)}{marker(*omitted)}\n{_ended(end)}{said}",
        truncated=True,
        omitted_bytes=omitted[0],
        omitted_lines=omitted[1],
    )


def _all(kept: Kept) -> str:
    """All of the output, and below it what is to be said of its end."""
    shown = kept.text(kept.head)
    if not kept.head and kept.facts.complete:
        shown = NO_OUTPUT
    said = of_whole(kept.facts, kept.drawn_over(kept.head))
    return _ended(shown) + said if said else shown


def _pieces(kept: Kept, room: int, lines: int) -> tuple[bytes, bytes]:
    """The first and the last bytes whose texts fit together into ``room`` bytes and ``lines``.

    The head gets its share, the tail what is left, and the head again what the tail leaves.
    """
    first, last = kept.head, kept.tail
    head = _fit_head(kept, first, int(room * _HEAD_SHARE), max(1, int(lines * _HEAD_SHARE)))
    if kept.is_whole:
        last = first[len(head) :]
    shown = kept.text(head)
    tail = _fit_tail(kept, last, room - len(shown.encode()), lines - count_lines(shown))
    if kept.is_whole:
        first = first[: len(first) - len(tail)]
    shown = kept.text(tail)
    head = _fit_head(kept, first, room - len(shown.encode()), lines - count_lines(shown))
    return head, tail


def _fit_head(kept: Kept, source: bytes, room: int, lines: int) -> bytes:
    size = _end_of_lines(source, lines)
    return _shrink(kept, size, lambda size: source[: head_end(source, size)], room)


def _fit_tail(kept: Kept, source: bytes, room: int, lines: int) -> bytes:
    def cut(size: int) -> bytes:
        start = len(source) - size
        return source[tail_start(source, start) :] if start else source

    return _shrink(kept, len(source) - _start_of_lines(source, lines), cut, room)


def _shrink(kept: Kept, size: int, cut: Callable[[int], bytes], room: int) -> bytes:
    """Cut until it fits: how long a text bytes become is known only once they are.

    Most come down to their share at once. Where only some of the bytes are shown, as between
    control sequences, a share says nothing: then it is halves that are tried, and never many.
    """
    too_much = size
    if kept.encoding == "binary":
        size = min(size, room)  # escapes only make it longer
    for _ in range(_SHARES):
        piece = cut(size)
        taken = len(kept.text(piece).encode())
        if taken <= room:
            return piece
        too_much = size
        size = min(size * room // taken, size - 1)
    fits, best = 0, b""
    while too_much - fits > max(1, too_much // _NEAR_ENOUGH):
        size = (fits + too_much) // 2
        piece = cut(size)
        if len(kept.text(piece).encode()) <= room:
            fits, best = size, piece
        else:
            too_much = size
    return best


def head_end(data: bytes, size: int) -> int:
    """Where to cut after at most ``size`` first bytes of ``data``: after a newline if one is near,
    else between characters.

    Near is 1 KiB, but never more than half of what is there: a newline at the start of one giant
    line must not cost the line.
    """
    if data[size - 1 : size] == b"\n":
        return size
    near = max(0, size - min(_NEWLINE_WITHIN, size // 2))
    newline = data.rfind(b"\n", near, size)
    return newline + 1 if newline >= 0 else size - _begun(data[:size])


def tail_start(data: bytes, start: int) -> int:
    """The same for the last bytes: where to begin, at or after ``start``."""
    if start > 0 and data[start - 1 : start] == b"\n":
        return start
    for _ in range(3):  # bytes that can only continue a character
        if start < len(data) and 0x80 <= data[start] < 0xC0:
            start += 1
    near = start + min(_NEWLINE_WITHIN, (len(data) - start) // 2)
    newline = data.find(b"\n", start, near)
    return newline + 1 if newline >= 0 else start


def _begun(data: bytes) -> int:
    """How many bytes at the end of ``data`` begin a character that they do not end."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needs > back else 0
        if byte < 0x80:
            return 0
    return 0


def count_lines(text: str) -> int:
    """Lines of a text; what follows the last newline is one."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _end_of_lines(data: bytes, lines: int) -> int:
    """Where the first ``lines`` lines end."""
    at = 0
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
        if not at:
            return len(data)
    return at


def _start_of_lines(data: bytes, lines: int) -> int:
    """Where the last ``lines`` lines begin."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        at = data.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _ended(text: str) -> str:
    """``text`` with a newline at its end, unless there is nothing to end."""
    return text if text.endswith("\n") or not text else text + "\n"
