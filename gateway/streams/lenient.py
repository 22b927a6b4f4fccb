"""Decodes JSON that a strict parser rejects but clients read all the same. Never used before a
strict try failed.

Providers have been seen to send NaN, lone surrogates, bad UTF-8 and raw control characters inside
strings; Python's and JavaScript's parsers take some of each. An ending must not be missed over one
of them. What comes out can always be written again: a lone surrogate becomes a question mark.
"""

from __future__ import annotations

import json

import msgspec

_MAX_DIGITS = 4000
_strict = msgspec.json.Decoder()


def loads(data: bytes) -> object:
    """Decode one JSON text. Raises ValueError when no reading of it is a whole JSON text."""
    try:
        return _strict.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    text = data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text, strict=False, parse_int=integer)
        if "\\ud" in text or "\\uD" in text:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    return value


def strictly(data: bytes) -> object:
    """Decode one JSON text in the one way that is fast. Raises ValueError for all that is not
    strictly one, or is deep.
    """
    try:
        return _strict.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("this is no strict JSON") from error


def integer(digits: str) -> int | str:
    """A whole number; one of thousands of digits, which no parser here takes, as its digits."""
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def is_broken(data: bytes) -> bool:
    """Whether the bytes are no whole JSON text, nor lines of such. What only goes beyond the limits
    of the parsers here (depth, digits) is not broken.
    """
    if is_whole(data) or all(is_whole(line) for line in data.splitlines() if line.strip()):
        return False
    try:
        json.loads(data.decode("utf-8", "replace"), strict=False)
    except RecursionError:
        return False
    except ValueError as error:
        return isinstance(error, json.JSONDecodeError)
    return False


def is_whole(data: bytes) -> bool:
    """Whether the bytes are one whole JSON text, read leniently."""
    try:
        loads(data)
    except ValueError:
        return False
    return True
