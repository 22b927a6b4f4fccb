"""Plans as data."""

from __future__ import annotations

from gateway.sim.plan import Beat, Pause, Plan, Send, Step, whole


def test_the_body_is_what_is_sent_without_heartbeats() -> None:
    steps: list[Step] = [Send(b"a"), Pause(1.0), Beat(lambda _: b"!", 1.0, 3), Send(b"b")]
    assert Plan(status=200, headers=[], steps=steps).body() == b"ab"


def test_a_whole_answer_knows_its_length() -> None:
    plan = whole(404, [("a", "b")], b"gone")
    assert (plan.status, plan.length, plan.body()) == (404, 4, b"gone")
