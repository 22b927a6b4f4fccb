"""The text page names every documented metric and parses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.export import SnapshotCollector
from gateway.observe.snapshot import FAMILIES, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.observe.metrics import Metrics
    from gateway.observe.records import RequestRecord
    from gateway.streams.stream import Stream

DOCUMENTED = {
    "gateway_requests_total", "gateway_stream_ends_total", "gateway_attempts_total",
    "gateway_retries_total", "gateway_rescued_total", "gateway_discarded_tokens_total",
    "gateway_retry_budget_exhausted_total", "gateway_stalls_total", "gateway_upstream_errors_total",
    "gateway_errors_enriched_total",
    "gateway_stream_notes_total",
    "gateway_time_to_first_byte_seconds", "gateway_time_to_first_event_seconds",
    "gateway_time_to_first_content_seconds", "gateway_event_gap_seconds",
    "gateway_stream_duration_seconds", "gateway_overhead_seconds", "gateway_events_total",
    "gateway_tokens_total", "gateway_relayed_bytes_total", "gateway_open_requests",
    "gateway_open_streams", "gateway_longest_gap_seconds", "gateway_circuit_open",
    "gateway_build_info",
}  # fmt: skip


def page(snapshot: Callable[[], Snapshot]) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry).decode()


def test_every_documented_metric_is_on_the_page_before_anything_happened() -> None:
    assert {family.name for family in FAMILIES} == DOCUMENTED
    text = page(Snapshot)
    for name in DOCUMENTED:
        assert f"# TYPE {name} " in text


def test_the_page_parses_and_its_histograms_are_whole(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    stream = make_stream("a", "b", end="complete")
    metrics.observe(make_record(stream=stream, status=200, ended=1009.0, first_byte_at=1000.1))
    parsed = {
        family.name: family
        for family in text_string_to_metric_families(page(metrics.snapshot))
        if family.type == "histogram" and family.samples
    }
    assert "gateway_event_gap_seconds" in parsed
    for family in parsed.values():
        buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        totals = [sample.value for sample in family.samples if sample.name.endswith("_count")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == totals[0] > 0
        bounds = [sample.labels["le"] for sample in family.samples if "le" in sample.labels]
        assert (bounds[0], bounds[-2:]) == ("0.001", ["600.0", "+Inf"])


def test_each_scrape_takes_a_fresh_snapshot(
    metrics: Metrics, make_record: Callable[..., RequestRecord]
) -> None:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(metrics.snapshot))
    before = generate_latest(registry)
    metrics.observe(make_record(status=200))
    assert generate_latest(registry) != before
