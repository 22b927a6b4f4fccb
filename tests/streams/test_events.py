"""The vocabulary holds together: names that users see, and sets that others rely on."""

from __future__ import annotations

from gateway.streams.events import CUT_VERDICTS, GAP_BUCKETS, Facts, Hold, Phase, Verdict


def test_verdicts_and_phases_have_the_names_that_metrics_show() -> None:
    assert [str(verdict) for verdict in Verdict] == [
        "complete", "complete_abnormal", "provider_error", "bare_eof", "torn", "reset", "empty",
        "stalled_first", "stalled", "done_without_finish", "client_gone", "drained", "opaque",
    ]  # fmt: skip
    assert [str(phase) for phase in Phase] == [
        "before_content", "in_text", "in_reasoning", "in_tool_call", "after_finish",
    ]  # fmt: skip
    assert [str(hold) for hold in Hold] == ["first_event", "first_content", "finish"]


def test_no_finished_stream_counts_as_cut() -> None:
    assert CUT_VERDICTS.isdisjoint({Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL, Verdict.OPAQUE})


def test_buckets_rise_from_a_millisecond_to_ten_minutes() -> None:
    assert list(GAP_BUCKETS) == sorted(set(GAP_BUCKETS))
    assert (GAP_BUCKETS[0], GAP_BUCKETS[-1]) == (0.001, 600.0)


def test_facts_of_two_streams_are_apart() -> None:
    one, other = Facts(), Facts()
    one.usage.input = 5

    assert other.usage.input is None
