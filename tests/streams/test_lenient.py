"""JSON that a strict parser rejects and clients read all the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.base import encode
from gateway.streams import lenient


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": "x\ny\tz\x00"}', {"a": "x\ny\tz\x00"}),
        (b'{"a": -Infinity}', {"a": -math.inf}),
        (b'{"a": 1e999}', {"a": math.inf}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b" [1]  ", [1]),
    ],
)
def test_it_is_read(text: bytes, value: object) -> None:
    assert lenient.loads(text) == value
    assert lenient.is_whole(text)


def test_not_a_number_is_read() -> None:
    assert math.isnan(lenient.loads(b"NaN"))  # type: ignore[arg-type]


def test_a_lone_surrogate_is_read_and_can_be_written_again() -> None:
    value = lenient.loads(b'{"a": "x\\ud800y", "b": "\\uDC00", "c": "\\ud83d\\ude00", "d": NaN}')

    assert encode(value) == '{"a":"x?y","b":"?","c":"\U0001f600","d":null}'.encode()


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"a": ', b'{"a": 1', b'{"a": 1}}', b"{'a': 1}", b"nul", b'"', b"[1,]"]
)
def test_half_a_text_is_no_text(text: bytes) -> None:
    assert not lenient.is_whole(text)
    with pytest.raises(ValueError, match=r".+"):
        lenient.loads(text)


def test_what_is_nested_too_deeply_is_no_text() -> None:
    assert not lenient.is_whole(b"[" * 200_000 + b"]" * 200_000)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_text_or_a_value_error(text: bytes) -> None:
    try:
        lenient.loads(text)
    except ValueError:
        assert not lenient.is_whole(text)
    else:
        assert lenient.is_whole(text)
