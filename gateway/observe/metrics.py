"""Folds what the relay has counted into metrics. Does nothing per event and holds no content.

The relay counts on plain attributes (the record, its stream). They are folded in when a request
ends, and, for what is still open, into a copy when somebody looks. A label's value comes from the
configuration or from a closed set; nothing that a client or a provider sends can make a new series.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway.observe import snapshot as names
from gateway.observe.live import Live, open_gap
from gateway.observe.records import NO_PROTOCOL, RequestRecord
from gateway.observe.snapshot import Snapshot
from gateway.policy.clients import ClientApp
from gateway.policy.error_body import ErrorBody
from gateway.streams.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gateway.streams.stream import Stream

OTHER = "other"
"""The label value of everything that is not in a closed set."""

NO_PROVIDER = "none"
"""The provider of a request that names none."""

_MAX_WORDS = 64
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
_STATUS = {status: str(status) for status in range(100, 600)}
_STALLS = (Verdict.STALLED, Verdict.STALLED_FIRST)
_APPS = {app: app.value for app in ClientApp}
_BODIES: dict[str, str] = {body: body.value for body in ErrorBody}


class Metrics:
    """The numbers of one worker. Not thread-safe: the event loop's alone."""

    def __init__(
        self,
        live: Live,
        *,
        providers: Collection[str],
        protocols: Collection[str],
        version: str,
        now: Callable[[], float],
    ) -> None:
        """``now`` reads the clock that the moments of records are on."""
        self._live = live
        self._version = version
        self._now = now
        self._total = Snapshot()
        self._protocols = {*protocols, NO_PROTOCOL}
        self._providers: set[str] = set()
        self._spans: set[tuple[str, str]] = set()
        self._words: set[str] = set()
        self._circuits: dict[str, float] = {}
        self.configure(providers)

    def configure(self, providers: Collection[str]) -> None:
        """Take the configured providers, at the start and after a reload: their circuits begin
        anew.
        """
        self._providers = set(providers)
        self._circuits.clear()

    def begin(self, record: RequestRecord) -> None:
        """A request came: it is in the gauges and on the page of open streams from now on."""
        self._live.add(record)

    def observe(self, record: RequestRecord) -> None:
        """A request has ended: count it, once, and forget it."""
        if record.observed:
            return
        record.observed = True
        self._live.remove(record)
        provider, protocol = self._span(record)
        self._fold_progress(self._total, record, provider, protocol)
        self._fold_end(record, provider, protocol)

    def retire(self, record: RequestRecord) -> None:
        """The stream is thrown away, another attempt follows: count it and its tokens."""
        stream = record.stream
        if stream is None:
            return
        provider, protocol = self._span(record)
        self._fold_events(self._total, stream, (provider, protocol))
        self._fold_verdict(record, stream, provider, protocol)
        self.discard(record)
        record.stream = None

    def discard(self, record: RequestRecord) -> None:
        """The client gets nothing of the stream: count its tokens as thrown away."""
        if record.stream is None:
            return
        usage = record.stream.usage
        tokens = (usage.input or 0) + (usage.output or 0)
        if tokens:
            record.tokens_discarded += tokens
            self._total.count(names.DISCARDED_TOKENS, (self._provider(record.provider),), tokens)

    def attempt(self, provider: str, result: str) -> None:
        """An upstream attempt is over; ``result`` is a word of the code's own, as are reasons."""
        self._total.count(names.ATTEMPTS, (self._provider(provider), self._word(result)))

    def retry(self, provider: str, reason: str) -> None:
        """An attempt is being repeated."""
        self._total.count(names.RETRIES, (self._provider(provider), self._word(reason)))

    def rescued(self, provider: str, reason: str) -> None:
        """A request succeeded after a retry; ``reason`` is that of its last retry."""
        self._total.count(names.RESCUED, (self._provider(provider), self._word(reason)))

    def budget_exhausted(self, provider: str) -> None:
        """A retry was due, and the budget did not allow it."""
        self._total.count(names.BUDGET_EXHAUSTED, (self._provider(provider),))

    def circuit(self, provider: str, value: float) -> None:
        """How the provider's circuit stands: 1 is open, 0.5 half open, 0 closed."""
        if provider in self._providers:
            self._circuits[provider] = value

    def upstream_error(self, provider: str, status: int, body: str) -> None:
        """An error answer was thrown away; ``observe`` counts that of the last attempt."""
        labels = (self._provider(provider), _STATUS.get(status, OTHER), _BODIES.get(body, OTHER))
        self._total.count(names.UPSTREAM_ERRORS, labels)

    def snapshot(self) -> Snapshot:
        """Everything up to now: what has ended, what is open so far, and the gauges."""
        taken = self._total.copy()
        now = self._now()
        longest = 0.0
        for provider in self._providers:
            taken.gauge(names.OPEN_REQUESTS, (provider,), 0)
            taken.gauge(names.CIRCUIT_OPEN, (provider,), self._circuits.get(provider, 0.0))
        for span in self._spans:
            taken.gauge(names.OPEN_STREAMS, span, 0)
        for record in self._live:
            provider, protocol = self._span(record)
            self._fold_progress(taken, record, provider, protocol)
            taken.count(names.OPEN_REQUESTS, (provider,))
            if record.is_stream:
                self._spans.add((provider, protocol))
                taken.count(names.OPEN_STREAMS, (provider, protocol))
                longest = max(longest, open_gap(record, now) or 0.0)
        taken.gauge(names.LONGEST_GAP, (), longest)
        taken.gauge(names.BUILD_INFO, (self._version,), 1)
        return taken

    # Labels.

    def _span(self, record: RequestRecord) -> tuple[str, str]:
        protocol = record.protocol if record.protocol in self._protocols else OTHER
        return self._provider(record.provider), protocol

    def _provider(self, name: str | None) -> str:
        if name is None:
            return NO_PROVIDER
        return name if name in self._providers else OTHER

    def _word(self, word: str) -> str:
        """A word of the code's own; the bound is for one that is made of something sent."""
        if word not in self._words:
            if len(self._words) >= _MAX_WORDS or not _WORD.fullmatch(word):
                return OTHER
            self._words.add(word)
        return str(word)

    # Folding.

    def _fold_progress(
        self, into: Snapshot, record: RequestRecord, provider: str, protocol: str
    ) -> None:
        """What only ever grows while a request runs, and so may be shown before it ends."""
        if record.bytes_up:
            into.count(names.BYTES, (provider, "up"), record.bytes_up)
        if record.bytes_down:
            into.count(names.BYTES, (provider, "down"), record.bytes_down)
        if record.stream is not None:
            self._fold_events(into, record.stream, (provider, protocol))

    def _fold_events(self, into: Snapshot, stream: Stream, span: tuple[str, str]) -> None:
        for kind, events in (
            ("content", stream.content_events),
            ("state", stream.state_events),
            ("heartbeat", stream.heartbeats),
            ("opaque", stream.opaque_events),
        ):
            if events:
                into.count(names.EVENTS, (*span, kind), events)
        if stream.last_progress_at is not None:
            into.observe_counts(names.EVENT_GAP, span, stream.gap_counts, stream.gap_sum)

    def _fold_end(self, record: RequestRecord, provider: str, protocol: str) -> None:
        total, span, stream = self._total, (provider, protocol), record.stream
        total.count(
            names.REQUESTS,
            (
                provider,
                protocol,
                "true" if record.is_stream else "false",
                _STATUS.get(record.status, OTHER),
                _APPS.get(record.client_app, OTHER),
            ),
        )
        if record.upstream_status is not None and record.upstream_body is not None:
            self.upstream_error(provider, record.upstream_status, record.upstream_body.value)
        if record.enriched is not None:
            total.count(names.ENRICHED_ERRORS, (provider, record.enriched))
        if record.first_byte_at is not None:
            total.observe(names.FIRST_BYTE, span, record.first_byte_at - record.started)
        if record.overhead is not None:
            total.observe(names.OVERHEAD, span, record.overhead)
        if stream is not None:
            self._fold_stream(record, stream, provider, protocol)

    def _fold_stream(
        self, record: RequestRecord, stream: Stream, provider: str, protocol: str
    ) -> None:
        total, span, started = self._total, (provider, protocol), record.started
        self._fold_verdict(record, stream, provider, protocol)
        if stream.first_event_at is not None:
            total.observe(names.FIRST_EVENT, span, stream.first_event_at - started)
        if stream.first_content_at is not None:
            total.observe(names.FIRST_CONTENT, span, stream.first_content_at - started)
        if record.ended is not None:
            total.observe(names.STREAM_DURATION, span, record.ended - started)
        for note in stream.notes:
            total.count(names.STREAM_NOTES, (provider, protocol, note))
        usage = stream.usage
        for kind, tokens in (
            ("input", usage.input),
            ("output", usage.output),
            ("cached", usage.cached),
            ("reasoning", usage.reasoning),
        ):
            if tokens:
                total.count(names.TOKENS, (provider, protocol, kind), tokens)

    def _fold_verdict(
        self, record: RequestRecord, stream: Stream, provider: str, protocol: str
    ) -> None:
        self._spans.add((provider, protocol))
        verdict = stream.verdict
        if verdict is None:
            return
        phase = stream.phase.value
        app = _APPS.get(record.client_app, OTHER)
        self._total.count(names.STREAM_ENDS, (provider, protocol, verdict.value, phase, app))
        if verdict in _STALLS:
            self._total.count(names.STALLS, (provider, protocol, phase, stream.line))
