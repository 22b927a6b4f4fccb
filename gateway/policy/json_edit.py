"""Changes single values inside a JSON text and leaves every other character as it is.

Decoding and encoding again would respell numbers and escapes; here a value is found by where it
stands, and only its characters are exchanged.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder(strict=False, parse_int=str).raw_decode

MAX_MEMBERS = 20_000
"""Of one object or array that is gone through; each takes its time."""

Path = tuple[str | int, ...]
"""Keys of objects and indices of arrays, from the outside in."""


class Span(NamedTuple):
    """Where a value stands: from its first character to behind its last one."""

    start: int
    end: int


class Edit(NamedTuple):
    """Put ``text`` in the place of ``span``."""

    span: Span
    text: str


def find(text: str, path: Path) -> Span | None:
    """Where the value at ``path`` stands; None where there is none. Of a key that is there twice,
    the last one counts, as it does for parsers.

    ``text`` is one whole JSON text. Raises ValueError or RecursionError for what is none, and for
    more members than :data:`MAX_MEMBERS`.
    """
    start = _skip(text, 0)
    for step in path:
        if text[start : start + 1] != ("{" if isinstance(step, str) else "["):
            return None
        found: int | None = None
        for name, at, _ in _members(text, start):
            if name == step:
                found = at
        if found is None:
            return None
        start = found
    return Span(start, _decode(text, start)[1])


def into_object(text: str, path: Path, members: Mapping[str, object]) -> Edit | None:
    """The edit that puts ``members`` in front of what the object at ``path`` holds; None where
    there is no object.
    """
    place = find(text, path)
    if place is None or text[place.start] != "{":
        return None
    inside = place.start + 1
    empty = text[_skip(text, inside)] == "}"
    written = ",".join(f"{dump(name)}:{dump(value)}" for name, value in members.items())
    return Edit(Span(inside, inside), written if empty else f"{written},")


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits done; no two of them overlap."""
    for span, replacement in sorted(edits, key=lambda edit: edit.span, reverse=True):
        text = text[: span.start] + replacement + text[span.end :]
    return text


def dump(value: object) -> str:
    """Compact JSON of one value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _members(text: str, start: int) -> Iterable[tuple[str | int, int, int]]:
    """Name (or index), start and end of each value of the object or array at ``start``."""
    keyed = text[start] == "{"
    at, index = _skip(text, start + 1), 0
    while text[at] not in "}]":
        name: str | int = index
        if keyed:
            name, at = _decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        end = _decode(text, at)[1]
        yield name, at, end
        at, index = _skip(text, end), index + 1
        if index > MAX_MEMBERS:
            raise ValueError("too many members")
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
