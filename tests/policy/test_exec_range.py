"""Which part of an output is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.exec_range import Part, parse_event_id, parse_offset, parse_range
from gateway.policy.exec_request import ExecError


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("bytes=0-", (0, 10)),
        ("bytes=0-0", (0, 1)),
        ("bytes=3-5", (3, 6)),
        ("bytes=3-99", (3, 10)),
        ("bytes=9-", (9, 10)),
        ("bytes=-1", (9, 10)),
        ("bytes=-10", (0, 10)),
        ("bytes=-99", (0, 10)),
        ("Bytes= 3-5 ", (3, 6)),
        ("bytes=0-" + "9" * 5000, (0, 10)),
        ("bytes=" + "0" * 5000 + "3-5", (3, 6)),
    ],
)
def test_a_range_is_cut_to_what_is_there(value: str, part: tuple[int, int]) -> None:
    assert parse_range(value, 10) == Part(start=part[0], stop=part[1])


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-3",
        "bytes=a-b",
        "lines=0-1",
        "bytes=0-1,3-4",
        "bytes=+1-2",
        "bytes=1 - 2",
        "bytes=٣-",
    ],
)
def test_what_is_not_one_range_of_bytes_is_ignored(value: str | None) -> None:
    assert parse_range(value, 10) is None


@pytest.mark.parametrize(
    "value", ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=" + "9" * 5000 + "-"]
)
def test_a_range_without_any_byte_is_416(value: str) -> None:
    with pytest.raises(ExecError, match="which has 10 bytes") as refused:
        parse_range(value, 10)
    assert refused.value.status == 416


@pytest.mark.parametrize("value", ["bytes=0-", "bytes=-5"])
def test_an_empty_output_has_no_range(value: str) -> None:
    with pytest.raises(ExecError, match="0 bytes"):
        parse_range(value, 0)


def test_a_part_names_itself() -> None:
    part = Part(start=3, stop=6)
    assert part.content_range(10) == "bytes 3-5/10"
    assert part.content_range(None) == "bytes 3-5/*"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 20))
def test_a_range_is_that_of_the_bytes_themselves(first: int, last: int, size: int) -> None:
    data = bytes(range(size))
    wanted = [byte for byte in data if first <= byte <= last]
    try:
        part = parse_range(f"bytes={first}-{last}", size)
    except ExecError:
        assert not wanted
        return
    if part is None:
        assert last < first
    else:
        assert list(data[part.start : part.stop]) == wanted


def test_a_stream_goes_on_after_the_last_event() -> None:
    assert parse_event_id(None, 10) == 0
    assert parse_event_id("", 10) == 0
    assert parse_event_id(" 7 ", 10) == 7
    assert parse_event_id("10", 10) == 10


@pytest.mark.parametrize("value", ["11", "-1", "x", "1.0", "٣", "9" * 5000])
def test_an_id_that_no_event_had_is_refused(value: str) -> None:
    with pytest.raises(ExecError, match="Last-Event-ID must be") as refused:
        parse_event_id(value, 10)
    assert refused.value.status == 400


@pytest.mark.parametrize("value", ["-1", "11", "x", "1.0", "9" * 99])
def test_an_offset_that_is_none_is_told_by_its_name(value: str) -> None:
    with pytest.raises(ExecError, match=r"^offset must be a whole number up to 10,") as raised:
        parse_offset(value, 10)
    assert raised.value.status == 400


def test_an_offset_is_read() -> None:
    assert [parse_offset(value, 10) for value in (None, "", " 3 ", "10")] == [0, 0, 3, 10]
