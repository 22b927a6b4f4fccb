"""Head, tail and text of an output, against the whole output."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.policy.preview import (
    MIN_BYTES,
    MIN_LINES,
    NO_OUTPUT,
    Bounds,
    Kept,
    Preview,
    Text,
    compose,
    count_lines,
    head_end,
    preview,
    tail_start,
)
from gateway.policy.preview_notice import CutNotice, Facts, marker
from gateway.policy.preview_render import Look, render

KEEP = Look(ansi="keep", cr="keep")
HEAD, TAIL = 8192, 20_480

SEQ = "".join(f"{n}\n" for n in range(1, 50_001)).encode()


def kept(
    data: bytes, head: int = HEAD, tail: int = TAIL, look: Look = KEEP, **changed: object
) -> Kept:
    """What a runner knows that kept so many first and last bytes of ``data``."""
    facts = {
        "bytes": len(data),
        "lines": data.count(b"\n"),
        "complete": True,
        "spilled": len(data),
        "path": "/spill/x_1",
        **changed,
    }
    return Kept(data[:head], data[max(0, len(data) - tail) :], msgspec.convert(facts, Facts), look)


def composed(data: bytes, bounds: Bounds = Bounds(), **how: object) -> Text:  # noqa: B008 - frozen
    return compose(kept(data, **how), bounds)  # type: ignore[arg-type]


def taken_apart(text: str) -> tuple[str, str, str, str]:
    """Notice, head, marker and tail of a text that was cut."""
    found = re.fullmatch(
        r"(\[Left out: .*\])\n(.*?)^(\[\.\.\. .* left out here \.\.\.\])\n(.*)\1",
        text,
        re.DOTALL | re.MULTILINE,
    )
    assert found, text
    return found[1], found[2], found[3], found[4]


def test_fifty_thousand_lines_are_cut_with_exact_counts() -> None:
    shown = preview(kept(SEQ))
    assert shown.head.startswith("1\n2\n")
    assert shown.tail.endswith("\n49999\n50000\n")
    assert shown.head_bytes + shown.tail_bytes + shown.omitted_bytes == 288_894
    lines = shown.head.count("\n") + shown.tail.count("\n")
    assert (shown.omitted_lines, shown.truncated_preview) == (50_000 - lines, True)
    assert all(re.fullmatch(r"\d+", line) for line in (shown.head + shown.tail).splitlines())


def test_the_text_of_fifty_thousand_lines_says_what_is_not_in_it() -> None:
    text = composed(SEQ)
    notice, head, marker, tail = taken_apart(text.text)
    numbers = [int(line) for line in (head + tail).splitlines()]
    assert (numbers[0], numbers[-1]) == (1, 50_000)
    assert text.omitted_lines == 50_000 - len(numbers)
    assert text.omitted_bytes == 288_894 - len(head) - len(tail)
    assert f"{text.omitted_bytes} of 288894 bytes, {text.omitted_lines} of 50000 lines" in notice
    assert f"{text.omitted_bytes} bytes, {text.omitted_lines} lines left" in marker
    assert "the whole output is in /spill/x_1" in notice
    assert len(numbers) > 1000  # lines: about 1,995 of these are as many as fit


def test_an_output_that_fits_is_the_text() -> None:
    assert composed(b"a\nb") == Text(text="a\nb", truncated=False, omitted_bytes=0, omitted_lines=0)
    assert preview(kept(b"a\nb")) == Preview(
        head="a\nb",
        tail="",
        head_bytes=3,
        tail_bytes=0,
        omitted_bytes=0,
        omitted_lines=0,
        truncated_preview=False,
        encoding="utf-8",
        invalid_utf8=0,
    )


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        (b"x\n" * 2000, False),
        (b"x\n" * 2001, True),
        (b"x\n" * 2000 + b"y", True),
        (b"x" * 28_672, False),
        (b"x" * 28_673, True),
        ("é".encode() * 14_336, False),
    ],
)
def test_either_bound_alone_cuts(data: bytes, cut: bool) -> None:
    text = composed(data)
    assert text.truncated == cut
    assert (text.text == data.decode()) != cut


def one_per_line(count: int) -> bytes:
    return b"\n".join(b"%d" % n for n in range(count))


@pytest.mark.parametrize("data", [one_per_line(3000), one_per_line(3000) + b"\n"])
def test_as_many_lines_as_fit_are_shown(data: bytes) -> None:
    assert count_lines(composed(data).text) == 2000
    _, head, _, tail = taken_apart(composed(data, Bounds(lines=MIN_LINES)).text)
    assert (head, tail) == ("0\n", "2999\n")


def test_a_tail_that_fits_keeps_its_first_line() -> None:
    known = kept(b"x" * 50_000 + b"\n" + one_per_line(500), tail=1000)
    assert taken_apart(compose(known, Bounds()).text)[3] == preview(known).tail + "\n"


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["bare", "newline"])
def test_one_giant_line_is_shown_by_its_head_and_tail(end: bytes) -> None:
    data = b"x" * 200_000 + end
    shown = preview(kept(data))
    assert (shown.head, shown.tail) == ("x" * HEAD, "x" * (TAIL - len(end)) + end.decode())
    assert shown.omitted_lines == 0
    _, head, _, tail = taken_apart(composed(data).text)
    assert len(head) > 7000
    assert len(tail) > 18_000


def test_a_newline_before_a_giant_line_does_not_cost_the_line() -> None:
    data = b"\n" + b"x" * 100_000
    assert len(preview(kept(data, head=500, tail=500)).head) == 500


def test_a_cut_goes_to_a_newline_that_is_near_and_to_no_other() -> None:
    near, far = b"x" * 7300 + b"\n", b"x" * 7100 + b"\n"
    filler = b"y" * 50_000
    assert preview(kept(near + filler)).head == near.decode()
    assert len(preview(kept(far + filler)).head) == HEAD
    near, far = b"\n" + b"x" * 19_500, b"\n" + b"x" * 19_300
    assert preview(kept(filler + near)).tail == near.decode()[1:]
    assert len(preview(kept(filler + far)).tail) == TAIL


def test_characters_are_not_torn_at_the_edges() -> None:
    data = "é漢🌍".encode() * 30_000
    for size in range(1000, 1012):
        shown = preview(kept(data, head=size, tail=size))
        assert "\ufffd" not in shown.head + shown.tail
        assert shown.invalid_utf8 == 0
        assert shown.head_bytes + shown.tail_bytes + shown.omitted_bytes == 270_000
    assert "\ufffd" not in composed(data).text


def test_a_progress_bar_leaves_room_for_the_last_line() -> None:
    frames = "".join(f"\rprogress {n:05}/05000" for n in range(1, 5001))
    data = f"{frames}\nFINAL-LINE\n".encode()
    assert len(data) == 105_012
    text = composed(data, look=Look()).text
    # In the head, too: the state after it, which is cut, does not cover it.
    assert text.count("/05000") == 2
    assert taken_apart(text)[3].endswith("progress 05000/05000\nFINAL-LINE\n")
    assert taken_apart(composed(data).text)[3].endswith("FINAL-LINE\n")
    known = composed(data, head=200_000, look=Look())
    said = "[4999 earlier states of lines, which were drawn over, are not shown.]"
    assert known.text == f"progress 05000/05000\nFINAL-LINE\n{said}"
    assert not known.truncated


def test_no_line_is_left_out_in_silence() -> None:
    said = "[1 earlier state of a line, which was drawn over, is not shown.]"
    assert composed(b"one\rtwo\n", look=Look()).text == f"two\n{said}"
    wiped = composed(b"error: disk failed\r\x1b[2Kok\n", look=Look()).text
    assert wiped == "error: disk failed\rok\n"
    assert composed(b"one\rtwo\rthree", look=Look()).text == "one\rtwo\rthree"
    assert composed(b"one\rtwo\n", look=KEEP).text == "one\rtwo\n"
    many = b"".join(b"%d\r%d\n" % (n, n) for n in range(1000, 9000))
    text = composed(many, look=Look()).text
    shown = text.count("\n") - 2
    assert f" {shown} earlier states of lines, which were drawn over, are not shown.]" in text


@pytest.mark.parametrize("over", [0, 1, 2, 3])
def test_control_sequences_without_text_between_them_cost_no_more_than_others(
    over: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(first: int) -> Kept:
        data = b"v" * first + b"\x1b[0m" * 200_000 + b"\n" + b"tail\n" * 40_000
        return kept(data, 131_072, 131_072, Look())

    facts = made(8000).facts
    room = 28_672 - 2 * CutNotice(facts, 9000).longest - 4
    room -= len(marker(facts.bytes, facts.lines))
    # A little more than the head's share: each sequence that is cut off makes it no shorter.
    known = made(int(room * 2 / 7) + over)
    rendered = 0
    text_of = Kept.text

    def counted(kept: Kept, piece: bytes) -> str:
        nonlocal rendered
        rendered += 1
        return text_of(kept, piece)

    monkeypatch.setattr(Kept, "text", counted)
    _, head, _, tail = taken_apart(compose(known, Bounds()).text)
    assert rendered < 50
    assert len(head) > 7900
    assert tail.endswith("tail\n" * 1900)


def test_a_binary_is_escaped_within_the_bounds() -> None:
    shown = preview(kept(b"ok\xf0\xff\x00end\n"))
    assert (shown.encoding, shown.head, shown.invalid_utf8) == (
        "binary",
        "ok\\xf0\\xff\\x00end\n",
        2,
    )
    text = composed(bytes(range(256)) * 1000)
    assert 27_000 < len(text.text.encode()) <= 28_672
    assert text.omitted_bytes > 240_000


def test_the_seams_of_the_buffers_do_not_make_a_binary() -> None:
    assert preview(kept("🌍".encode() * 100, head=7, tail=7)).encoding == "utf-8"


def test_no_output_is_said_only_of_an_output_that_is_empty_and_complete() -> None:
    assert composed(b"").text == NO_OUTPUT
    timed_out = composed(b"", reason="timeout").text
    assert timed_out == f"{NO_OUTPUT}\n[The command ran into its timeout and was ended.]"
    running = composed(b"", complete=False, open=True, state="running").text
    assert NO_OUTPUT not in running
    assert "still running" in running
    assert composed(b"\n").text == "\n"
    assert composed(b"\x1b[0m", look=Look()).text == "\x1b[0m"


def test_what_is_to_be_said_stands_below_a_whole_output() -> None:
    text = composed(b"started\n", complete=False, open=True, state="output_open")
    assert text.text.startswith("started\n[The output is still held open")
    assert not text.truncated
    assert composed(b"part", signal=9, signal_name="SIGKILL").text == (
        "part\n[The command was ended by signal 9 (SIGKILL).]"
    )


def test_a_full_disk_does_not_cost_the_true_tail() -> None:
    data = b"y" * 5_000_000 + b"END\n"
    text = composed(data, complete=False, error="ENOSPC", spilled=1_000_000)
    notice, _, _, tail = taken_apart(text.text)
    assert tail.endswith("END\n")
    assert "ENOSPC), 1000000 of 5000004 bytes are saved" in notice


def test_a_character_that_is_begun_is_not_shown_while_more_may_come() -> None:
    begun = "wait…".encode()[:-1]
    shown = preview(kept(begun, open=True, complete=False, state="running"))
    assert (shown.head, shown.head_bytes, shown.invalid_utf8) == ("wait", 6, 0)
    ended = preview(kept(begun * 9 + b"0123456789"))
    assert ended.invalid_utf8 == 18


def test_lines_that_nobody_counted_are_counted_where_all_is_known() -> None:
    assert preview(kept(SEQ, lines=None)).omitted_lines is None
    assert "lines" not in composed(SEQ, lines=None).text
    cut = composed(b"x\n" * 3000, lines=None)
    assert cut.omitted_lines == 3000 - cut.text.count("x\n")


def test_a_tail_that_is_not_known_leaves_its_room_to_the_head() -> None:
    text = composed(SEQ, head=28_672, tail=0)
    _, head, _, tail = taken_apart(text.text)
    assert tail == ""
    assert head.count("\n") == 1997  # of 2,000, beside two notices and a marker
    assert text.omitted_bytes == 288_894 - len(head)


def test_only_a_tail_may_be_asked_for() -> None:
    shown = preview(kept(SEQ, head=0))
    assert shown.head == ""
    assert shown.tail.endswith("50000\n")
    assert taken_apart(composed(SEQ, head=0).text)[1] == ""


@pytest.mark.parametrize("bounds", [{"lines": MIN_LINES - 1}, {"bytes": MIN_BYTES - 1}])
def test_bounds_that_hold_no_notice_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needs 5 lines and 2048 bytes"):
        Bounds(**bounds)


PIECES = st.sampled_from(
    [
        b"\n",
        b"line\n",
        b"\r\n",
        b"\r50%",
        b"\x1b[31m",
        b"\x1b]0;t\x07",
        "é漢🌍".encode(),
        b"\xff",
        b"\xe6\xbc",
        b"\0",
        b"x" * 97,
        b"y" * 1500,
        b"word " * 300 + b"\n",
        b"n\n" * 700,
    ]
)
OUTPUTS = st.lists(PIECES, max_size=40).map(b"".join)
SIZES = st.sampled_from([0, 1, 3, 10, 500, 2000, HEAD, TAIL, 100_000])
LOOKS = st.sampled_from([Look(), KEEP, Look(ansi="keep"), Look(cr="keep")])


@given(OUTPUTS, SIZES, SIZES, LOOKS)
@settings(max_examples=150, deadline=None)
def test_head_omitted_and_tail_are_the_output(
    data: bytes, head: int, tail: int, look: Look
) -> None:
    known = kept(data, head, tail, look)
    shown = preview(known)
    if shown.truncated_preview:
        last = data[len(data) - shown.tail_bytes :]
        between = data[shown.head_bytes : len(data) - shown.tail_bytes]
        assert shown.omitted_bytes == len(between) > 0
        assert shown.omitted_lines == between.count(b"\n")
        assert shown.tail == render(last, shown.encoding, known.look)
    else:
        assert (shown.head_bytes, shown.tail, shown.omitted_lines) == (len(data), "", 0)
    assert shown.head == render(data[: shown.head_bytes], shown.encoding, known.look)
    assert bool(shown.head + shown.tail) == bool(data[: head + tail]) or max(head, tail) < 4


@given(
    OUTPUTS,
    SIZES,
    SIZES,
    LOOKS,
    st.integers(MIN_LINES, 60),
    st.integers(MIN_BYTES, 5000),
    st.sampled_from(["", "/spill/x_1", "/" + "p" * 800]),
    st.booleans(),
)
@example(b"\n" * 5000, HEAD, TAIL, KEEP, MIN_LINES, MIN_BYTES, "", True)
@example(bytes(5000), HEAD, TAIL, KEEP, MIN_LINES, MIN_BYTES, "", False)
@settings(max_examples=250, deadline=None)
def test_every_text_is_within_its_bounds_and_its_counts_are_true(
    data: bytes,
    head: int,
    tail: int,
    look: Look,
    lines: int,
    size: int,
    path: str,
    complete: bool,
) -> None:
    known = kept(data, head, tail, look, path=path, complete=complete, reason="timeout")
    text = compose(known, Bounds(lines=lines, bytes=size))
    assert len(text.text.encode()) <= size
    assert count_lines(text.text) <= lines
    assert text.truncated == (text.omitted_bytes > 0)
    if not text.truncated:
        assert text.text.startswith(render(data, known.encoding, known.look))
        assert ("not complete" in text.text) != complete
        return
    # Some cut into first and last bytes must give exactly this text and these counts.
    notice, first, marker, last = taken_apart(text.text)
    shown = len(data) - text.omitted_bytes
    assert f"Left out: {text.omitted_bytes} of {len(data)} bytes" in notice
    assert f"{text.omitted_bytes} bytes, {text.omitted_lines} lines" in marker
    assert any(
        ended(render(data[:at], known.encoding, known.look)) == first
        and ended(render(data[len(data) - shown + at :], known.encoding, known.look)) == last
        and data[at : len(data) - shown + at].count(b"\n") == text.omitted_lines
        for at in range(shown + 1)
    )


def ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


@given(st.lists(st.text("ab漢\n", max_size=30), min_size=200, max_size=400).map("\n".join))
@settings(max_examples=30, deadline=None)
def test_a_text_ends_with_the_true_last_line(lines: str) -> None:
    data = (lines + "\nLAST LINE").encode()
    text = composed(data, Bounds(lines=50, bytes=4000))
    assert text.truncated
    assert taken_apart(text.text)[3].endswith("\nLAST LINE\n")


@given(st.text(min_size=1, max_size=300), st.integers(1, 400))
def test_a_text_cut_at_any_seam_decodes(text: str, size: int) -> None:
    data = text.encode()
    size = min(size, len(data))
    data[: head_end(data, size)].decode()
    data[tail_start(data, len(data) - size) :].decode()
