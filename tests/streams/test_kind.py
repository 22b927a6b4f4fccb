"""Whether a body is a stream, by its first bytes."""

from __future__ import annotations

import pytest

from gateway.streams.kind import is_stream
from gateway.streams.sse import BOM

STREAMS = [b"data: {}\n\n", b"data:{}", b"event: x\n", b": comment\n", b"id: 1\n", b"retry: 5\n"]
OTHERS = [b'{"choices":[]}', b"[{}]", b"<html>", b"text", b"datum", b"\xef\xbb{", b"\xef\xbf"]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("before", [b"", b"\n\n", b" ", BOM, BOM + b"\r\n"])
def test_a_stream_is_one_from_the_first_byte_that_tells_it(stream: bytes, before: bytes) -> None:
    whole = before + stream
    said = [is_stream(whole[:end], declared=False) for end in range(len(whole) + 1)]

    assert said[-1] is True
    assert said == [None] * said.count(None) + [True] * said.count(True)


@pytest.mark.parametrize("body", OTHERS)
@pytest.mark.parametrize("before", [b"", b"\n\n", BOM])
def test_anything_else_is_none(body: bytes, before: bytes) -> None:
    whole = before + body
    said = [is_stream(whole[:end], declared=False) for end in range(len(whole) + 1)]

    assert said[-1] is False
    assert True not in said


@pytest.mark.parametrize("begin", [b":", b"x: y", b"data", b"\n\nd", BOM + b"d", b"\xef\xbf"])
def test_what_says_that_it_is_a_stream_is_one(begin: bytes) -> None:
    assert is_stream(begin, declared=True) is True


@pytest.mark.parametrize(
    "begin", [b"", b"\n", b"\r\n\r\n", b" ", BOM[:1], BOM[:2], BOM, BOM + b"\n"]
)
def test_what_is_blank_may_be_followed_by_anything(begin: bytes) -> None:
    assert is_stream(begin, declared=True) is None
    assert is_stream(begin, declared=False) is None


@pytest.mark.parametrize("begin", [b"{", b"\n[", BOM + b"<"])
def test_what_only_says_so_is_none(begin: bytes) -> None:
    assert is_stream(begin, declared=True) is False


def test_blank_bytes_are_not_waited_behind_without_end() -> None:
    assert is_stream(b"\n" * 65_536, declared=False) is None
    assert is_stream(b"\n" * 65_537, declared=False) is False
    assert is_stream(b"\n" * 65_536, declared=True) is None
    assert is_stream(b"\n" * 65_537, declared=True) is True
