"""A snapshot as Prometheus metric families, for a registry of the caller's. Counts nothing."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway.observe.snapshot import BUCKETS, FAMILIES, Family, Kind, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BOUNDS = (*(str(float(bound)) for bound in BUCKETS), "+Inf")


def families(snapshot: Snapshot, which: tuple[Family, ...] = FAMILIES) -> Iterator[Metric]:
    """Every family, also one without a single number yet: a dashboard then sees that it exists."""
    for family in which:
        if family.kind is Kind.HISTOGRAM:
            yield _histograms(family, snapshot)
        else:
            yield _numbers(family, snapshot)


def _numbers(family: Family, snapshot: Snapshot) -> Metric:
    made = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = made(family.name, family.help, labels=family.labels)
    for labels, value in snapshot.numbers.get(family.name, {}).items():
        metric.add_metric(labels, value)
    return metric


def _histograms(family: Family, snapshot: Snapshot) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    for labels, histogram in snapshot.histograms.get(family.name, {}).items():
        cumulative = accumulate(histogram.counts)
        buckets = [(bound, float(count)) for bound, count in zip(_BOUNDS, cumulative, strict=True)]
        metric.add_metric(labels, buckets, histogram.total)
    return metric


class SnapshotCollector(Collector):
    """Takes a snapshot for each scrape."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], which: tuple[Family, ...] = FAMILIES
    ) -> None:
        self._snapshot = snapshot
        self._which = which

    def collect(self) -> Iterator[Metric]:
        """The families of a fresh snapshot."""
        return families(self._snapshot(), self._which)
