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

    Text loses control sequences and all but the last frame of a line that was drawn over itself,
    if ``look`` says so; what would then be empty is shown as it is. A binary has every control
    character, and every byte that is no UTF-8, as ``\\x00``.
    """
    if encoding == "binary":
        return data.decode("utf-8", "backslashreplace").translate(_ESCAPES)
    whole = text = data.decode("utf-8", "replace")
    if look.ansi == "strip" and ("\x1b" in text or "\x9b" in text):
        text = _SEQUENCE.sub("", text)
    if look.cr == "collapse" and "\r" in text:
        text = "\n".join(map(_last_frame, text.split("\n")))
    return text or whole


def _last_frame(line: str) -> str:
    """What of a line was drawn last. A carriage return at its end belongs to its newline."""
    return line.rstrip("\r").rpartition("\r")[2]
