"""Sizes: what people write and what it means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("1.5KiB", 1536),
        ("500KB", 500_000),
        ("1GB", 10**9),
        ("2TiB", 2**41),
        ("17B", 17),
        ("17", 17),
        ("0", 0),
        (1, 1),
        (4096, 4096),
    ],
)
def test_a_size_is_read_in_binary_and_in_decimal_units(value: object, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize(
    "value",
    ["", "MiB", "-1MiB", "64M", "64 Mi B", "1e6", "0x10", "٣MiB", "1.MiB", -1, 1.5, True, None, []],
)
def test_what_is_no_size_is_refused_with_an_example_of_one(value: object) -> None:
    with pytest.raises(ValueError, match='must be a size such as "64MiB"'):
        parse_size(value)


def test_a_part_of_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number of bytes"):
        parse_size("1.3B")


@given(st.integers(min_value=0, max_value=2**59))
def test_what_is_written_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "unlimited"), (0, "0B"), (1500, "1500B"), (2**10, "1KiB"), (3 * 2**30, "3GiB")],
)
def test_the_largest_exact_unit_is_written(size: int | None, text: str) -> None:
    assert format_size(size) == text
