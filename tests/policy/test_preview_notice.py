"""What a text says of the output it shows."""

import msgspec
import pytest

from gateway.policy.preview import MIN_BYTES
from gateway.policy.preview_notice import CutNotice, Facts, marker, of_whole

FACTS = Facts(bytes=288_894, lines=50_000, complete=True, spilled=288_894, path="/spill/x_1")


def facts(**changed: object) -> Facts:
    return msgspec.convert({**msgspec.structs.asdict(FACTS), **changed}, Facts)


def incomplete(**changed: object) -> Facts:
    return facts(complete=False, **changed)


def test_a_cut_names_what_is_left_out_and_where_all_of_it_is() -> None:
    assert CutNotice(FACTS, 1000).text(260_222, 45_000) == (
        "[Left out: 260222 of 288894 bytes, 45000 of 50000 lines; "
        "the whole output is in /spill/x_1.]"
    )
    assert marker(260_222, 45_000) == "[... 260222 bytes, 45000 lines left out here ...]"


def test_lines_that_nobody_counted_are_not_named() -> None:
    assert CutNotice(facts(lines=None, path=""), 1000).text(5, None) == (
        "[Left out: 5 of 288894 bytes.]"
    )
    assert marker(5, None) == "[... 5 bytes left out here ...]"


def test_of_an_output_that_is_not_complete_no_path_is_said_to_hold_all() -> None:
    text = CutNotice(incomplete(error="ENOSPC", spilled=7), 1000).text(1, 1)
    assert "what was saved is in /spill/x_1" in text
    assert "whole" not in text
    assert "/spill" not in CutNotice(incomplete(error="EACCES", spilled=0), 1000).text(1, 1)


def test_states_that_were_drawn_over_are_counted() -> None:
    assert of_whole(FACTS, 1) == "[1 earlier state of a line, which was drawn over, is not shown.]"
    notice = CutNotice(facts(path=""), 1000, 99)
    said = notice.text(5, 1, 7)
    assert said.endswith("7 earlier states of lines, which were drawn over, are not shown.]")
    assert len(said) <= notice.longest


def test_a_path_that_leaves_no_room_is_left_out() -> None:
    long = facts(path="/" + "x" * 900)
    assert "xxx" not in CutNotice(long, 900).text(1, 1)
    assert "xxx" in CutNotice(long, 1100).text(1, 1)


def test_a_path_cannot_end_the_line() -> None:
    assert "\n" not in CutNotice(facts(path="/a\nb"), 1000).text(1, 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"reason": "timeout"}, "[The command ran into its timeout and was ended.]"),
        (
            {"reason": "timeout", "signal": 9, "signal_name": "SIGKILL"},
            "[The command ran into its timeout and was ended by signal 9 (SIGKILL).]",
        ),
        (
            {"signal": 11, "signal_name": "SIGSEGV"},
            "[The command was ended by signal 11 (SIGSEGV).]",
        ),
        ({"signal": 40}, "[The command was ended by signal 40.]"),
        (
            {"reason": "killed", "signal": 15, "signal_name": "SIGTERM"},
            "[The command was killed on request by signal 15 (SIGTERM).]",
        ),
        ({"reason": "client_gone"}, "[The command was ended because its client had left.]"),
        ({"reason": "server_shutdown"}, "[The command was ended because the server shut down.]"),
        (
            {"reason": "output_open"},
            "[Processes that it left behind with its output open were ended.]",
        ),
        ({"state": "spawn_failed"}, "[The command could not be started.]"),
    ],
)
def test_how_a_command_ended_is_said_unless_it_just_did(
    changed: dict[str, object], said: str
) -> None:
    assert of_whole(facts(**changed)) == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"error": "ENOSPC", "spilled": 100},
            "[The saved output is not complete: the disk is full (ENOSPC), "
            "100 of 288894 bytes are saved.]",
        ),
        (
            {"error": "output_limit", "spilled": 100},
            "[The output is not complete: it reached the limit (output_limit), "
            "100 of 288894 bytes are saved.]",
        ),
        (
            {"error": "EIO", "spilled": 100},
            "[The saved output is not complete: it could not be written (EIO), "
            "100 of 288894 bytes are saved.]",
        ),
        (
            {"state": "running", "open": True},
            "[The command is still running: these are its first 288894 bytes of output.]",
        ),
        (
            {"state": "output_open", "open": True},
            "[The output is still held open by a process left behind: more may follow.]",
        ),
        (
            {"state": "interrupted"},
            "[The output may not be complete: what watched the command died (interrupted).]",
        ),
        ({}, "[The output is not complete: its end was not seen.]"),
        (
            {"reason": "timeout"},
            "[The command ran into its timeout and was ended. "
            "The output is not complete: its end was not seen.]",
        ),
    ],
)
def test_an_output_that_is_not_complete_says_why(changed: dict[str, object], said: str) -> None:
    assert of_whole(incomplete(**changed)) == said


def test_two_notices_fit_into_the_smallest_text() -> None:
    huge = 10**15
    longest = incomplete(
        bytes=huge,
        lines=huge,
        spilled=huge,
        error="é" * 1000,
        reason="output_limit",
        signal=15,
        signal_name="SIGTERM",
        path="/" + "x" * 4095,
    )
    notice = CutNotice(longest, MIN_BYTES // 3)
    assert notice.longest <= MIN_BYTES // 3
    assert len(notice.text(huge - 1, 5).encode()) <= notice.longest
