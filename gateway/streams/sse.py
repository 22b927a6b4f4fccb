"""Finds whole server-sent events in a stream of bytes, however it is chunked. Never changes or
drops a byte.

The framer answers one question: up to where may bytes be handed on so that whatever is sent next
starts on a boundary? A boundary is a line start with no field pending, so comment lines and blank
lines pass at once and an event passes when its blank line has come. Line ends are LF, CRLF or CR in
any mixture
(https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).

Two ways lead to the same blocks: splitting on the blank line, as long as the stream keeps to one of
LF or CRLF, and a line scanner for everything else. Both are linear in the bytes received, also when
one event arrives in thousands of pieces.
"""

from __future__ import annotations

import re
from enum import Enum

BOM = b"\xef\xbb\xbf"
EVENT_STARTS = (b"data:", b"event:", b":", b"id:", b"retry:")
"""How the lines of a stream begin, comments among them."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_COMMENTS = re.compile(rb"(?:[\r\n]++|:[^\r\n]*+)*+")


class _Mode(Enum):
    LF = (b"\n", b"\n\n")
    CRLF = (b"\r\n", b"\r\n\r\n")
    SCAN = (b"", b"")

    def __init__(self, line_end: bytes, blank: bytes) -> None:
        self.line_end = line_end
        self.blank = blank


# Python 3.11 makes a call of looking a member up on its class; these are on the hot path.
_LF, _CRLF, _SCAN = _Mode


class SseFramer:
    """Cuts a stream into blocks: an event with its blank line, a comment line, or blank lines.

    ``feed`` returns the blocks that became whole. ``separator`` follows each of them on the wire
    (it is empty where the blocks carry their own line ends), so ``b"".join(block + separator for
    block in blocks)`` are exactly the bytes that left ``pending``. An event (or comment line) whose
    lines are longer than ``max_event`` bytes is never to be read, whether it came in one read or in
    many: it appears whole or in pieces, and ``opaque`` has the places of those among the blocks
    that the last ``feed`` returned. ``skipping`` is true inside one.
    """

    __slots__ = (
        "_after_cr", "_comment", "_empty_line", "_fields", "_first", "_half", "_line_end", "_mode",
        "_parts", "_size", "max_event", "opaque", "separator", "skipping",
    )  # fmt: skip

    def __init__(self, max_event: int = 8 << 20) -> None:
        self.max_event = max_event
        self.separator = b""
        self.skipping = False
        self.opaque: tuple[int, ...] = ()
        self._mode = _LF
        self._first = True
        self._parts: list[bytes] = []
        self._size = 0
        self._empty_line = True
        self._comment = False
        self._fields = False
        self._after_cr = False
        # A CR at the end of a read, of which a LF may be the other half: b"\r" or b"".
        self._half = b""
        self._line_end = b"\n"

    @property
    def pending(self) -> bytes:
        """Bytes received and not yet part of a block."""
        return b"".join((*self._parts, self._half))

    @property
    def start(self) -> bytes:
        """The first of them, enough to tell how a line begins; all if there are fewer."""
        return b"".join((*self._parts[:8], self._half))[:8]

    @property
    def pending_size(self) -> int:
        """Length of ``pending`` in bytes, without joining it."""
        return self._size + len(self._half)

    @property
    def at_boundary(self) -> bool:
        """Whether something may be inserted after the blocks handed out so far."""
        return not self._parts and not self._half and not self.skipping

    @property
    def line_end(self) -> bytes:
        """The line end that the stream used last, to write what fits it."""
        return self._mode.line_end or self._line_end

    def missing_blank(self, tail: bytes) -> bytes:
        """What turns a last event without its blank line into a whole one."""
        end = self.line_end
        if tail.endswith(b"\n"):
            return end
        if not tail.endswith(b"\r"):
            return end * 2
        if end == b"\r":
            return end
        # The CR is one half of a line end: the last one, or the one before it.
        return b"\n" if tail.endswith(b"\n\r") else b"\n" + end

    def only_block(self, chunk: bytes) -> bytes | None:
        """The one block that the chunk consists of, so that it may be handed on as it is; the chunk
        then counts as taken. None if there is more to it than that: it has to be fed."""
        if self._parts or self._half or self.skipping or self._mode is _SCAN:
            return None
        if len(chunk) > self.max_event:
            return None
        if self._mode is _LF:
            end = chunk.find(b"\n\n")
            if end >= 0 and end == len(chunk) - 2 and b"\r" not in chunk:
                return chunk[:end]
            return None
        end = chunk.find(b"\r\n\r\n")
        if end >= 0 and end == len(chunk) - 4:
            # Counting single bytes is much cheaper than counting pairs.
            ends = chunk.count(b"\n")
            if ends == chunk.count(b"\r") and (ends == 2 or ends == chunk.count(b"\r\n")):
                return chunk[:end]
        return None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes (at least one); return the blocks that are whole now."""
        self.opaque = (0,) if self.skipping else ()
        if self._half or chunk[-1:] == b"\r":
            chunk = self._without_half(chunk)
            if not chunk:
                return []
        if self._mode is not _SCAN:
            if self._mode is _CRLF or b"\r" in chunk:
                self._settle(chunk)
            if self._size + len(chunk) > self.max_event and self._mode is not _SCAN:
                # There may be a too long event in there, and only the scanner measures them.
                self._start_scanning()
        mode = self._mode
        if mode is not _SCAN:
            self.separator = mode.blank
            return self._split(chunk, mode)
        self.separator = b""
        blocks = self._scan(chunk)
        if self._size > self.max_event:
            self.skipping = True
            self.opaque = (*self.opaque, len(blocks))
            blocks.append(self._cut(b""))
        return blocks

    def finish(self) -> list[bytes]:
        """No more will come: a CR that might have been half of a CRLF is a line end. Return the
        block that it completes, with the other half, so that what is written next stands on a line
        of its own for every client."""
        half, self._half = self._half, b""
        if not half:
            return []
        self.opaque = (0,) if self.skipping else ()
        if self._mode is not _SCAN:
            self._start_scanning()
        end = self._line_end
        blocks = self._scan(half)
        if blocks and not self.skipping:
            blocks[-1] += b"\n"
        self._line_end = end
        return blocks

    def take_pending(self) -> bytes:
        """Return and forget the bytes of the unfinished block (the tail at the end of a stream)."""
        tail = self.pending
        self._parts, self._size, self._half = [], 0, b""
        return tail

    def _without_half(self, chunk: bytes) -> bytes:
        """The bytes that came, without a last CR that may be half of a CRLF.

        What is written between the halves would tear them apart for clients that know LF alone. A
        stream that ends its lines with CR has no such halves, and its events must not wait.
        """
        chunk = self._half + chunk
        self._half = b""
        if chunk[-1:] != b"\r":
            return chunk
        last = max(chunk.rfind(b"\n", 0, -1), chunk.rfind(b"\r", 0, -1))
        before = self._line_end if last < 0 else chunk[last : last + 1]
        if before == b"\r":
            return chunk
        self._half = b"\r"
        return chunk[:-1]

    def _settle(self, chunk: bytes) -> None:
        """Keep splitting while every line end is CRLF; else scan line by line from here on."""
        pairs = chunk.count(b"\r\n")
        uniform = pairs == chunk.count(b"\r") == chunk.count(b"\n")
        unbroken = self._first and not any(b"\n" in part for part in self._parts)
        if uniform and (self._mode is _CRLF or unbroken):
            self._mode = _CRLF
        else:
            self._start_scanning()

    def _start_scanning(self) -> None:
        """Bring the scanner to where the splitter is. No block can end here: those are out
        already."""
        self._line_end = self._mode.line_end
        self._mode = _SCAN
        parts, self._parts, self._size = self._parts, [], 0
        for part in parts:
            blocks = self._scan(part)
            if blocks:
                raise AssertionError("the splitter kept a whole block back")

    def _split(self, chunk: bytes, mode: _Mode) -> list[bytes]:
        parts = self._parts
        if parts:
            # Look only at the new bytes and the seam: a long event in many pieces must stay linear.
            keep = len(mode.blank) - 1
            seam = (
                parts[-1][-keep:] if len(parts[-1]) >= keep else b"".join(parts[-keep:])[-keep:]
            ) + chunk
            comment = parts[0].startswith(b":")
            if mode.blank not in seam and not (comment and mode.line_end in seam):
                parts.append(chunk)
                self._size += len(chunk)
                return []
            parts.append(chunk)
            chunk = b"".join(parts)
            self._parts, self._size = [], 0
        blocks = chunk.split(mode.blank)
        tail = blocks.pop()
        if blocks:
            self._first = False
        if tail:
            if tail[:1] == b":" or tail.startswith(mode.line_end):
                tail = self._pass_comments(blocks, tail, mode)
            if tail:
                self._parts, self._size = [tail], len(tail)
        return blocks

    def _pass_comments(self, blocks: list[bytes], tail: bytes, mode: _Mode) -> bytes:
        """Move whole comment and blank lines from the tail into ``blocks``; return the rest."""
        end = 0
        size = len(mode.line_end)
        while tail.startswith((b":", mode.line_end), end):
            found = tail.find(mode.line_end, end)
            if found < 0:
                break
            end = found + size
        if end:
            self._first = False
            # These lines bring their own line ends, so all blocks get theirs written out.
            blocks[:] = [block + mode.blank for block in blocks]
            blocks.append(tail[:end])
            self.separator = b""
        return tail[end:]

    def _scan(self, chunk: bytes) -> list[bytes]:
        blocks: list[bytes] = []
        start = line = 0
        if self._after_cr and chunk[:1] == b"\n":
            line = 1
            self._line_end = b"\r\n"
            if not self._parts and not self.skipping:
                blocks.append(chunk[:1])
                start = 1
        self._after_cr = chunk[-1:] == b"\r"
        for match in _LINE_END.finditer(chunk, line):
            begin, end = match.span()
            if begin > line and self._empty_line:
                self._empty_line, self._comment = False, chunk[line : line + 1] == b":"
            if self._empty_line or (self._comment and not self._fields):
                if self._size + begin - start > self.max_event and not self.skipping:
                    self.opaque = (*self.opaque, len(blocks))
                blocks.append(self._cut(chunk[start:end]))
                start = end
                self._fields = self.skipping = False
            elif not self._comment:
                self._fields = True
            self._empty_line, self._comment = True, False
            self._line_end = chunk[begin:end]
            line = end
        if line < len(chunk) and self._empty_line:
            self._empty_line, self._comment = False, chunk[line : line + 1] == b":"
        if start < len(chunk):
            rest = chunk[start:]
            if self.skipping:
                blocks.append(rest)
            else:
                self._parts.append(rest)
                self._size += len(rest)
        if blocks:
            self._first = False
        return blocks

    def _cut(self, last: bytes) -> bytes:
        if not self._parts:
            return last
        self._parts.append(last)
        block = b"".join(self._parts)
        self._parts, self._size = [], 0
        return block


def bare_lines(block: bytes) -> bytes:
    """A block from its first line that is neither blank nor a comment."""
    return block[_COMMENTS.match(block).end() :].strip()  # type: ignore[union-attr]


def parse_block(block: bytes) -> tuple[bytes, bytes | None, bool]:
    """Read one block: ``(event name, data, whether it has any field)``; ``data`` is None without a
    data line.

    Data lines are joined with LF; one space after the colon is dropped; comment lines are ignored.
    A byte order mark is for the caller to take away, from the first block alone: before any other
    line it is a part of it, and clients do not know such a field.
    """
    if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
        return b"", block[6:], True
    if block.startswith(b"event: ") and b"\r" not in block:
        end = block.find(b"\n")
        if block.startswith(b"data: ", end + 1) and block.find(b"\n", end + 1) < 0:
            return block[7:end], block[end + 7 :], True
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    name = b""
    data: list[bytes] = []
    fields = False
    for line in block.split(b"\n"):
        if not line or line[:1] == b":":
            continue
        fields = True
        key, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if key == b"data":
            data.append(value)
        elif key == b"event":
            name = value
    if not data:
        return name, None, fields
    return name, data[0] if len(data) == 1 else b"\n".join(data), True
