"""Bytes of a command's output as text, without what only a screen needs. Cuts nothing.

What is no text at all is shown with escapes.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Encoding = Literal["utf-8", "binary"]

_INVALID_SHARE = 10
"""More than one byte in so many that is no UTF-8: the output is no text."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor, erase
    r"|\x9b[0-?]*+[ -/]*+[@-~]"
    r"|\x1b\][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*+\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b(?:\[[0-?]*+[ -/]*+)?+\Z"  # one that the cut has halved
    r"|\x1b[ -/]*+[0-~]"
)
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F) if chr(code) not in "\t\n"} | {
    code: f"\\u{code:04x}" for code in range(0x80, 0xA0)
}


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a screen would have done: control sequences, and lines drawn over themselves."""

    ansi: Literal["strip", "keep"] = "strip"
    cr: Literal["collapse", "keep"] = "collapse"


def invalid_bytes(data: bytes) -> int:
    """How many bytes of ``data`` are no part of a character in UTF-8."""
    return len(data) - len(data.decode("utf-8", "ignore").encode())


def encoding_of(*pieces: bytes) -> Encoding:
    """Whether the pieces of one output, cut between characters, are text."""
    if any(b"\0" in piece for piece in pieces):
        return "binary"
    invalid = sum(map(invalid_bytes, pieces))
    return "binary" if invalid * _INVALID_SHARE > sum(map(len, pieces)) else "utf-8"


def render(data: bytes, encoding: Encoding, look: Look) -> str:
    """``data`` as text, with as many newlines as it has.

    Text loses control sequences, and the states of a line that others were drawn over, if ``look``
    says so; what would then be empty is shown as it is. A binary has every control character, and
    every byte that is no UTF-8, as ``\\x00``.
    """
    return _rendered(data, encoding, look)[0]


def drawn_over(data: bytes, encoding: Encoding, look: Look) -> int:
    """How many states of lines :func:`render` leaves out."""
    return _rendered(data, encoding, look)[1]


def _rendered(data: bytes, encoding: Encoding, look: Look) -> tuple[str, int]:
    if encoding == "binary":
        return data.decode("utf-8", "backslashreplace").translate(_ESCAPES), 0
    whole = text = data.decode("utf-8", "replace")
    left_out = 0
    if look.ansi == "strip" and ("\x1b" in text or "\x9b" in text):
        text = _SEQUENCE.sub("", text)
    if look.cr == "collapse" and "\r" in text:
        lines = [_last_states(line) for line in text.split("\n")]
        text = "\n".join(line for line, _ in lines)
        left_out = sum(count for _, count in lines)
    return (text, left_out) if text else (whole, 0)


def _last_states(line: str) -> tuple[str, int]:
    """What of a line was drawn last, and how many states of it that hides.

    A shorter state does not cover a longer one: what came before it may be a message that was wiped
    out and not drawn anew. A carriage return at the end belongs to the newline.
    """
    *earlier, last = line.rstrip("\r").split("\r")
    if not earlier:
        return last, 0
    states, covered, left_out = [last], len(last), 0
    for state in reversed(earlier):
        seen = len(state.rstrip())
        if seen > covered:
            states.append(state)
            covered = seen
        elif seen:
            left_out += 1
    return "\r".join(reversed(states)), left_out
