"""The register of the requests that are open now. Keeps nothing of a request that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.streams.events import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.observe.records import RequestRecord


class Live:
    """Open requests in the order in which they came."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: dict[RequestRecord, None] = {}

    def add(self, record: RequestRecord) -> None:
        """A request came."""
        self._records[record] = None

    def remove(self, record: RequestRecord) -> None:
        """It has ended; one that is not there is no fault."""
        self._records.pop(record, None)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, record: object) -> bool:
        return record in self._records


def open_gap(record: RequestRecord, now: float) -> float | None:
    """Seconds without progress; None for a stream that is over, and for what is none."""
    stream = record.stream
    if stream is None:
        return now - record.started if record.streaming else None
    if stream.verdict is not None or stream.phase is Phase.AFTER_FINISH:
        return None
    last = record.started if stream.last_progress_at is None else stream.last_progress_at
    return max(0.0, now - last)


def streams_page(live: Live, now: float) -> list[dict[str, Any]]:
    """The open streams as JSON-ready objects, the longest without progress first; in seconds."""
    rows = [(open_gap(record, now), record) for record in live if record.is_stream]
    rows.sort(key=lambda row: -1.0 if row[0] is None else row[0], reverse=True)
    return [_row(record, gap, now) for gap, record in rows]


def _row(record: RequestRecord, gap: float | None, now: float) -> dict[str, Any]:
    stream = record.stream
    row: dict[str, Any] = {
        "request_id": record.request_id,
        "provider": record.provider,
        "protocol": record.protocol,
        "client_app": record.client_app.value,
        "client": record.client,
        "session": record.session,
        "model": (stream.model if stream else None) or record.model,
        "age": round(now - record.started, 3),
        "attempts": record.attempts,
        "phase": Phase.BEFORE_CONTENT.value,
        "events": 0,
        "heartbeats": 0,
        "bytes": 0,
        "committed": False,
        "last_progress": None,
        "without_progress": None if gap is None else round(gap, 3),
        "line": "silent",
    }
    if stream is not None:
        last = stream.last_progress_at
        row |= {
            "phase": stream.phase.value,
            "events": stream.content_events + stream.state_events + stream.opaque_events,
            "heartbeats": stream.heartbeats,
            "bytes": stream.bytes_received,
            "committed": stream.committed,
            "last_progress": None if last is None else round(now - last, 3),
            "line": stream.line,
        }
    return row
