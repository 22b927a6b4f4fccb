"""Snapshots are plain data: they survive encoding, and merging two adds them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.observe import snapshot as names
from gateway.observe.snapshot import BUCKETS, FAMILIES, Kind, Snapshot, merge

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.observe.metrics import Metrics
    from gateway.observe.records import RequestRecord
    from gateway.streams.stream import Stream

SPAN = ("openai", "openai_chat")


def some(seconds: float, amount: float, gap: float) -> Snapshot:
    taken = Snapshot()
    taken.count(names.RETRIES, ("openai", "status"), amount)
    taken.observe(names.FIRST_BYTE, SPAN, seconds)
    taken.gauge(names.OPEN_REQUESTS, ("openai",), amount)
    taken.gauge(names.LONGEST_GAP, (), gap)
    taken.gauge(names.CIRCUIT_OPEN, ("openai",), 0.5 if amount < 3 else 0)
    taken.gauge(names.BUILD_INFO, ("1",), 1)
    return taken


def test_a_snapshot_survives_encoding(
    metrics: Metrics,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
) -> None:
    metrics.observe(make_record(stream=make_stream("a", end="complete"), status=200, ended=1009.0))
    taken = metrics.snapshot()
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(taken), type=Snapshot) == taken


def test_merging_adds_counters_histograms_and_open_things_and_takes_the_longest_gap() -> None:
    one, other = some(0.0005, 2, 5.0), some(1000.0, 3, 4.0)
    other.count(names.RETRIES, ("openai", "stalled"))
    merged = merge(one, other)
    retries = merged.numbers[names.RETRIES.name]
    assert retries == {("openai", "status"): 5, ("openai", "stalled"): 1}
    histogram = merged.histograms[names.FIRST_BYTE.name][SPAN]
    assert histogram.counts == [1, *[0] * (len(BUCKETS) - 1), 1]
    assert histogram.total == 1000.0005
    assert merged.numbers[names.OPEN_REQUESTS.name] == {("openai",): 5}
    assert merged.numbers[names.LONGEST_GAP.name] == {(): 5.0}
    assert merged.numbers[names.CIRCUIT_OPEN.name] == {("openai",): 0.5}
    assert merged.numbers[names.BUILD_INFO.name] == {("1",): 1}
    assert one == some(0.0005, 2, 5.0)


def test_merging_is_the_same_in_any_order() -> None:
    one, two, three = some(1.0, 1, 1.0), some(2.0, 2, 9.0), some(4.0, 3, 3.0)
    assert merge(merge(one, two), three) == merge(three, merge(two, one))
    assert merge(one, Snapshot()) == one


def test_a_copy_does_not_change_its_original() -> None:
    one = some(1.0, 1, 1.0)
    copied = one.copy()
    copied.count(names.RETRIES, ("openai", "status"))
    copied.observe(names.FIRST_BYTE, SPAN, 1.0)
    assert one == some(1.0, 1, 1.0)


def test_counts_from_elsewhere_are_added_bucket_by_bucket() -> None:
    taken = Snapshot()
    counts = [0] * (len(BUCKETS) + 1)
    counts[3], counts[-1] = 2, 1
    for _ in range(2):
        taken.observe_counts(names.EVENT_GAP, SPAN, counts, 700.0)
    histogram = taken.histograms[names.EVENT_GAP.name][SPAN]
    assert (histogram.counts[3], histogram.counts[-1], histogram.total) == (4, 2, 1400.0)


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    taken = Snapshot()
    taken.observe(names.FIRST_BYTE, SPAN, BUCKETS[2])
    assert taken.histograms[names.FIRST_BYTE.name][SPAN].counts[2] == 1


def test_every_family_is_named_once_and_says_what_it_is() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith("gateway_")
        assert family.help.endswith(".")
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total")
        assert (family.kind is Kind.HISTOGRAM) == (
            family.name.endswith("_seconds") and family is not names.LONGEST_GAP
        )
        assert "model" not in family.labels
        assert "path" not in family.labels
