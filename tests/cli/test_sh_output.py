"""What is printed: the bytes themselves, or the text of the answer, and nothing twice."""

from typing import Any

import pytest

from gateway.cli import sh_output
from gateway.cli.sh_output import Output


class Shown(Output):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def _write(self, data: bytes) -> None:
        self.data += data


def answer(text: str, size: int, **changes: Any) -> dict[str, Any]:
    detail = {"reason": "exit", "output": {"encoding": "utf-8"}}
    plain = {"text": text, "complete": True, "truncated": False, "signal": None}
    return {**plain, "spill": {"bytes": size}, "detail": detail, **changes}


def test_what_fits_is_printed_as_it_came() -> None:
    shown = Shown()
    for piece in (b"\x1b[31m", b"a\r\n\xff\0"):
        shown.add(piece)
    shown.finish(answer("escaped", 10), 10)
    assert shown.data == b"\x1b[31ma\r\n\xff\0"


@pytest.mark.parametrize(
    "changes",
    [
        {"truncated": True},
        {"complete": False},
        {"signal": 9},
        {"timed_out": True},
        {"detail": {"reason": "killed"}},
        {"spill": {"bytes": 4}},
    ],
)
def test_whatever_is_to_be_said_is_said_by_the_text(changes: dict[str, Any]) -> None:
    shown = Shown()
    shown.add(b"all\nof it")
    shown.finish(answer("text", 9, **changes), 9)
    assert shown.data == b"text"


def test_binary_output_is_not_cut_for_its_escapes() -> None:
    binary = {"reason": "exit", "output": {"encoding": "binary"}}
    shown = Shown()
    shown.add(bytes(sh_output.SMALL))
    shown.finish(answer("text", sh_output.SMALL, truncated=True, detail=binary), sh_output.SMALL)
    assert shown.data == bytes(sh_output.SMALL)


def test_an_early_beginning_is_not_printed_again() -> None:
    lines = "".join(f"{number}\n" for number in range(1000))
    for text, expected in (
        (f"[notice]\n{lines}[marker]\ntail\n[notice]", f"{lines}[marker]\ntail\n[notice]"),
        (f"{lines}[killed]", f"{lines}[killed]"),
    ):
        shown = Shown()
        shown.add(lines.encode()[:100])
        shown._go_live()
        assert shown.data == lines.encode()[:100]
        shown.add(lines.encode()[100:])
        assert shown.data == b"".join(b"%d\n" % number for number in range(sh_output.LIVE_LINES))
        shown.finish(answer(text, 99_999, truncated=True), 99_999)
        assert shown.data.decode() == expected


def test_an_early_beginning_that_the_text_does_not_have_stands_above_it() -> None:
    shown = Shown()
    shown._go_live()
    shown.add(b"\x1b[31mred")
    shown.finish(answer("red\n[killed]", 8, signal=15), 8)
    assert shown.data == b"\x1b[31mred\nred\n[killed]"


def test_the_early_beginning_of_one_long_line_is_bounded() -> None:
    shown = Shown()
    shown._go_live()
    for _ in range(10):
        shown.add(b"x" * 1000)
    assert len(shown.data) == sh_output.LIVE_BYTES
    shown.give_up()
    assert shown.data == b"x" * 10_000
