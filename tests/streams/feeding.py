"""Feeds streams in the ways that tests need; asserts nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from gateway.protocols import BY_NAME
from gateway.streams.limits import Limits
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable


def open_stream(protocol: str = "openai_chat", choices: int = 1, **settings: Any) -> Stream:
    """A stream of a request that was sent at 0."""
    known = BY_NAME[protocol]
    return Stream(protocol, known.reader(choices), Settings(known=known.known, **settings), 0.0)


def feed(
    stream: Stream, chunks: Iterable[bytes], *, reset: bool = False, now: float = 1.0
) -> bytes:
    """Everything up to and including the upstream's end; return all that was handed on."""
    out = [stream.receive_data(chunk, now) for chunk in chunks]
    if not stream.closed:
        out.append(stream.receive_reset(now) if reset else stream.receive_eof(now))
    return b"".join(out)


def singles(data: bytes) -> list[bytes]:
    """Byte by byte."""
    return [data[i : i + 1] for i in range(len(data))]


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Cut at the given places (those outside the data are taken modulo its length)."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(min_value=0, max_value=1 << 20), max_size=12)
"""Where to cut a text, for ``pieces``."""


def one_limit(seconds: float) -> Limits:
    """Limits under which every silence may last the same time."""
    return Limits(first_event=seconds, gap=seconds, gap_alive=seconds, silent_phase=seconds)
