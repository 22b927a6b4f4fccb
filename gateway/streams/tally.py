"""What is counted and timed of one stream, as plain attributes. Decides nothing; folded into
metrics by others."""

from __future__ import annotations

from bisect import bisect_left

from gateway.streams.events import GAP_BUCKETS, Facts, Phase, ProviderError, Usage


class Tally:
    """Counters and moments of one stream. Moments are seconds on the caller's monotonic clock, or
    None.

    ``gap_counts`` has one number per bucket of ``GAP_BUCKETS`` and one more for longer gaps; a gap
    is the time between reads that brought events which mean progress.
    """

    __slots__ = (
        "_heard_at", "_progress_at", "bytes_received", "content_events", "facts",
        "first_content_at", "first_event_at", "gap_counts", "gap_sum", "heartbeats",
        "last_heartbeat_at", "last_progress_at", "max_gap", "opaque_events", "reader_faults",
        "state_events",
    )  # fmt: skip

    def __init__(self, now: float, facts: Facts) -> None:
        self.facts = facts
        self.bytes_received = 0
        self.content_events = self.state_events = self.heartbeats = self.opaque_events = 0
        self.reader_faults = 0
        self.first_event_at: float | None = None
        self.first_content_at: float | None = None
        self.last_progress_at: float | None = None
        self.last_heartbeat_at: float | None = None
        self.max_gap = self.gap_sum = 0.0
        self.gap_counts = [0] * (len(GAP_BUCKETS) + 1)
        # The stall clock's own two moments: time in which the client took no bytes is left out.
        self._progress_at = now
        self._heard_at: float | None = None

    @property
    def phase(self) -> Phase:
        """Where in its life the stream is."""
        return self.facts.phase

    @property
    def usage(self) -> Usage:
        """Token counts seen so far."""
        return self.facts.usage

    @property
    def model(self) -> str | None:
        """The model that the provider says is answering."""
        return self.facts.model

    @property
    def finish_reason(self) -> str | None:
        """The provider's own word for why it finished."""
        return self.facts.finish_reason

    @property
    def error(self) -> ProviderError | None:
        """The failure that the provider reported in-band."""
        return self.facts.error

    @property
    def line(self) -> str:
        """``heartbeats`` when signs of life came after the last progress, else ``silent``."""
        heartbeat, progress = self.last_heartbeat_at, self.last_progress_at
        if heartbeat is None or (progress is not None and heartbeat <= progress):
            return "silent"
        return "heartbeats"

    def _note_heartbeat(self, now: float) -> None:
        self.heartbeats += 1
        self.last_heartbeat_at = self._heard_at = now

    def _note_progress(self, now: float) -> None:
        if self.last_progress_at is not None:
            gap = now - self.last_progress_at
            self.gap_counts[bisect_left(GAP_BUCKETS, gap)] += 1
            self.gap_sum += gap
            if gap > self.max_gap:
                self.max_gap = gap
        elif self.first_event_at is None:
            self.first_event_at = now
        self.last_progress_at = self._progress_at = now

    def _shift(self, seconds: float) -> None:
        self._progress_at += seconds
        if self._heard_at is not None:
            self._heard_at += seconds
