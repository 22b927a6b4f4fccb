"""Moves a stream from the provider to the client. Never looks into a byte of it.

What the bytes mean, what may be handed on and when silence is a stall is said by the
:class:`~gateway.streams.stream.Stream`; here are the reads, the writes and the one timer. Each read
makes at most one write.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.observe import logs
from gateway.policy import headers
from gateway.relay import failures, passage, replies
from gateway.relay.failures import Answered, Outcome
from gateway.streams import faults, kind
from gateway.streams.coding import Decoder, is_compressed
from gateway.streams.events import Verdict
from gateway.streams.sse import BOM
from gateway.streams.stream import Stream

if TYPE_CHECKING:
    from gateway.relay.attempt import Tools
    from gateway.relay.call import Call
    from gateway.relay.downstream import Downstream
    from gateway.relay.upstream import Exchange
    from gateway.streams.events import Fault

FINISH_SECONDS: Final = 10.0
"""How long a provider may take to end an answer whose client has all of it."""

_TICK: Final = 0.001
"""Seconds by which a timer may fire early: uvloop's count in milliseconds."""

_OTHER_KINDS: Final = ("ndjson", "eventstream", "jsonl")
"""Ends of media types that are no event stream, whatever was asked for."""

_LARGE: Final = 256 * 1024
"""Bytes that are handed on in one write."""

_STALLS: Final = frozenset({Verdict.STALLED, Verdict.STALLED_FIRST})
_ENDS_SOON: Final = frozenset(
    {
        Verdict.COMPLETE,
        Verdict.COMPLETE_ABNORMAL,
        Verdict.PROVIDER_ERROR,
        Verdict.DONE_WITHOUT_FINISH,
    }
)
"""Verdicts after which the provider is about to end, if it has not yet."""


class NotAStreamError(Exception):
    """The first bytes of a body show that it is no stream of events; carries them."""

    def __init__(self, first: bytes) -> None:
        super().__init__("no stream of events")
        self.first = first


def may_be_stream(call: Call, content_type: str) -> bool:
    """Whether an answer is read as a stream of events: one that says so, and one to a request for
    a stream that says nothing else that could be one. Its first bytes decide.
    """
    if content_type == "text/event-stream":
        return True
    if not (call.known and call.facts.stream) or call.destination_observes:
        return False
    return not content_type.endswith(_OTHER_KINDS)


async def relay(tools: Tools, call: Call, exchange: Exchange) -> Outcome:
    """Hand a stream on, event by event, until it or the client ends."""
    protocol = call.reading()
    coding = exchange.headers.get("Content-Encoding")
    stream = Stream(
        protocol.name,
        protocol.reader(call.facts.choices),
        call.settings(protocol, exchange.sent_at),
        exchange.sent_at,
        decoder=Decoder(coding or "") if is_compressed(coding) else None,
    )
    record = call.record
    record.stream = stream
    record.protocol = protocol.name
    beat = b"" if call.destination_observes or is_compressed(coding) else protocol.keepalive
    pump = Pump(tools.loop, call, exchange, stream, beat)
    if pump.declared:
        pump.show_life()
    try:
        await pump.run()
    except NotAStreamError as error:
        record.stream = None
        return await passage.of_other_kind(call, exchange, error.first)
    except asyncio.CancelledError:
        if call.interrupted:
            pump.give_up(replies.DRAINING, Verdict.DRAINED)
        stream.client_gone()
        raise
    finally:
        _let_go(tools, exchange, stream)
    now = monotonic()
    if stream.verdict in _STALLS:
        logs.warn_stall(record, now)
    elif stream.cut:
        logs.warn_cut(record, now)
    _note_failure(call, stream, now - (stream.last_progress_at or exchange.sent_at))
    if pump.committed:
        return Answered()
    return failures.of_stream(stream, exchange.sent_at, now, exchange.fields, begun=pump.begun)


def _note_failure(call: Call, stream: Stream, silence: float) -> None:
    """Put into the record why a stream was no answer, whoever is told."""
    record, error = call.record, stream.error
    if error is not None:
        record.error_type = call.code(error.type)
        record.error_code = call.code(error.code) or record.error_type
        record.error = call.summary(error.message)
    elif stream.cut and stream.verdict is not None:
        stalled = stream.verdict in _STALLS
        fault = faults.stalled(silence) if stalled else faults.cut(stream.verdict)
        record.error_code, record.error = fault.code, fault.message


def _let_go(tools: Tools, exchange: Exchange, stream: Stream) -> None:
    """Let the provider end in the background if it is about to: its connection can be reused."""
    if exchange.open and exchange.sent and stream.verdict in _ENDS_SOON:
        tools.background(exchange.finish(FINISH_SECONDS))


class Pump:
    """One stream on its way to one client."""

    __slots__ = (
        "_armed_for", "_beat", "_begun", "_blocked", "_call", "_content", "_down", "_exchange",
        "_feeds", "_first", "_flowing", "_known", "_loop", "_stream", "_task", "_timer", "_woken",
        "declared",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Call,
        exchange: Exchange,
        stream: Stream,
        beat: bytes,
    ) -> None:
        """``beat`` is the keepalive that the stream may get, b"" for none. ``declared``: the answer
        says that it is a stream of events.
        """
        declared = exchange.headers.get("Content-Type", "")
        self.declared = declared.lower().startswith("text/event-stream")
        # What it holds back it may be given before it is known. Nothing compressed is held back.
        coded = is_compressed(exchange.headers.get("Content-Encoding"))
        self._feeds = self.declared and (not coded or call.destination_observes)
        self._beat = beat
        self._flowing = False
        self._known = False  # what has come is a stream; until then it is kept in `_first`
        self._first = b""
        self._loop = loop
        self._call = call
        self._exchange = exchange
        self._content = exchange.content
        self._down: Downstream = call.downstream
        self._stream = stream
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._woken = self._blocked = self._begun = False

    async def run(self) -> None:
        """Pump until the stream is closed; raises CancelledError when the client leaves."""
        stream, down, content, time = self._stream, self._down, self._content, monotonic
        self._task = asyncio.current_task()
        out = b""
        try:
            if self.committed:
                self._hand_on(out)
            while not stream.closed:
                deadline = stream.deadline
                if deadline is not None and (self._timer is None or deadline < self._armed_for):
                    self._arm(deadline)
                try:
                    chunk = await content.readany()
                except asyncio.CancelledError:
                    if not self._was_woken():
                        raise
                    out = self._expire()
                except Exception:  # noqa: BLE001 - however it is told, the transport broke
                    out = self._break()
                else:
                    if chunk and self._known:
                        out = stream.receive_data(chunk, time())
                    else:
                        out = self._take_first(chunk) if chunk else self._take_end()
                if stream.closed:
                    break
                if len(out) > _LARGE:
                    await self._hand_on_in_pieces(out)
                elif out or (not self._flowing and self.committed):
                    self._hand_on(out)
                    if down.blocked:
                        await self._wait_for_client()
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if len(out) > _LARGE:
            await self._hand_on_in_pieces(out)
            out = b""
        self._finish(out)
        if down.blocked:
            await down.drain()

    def _take_first(self, chunk: bytes) -> bytes:
        """The first bytes, as long as they do not tell whether this is a stream."""
        record, now = self._call.record, monotonic()
        record.first_byte_at = record.first_byte_at or now
        first = self._first = self._first + chunk
        self._known = self._is_stream(first)
        if self._known:
            self._first = b""
            self.show_life()
        if self._feeds:
            return self._stream.receive_data(chunk, now)
        return self._stream.receive_data(first, now) if self._known else b""

    def _is_stream(self, first: bytes) -> bool:
        """Whether this is known to be a stream; raises if it is known to be none."""
        if self.committed:
            return True
        coding = self._exchange.headers.get("Content-Encoding", "")
        if is_compressed(coding):
            decoder = Decoder(coding)
            found = kind.is_stream(decoder.feed(first), declared=self.declared)
            found = self.declared if decoder.failed else found
        else:
            found = kind.is_stream(first, declared=self.declared)
        if found is False:
            raise NotAStreamError(first)
        return found is True

    def _take_end(self) -> bytes:
        out, now = self._take_unknown(), monotonic()
        if self._exchange.broke:
            return out + self._stream.receive_reset(now)
        return out + self._stream.receive_eof(now)

    def _take_unknown(self) -> bytes:
        """Nothing more comes: what is not known to be a stream is what it says that it is."""
        if self._known:
            return b""
        if not self.declared:
            raise NotAStreamError(self._first)
        self._known = True
        return b"" if self._feeds else self._stream.receive_data(self._first, monotonic())

    @property
    def committed(self) -> bool:
        """Whether the client sees the stream, or must as soon as there is anything to be seen."""
        return self._stream.committed and (self._known or self._feeds)

    @property
    def begun(self) -> bool:
        """Whether there is a part of something that is not known to be a stream."""
        return not self._known and bool(self._first.strip())

    def show_life(self) -> None:
        """This is a stream of events: if it is held for long, its client is shown that it lives."""
        if not self._stream.committed:
            self._call.pulse.hold(self._exchange, self._beat)

    def _take_rest(self, rest: bytes) -> bytes:
        """What had come and was not read when something else happened."""
        if self._known or not rest:
            return self._stream.receive_data(rest, monotonic())
        return self._take_first(rest)

    def _break(self) -> bytes:
        """The connection broke; what had come before is still there to be read."""
        out = self._take_rest(self._exchange.ready())
        out += self._take_unknown()
        return out + self._stream.receive_reset(monotonic())

    def _was_woken(self) -> bool:
        """Whether a cancellation was the timer's, and not also one from outside."""
        task, woken = self._task, self._woken
        assert task is not None
        self._woken = False
        return woken and task.uncancel() == 0

    def _expire(self) -> bytes:
        """The deadline has passed, unless something came at the very same moment."""
        stream, content, now = self._stream, self._content, monotonic()
        rest = self._exchange.ready()
        if rest:
            return self._take_rest(rest)
        if content.at_eof() or content.exception() is not None:
            return b""  # the next read says it
        return stream.expire(max(now, stream.deadline or now))

    def _hand_on(self, out: bytes) -> None:
        down = self._down
        if not self._flowing:
            self._start()
        if out:
            if not self._begun:
                out = self._without_mark(out)
            down.send(out)
            self._call.record.bytes_down += len(out)
        else:
            down.flush()

    async def _hand_on_in_pieces(self, out: bytes) -> None:
        """A very long event, or much that was held: the connection would copy it as a whole."""
        view = memoryview(out)
        self._call.pulse.inside = True
        for start in range(0, len(out), _LARGE):
            self._hand_on(bytes(view[start : start + _LARGE]))
            if self._down.blocked:
                await self._wait_for_client()
        self._call.pulse.inside = False

    def _start(self) -> None:
        """From here on the client sees this answer: there is no other try."""
        call = self._call
        self._flowing = True
        call.primed = False
        if not self._down.started:
            replies.begin(call, self._exchange, headers.Body.STREAMED, stream=True)
        else:
            call.release_body()
        call.pulse.flow(self._stream, self._beat)

    def _without_mark(self, out: bytes) -> bytes:
        """The same without the byte order mark that a stream may begin with, where keepalives have
        taken the first place: it would be a part of the name of a field.
        """
        begun, self._begun = self._begun, True
        if begun:
            return out
        return out.removeprefix(BOM) if self._call.pulse.beaten else out

    async def _wait_for_client(self) -> None:
        """The client takes no bytes: neither do we, and the stream's clocks stand still."""
        since = monotonic()
        self._blocked = True
        try:
            await self._down.drain()
        finally:
            self._blocked = False
        self._stream.credit(monotonic() - since)

    def _finish(self, out: bytes) -> None:
        """The stream is closed: the last bytes, and an end that says what is true."""
        stream, down = self._stream, self._down
        if not self.committed:
            return
        if not self._flowing:
            self._start()
        out = self._without_mark(out)
        self._call.record.bytes_down += len(out)
        if stream.must_abort or (stream.cut and down.until_close):
            down.send(out)
            down.abort()
        else:
            down.end(out)

    def give_up(self, fault: Fault, verdict: Verdict) -> None:
        """End the stream at once for a reason of the gateway's own."""
        if self._call.pulse.inside:
            # The client has a part of an event: what followed would be taken for the rest.
            self._stream.give_up(fault, verdict, monotonic())
            self._down.abort()
            return
        if self._stream.closed:
            return
        self._finish(self._stream.give_up(fault, verdict, monotonic()))

    # The one timer.

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = deadline
        self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        deadline = self._stream.deadline
        if deadline is None or self._blocked or self._task is None:
            return  # armed again when the client takes bytes
        if deadline > monotonic() + _TICK:
            self._arm(deadline)
        else:
            self._woken = True
            self._task.cancel()
