"""How long each kind of silence may last."""

from __future__ import annotations

import pytest

from gateway.streams.limits import SILENT_LINE, Limits


@pytest.mark.parametrize(
    ("limits", "heartbeat", "waiting", "deadline"),
    [
        # A line without heartbeats.
        (Limits(), None, False, 100 + 290),
        (Limits(gap=60), None, False, 100 + 60),
        (Limits(), None, True, 100 + 290),
        (Limits(silent_phase=120), None, True, 100 + 120),
        (Limits(gap=60), None, True, 100 + 290),
        # Heartbeats from before the last progress say nothing about the silence after it.
        (Limits(), 99, False, 100 + 290),
        # A living line.
        (Limits(), 150, False, 150 + 290),
        (Limits(), 500, False, 100 + 600),
        (Limits(), 150, True, 150 + 290),
        (Limits(), 800, True, 100 + 900),
        # A limit that is set low rules, heartbeats or not.
        (Limits(gap=60, gap_alive=60), 150, False, 100 + 60),
        (Limits(silent_phase=30), 110, True, 100 + 30),
    ],
)
def test_when_silence_becomes_a_stall(
    limits: Limits, heartbeat: float | None, waiting: bool, deadline: float
) -> None:
    assert limits.after_progress(100, heartbeat, waiting=waiting) == deadline


@pytest.mark.parametrize("waiting", [False, True])
def test_no_number_of_heartbeats_moves_the_deadline_past_the_longer_limit(waiting: bool) -> None:
    limits = Limits()
    deadlines = [limits.after_progress(0, beat, waiting=waiting) for beat in range(0, 5000, 7)]

    assert max(deadlines) == (900 if waiting else 600)
    assert deadlines == sorted(deadlines)


def test_the_gateway_speaks_before_clients_give_up_on_a_silent_line() -> None:
    assert SILENT_LINE < 300
    assert Limits().gap < 300
    assert Limits().first_event < 300
