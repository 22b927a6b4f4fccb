"""Reads whole blocks of one stream and knows what they come to. Hands on nothing, and cannot hurt
what is handed on.

What it does not understand is opaque; a protocol reader that raises is counted and steps aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.streams import lenient
from gateway.streams.events import CUT_VERDICTS, Kind, Verdict
from gateway.streams.evidence import Evidence, judge
from gateway.streams.sse import BOM, EVENT_STARTS, SseFramer, parse_block
from gateway.streams.tally import Tally

if TYPE_CHECKING:
    from gateway.streams.coding import Decoder
    from gateway.streams.events import Reader
    from gateway.streams.settings import Settings

# Python 3.11 makes a call of looking a member up on its class; these are on the hot path.
_HEARTBEAT, _OPAQUE = Kind.HEARTBEAT, Kind.OPAQUE
_NOTHING = frozenset({b"{}", b"null", b"[]", b'""'})
"""JSON that says nothing, in an event without a name."""
_LEAST = len(b"data: {}")


class Observer(Tally):
    """What has been understood of one stream so far, and the verdict that it makes."""

    __slots__ = (
        "_begun",
        "_decoder",
        "_done",
        "_framer",
        "_reader",
        "_settings",
        "_torn",
        "_unread",
    )

    def __init__(
        self, reader: Reader, settings: Settings, now: float, decoder: Decoder | None
    ) -> None:
        super().__init__(now, reader.facts)
        self._reader = reader
        self._settings = settings
        self._framer = SseFramer(settings.max_event)
        self._decoder = decoder
        self._begun = self._done = self._torn = self._unread = False

    @property
    def _ended(self) -> bool:
        """Whether the stream has said that it is over, for good or ill."""
        facts = self.facts
        return self._done or self._failed or (facts.finished and not facts.awaited)

    @property
    def _settled(self) -> bool:
        """Whether it is over and nothing that may still come would take that back."""
        return self._done or self._failed or self._reader.may_close()

    @property
    def _failed(self) -> bool:
        """Whether an error has ended it: one in a stream of no known protocol may be news of it."""
        return self.facts.error is not None and self._settings.known

    @property
    def _done_suffices(self) -> bool:
        """Whether ``[DONE]`` without a finish frame is an end; inside an event too long to read may
        have been one."""
        settings = self._settings
        return settings.finish_optional or not settings.known or self._unread

    @property
    def broken_inside(self) -> bool:
        """Whether a part of an event is the last that came."""
        return self._torn or parse_block(self._framer.pending)[2]

    def _pass_over(self) -> Kind:
        """An event that is too long is not read: whatever it was, it may have been the finish."""
        self._unread = True
        return _OPAQUE

    def _read(self, block: bytes) -> Kind | None:
        """The kind of a block; None for ``[DONE]``."""
        try:
            if block.startswith(b"data: {") and b"\n" not in block and b"\r" not in block:
                self._begun = True
                kind = self._reader.read(b"", block[6:])
                return kind if kind is not _OPAQUE or len(block) > _LEAST else _HEARTBEAT
            if not self._begun:
                block = self._without_mark(block)
            name, data, fields = parse_block(block)
            if data is None:
                return self._reader.read_bare(block) if fields else _HEARTBEAT
            if b"[DONE]" in data[:16] and data.strip() == b"[DONE]":
                self._done = True
                self._reader.read_done()
                return None
            if not data or data.isspace() or (not name and data.strip() in _NOTHING):
                return _HEARTBEAT
            return self._reader.read(name, data)
        except Exception:  # noqa: BLE001 - a reader's bug must not hurt the relay; it is counted
            self.reader_faults += 1
            return _OPAQUE

    def _without_mark(self, block: bytes) -> bytes:
        """The block without the byte order mark that a stream may begin with."""
        if self._begun:
            return block
        self._begun = True
        return block.removeprefix(BOM)

    def _read_tail(self, tail: bytes) -> tuple[Kind | None, bool]:
        """The kind of what has no blank line when the stream ends, and whether it shall have one: a
        finish, an error, or what trails them. Anything else is torn."""
        ended = self._ended
        tail = self._without_mark(tail)
        _, data, fields = parse_block(tail)
        if not fields:
            return _HEARTBEAT, False
        whole = data is not None and (data.strip() == b"[DONE]" or lenient.is_whole(data))
        kind = self._read(tail) if whole or data is None else _OPAQUE
        if kind is None:
            return None, ended or self._done_suffices
        if kind is Kind.FINISH or kind is Kind.ERROR:
            self.state_events += 1
            return kind, True
        if whole and (self.facts.finished or self._ended):
            return kind, True
        doubtful = self.facts.doubtful and not self._done
        self._torn = (doubtful or not self._ended) and not self._is_foreign(tail)
        return kind, False

    def _is_foreign(self, tail: bytes) -> bool:
        """Whether what came is something else than events, whatever its head says: text, or a line
        for each. In a known protocol all is taken for events."""
        lines = self.first_event_at is None and tail.endswith((b"\n", b"\r"))
        return not self._settings.known and (lines or not tail.startswith(EVENT_STARTS))

    @property
    def _is_text(self) -> bool:
        """Whether it is so already, while it comes: nobody knows what is progress then."""
        if self._settings.known or self.first_event_at is not None:
            return False
        start = self._framer.start
        return len(start) == 8 and not start.startswith(EVENT_STARTS)

    def _judge(self, *, broke: bool) -> Verdict:
        unread = self._unread or (self._decoder is not None and self._decoder.failed)
        known, empty = self._settings.known, self.first_event_at is None
        return judge(self.facts, Evidence(unread, self._done, broke, self._torn, known, empty))

    def _is_cut(self, verdict: Verdict) -> bool:
        if verdict is Verdict.DONE_WITHOUT_FINISH:
            return not self._done_suffices
        return verdict in CUT_VERDICTS
