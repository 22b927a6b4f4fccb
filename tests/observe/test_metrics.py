"""What the relay counts becomes the documented metrics: once, by closed labels, cheaply."""

from __future__ import annotations

import timeit
from typing import TYPE_CHECKING, Protocol

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.export import SnapshotCollector
from gateway.observe.metrics import _MAX_WORDS, Metrics
from gateway.policy.error_body import ErrorBody
from gateway.protocols.openai_chat import PROTOCOL
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.observe.live import Live
    from gateway.observe.records import RequestRecord

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: Metrics) -> Samples:
    """Every sample of the text page, as a scraper reads it."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(metrics.snapshot))
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return scrape(metrics).get((name, tuple(sorted(labels.items()))))


class Clock(Protocol):
    """The clock of the metrics, which tests move."""

    now: float


SPAN = {"provider": "openai", "protocol": "openai_chat"}


def test_a_finished_stream_is_counted_in_every_metric_it_concerns(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    record = make_record(
        stream=make_stream("a", "b", "c", end="complete"),
        streaming=True,
        status=200,
        bytes_up=100,
        bytes_down=900,
        first_byte_at=1000.4,
        ended=1005.0,
        overhead=0.0004,
    )
    metrics.begin(record)
    metrics.observe(record)
    page = scrape(metrics)

    def of(name: str, **labels: str) -> float | None:
        return page.get((name, tuple(sorted(labels.items()))))

    assert (
        of("gateway_requests_total", **SPAN, stream="true", status="200", client_app="opencode")
        == 1
    )
    ends = {"verdict": "complete", "phase": "after_finish", "client_app": "opencode"}
    assert of("gateway_stream_ends_total", **SPAN, **ends) == 1
    assert of("gateway_events_total", **SPAN, kind="content") == 3
    assert of("gateway_events_total", **SPAN, kind="heartbeat") is None
    for kind, tokens in (("input", 21), ("output", 9), ("cached", 16), ("reasoning", 4)):
        assert of("gateway_tokens_total", **SPAN, type=kind) == tokens
    assert of("gateway_relayed_bytes_total", provider="openai", direction="up") == 100
    assert of("gateway_relayed_bytes_total", provider="openai", direction="down") == 900
    for name, total in (
        ("time_to_first_byte", 0.4),
        ("time_to_first_event", 0.5),
        ("time_to_first_content", 1.5),
        ("stream_duration", 5.0),
        ("overhead", 0.0004),
    ):
        assert of(f"gateway_{name}_seconds_count", **SPAN) == 1
        assert of(f"gateway_{name}_seconds_sum", **SPAN) == pytest.approx(total)
    assert of("gateway_event_gap_seconds_count", **SPAN) == 4
    assert of("gateway_event_gap_seconds_sum", **SPAN) == pytest.approx(4.0)
    assert of("gateway_event_gap_seconds_bucket", **SPAN, le="0.5") == 0
    assert of("gateway_event_gap_seconds_bucket", **SPAN, le="1.0") == 4
    assert of("gateway_build_info", version="1.2.3") == 1


def test_the_buckets_reach_from_a_millisecond_to_ten_minutes(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    for seconds in (0.0005, 700.0):
        metrics.observe(make_record(first_byte_at=1000.0 + seconds))
    name = "gateway_time_to_first_byte_seconds_bucket"
    assert value(metrics, name, **SPAN, le="0.001") == 1
    assert value(metrics, name, **SPAN, le="600.0") == 1
    assert value(metrics, name, **SPAN, le="+Inf") == 2


def test_a_cut_in_a_tool_call_says_its_phase(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    metrics.observe(make_record(stream=make_stream("tool", end="bare_eof"), status=200))
    ends = {"verdict": "bare_eof", "phase": "in_tool_call", "client_app": "opencode"}
    assert value(metrics, "gateway_stream_ends_total", **SPAN, **ends) == 1


def test_a_stall_says_whether_the_line_was_alive(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    metrics.observe(make_record(stream=make_stream("a", end="stalled"), status=200))
    stall = {"phase": "in_text", "line": "heartbeats"}
    assert value(metrics, "gateway_stalls_total", **SPAN, **stall) == 1
    assert value(metrics, "gateway_events_total", **SPAN, kind="heartbeat") == 1


def test_a_plain_request_is_no_stream(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    metrics.observe(make_record(status=404, provider=None, protocol="none", client_app="other"))
    labels = {"provider": "none", "protocol": "none", "client_app": "other"}
    assert value(metrics, "gateway_requests_total", **labels, stream="false", status="404") == 1


def test_an_upstream_error_is_counted_by_status_and_kind_of_body(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    metrics.upstream_error("openai", 503, ErrorBody.HTML)
    metrics.observe(
        make_record(status=401, upstream_status=401, upstream_body=ErrorBody.JSON, attempts=2)
    )
    metrics.observe(make_record(status=200, upstream_status=200))
    name = "gateway_upstream_errors_total"
    assert value(metrics, name, provider="openai", status="503", body="html") == 1
    assert value(metrics, name, provider="openai", status="401", body="json") == 1
    assert sum(sample == name for sample, _ in scrape(metrics)) == 2


def test_attempts_retries_rescues_and_the_budget_have_counters(metrics: Metrics) -> None:
    metrics.attempt("openai", "ok")
    metrics.attempt("openai", "truncated")
    metrics.retry("openai", "truncated")
    metrics.rescued("openai", "truncated")
    metrics.budget_exhausted("sim")
    assert value(metrics, "gateway_attempts_total", provider="openai", result="ok") == 1
    assert value(metrics, "gateway_retries_total", provider="openai", reason="truncated") == 1
    assert value(metrics, "gateway_rescued_total", provider="openai", reason="truncated") == 1
    assert value(metrics, "gateway_retry_budget_exhausted_total", provider="sim") == 1


def test_events_of_an_open_stream_are_seen_before_it_ends_and_counted_once(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    def content() -> float | None:
        return value(metrics, "gateway_events_total", **SPAN, kind="content")

    stream = make_stream("a", "b")
    record = make_record(stream=stream, streaming=True, bytes_down=10)
    metrics.begin(record)
    for _ in range(2):
        assert content() == 2
        assert value(metrics, "gateway_event_gap_seconds_count", **SPAN) == 2
        assert (
            value(metrics, "gateway_relayed_bytes_total", provider="openai", direction="down") == 10
        )
    assert value(metrics, "gateway_stream_ends_total", **SPAN) is None
    stream.receive_eof(1004.0)
    assert content() == 2
    for _ in range(2):
        metrics.observe(record)
        assert content() == 2
        assert (
            value(metrics, "gateway_relayed_bytes_total", provider="openai", direction="down") == 10
        )


def test_no_counter_ever_falls_when_an_attempt_is_thrown_away(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    record = make_record(stream=make_stream("a", "b", end="complete"), streaming=True)
    metrics.begin(record)
    before = scrape(metrics)
    metrics.retire(record)
    assert record.stream is None
    assert record.tokens_discarded == 30
    after = scrape(metrics)
    for key, number in before.items():
        if key[0].endswith(("_total", "_count", "_sum", "_bucket")):
            assert after[key] >= number
    assert value(metrics, "gateway_discarded_tokens_total", provider="openai") == 30
    record.stream = make_stream("c", end="complete")
    metrics.observe(record)
    assert value(metrics, "gateway_events_total", **SPAN, kind="content") == 3
    ends = {"verdict": "complete", "phase": "after_finish", "client_app": "opencode"}
    assert value(metrics, "gateway_stream_ends_total", **SPAN, **ends) == 2
    metrics.retire(make_record())


def test_the_gauges_follow_what_is_open(
    metrics: Metrics,
    live: Live,
    clock: Clock,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    assert value(metrics, "gateway_open_requests", provider="openai") == 0
    assert value(metrics, "gateway_longest_gap_seconds") == 0
    first = make_record(stream=make_stream("a"), streaming=True)
    second = make_record(streaming=True, started=1001.0)
    third = make_record(streaming=False)
    for record in (first, second, third):
        metrics.begin(record)
    clock.now = 1011.5
    assert len(live) == 3
    assert value(metrics, "gateway_open_requests", provider="openai") == 3
    assert value(metrics, "gateway_open_requests", provider="sim") == 0
    assert value(metrics, "gateway_open_streams", **SPAN) == 2
    # The second waits since 1001.0 for its first event; the first made progress at 1001.5.
    assert value(metrics, "gateway_longest_gap_seconds") == pytest.approx(10.5)
    for record in (first, second, third):
        metrics.observe(record)
    assert len(live) == 0
    assert value(metrics, "gateway_open_requests", provider="openai") == 0
    assert value(metrics, "gateway_open_streams", **SPAN) == 0
    assert value(metrics, "gateway_longest_gap_seconds") == 0


def test_a_circuit_is_shown_for_each_configured_provider_and_for_no_other(metrics: Metrics) -> None:
    name = "gateway_circuit_open"
    assert value(metrics, name, provider="openai") == 0
    for stands in (1, 0.5, 0, 1):
        metrics.circuit("openai", stands)
        assert value(metrics, name, provider="openai") == stands
    assert value(metrics, name, provider="sim") == 0
    metrics.circuit("unheard-of", 1)
    assert sum(sample == name for sample, _ in scrape(metrics)) == 2
    metrics.configure(["openai"])
    assert value(metrics, name, provider="openai") == 0
    assert value(metrics, name, provider="sim") is None


def test_a_finished_stream_that_lingers_has_no_gap(
    metrics: Metrics,
    clock: Clock,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    metrics.begin(make_record(stream=make_stream("a", end="complete"), streaming=True))
    clock.now = 5000.0
    assert value(metrics, "gateway_longest_gap_seconds") == 0


ODD = ['"quote"', "back\\slash", "new\nline", "x" * 100_000, "", "é\udce9", "{a=1}"]


def test_a_flood_of_odd_names_makes_no_series(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    def one(number: int, odd: str) -> None:
        metrics.observe(
            make_record(
                model=f"model-{number}{odd}",
                path=f"/openai/{number}{odd}",
                method=f"METHOD{number}",
                session=odd,
                upstream_request_id=odd,
                error=odd,
                stream=make_stream("a", end="complete"),
                status=200,
            )
        )

    one(0, "")
    before = scrape(metrics).keys()
    for number in range(2000):
        one(number, ODD[number % len(ODD)])
    assert scrape(metrics).keys() == before


def test_labels_from_outside_the_closed_sets_become_one_value(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    metrics.observe(make_record())
    before = len(scrape(metrics))
    for number in range(500):
        odd = f"{ODD[number % len(ODD)]} {number}"
        metrics.observe(
            make_record(provider=odd, protocol=odd, client_app=odd, status=1000 + number)
        )
        metrics.attempt(odd, odd)
        metrics.upstream_error(odd, -number, odd)
    other = {"provider": "other", "protocol": "other", "client_app": "other"}
    assert value(metrics, "gateway_requests_total", **other, stream="false", status="other") == 500
    assert len(scrape(metrics)) == before + 3


def test_even_words_of_the_codes_own_are_bounded(metrics: Metrics) -> None:
    for number in range(1000):
        metrics.retry("openai", f"reason_{number}")
    series = [key for key in scrape(metrics) if key[0] == "gateway_retries_total"]
    assert len(series) == _MAX_WORDS + 1
    assert (
        value(metrics, "gateway_retries_total", provider="openai", reason="other")
        == 1000 - _MAX_WORDS
    )


def test_providers_can_be_configured_anew(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    metrics.configure(["openai", "new"])
    metrics.observe(make_record(provider="new", status=200))
    labels = {"protocol": "openai_chat", "stream": "false", "client_app": "opencode"}
    assert value(metrics, "gateway_requests_total", provider="new", status="200", **labels) == 1
    assert value(metrics, "gateway_open_requests", provider="sim") is None


def test_the_end_of_a_request_costs_little(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream("a", "b", end="complete")
    records = [
        make_record(stream=stream, status=200, bytes_up=1, bytes_down=1, first_byte_at=1000.1,
                    ended=1002.0, overhead=0.001)
        for _ in range(2000)
    ]  # fmt: skip
    each = iter(records)
    seconds = timeit.timeit(lambda: metrics.observe(next(each)), number=len(records))
    # Measured: 14 us. The bound is for a slow, busy machine; per-label objects would exceed it.
    assert seconds / len(records) < 250e-6


def test_what_was_odd_about_a_stream_is_counted_apart_from_its_verdict(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    stream = Stream(PROTOCOL.name, PROTOCOL.reader(1), Settings(), 1000.0)
    stream.receive_data(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', 1000.5)
    stream.receive_data(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}', 1001.0)
    stream.receive_reset(1002.0)
    metrics.observe(make_record(stream=stream, status=200))
    notes = metrics.snapshot().numbers["gateway_stream_notes_total"]
    assert {labels[2] for labels in notes} == {"repaired", "broke_after_finish"}
