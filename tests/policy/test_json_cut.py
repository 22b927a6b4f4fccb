"""Of a JSON text that is not whole, what stands before the fault is read, and nothing invented."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.json_cut import beginning

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"error":{"message":"a \\"b\\" c', {"error": {"message": 'a "b" c'}}),
        ('{"error":{"message":"a\\', {"error": {"message": "a"}}),
        ('{"error":{"message":"a\\u00', {"error": {"message": "a"}}),
        ('{"error":{"message":"a","code":"b","par', {"error": {"message": "a", "code": "b"}}),
        ('{"error":{"message":"a","code":40', {"error": {"message": "a"}}),
        ('{"error":{"message":"a","code":', {"error": {"message": "a"}}),
        ('{"error":{"message":"a","code"', {"error": {"message": "a"}}),
        ('{"error":{"message":"a"},', {"error": {"message": "a"}}),
        ('{"message":"a" oops, "code":1}', {"message": "a"}),
        ('{"message":"a\\x", "code":1}', {"message": "a"}),
        ('{"message":"a","x":' + "[" * 3000 + "]" * 3000 + "}", None),
        ('{"message":"a"} tail', {"message": "a"}),
        ("{'message': 'a'}", {}),
        ("{", {}),
        ("}", None),
        ("x", None),
        ("", None),
    ],
)
def test_what_stands_before_the_fault_is_read(text: str, value: Any) -> None:
    read = beginning(text)
    if value is None and text.startswith("{"):
        assert read["message"] == "a"
    else:
        assert read == value


@given(st.dictionaries(st.text(), _values), st.data())
def test_nothing_is_invented(whole: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(whole)
    read = beginning(text[: data.draw(st.integers(1, len(text)))])
    assert is_part(read, whole)
    assert beginning(text) == whole


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(is_part(part[key], whole[key]) for key in part)
    if isinstance(whole, list):
        return isinstance(part, list) and all(map(is_part, part, whole))
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(re.sub(r"[\ud800-\udbff]$", "", part))
    return bool(part == whole)


@pytest.mark.parametrize("piece", ['{"a":', "[", '"', "\\", "[],", '{"a":"\\"', "{x"])
def test_a_long_text_costs_little(piece: str) -> None:
    began = time.process_time()
    beginning(piece * 200_000)
    assert time.process_time() - began < 2
