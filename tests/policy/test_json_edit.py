"""One value of a JSON text is exchanged; every other character stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.json_edit import Edit, Path, Span, apply, dump, find, into_object
from tests.policy import error_bodies

TEXT = ' { "a" : [ 1.50, {"b":"x\\u0041"} ,[]], "a\\"": null, "c": {}, "c" : { } }'


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), TEXT.strip()),
        (("a",), '[ 1.50, {"b":"x\\u0041"} ,[]]'),
        (("a", 0), "1.50"),
        (("a", 1, "b"), '"x\\u0041"'),
        (("a", 2), "[]"),
        (('a"',), "null"),
        (("c",), "{ }"),
        (("a", 3), None),
        (("a", "b"), None),
        (("b",), None),
        ((0,), None),
        (("a", 0, "x"), None),
    ],
)
def test_a_value_is_found_where_it_stands(path: Path, found: str | None) -> None:
    span = find(TEXT, path)
    assert (None if span is None else TEXT[span.start : span.end]) == found


@pytest.mark.parametrize("text", ["{", '{"a"', '{"a":', '{"b":x}'])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        find(text, ("a",))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{}", '{"n":1}'),
        ("{ \n}", '{"n":1 \n}'),
        (' {"a":2}', ' {"n":1,"a":2}'),
    ],
)
def test_members_are_put_in_front(text: str, after: str) -> None:
    edit = into_object(text, (), {"n": 1})
    assert edit is not None
    assert apply(text, [edit]) == after


def test_members_go_into_objects_only() -> None:
    assert into_object('{"a":[]}', ("a",), {"n": 1}) is None
    assert into_object("{}", ("a",), {"n": 1}) is None


def test_edits_do_not_move_each_other() -> None:
    edits = [Edit(Span(0, 1), "long"), Edit(Span(2, 3), ""), Edit(Span(1, 1), "-")]
    assert apply("abc", edits) == "long-b"


def test_what_is_written_is_compact_and_readable() -> None:
    assert dump({"a": ["ü", 1]}) == '{"a":["ü",1]}'


def _paths(value: Any, path: Path = ()) -> list[Path]:
    found = [path]
    if isinstance(value, dict):
        return found + [each for key in value for each in _paths(value[key], (*path, key))]
    if isinstance(value, list):
        return found + [each for at, item in enumerate(value) for each in _paths(item, (*path, at))]
    return found


@error_bodies.unhurried
@given(error_bodies.values(), st.data())
def test_any_value_is_exchanged_and_nothing_else(text: str, data: st.DataObject) -> None:
    value = json.loads(text)
    path = data.draw(st.sampled_from(_paths(value)))
    span = find(text, path)
    assert span is not None
    inner: Any = value
    for step in path:
        inner = inner[step]
    assert json.loads(text[span.start : span.end]) == inner
    after = apply(text, [Edit(span, '"new"')])
    assert after == f'{text[: span.start]}"new"{text[span.end :]}'
    assert json.loads(after) is not None


def test_an_object_without_end_is_not_gone_through() -> None:
    text = "{" + '"a":0,' * 50_000 + '"b":1}'
    with pytest.raises(ValueError, match="too many"):
        find(text, ("b",))


def test_a_number_of_any_length_stays() -> None:
    text = '{"a":' + "9" * 5000 + ',"b":1}'
    assert find(text, ("b",)) == Span(len(text) - 2, len(text) - 1)
