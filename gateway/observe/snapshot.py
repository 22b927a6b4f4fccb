"""The numbers of one worker as plain data, by metric and labels. Counts nothing itself.

A snapshot can be encoded (MessagePack, by msgspec), sent to another process and merged there. What
a metric is called and which labels it has is said here once, in ``FAMILIES``.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

import msgspec

from gateway.streams.events import GAP_BUCKETS

Labels = tuple[str, ...]
"""Label values in the order of the family's label names."""

BUCKETS = GAP_BUCKETS
"""Upper bounds in seconds of every histogram; one more (+Inf) follows."""


class Kind(Enum):
    """What kind of number a family holds, and how two workers' numbers become one."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE_SUM = "sum"
    GAUGE_MAX = "max"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name on the page, its labels, its help text."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_SPAN = ("provider", "protocol")

REQUESTS = Family(
    "gateway_requests_total",
    Kind.COUNTER,
    ("provider", "protocol", "stream", "status", "client_app"),
    "Requests answered, by what the client asked for and got.",
)
STREAM_ENDS = Family(
    "gateway_stream_ends_total",
    Kind.COUNTER,
    ("provider", "protocol", "verdict", "phase", "client_app"),
    "Upstream streams ended, those of attempts that were retried unseen included.",
)
ATTEMPTS = Family(
    "gateway_attempts_total", Kind.COUNTER, ("provider", "result"), "Upstream attempts."
)
RETRIES = Family(
    "gateway_retries_total", Kind.COUNTER, ("provider", "reason"), "Attempts that were repeated."
)
RESCUED = Family(
    "gateway_rescued_total",
    Kind.COUNTER,
    ("provider", "reason"),
    "Requests that succeeded after a retry.",
)
DISCARDED_TOKENS = Family(
    "gateway_discarded_tokens_total",
    Kind.COUNTER,
    ("provider",),
    "Tokens of attempts whose answer was thrown away.",
)
BUDGET_EXHAUSTED = Family(
    "gateway_retry_budget_exhausted_total",
    Kind.COUNTER,
    ("provider",),
    "Retries that the retry budget did not allow.",
)
STALLS = Family(
    "gateway_stalls_total",
    Kind.COUNTER,
    ("provider", "protocol", "phase", "line"),
    "Streams that made no progress within their limit, on a silent line or behind heartbeats.",
)
UPSTREAM_ERRORS = Family(
    "gateway_upstream_errors_total",
    Kind.COUNTER,
    ("provider", "status", "body"),
    "Upstream answers that are errors, by status and kind of body.",
)
ENRICHED_ERRORS = Family(
    "gateway_errors_enriched_total",
    Kind.COUNTER,
    ("provider", "how"),
    "Error answers whose message grew, that were wrapped in the client's dialect, or masked.",
)
STREAM_NOTES = Family(
    "gateway_stream_notes_total",
    Kind.COUNTER,
    ("provider", "protocol", "note"),
    "What was odd about streams, whatever their verdict.",
)
EVENTS = Family(
    "gateway_events_total",
    Kind.COUNTER,
    ("provider", "protocol", "kind"),
    "Stream events received.",
)
TOKENS = Family(
    "gateway_tokens_total",
    Kind.COUNTER,
    ("provider", "protocol", "type"),
    "Tokens as the providers report them.",
)
BYTES = Family(
    "gateway_relayed_bytes_total",
    Kind.COUNTER,
    ("provider", "direction"),
    "Body bytes relayed: up to the provider, down to the client.",
)
FIRST_BYTE = Family(
    "gateway_time_to_first_byte_seconds",
    Kind.HISTOGRAM,
    _SPAN,
    "From the request to the first byte of the upstream body.",
)
FIRST_EVENT = Family(
    "gateway_time_to_first_event_seconds",
    Kind.HISTOGRAM,
    _SPAN,
    "From the request to the first event of the stream.",
)
FIRST_CONTENT = Family(
    "gateway_time_to_first_content_seconds",
    Kind.HISTOGRAM,
    _SPAN,
    "From the request to the first content of the stream.",
)
EVENT_GAP = Family(
    "gateway_event_gap_seconds",
    Kind.HISTOGRAM,
    _SPAN,
    "Between events of a stream that mean progress.",
)
STREAM_DURATION = Family(
    "gateway_stream_duration_seconds",
    Kind.HISTOGRAM,
    _SPAN,
    "From the request to the end of the stream.",
)
OVERHEAD = Family(
    "gateway_overhead_seconds", Kind.HISTOGRAM, _SPAN, "Time spent in the gateway itself."
)
OPEN_REQUESTS = Family("gateway_open_requests", Kind.GAUGE_SUM, ("provider",), "Requests open now.")
OPEN_STREAMS = Family(
    "gateway_open_streams", Kind.GAUGE_SUM, _SPAN, "Streams open now, or waited for."
)
LONGEST_GAP = Family(
    "gateway_longest_gap_seconds",
    Kind.GAUGE_MAX,
    (),
    "The longest time for which a stream open now has made no progress.",
)
CIRCUIT_OPEN = Family(
    "gateway_circuit_open",
    Kind.GAUGE_MAX,
    ("provider",),
    "Whether the provider is not asked for a while: 1 open, 0.5 half open, 0 closed.",
)
BUILD_INFO = Family("gateway_build_info", Kind.GAUGE_MAX, ("version",), "The running version.")

FAMILIES: tuple[Family, ...] = (
    REQUESTS, STREAM_ENDS, ATTEMPTS, RETRIES, RESCUED, DISCARDED_TOKENS, BUDGET_EXHAUSTED, STALLS,
    UPSTREAM_ERRORS, ENRICHED_ERRORS, STREAM_NOTES, EVENTS, TOKENS, BYTES, FIRST_BYTE, FIRST_EVENT,
    FIRST_CONTENT, EVENT_GAP, STREAM_DURATION, OVERHEAD, OPEN_REQUESTS, OPEN_STREAMS, LONGEST_GAP,
    CIRCUIT_OPEN, BUILD_INFO,
)  # fmt: skip


class Histogram(msgspec.Struct, array_like=True):
    """Observations per bucket (not cumulative; the last one is +Inf) and their sum in seconds."""

    counts: list[int]
    total: float = 0.0


class Snapshot(msgspec.Struct):
    """Numbers by family name and label values."""

    numbers: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, family: Family, labels: Labels, amount: float = 1) -> None:
        """Add to a counter."""
        table = self.numbers.get(family.name)
        if table is None:
            table = self.numbers[family.name] = {}
        table[labels] = table.get(labels, 0) + amount

    def gauge(self, family: Family, labels: Labels, value: float) -> None:
        """Set a gauge."""
        self.numbers.setdefault(family.name, {})[labels] = value

    def observe(self, family: Family, labels: Labels, seconds: float) -> None:
        """Add one observation to a histogram."""
        histogram = self._histogram(family.name, labels)
        histogram.counts[bisect_left(BUCKETS, seconds)] += 1
        histogram.total += seconds

    def observe_counts(
        self, family: Family, labels: Labels, counts: list[int], total: float
    ) -> None:
        """Add observations that were counted elsewhere in the same buckets."""
        histogram = self._histogram(family.name, labels)
        histogram.counts[:] = map(int.__add__, histogram.counts, counts)
        histogram.total += total

    def copy(self) -> Snapshot:
        """One that may be added to without changing this one."""
        return merge(self, Snapshot())

    def _histogram(self, name: str, labels: Labels) -> Histogram:
        table = self.histograms.get(name)
        if table is None:
            table = self.histograms[name] = {}
        histogram = table.get(labels)
        if histogram is None:
            histogram = table[labels] = Histogram([0] * (len(BUCKETS) + 1))
        return histogram


_MAX_NAMES = frozenset(family.name for family in FAMILIES if family.kind is Kind.GAUGE_MAX)


def merge(one: Snapshot, other: Snapshot) -> Snapshot:
    """Both workers' numbers in a new snapshot; neither is changed."""
    merged = Snapshot()
    for snapshot in (one, other):
        for name, table in snapshot.numbers.items():
            target = merged.numbers.setdefault(name, {})
            for labels, value in table.items():
                if name in _MAX_NAMES:
                    target[labels] = max(target.get(labels, value), value)
                else:
                    target[labels] = target.get(labels, 0) + value
        for name, histograms in snapshot.histograms.items():
            for labels, histogram in histograms.items():
                own = merged._histogram(name, labels)
                own.counts[:] = map(int.__add__, own.counts, histogram.counts)
                own.total += histogram.total
    return merged
