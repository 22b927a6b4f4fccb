"""Sizes in bytes as people write them ("64MiB"), read and written; knows no keys and no tables."""

from __future__ import annotations

import re
from fractions import Fraction

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
UNLIMITED = "unlimited"

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([A-Za-z]*)", re.ASCII)
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def parse_size(value: object) -> int:
    """Bytes from ``"64MiB"``, ``"1.5 GB"``, ``"0"`` or a whole number of bytes.

    ``MiB`` is 2**20 bytes and ``MB`` 10**6; case does not matter. Raises ``ValueError`` with the
    half sentence that follows "KEY " for all else: negative numbers, unknown units, parts of a
    byte.
    """
    mend = 'must be a size such as "64MiB", "500KB" or a number of bytes'
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{mend}, not a negative number")
        return value
    if not isinstance(value, str):
        raise ValueError(mend)
    match = _SIZE.fullmatch(value.strip())
    factor = UNITS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ValueError(mend)
    exact = Fraction(match[1]) * factor
    if exact.denominator != 1:
        raise ValueError("must be a whole number of bytes")
    return int(exact)


def format_size(size: int | None) -> str:
    """The shortest exact way to write ``size``: ``"64MiB"``, ``"1500B"``, or ``"unlimited"``."""
    if size is None:
        return UNLIMITED
    for unit, factor in _BINARY:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
