"""Bytes as text: what a screen would have done, and what is no text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.preview_render import Look, drawn_over, encoding_of, invalid_bytes, render

KEEP = Look(ansi="keep", cr="keep")


def shown(data: bytes, look: Look = Look()) -> str:  # noqa: B008 - it is frozen
    return render(data, encoding_of(data), look)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07shell\n", "shell\n"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq#0\x1b\\after", "after"),
        (b"\x1b(Bplain\x1b7", "plain"),
        ("\x9b31mred".encode(), "red"),
        (b"cut\x1b[38;5", "cut"),
        (b"cut\x1b", "cut"),
        (b"\x1b]0;never ended\nnext\n", "0;never ended\nnext\n"),
    ],
)
def test_control_sequences_are_left_out_unless_they_are_to_be_kept(data: bytes, text: str) -> None:
    assert shown(data) == text
    assert shown(data, KEEP) == data.decode()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"10%\r20%\r30%\nend\n", "30%\nend\n"),
        (b"\r10%\r20%\r\nend", "20%\nend"),
        (b"\r\n\r\n", "\n\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"1\r\x1b[K2\r\x1b[K3", "3"),
    ],
)
def test_of_a_line_drawn_over_itself_the_last_frame_is_shown(data: bytes, text: str) -> None:
    assert shown(data) == text
    assert shown(data, KEEP) == data.decode()


@pytest.mark.parametrize(
    ("data", "text", "left_out"),
    [
        (b"10%\r20%\r30%\nend\n", "30%\nend\n", 2),
        (b"long message\r            \rok\n", "long message\rok\n", 0),
        (b"12 left\r 9 left\rdone\n", " 9 left\rdone\n", 1),
        (b"a\r\nb\r\n", "a\nb\n", 0),
        (b"1\r2\n3\r4\n", "2\n4\n", 2),
    ],
)
def test_a_state_is_left_out_and_counted_where_another_covers_it(
    data: bytes, text: str, left_out: int
) -> None:
    assert shown(data) == text
    assert drawn_over(data, "utf-8", Look()) == left_out
    assert drawn_over(data, "utf-8", KEEP) == 0


def test_what_would_be_empty_is_shown_as_it_is() -> None:
    assert shown(b"\x1b[0m") == "\x1b[0m"
    assert shown(b"\r") == "\r"
    assert shown(b"") == ""


@pytest.mark.parametrize(
    ("data", "encoding", "invalid"),
    [
        (b"", "utf-8", 0),
        ("é漢🌍".encode(), "utf-8", 0),
        (b"a\0", "binary", 0),
        (b"\xff" + b"a" * 9, "utf-8", 1),
        (b"\xff" + b"a" * 8, "binary", 1),
        (b"\xf0\x9f\x8c" + b"a" * 40, "utf-8", 3),
        (b"\xed\xa0\x80" + b"a" * 40, "utf-8", 3),
    ],
)
def test_a_nul_or_more_than_a_tenth_that_is_no_utf8_makes_a_binary(
    data: bytes, encoding: str, invalid: int
) -> None:
    assert encoding_of(data) == encoding
    assert invalid_bytes(data) == invalid


def test_the_pieces_of_one_output_are_judged_together() -> None:
    assert encoding_of(b"text", b"\0") == "binary"
    assert encoding_of(b"\xff", b"a" * 9) == "utf-8"


def test_a_binary_is_shown_with_escapes() -> None:
    assert shown(b"ok\xf0\xff\x00end\n") == "ok\\xf0\\xff\\x00end\n"
    assert shown("\0é\t\x1b[0m\r\x85".encode()) == "\\x00é\t\\x1b[0m\\x0d\\u0085"


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_no_rendering_adds_or_loses_a_newline(data: bytes, strip: bool, collapse: bool) -> None:
    look = Look(ansi="strip" if strip else "keep", cr="collapse" if collapse else "keep")
    for encoding in ("utf-8", "binary"):
        assert render(data, encoding, look).count("\n") == data.count(b"\n")


@given(
    st.lists(
        st.sampled_from(["\x1b", "[", "]", "P", "0", ";", "m", "\x07", "\\", "\n", "\r", "x", "é"])
    ).map("".join)
)
def test_only_nothing_is_shown_as_nothing(text: str) -> None:
    assert bool(render(text.encode(), "utf-8", Look())) == bool(text)


def test_hostile_output_costs_little() -> None:
    for part in ("\x1b[0;", "\x1b]", "\x1bP", "\r", "\x1b["):
        render(part.encode() * 100_000, "utf-8", Look())
