"""Which part of an output is asked for: ``Range`` and ``Last-Event-ID``. Reads no output.

Whether an ``If-Range`` still holds is for who knows the entity tag.
"""

from __future__ import annotations

import re

import msgspec

from gateway.policy.exec_request import ExecError

_RANGE = re.compile(r"bytes=[ \t]*(\d*)-(\d*)[ \t]*", re.ASCII | re.IGNORECASE)
_DIGITS = 18
_EVENT_ID = re.compile(r"\d{1,18}", re.ASCII)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of an output from ``start`` up to, and without, ``stop``."""

    start: int
    stop: int

    def content_range(self, final_size: int | None) -> str:
        """The value of ``Content-Range``; ``None``: the output still grows."""
        size = "*" if final_size is None else str(final_size)
        return f"bytes {self.start}-{self.stop - 1}/{size}"


def parse_range(value: str | None, size: int) -> Part | None:
    """The part of ``size`` bytes that a ``Range`` header asks for; ``None``: all of it.

    What is no range of bytes, and more than one at once, is ignored as RFC 9110 allows. Raises
    :class:`ExecError` with 416 where no byte of the range is there.
    """
    match = _RANGE.fullmatch(value.strip()) if value is not None else None
    if match is None:
        return None
    first, last = match.groups()
    if first:
        start, stop = _number(first), size
        if last:
            if _number(last) < start:
                return None  # not a range at all
            stop = min(size, _number(last) + 1)
    elif last:
        start, stop = max(0, size - _number(last)), size
    else:
        return None
    if start >= stop:
        raise ExecError(416, f"This range is not in the output, which has {size} bytes.")
    return Part(start=start, stop=stop)


def parse_offset(value: str | None, size: int) -> int:
    """Where the output is read from: the parameter ``offset``, 0 without one.

    Raises :class:`ExecError` with 400 for what is no number up to ``size``, the bytes there are.
    """
    wrong = f"offset must be a whole number up to {size}, the bytes there are."
    return _position(value, size, wrong)


def parse_event_id(value: str | None, size: int) -> int:
    """Where a stream of events goes on: the offset in ``Last-Event-ID``, 0 without one.

    ``size`` are the bytes of output that are there. Raises :class:`ExecError` with 400 for what
    no event can have had for its ``id``.
    """
    return _position(value, size, "Last-Event-ID must be the id of an event of this stream.")


def _position(value: str | None, size: int, wrong: str) -> int:
    text = (value or "").strip()
    if not text:
        return 0
    if not _EVENT_ID.fullmatch(text) or int(text) > size:
        raise ExecError(400, wrong)
    return int(text)


def _number(digits: str) -> int:
    """A number of any length, as one that is past every output if it is long."""
    digits = digits.lstrip("0")
    return 10**_DIGITS if len(digits) > _DIGITS else int(digits or "0")
