"""Reads a JSON text that broke off, is broken somewhere, or is nested too deep: its beginning.

What stands before the fault is what a provider said, and it mostly holds the message. Never guesses
what would have followed: of a number or a name that may have gone on nothing is taken.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gateway.streams import lenient

MAX_DEPTH: Final = 32
MAX_LENGTH: Final = 65_536
"""Characters that are looked at."""

_TRIES: Final = 3
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\u[0-9A-Fa-f]{4}|\\[^u])*+(?P<end>"?)|[{}\[\],]', re.DOTALL
)
_CLOSING: Final = {"{": "}", "[": "]"}


def beginning(text: str) -> Any:
    """The object or array that ``text`` begins with, as far as it can be read; None for none."""
    text = text[:MAX_LENGTH]
    for _ in range(_TRIES):
        faults: list[int] = []
        for closed in _closings(text):
            try:
                return json.loads(closed, strict=False, parse_int=lenient.integer)
            except json.JSONDecodeError as fault:
                faults.append(fault.pos)
        if not faults or not text[: faults[0]].strip():
            return None
        text = text[: faults[0]]
    return None


def _closings(text: str) -> list[str]:
    """The text with an end: after its last character, where that ends a value, and after the last
    value that is surely whole.
    """
    closers, whole, end, cut = "", (0, ""), len(text), False
    for token in _TOKEN.finditer(text):
        sign = token.group()
        if sign[0] == '"':
            if not token["end"]:
                end, cut = token.end(), True
                break
        elif sign == ",":
            whole = (token.start(), closers)
        elif sign in _CLOSING and len(closers) < MAX_DEPTH:
            closers = _CLOSING[sign] + closers
            whole = (token.end(), closers)
        elif closers.startswith(sign):
            closers = closers[1:]
            whole = (token.end(), closers)
            if not closers:
                break
        else:
            end = token.start()
            break
    last = [text[: whole[0]] + whole[1]]
    if cut:
        return [f'{text[:end]}"{closers}', *last]
    text = text[:end].rstrip()
    return [text + closers, *last] if closers and text.endswith(('"', "}", "]")) else last
