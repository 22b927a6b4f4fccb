"""The one object that knows how a stream stands: bytes in, bytes to hand on out. No I/O, no clock,
no logging.

The caller owns sockets and clocks. It calls ``receive_data`` for each read, ``receive_eof`` or
``receive_reset`` when the upstream ends, ``expire`` when ``deadline`` has passed, ``give_up`` or
``client_gone`` when it has reasons of its own; it writes whatever bytes come back, and stops when
``closed``. Every moment is a float in seconds on the caller's monotonic clock.

Rules held here (the readers in ``gateway.protocols`` say what an event means, ``observer`` what
all of them come to, this object what follows from it):

- whole events only are handed on, in the provider's own bytes;
- nothing is handed on until the event that ``hold`` names (``committed``);
- only events that mean progress move the deadline;
- a stream that ends without its finish frame is told to the client in-band, or the connection is
  aborted (``must_abort``); it never ends like a finished one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.streams import faults
from gateway.streams.events import Fault, Hold, Kind, Phase, Reader, Verdict
from gateway.streams.hold import HoldBack
from gateway.streams.limits import TRAILER
from gateway.streams.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.streams.coding import Decoder
    from gateway.streams.settings import Settings


# Python 3.11 makes a call of looking a member up on its class; these are on the hot path.
_CONTENT, _HEARTBEAT, _OPAQUE = Kind.CONTENT, Kind.HEARTBEAT, Kind.OPAQUE
_ERROR, _STATE = Kind.ERROR, Kind.STATE
_FINISHED = (Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL)

_NOTES = ("repaired", "lingered", "broke_after_finish", "reader_faults")


class Stream(Observer):
    """One upstream answer that is a stream. Plain attributes are for reading; only the methods
    change them.

    ``closed``: the client's answer ends here, cleanly, or by a broken connection if ``must_abort``.
    ``cut``: it ended without its finish. ``lingered``: it ended although the upstream had not.
    ``repaired``: its last event was given its blank line. ``broke_after_finish``: the transport
    broke, but the answer was whole.
    """

    __slots__ = (
        "_ended_at", "_ended_since", "_flowing", "_hold", "_passive", "_silences",
        "_started", "broke_after_finish", "closed", "cut", "deadline", "lingered", "must_abort",
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
        super().__init__(reader, settings, now, decoder)
        self.protocol = protocol
        self.verdict: Verdict | None = None
        self._passive = settings.observe or decoder is not None or not settings.known
        self.closed = self.must_abort = self.cut = False
        self.lingered = self.repaired = self.broke_after_finish = False
        until = None if settings.hold_max is None else now + settings.hold_max
        self._hold = HoldBack(settings.hold, settings.hold_max_bytes, until, released=self._passive)
        self._started = now
        self._silences = None if settings.limits is None else settings.limits.silences
        self._ended_at: float | None = None
        self._ended_since: float | None = None
        self._flowing = False
        self.deadline: float | None = self._next_deadline()

    # What the relay, the metrics and the log read.

    @property
    def committed(self) -> bool:
        """Whether bytes were handed on, or must be as soon as there are any."""
        return self._hold.released

    @property
    def notes(self) -> tuple[str, ...]:
        """What was odd about it, whatever its verdict; words of a closed set."""
        return tuple(note for note in _NOTES if getattr(self, note))

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
            self._take(self._framer.feed(plain) if plain else [], now, self._framer.separator)
            return chunk
        if self._flowing:
            # Nearly every read of a stream is one event of content.
            block = self._framer.only_block(chunk)
            if block is not None:
                return self._take_one(chunk, block, now)
        blocks = self._framer.feed(chunk)
        if blocks:
            return self._take(blocks, now, self._framer.separator)
        return b"" if self._hold.released else self._hand_on(b"")

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
        if self._ended and (self._done or not self.facts.resumed):
            self.lingered = True
            return self._end(now, broke=False)
        if self.bytes_received and self._hold.expired(now):
            self._hold.released = True
            return self._hand_on(b"")
        verdict = Verdict.STALLED_FIRST if self.first_event_at is None else Verdict.STALLED
        frames = self._fail(verdict, faults.stalled(now - (self.last_progress_at or self._started)))
        return self._hand_on(b"") + frames

    def give_up(self, fault: Fault, verdict: Verdict, now: float) -> bytes:
        """End the stream for a reason of the caller's own, told in-band where a client has seen
        bytes; a finished stream has just ended."""
        if self.closed:
            return b""
        if self._settled:
            return self._end(now, broke=False)
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
            self._ended_at, self._ended_since = self._ended_at + seconds, None
        self._hold.shift(seconds)
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
        if self.facts.finished and self._ended:
            # The last piece of an answer may bring its finish along.
            self._ended_at, self._ended_since = now, None
            self._flowing = False
            self.deadline = self._next_deadline()
        elif self._silences is not None:
            # What `_next_deadline` comes to here.
            self.deadline = now + self._silences[self.facts.waiting]
        return chunk

    def _take(
        self, blocks: list[bytes], now: float, separator: bytes, kinds: Sequence[Kind | None] = ()
    ) -> bytes:
        """Read whole blocks in order; return them with whatever belongs between them. ``kinds`` are
        given for blocks that have been read."""
        opaque = self._framer.opaque
        out: list[bytes] = []
        start = 0
        progressed = False
        kind: Kind | None
        for index, block in enumerate(blocks):
            if kinds:
                kind = kinds[index]
            else:
                kind = self._pass_over() if index in opaque else self._read(block)
            if kind is _CONTENT:
                progressed = True
                self._ended_since = None
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
        if start < len(blocks):
            out += (separator.join(blocks[start:] if start else blocks), separator)
        return self._settle(b"".join(out), now, progressed=progressed)

    def _settle(self, out: bytes, now: float, *, progressed: bool) -> bytes:
        """Note what a read has come to, and hand on its whole blocks."""
        if progressed:
            self._note_progress(now)
        if self._ended and (progressed or self._ended_at is None):
            self._ended_at = now
        out = self._hand_on(out)
        flows = self.first_content_at is not None and self._ended_at is None and not self._passive
        self._flowing = flows and self.committed
        return out

    def _stop(self, before: bytes, block: bytes, last: bytes) -> bytes:
        """The stream ends at a block that is not handed on: its last bytes."""
        if self.committed:
            return self._hand_on(before) + last
        if self.facts.error is not None:
            reader = self._reader
            block += reader.complement(ending=False) + reader.complement(ending=True)
            self._hold.keep(before + block)
        return b""

    def _weigh(self, kind: Kind | None) -> tuple[bytes, bytes]:
        """What follows from an event that is neither content nor heartbeat: bytes to write before
        and after it.

        Where the stream ends here (``closed``), the event itself is not handed on and the second
        are the last.
        """
        if kind is None:
            return self._weigh_done()
        # Of no known protocol: some say it at the end of each of several turns.
        self._done = self._done and self._settings.known
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
            out = self._hold.put(out, self._framer.pending_size)
            self.deadline = self._next_deadline()
            return out
        return self._hold.take(out) if self._hold.released else b""

    # Ends.

    def _next_deadline(self) -> float | None:
        facts, settings, limits = self.facts, self._settings, self._settings.limits
        if settings.observe or limits is None or self._is_text:
            return None
        if self._ended_at is not None and self._may_end:
            lull = TRAILER if facts.terminal or self._done else limits.linger
            if self._ended_since is None:
                self._ended_since = self._ended_at
            # What trails an answer is little: no more of it is waited for than of silence within.
            return min(self._ended_at + lull, self._ended_since + max(limits.gap, lull))
        if self.first_event_at is None:
            deadline = self._started + limits.first_event
        else:
            # Of an unknown protocol any event may be content.
            waiting = facts.waiting or (settings.known and self.first_content_at is None)
            deadline = limits.after_progress(self._progress_at, self._heard_at, waiting=waiting)
        # Of what has not begun nothing is held: it may yet turn out to be something else.
        return self._hold.bound(deadline) if self.bytes_received else deadline

    @property
    def _may_end(self) -> bool:
        """Whether a lull ends the client's answer. A client's decoder waits for the end of the
        coding, whatever the answer says; in an unknown protocol nobody knows what may follow."""
        decoded = self._decoder is None or self._decoder.finished
        return self._settled and decoded and self._settings.known

    def _end(self, now: float, *, broke: bool) -> bytes:
        if self.closed:
            return b""
        last = self._framer.finish()
        out = self._take(last, now, b"") if last else b""
        if self._passive:
            out = b""
        return out if self.closed else out + self._end_tail(now, broke=broke)

    def _end_tail(self, now: float, *, broke: bool) -> bytes:
        tail = self._framer.take_pending()
        out = self._finish_tail(tail, now) if tail else b""
        verdict = self._judge(broke=broke)
        self.broke_after_finish = broke and verdict in _FINISHED
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
                return self._stop(out, b"", self._fail(verdict, None))
            out += self._reader.complement(ending=True)
        self._hold.released = True
        self._close(verdict)
        self.must_abort = broke and verdict is Verdict.OPAQUE
        return self._hand_on(out)

    def _finish_tail(self, tail: bytes, now: float) -> bytes:
        """The end of a stream may lack the blank line of its last event; return what of that tail
        is handed on."""
        if self._unread and not self._ended:
            return tail
        kind, passes = self._read_tail(tail)
        if not passes:
            return b""
        self._note_progress(now)
        self.repaired = True
        before = after = b""
        if kind is None and self.facts.error is not None:
            before = self._reader.complement(ending=True)
        elif kind is _ERROR and self.committed:
            after = self._reader.complement(ending=False)
        return before + tail + self._framer.missing_blank(tail) + after

    def _fail(self, verdict: Verdict, fault: Fault | None) -> bytes:
        """Close on a failure; return the in-band events that tell it, or break the connection if
        there are none. What was too long to read may have been the finish: no error may follow
        it."""
        self._close(verdict)
        self.cut = verdict is not Verdict.PROVIDER_ERROR
        if not self.committed or fault is None:
            return b""
        frames = None if self._passive or self._unread else self._reader.fault(fault)
        self.must_abort = frames is None
        return frames or b""

    def _close(self, verdict: Verdict) -> None:
        self.closed = True
        self.verdict = verdict
        self.deadline = None
        if verdict in _FINISHED:
            self.facts.phase = Phase.AFTER_FINISH
