"""One table of a document and its faults."""

from typing import Any

import pytest

from gateway.config import values
from gateway.config.tables import Table, quoted


def table(raw: dict[str, Any], path: str = "server") -> Table:
    return Table(path, raw, [])


def test_only_right_values_are_read_and_each_wrong_one_is_told() -> None:
    read = table({"a": 1, "b": "x", "c": -1})
    readers = {"a": values.seconds, "b": values.seconds, "c": values.seconds, "d": values.flag}
    assert read.read(readers) == {"a": 1.0}
    assert [fault.partition(" ")[0] for fault in read.faults] == ["server.b", "server.c"]
    assert all(fault.endswith(".") for fault in read.faults)


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    read = table({"stall_afer": 1})
    read.refuse_unknown(("stall_after", "other"), {})
    assert read.faults == ["server.stall_afer is not a known key: did you mean stall_after?"]


def test_an_unknown_key_that_is_near_to_none_names_all() -> None:
    read = table({"zzz": 1})
    read.refuse_unknown(("one", "two"), {})
    assert read.faults == ["server.zzz is not a known key: the keys here are one, two."]


def test_a_key_of_another_table_is_told_which() -> None:
    read = table({"gap": 1}, "providers.x")
    read.refuse_unknown(("gasp",), {"gap": "providers.NAME.timeouts"})
    assert read.faults == [
        "providers.x.gap is not a known key: it belongs into [providers.NAME.timeouts]."
    ]


def test_a_value_where_a_table_belongs_is_a_fault() -> None:
    read = table({"timeouts": 3}, "providers.x")
    assert read.table("timeouts").raw == {}
    assert read.faults == [
        "providers.x.timeouts must be a table: write [providers.x.timeouts] and its keys below it."
    ]


def test_tables_share_their_faults_and_know_their_paths() -> None:
    root = table({"a b": {"c": 1}}, "")
    root.table("a b").fault("c", "is wrong")
    assert root.faults == ['"a b".c is wrong.']


@pytest.mark.parametrize(
    ("key", "text"),
    [("a-b_1", "a-b_1"), ("a.b", '"a.b"'), ("", '""'), ('a"\\', '"a\\"\\\\"'), ("a\nb", '"a?b"')],
)
def test_a_key_is_quoted_where_toml_needs_it_and_stays_in_one_line(key: str, text: str) -> None:
    assert quoted(key) == text
