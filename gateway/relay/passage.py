"""Every body that is no stream of events, and the 200 that is no answer. Never alters a byte.

A body passes as it comes and ends as it ended: whole, or with a broken connection. Of an error the
first bytes are looked at on the side, for the log and the counters; one that may be told better, or
made good by another try, is ``held_error``'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.errors import Code
from gateway.observe import logs
from gateway.policy import headers
from gateway.policy.error_body import (
    ErrorBody,
    as_utf8,
    read_document,
    unwrapped,
    words_of,
)
from gateway.policy.quota import is_spent
from gateway.protocols.base import provider_error
from gateway.relay import failures, replies
from gateway.relay.failures import Answered, Failed, Outcome
from gateway.streams import lenient
from gateway.streams.coding import Decoder, is_compressed
from gateway.streams.sse import EVENT_STARTS

if TYPE_CHECKING:
    from gateway.policy.error_body import Document
    from gateway.relay.call import Call
    from gateway.relay.upstream import Exchange
    from gateway.streams.events import ProviderError

SAMPLE: Final = 64 * 1024
"""Bytes of an error's body that are looked at."""

JUDGED: Final = 1024 * 1024
"""Bytes of a 200 that are held to see whether it is an answer; a longer one passes."""

_JUDGED_KINDS: Final = ("json", "html", "xml")
UTF16: Final = (b"\xff\xfe", b"\xfe\xff")

_OF_AN_ANSWER: Final = ("choices", "output", "content", "candidates", "completion")
"""Fields of answers."""

_NO_ANSWERS: Final = {
    ErrorBody.EMPTY: "an empty body",
    ErrorBody.HTML: "an HTML page",
    ErrorBody.TEXT: "text that is no JSON",
    ErrorBody.JSON: "broken JSON",
}
_QUOTED: Final = 200

_LOOKED_AT: Final = 1024
"""Bytes of a body by which an array is told."""

_SPACE: Final = b" \t\r\n"

_ARRAY_OF_ERROR: Final = b'[{"error":'
"""How an error begins, without its blanks, where Google's answers are arrays."""

_BROKEN_OFF: Final = (Code.STREAM_TRUNCATED, "The provider broke off its answer.")
_SILENT: Final = (Code.STALLED, "The provider fell silent in the middle of its answer.")


async def relay(call: Call, exchange: Exchange, first: bytes = b"") -> Answered:
    """Hand a body on as it comes; ``first`` is what has been read of it."""
    down, content = call.downstream, exchange.content
    sample = bytearray()
    replies.begin(call, exchange, headers.Body.UNCHANGED)
    data = first + exchange.ready()
    fault: tuple[Code, str] | None = None
    begun = False
    while fault is None and not content.at_eof():
        _hand_on(call, exchange, data, sample)
        if down.blocked:
            await down.drain()
        # Blank lines keep a connection alive; they are no beginning of an answer.
        begun = begun or bool(data.strip(_SPACE))
        since = monotonic() if begun else exchange.head_at
        data, fault = await _next(call, exchange, since)
    _note(call, exchange, data, sample)
    if exchange.broke:
        fault = _BROKEN_OFF
    if fault is not None:
        down.send(data)
        down.abort()
        call.record.error_code, call.record.error = fault[0].value, fault[1]
    else:
        down.end(data)
        if down.blocked:
            await down.drain()
    if exchange.status >= 400 and call.request.method != "HEAD":
        note_error(call, exchange, read(exchange, _plain(exchange, bytes(sample)) or b""))
    return Answered()


async def _next(
    call: Call, exchange: Exchange, since: float
) -> tuple[bytes, tuple[Code, str] | None]:
    """The next bytes of a body; or the last ones, and why there are no more. ``since`` is when its
    silence began.
    """
    limit = _longest_silence(call)
    try:
        async with asyncio.timeout_at(None if limit is None else since + limit):
            return await exchange.content.readany(), None
    except TimeoutError:
        return b"", _SILENT
    except Exception:  # noqa: BLE001 - however it is told, the transport broke
        return exchange.ready(), _BROKEN_OFF


def _longest_silence(call: Call) -> float | None:
    """Seconds without a byte after which an answer to inference is given up; None for no limit."""
    if not call.known or call.destination is None or call.destination.observes:
        return None
    return call.destination.provider.timeouts.response


def _hand_on(call: Call, exchange: Exchange, data: bytes, sample: bytearray) -> None:
    if data:
        _note(call, exchange, data, sample)
        call.downstream.send(data)
    else:
        # The head must not wait for a body that is slow to come.
        call.downstream.flush()


def _note(call: Call, exchange: Exchange, data: bytes, sample: bytearray) -> None:
    record = call.record
    record.bytes_down += len(data)
    if data and record.first_byte_at is None:
        record.first_byte_at = monotonic()
    if exchange.status >= 400 and len(sample) < SAMPLE:
        sample += data[: SAMPLE - len(sample)]


def _plain(exchange: Exchange, body: bytes) -> bytes | None:
    """A side copy of the body (or its beginning) without its content coding; None if that fails."""
    coding = exchange.headers.get("Content-Encoding")
    if not is_compressed(coding):
        return body
    decoder = Decoder(coding or "")
    plain = decoder.feed(body)
    return None if decoder.failed else plain


def _is_decodable(exchange: Exchange, body: bytes) -> bool:
    """Whether a compressed body has its end. A coding that is not known is not judged."""
    coding = exchange.headers.get("Content-Encoding")
    if not is_compressed(coding):
        return True
    decoder = Decoder(coding or "")
    decoder.feed(body)
    return decoder.failed or decoder.finished


def read(exchange: Exchange, plain: bytes) -> Document:
    """An error's body, read in the encoding that it is in."""
    return read_document(as_utf8(plain, exchange.headers.get("Content-Type", "")))


def note_error(call: Call, exchange: Exchange, document: Document) -> None:
    """Put into the record what kind of error body came, and its message."""
    record = call.record
    words = words_of(document, exchange.status)
    record.upstream_body = words.kind
    record.error_type = call.code(words.type or words.code)
    record.error_code = record.error_code or call.code(words.code)
    record.error = record.error or (call.summary(words.all) if words.all else None)


# The 200 that is no answer.


def must_be_judged(call: Call, content_type: str) -> bool:
    """Whether an answer of this type may be no answer at all, or only half of one."""
    if not call.inference or call.destination_observes:
        return False
    return (
        not content_type or content_type.startswith("text/") or content_type.endswith(_JUDGED_KINDS)
    )


async def of_other_kind(call: Call, exchange: Exchange, first: bytes) -> Outcome:
    """An answer that turned out to be no stream of events. What could be no answer is judged; sound
    and images are one, whatever was asked for.
    """
    content_type = exchange.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if must_be_judged(call, content_type):
        return await judge(call, exchange, first)
    if call.downstream.started:
        return await refuse_kind()
    return await relay(call, exchange, first)


async def judge(call: Call, exchange: Exchange, first: bytes = b"") -> Outcome:
    """Hold a 200 that is no stream until it can be told from an answer, then pass it or fail.

    One that is long, or takes long to come, is handed on as far as it has come: some providers send
    blank lines for minutes before their answer, and clients wait for the first of them. ``first``
    is what has been read of it.
    """
    assert call.destination is not None
    host, provider = call.destination.host, call.destination.provider
    patience, limit = provider.held_keepalive(call.hold.value), provider.timeouts.response
    held = bytearray(first)
    whole = False
    if not call.primed:
        # Its keepalives would be those of a stream.
        call.pulse.stop()
    try:
        async with asyncio.timeout(min(patience, limit)):
            whole = await hold(call, exchange, held)
    except TimeoutError:
        if patience > limit:
            return failures.fell_silent(host, exchange.fields, _seen(exchange, held))
    except Exception:  # noqa: BLE001 - however it is told, the transport broke
        held += exchange.ready()
        return failures.broken_off(host, exchange.fields, _seen(exchange, held))
    if whole and (exchange.broke or not _is_decodable(exchange, bytes(held))):
        return failures.broken_off(host, exchange.fields, _seen(exchange, held))
    plain = _plain(exchange, bytes(held)) if whole else None
    failed = None if plain is None else _no_answer(call, exchange, plain)
    if failed is not None:
        return failed
    if call.downstream.started:
        return await refuse_kind()
    return await relay(call, exchange, bytes(held))


def _seen(exchange: Exchange, held: bytearray) -> bytes:
    return _plain(exchange, bytes(held)) or b""


async def refuse_kind() -> Outcome:
    """An answer of another kind than the one that the client has the head of. It would be of that
    kind again.
    """
    message = "The provider answered another try with something that does not fit the stream begun."
    return failures.invalid(message, retryable=False)


async def hold(call: Call, exchange: Exchange, held: bytearray) -> bool:
    """Read the body into ``held``; whether that is all of it."""
    content = exchange.content
    while not content.at_eof():
        if len(held) > JUDGED or (exchange.status < 400 and _is_array(exchange, held)):
            return False
        data = await content.readany()
        if data and call.record.first_byte_at is None:
            call.record.first_byte_at = monotonic()
        held += data
    return len(held) <= JUDGED


def _is_array(exchange: Exchange, held: bytearray) -> bool:
    """Whether a body is a stream in Google's other form, an array, whose elements must not wait.

    An array around an error is none: that is held, as any error.
    """
    plain = _plain(exchange, bytes(held[:_LOOKED_AT]))
    start = (plain or b"").lstrip(_SPACE)[:_LOOKED_AT].translate(None, _SPACE)
    is_error = start.startswith(_ARRAY_OF_ERROR) or _ARRAY_OF_ERROR.startswith(start)
    return start.startswith(b"[") and not is_error


def _no_answer(call: Call, exchange: Exchange, body: bytes) -> Failed | None:
    """The failure that a whole answer is; None for one that is an answer, or cannot be judged."""
    plain = body.removeprefix(b"\xef\xbb\xbf").rstrip(b"\0")
    document = read_document(plain)
    words = words_of(document)
    kind, message = document.kind, words.message
    if plain.startswith(UTF16) or (kind is ErrorBody.EMPTY and exchange.status != 200):
        return None
    if kind is ErrorBody.TEXT and exchange.status == HTTPStatus.ACCEPTED:
        return None  # it is being made
    if plain.lstrip().startswith(EVENT_STARTS):
        return None  # a stream that nobody asked for
    if kind is ErrorBody.JSON and not lenient.is_broken(plain):
        if not _is_error(plain):
            return None
        call.record.upstream_body = kind
        named = provider_error(words.type or "error", words.message, words.code)
        error = error_in(call, plain) or named
        error = replace(error, retryable=error.retryable and named.retryable)
        return failures.error_in_200(error, exchange.fields, plain)
    call.record.upstream_body = kind
    assert call.destination is not None
    told = f"The provider ({call.destination.host}) answered with {_NO_ANSWERS[kind]}"
    # Of JSON that broke off only a message is quoted: what else it holds may be an answer.
    if message.strip() and (kind is not ErrorBody.JSON or message != document.text):
        told += f' ("{call.summary(message, _QUOTED)}")'
    begun = kind in (ErrorBody.JSON, ErrorBody.EMPTY)
    told += ". Retry your request." if begun else ". Is base_url right?"
    spent = is_spent(words, told_to_wait=False)
    held = plain if begun else None
    return failures.invalid(told, retryable=not spent, begun=held, fields=exchange.fields)


def _is_error(plain: bytes) -> bool:
    """Whether JSON is an error object and nothing of an answer beside it."""
    try:
        value = unwrapped(lenient.loads(plain))
    except ValueError:
        return False
    if not isinstance(value, dict) or any(value.get(key) for key in _OF_AN_ANSWER):
        return False
    if value.get("object") == "response":
        return False  # it carries its own error beside its status
    if value.get("error") or "error" in (value.get("type"), value.get("object")):
        return True
    return value.get("success") is False or set(value) == {"detail"}


def error_in(call: Call, plain: bytes) -> ProviderError | None:
    """The error that a body holds, as the protocol's reader understands it."""
    reader = call.reading().reader(1)
    try:
        reader.read(b"", plain)
    except Exception:  # noqa: BLE001 - a reader's bug must not become the client's
        logs.logger().error("internal_error", request_id=call.record.request_id, exc_info=True)
        return None
    return reader.facts.error
