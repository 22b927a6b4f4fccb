"""The one object that knows how a stream stands: bytes in, bytes to hand on out. No I/O, no clock,
no logging.

The caller owns sockets and clocks. It calls ``receive_data`` for each read, ``receive_eof`` or
``receive_reset`` when the upstream ends, ``expire`` when ``deadline`` has passed, ``give_up`` or
``client_gone`` when it has reasons of its own; it writes whatever bytes come back, and stops when
``closed``. Every moment is a float in seconds on the caller's monotonic clock.

Rules held here (the readers in ``gateway.protocols`` say what an event means, this object what
follows from it):

- whole events only are handed on, in the provider's own bytes;
- nothing is handed on until the event that ``hold`` names (``committed``);
- only events that mean progress move the deadline;
- a stream that ends without its finish frame is told to the client in-band, or the connection is
  aborted (``must_abort``); it never ends like a finished one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.streams import faults, lenient
from gateway.streams.events import CUT_VERDICTS, Fault, Hold, Kind, Phase, Reader, Verdict
from gateway.streams.evidence import Evidence, judge
from gateway.streams.hold import HoldBack
from gateway.streams.limits import TRAILER
from gateway.streams.sse import SseFramer, parse_block
from gateway.streams.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.streams.coding import Decoder
    from gateway.streams.settings import Settings


# Python 3.11 makes a call of looking a member up on its class; these are on the hot path.
_CONTENT, _HEARTBEAT, _OPAQUE = Kind.CONTENT, Kind.HEARTBEAT, Kind.OPAQUE
_ERROR, _STATE = Kind.ERROR, Kind.STATE


class Stream(Tally):
    """One upstream answer that is a stream. Plain attributes are for reading; only the methods
    change them.

    ``closed``: the client's answer ends here, cleanly, or by a broken connection if ``must_abort``.
    ``cut``: it ended without its finish. ``lingered``: it ended although the upstream had not.
    ``repaired``: its last event was given its blank line.
    """

    __slots__ = (
        "_decoder", "_done", "_ended_at", "_flowing", "_framer", "_hold", "_passive", "_reader",
        "_settings", "_started", "_torn", "closed", "cut", "deadline", "lingered", "must_abort",
        "protocol", "repaired", "verdict",
    )  # fmt: skip

    def __init__(
        self,
        protocol: str,
        reader: Reader,
        settings: Settings,
        now: float,
        *,
        decoder: Decoder | None = None,
    ) -> None:
        """``now`` is when the request was sent; ``decoder`` reads the side copy of a compressed
        stream."""
        super().__init__(now, reader.facts)
        self.protocol = protocol
        self.verdict: Verdict | None = None
        self._passive = settings.observe or decoder is not None
        self.closed = self.must_abort = self.cut = self.lingered = self.repaired = False
        self._reader = reader
        self._settings = settings
        self._framer = SseFramer(settings.max_event)
        self._decoder = decoder
        until = None if settings.hold_max is None else now + settings.hold_max
        at_once = self._passive or not settings.known
        self._hold = HoldBack(settings.hold, settings.hold_max_bytes, until, released=at_once)
        self._started = now
        self._ended_at: float | None = None
        self._done = self._torn = self._flowing = False
        self.deadline: float | None = self._next_deadline()

    # What the relay, the metrics and the log read.

    @property
    def committed(self) -> bool:
        """Whether bytes were handed on, or must be as soon as there are any."""
        return self._hold.released

    @property
    def withheld(self) -> bytes:
        """All that came of a stream that failed before the commit, its own error last; once."""
        return self._hold.take()

    @property
    def at_boundary(self) -> bool:
        """Whether something of the gateway's own may be written now."""
        return not self._passive and self._framer.at_boundary

    @property
    def retryable(self) -> bool:
        """Whether another attempt may hide this ending: nothing was handed on, and trying again can
        help."""
        if self.committed or self.verdict is None:
            return False
        error = self.facts.error
        return self.cut if error is None else error.retryable

    # What the caller tells us.

    def receive_data(self, chunk: bytes, now: float) -> bytes:
        """Take what one read brought; return what may be handed on now."""
        if self.closed or not chunk:
            return b""
        self.bytes_received += len(chunk)
        if self._passive:
            plain = chunk if self._decoder is None else self._decoder.feed(chunk)
            if plain:
                self._take(self._framer.feed(plain), now, self._framer.separator)
            return chunk
        if self._flowing:
            # Nearly every read of a stream is one event of content.
            block = self._framer.only_block(chunk)
            if block is not None:
                return self._take_one(chunk, block, now)
        blocks = self._framer.feed(chunk)
        return self._take(blocks, now, self._framer.separator) if blocks else b""

    def receive_eof(self, now: float) -> bytes:
        """The upstream ended its answer in good order; return the last bytes to hand on."""
        return self._end(now, broke=False)

    def receive_reset(self, now: float) -> bytes:
        """The transport broke (reset, short body, missing last chunk); return the last bytes to
        hand on."""
        return self._end(now, broke=True)

    def expire(self, now: float) -> bytes:
        """Call when ``deadline`` has passed: a lull after the finish ends the answer, any other is
        a stall."""
        if self.closed or self.deadline is None or now < self.deadline:
            return b""
        if self._ended:
            self.lingered = True
            return self._end(now, broke=False)
        if self._hold.expired(now):
            self._hold.released = True
            return self._hand_on(b"")
        verdict = Verdict.STALLED_FIRST if self.first_event_at is None else Verdict.STALLED
        frames = self._fail(verdict, faults.stalled(now - (self.last_progress_at or self._started)))
        return self._hand_on(b"") + frames

    def give_up(self, fault: Fault, verdict: Verdict) -> bytes:
        """End the stream for a reason of the caller's own, told in-band where a client has seen
        bytes; a finished stream has just ended."""
        if self.closed:
            return b""
        if self._ended:
            return self._end(self._ended_at or self._started, broke=False)
        frames = self._fail(verdict, fault)
        return self._hand_on(b"") + frames

    def client_gone(self) -> None:
        """The client left. Leaving after the finish is how many clients end a complete answer."""
        if not self.closed:
            self._close(self._judge(broke=False) if self._ended else Verdict.CLIENT_GONE)

    def credit(self, seconds: float) -> None:
        """Leave the last ``seconds`` out of every clock: the client took no bytes, so nothing was
        read."""
        self._started += seconds
        self._shift(seconds)
        if self._ended_at is not None:
            self._ended_at += seconds
        if self._hold.until is not None:
            self._hold.until += seconds
        if not self.closed:
            self.deadline = self._next_deadline()

    # Whole blocks.

    def _take_one(self, chunk: bytes, block: bytes, now: float) -> bytes:
        """Take a chunk that is one block of a stream that is committed and has not ended."""
        kind = self._read(block)
        if kind is not _CONTENT:
            return self._take([block], now, chunk[len(block) :], [kind])
        self.content_events += 1
        self._note_progress(now)
        self.deadline = self._next_deadline()
        return chunk

    def _take(
        self, blocks: list[bytes], now: float, separator: bytes, kinds: Sequence[Kind | None] = ()
    ) -> bytes:
        """Read whole blocks in order; return them with whatever belongs between them. ``kinds`` are
        given for blocks that have been read."""
        framer = self._framer
        last = len(blocks) - 1
        out: list[bytes] = []
        start = 0
        progressed = False
        kind: Kind | None
        for index, block in enumerate(blocks):
            if kinds:
                kind = kinds[index]
            elif (index == 0 and framer.opaque_head) or (index == last and framer.opaque_tail):
                kind = _OPAQUE
            else:
                kind = self._read(block)
            if kind is _CONTENT:
                progressed = True
                self.content_events += 1
                if self.first_content_at is None:
                    self.first_content_at = now
                    self._hold.reached(Hold.FIRST_CONTENT)
            elif kind is _HEARTBEAT:
                self._note_heartbeat(now)
            else:
                progressed = True
                before, after = self._weigh(kind)
                if self.closed:
                    self._note_progress(now)
                    whole = b"".join((*out, *(part + separator for part in blocks[start:index])))
                    return self._stop(whole, block + separator, after)
                if before or after:
                    out += [part + separator for part in blocks[start:index]]
                    out += [before, block, separator, after]
                    start = index + 1
        if progressed:
            self._note_progress(now)
        if self._ended and (progressed or self._ended_at is None):
            self._ended_at = now
        if start <= last:
            out += (separator.join(blocks[start:] if start else blocks), separator)
        whole = self._hand_on(b"".join(out))
        content = self.first_content_at is not None
        self._flowing = content and self.committed and self._ended_at is None and not self._passive
        return whole

    def _stop(self, before: bytes, block: bytes, last: bytes) -> bytes:
        """The stream ends at a block that is not handed on: its last bytes."""
        if self.committed:
            return self._hand_on(before) + last
        if self.facts.error is not None:
            reader = self._reader
            block += reader.complement(ending=False) + reader.complement(ending=True)
            self._hold.keep(before + block)
        return b""

    def _read(self, block: bytes) -> Kind | None:
        """The kind of a block; None for ``[DONE]``."""
        try:
            if block.startswith(b"data: {") and b"\n" not in block and b"\r" not in block:
                return self._reader.read(b"", block[6:])
            name, data, fields = parse_block(block)
            if data is None:
                return self._reader.read_bare(block) if fields else _HEARTBEAT
            if data[:6] == b"[DONE]" and data.strip() == b"[DONE]":
                self._done = True
                self._reader.read_done()
                return None
            if not data or data.isspace():
                return _HEARTBEAT
            return self._reader.read(name, data)
        except Exception:  # noqa: BLE001 - a reader's bug must not hurt the relay; it is counted
            self.reader_faults += 1
            return _OPAQUE

    def _weigh(self, kind: Kind | None) -> tuple[bytes, bytes]:
        """What follows from an event that is neither content nor heartbeat: bytes to write before
        and after it.

        Where the stream ends here (``closed``), the event itself is not handed on and the second
        are the last.
        """
        if kind is None:
            return self._weigh_done()
        if kind is _OPAQUE:
            self.opaque_events += 1
            self._hold.reached(Hold.FIRST_CONTENT)
            return b"", b""
        self.state_events += 1
        if kind is _ERROR:
            if not self.committed:
                return b"", self._fail(Verdict.PROVIDER_ERROR, None)
            return b"", self._reader.complement(ending=False)
        # A finish without content is an answer, too.
        self._hold.reached(Hold.FIRST_EVENT if kind is _STATE else Hold.FIRST_CONTENT)
        return b"", b""

    def _weigh_done(self) -> tuple[bytes, bytes]:
        if self.facts.error is not None:
            return self._reader.complement(ending=True), b""
        if self.facts.finished or self._done_suffices or self._passive:
            self._hold.released = True
            return b"", b""
        return b"", self._fail(Verdict.DONE_WITHOUT_FINISH, faults.cut(Verdict.DONE_WITHOUT_FINISH))

    def _hand_on(self, out: bytes) -> bytes:
        """Hold or release, and set the next deadline."""
        if not self.closed:
            out = self._hold.put(out)
            self.deadline = self._next_deadline()
            return out
        return self._hold.take(out) if self._hold.released else b""

    # Ends.

    @property
    def _ended(self) -> bool:
        return self.facts.finished or self.facts.error is not None or self._done

    @property
    def _done_suffices(self) -> bool:
        """Whether ``[DONE]`` without a finish frame is an end; inside an event too long to read may
        have been one."""
        settings = self._settings
        return settings.finish_optional or not settings.known or self._framer.oversized > 0

    def _next_deadline(self) -> float | None:
        facts, settings, limits = self.facts, self._settings, self._settings.limits
        if settings.observe or limits is None:
            return None
        if self._ended_at is not None and self._decoder is None:
            if facts.terminal or self._done:
                return self._ended_at + TRAILER
            if facts.error is not None or self._reader.may_close():
                return self._ended_at + limits.linger
        if self.first_event_at is None:
            deadline = self._started + limits.first_event
        else:
            waiting = facts.waiting or self.first_content_at is None
            deadline = limits.after_progress(self._progress_at, self._heard_at, waiting=waiting)
        return self._hold.bound(deadline)

    def _end(self, now: float, *, broke: bool) -> bytes:
        if self.closed:
            return b""
        tail = self._framer.take_pending()
        out = self._finish_tail(tail, now) if tail else b""
        verdict = self._judge(broke=broke)
        if self._passive:
            self._close(verdict)
            self.cut = self._is_cut(verdict)
            self.must_abort = broke or (self.cut and not self._settings.observe)
            return b""
        if self._is_cut(verdict):
            frames = self._fail(verdict, faults.cut(verdict))
            return self._hand_on(out) + frames
        if self.facts.error is not None:
            if not self.committed:
                return self._fail(verdict, None)
            out += self._reader.complement(ending=True)
        self._hold.released = True
        self._close(verdict)
        self.must_abort = broke and verdict is Verdict.OPAQUE
        return self._hand_on(out)

    def _finish_tail(self, tail: bytes, now: float) -> bytes:
        """The end of a stream may lack the blank line of its last event; return what of that tail
        is handed on."""
        if self._framer.oversized and not self._ended:
            return tail
        ended = self._ended
        _, data, fields = parse_block(tail)
        if not fields:
            return b""
        whole = data is not None and (data.strip() == b"[DONE]" or lenient.is_whole(data))
        kind = self._read(tail) if whole or data is None else _OPAQUE
        if kind is None and not (ended or self._done_suffices):
            return b""
        if kind not in (None, Kind.FINISH, _ERROR) and not (whole and self._ended):
            self._torn = not self._ended
            return b""
        self._note_progress(now)
        self.repaired = True
        before = after = b""
        if kind is None and self.facts.error is not None:
            before = self._reader.complement(ending=True)
        elif kind is _ERROR and self.committed:
            after = self._reader.complement(ending=False)
        return before + tail + self._framer.missing_blank(tail) + after

    def _judge(self, *, broke: bool) -> Verdict:
        unread = self._framer.oversized > 0 or (self._decoder is not None and self._decoder.failed)
        known, empty = self._settings.known, self.first_event_at is None
        return judge(self.facts, Evidence(unread, self._done, broke, self._torn, known, empty))

    def _is_cut(self, verdict: Verdict) -> bool:
        if verdict is Verdict.DONE_WITHOUT_FINISH:
            return not self._done_suffices
        return verdict in CUT_VERDICTS

    def _fail(self, verdict: Verdict, fault: Fault | None) -> bytes:
        """Close on a failure; return the in-band events that tell it, or break the connection if
        there are none."""
        self._close(verdict)
        self.cut = verdict is not Verdict.PROVIDER_ERROR
        if not self.committed or fault is None:
            return b""
        frames = None if self._passive or self._framer.skipping else self._reader.fault(fault)
        self.must_abort = frames is None
        return frames or b""

    def _close(self, verdict: Verdict) -> None:
        self.closed = True
        self.verdict = verdict
        self.deadline = None
        if self._ended and verdict is not Verdict.DONE_WITHOUT_FINISH:
            self.facts.phase = Phase.AFTER_FINISH
