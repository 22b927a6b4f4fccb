"""Every body that is no stream of events, and the 200 that is no answer. Never alters a byte.

A body passes as it comes and ends as it ended: whole, or with a broken connection. Of an error the
first bytes are looked at on the side, for the log and the counters.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import Code, GatewayError, Origin
from gateway.observe.records import ErrorBody
from gateway.policy import headers
from gateway.policy.retry import Failure, Reason
from gateway.protocols.base import text_of
from gateway.relay import failures, replies
from gateway.relay.failures import Answered, Failed, Outcome
from gateway.streams import lenient
from gateway.streams.coding import Decoder, is_compressed

if TYPE_CHECKING:
    from gateway.relay.call import Call
    from gateway.relay.upstream import Exchange

_SAMPLE: Final = 64 * 1024
"""Bytes of an error's body that are looked at."""

_JUDGED: Final = 1024 * 1024
"""Bytes of a 200 that are held to see whether it is an answer; a longer one passes."""

_MESSAGE: Final = 2000
"""Characters of a provider's message that are told in the gateway's own."""

_TITLE = re.compile(rb"<title[^>]{0,200}>\s*([^<]{1,300})", re.IGNORECASE)
_SPACE: Final = b" \t\r\n"


async def relay(call: Call, exchange: Exchange, first: bytes = b"") -> Answered:
    """Hand a body on as it comes; ``first`` is what has been read of it."""
    down, content = call.downstream, exchange.content
    sample = bytearray()
    replies.begin(call, exchange, headers.Body.UNCHANGED)
    data = first + exchange.ready()
    broke = False
    try:
        while not content.at_eof():
            _hand_on(call, exchange, data, sample)
            if down.blocked:
                await down.drain()
            data = await content.readany()
    except Exception:  # noqa: BLE001 - however it is told, the transport broke
        data, broke = exchange.ready(), True
    _note(call, exchange, data, sample)
    if broke or exchange.broke:
        down.send(data)
        down.abort()
        call.record.error_code = Code.STREAM_TRUNCATED.value
        call.record.error = "The provider broke off its answer."
    else:
        down.end(data)
        if down.blocked:
            await down.drain()
    if exchange.status >= 400:
        _note_error(call, _plain(exchange, bytes(sample)) or b"")
    return Answered()


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
        record.first_byte_at = asyncio.get_running_loop().time()
    if exchange.status >= 400 and len(sample) < _SAMPLE:
        sample += data[: _SAMPLE - len(sample)]


def _plain(exchange: Exchange, body: bytes) -> bytes | None:
    """A side copy of the body (or its beginning) without its content coding; None if that fails."""
    coding = exchange.headers.get("Content-Encoding")
    if not is_compressed(coding):
        return body
    decoder = Decoder(coding or "")
    plain = decoder.feed(body)
    return None if decoder.failed else plain


def _note_error(call: Call, plain: bytes) -> None:
    """Put into the record what kind of error body came, and its message."""
    record = call.record
    kind, code, message = read_error(plain)
    record.upstream_body = kind
    record.error_code = record.error_code or code
    record.error = record.error or (call.summary(message) if message else None)


def read_error(plain: bytes) -> tuple[ErrorBody, str | None, str]:
    """An error's body: its kind, the provider's code or type, its message (not yet redacted)."""
    text = plain.strip(_SPACE)
    if not text:
        return ErrorBody.EMPTY, None, ""
    if text[:1] in (b"{", b"["):
        try:
            value = lenient.loads(text)
        except ValueError:
            # It may only have been too long to be looked at whole.
            return ErrorBody.JSON, None, text.decode("utf-8", "replace")
        return ErrorBody.JSON, *_words_of(value)
    if _is_html(text):
        return ErrorBody.HTML, None, _title(text)
    return ErrorBody.TEXT, None, text.decode("utf-8", "replace")


def _words_of(value: Any) -> tuple[str | None, str]:
    """Code and message of an error in any of the shapes that providers use."""
    if isinstance(value, list):
        value = value[0] if value else {}
    if not isinstance(value, dict):
        return None, text_of(value)
    error = value.get("error")
    inner = error if isinstance(error, dict) else value
    code = text_of(inner.get("code") or inner.get("type") or inner.get("status")) or None
    message = inner.get("message") or inner.get("detail")
    if not message:
        message = error if error and not isinstance(error, dict) else value
    return code, text_of(message)


def _is_html(text: bytes) -> bool:
    start = text[:512].lower()
    return start.startswith(b"<") and (b"<html" in start or b"<!doctype" in start or b"<h" in start)


def _title(text: bytes) -> str:
    found = _TITLE.search(text)
    return " ".join(found[1].decode("utf-8", "replace").split()) if found else "an HTML page"


# The 200 that is no answer.


def must_be_judged(call: Call, content_type: str) -> bool:
    """Whether a 200 of this type may be no answer at all to a request for a stream."""
    if not (call.known and call.facts.stream) or call.destination is None:
        return False
    suspicious = content_type in ("application/json", "text/html") or content_type.endswith("+json")
    return suspicious and not call.destination.observes


async def judge(call: Call, exchange: Exchange) -> Outcome:
    """Hold a 200 that is no stream until it can be told from an answer, then pass it or fail."""
    assert call.destination is not None
    host, limit = call.destination.host, call.destination.provider.timeouts.response
    try:
        async with asyncio.timeout(limit):
            held, whole = await _hold(call, exchange)
    except TimeoutError:
        message = (
            f"Upstream response timed out: {host} did not finish its answer. Retry your request."
        )
        error = GatewayError(Origin.UPSTREAM, Code.STALLED, message, retryable=True)
        return Failed(error, Failure(Reason.STALLED, retryable=True), fields=exchange.fields)
    except Exception:  # noqa: BLE001 - however it is told, the transport broke
        return failures.broken_off(host, exchange.fields)
    if not whole:
        return await relay(call, exchange, held)
    if exchange.broke:
        return failures.broken_off(host, exchange.fields)
    plain = _plain(exchange, held)
    failed = None if plain is None else _no_answer(call, exchange, plain)
    return await relay(call, exchange, held) if failed is None else failed


async def _hold(call: Call, exchange: Exchange) -> tuple[bytes, bool]:
    """The body, and whether that is all of it."""
    content = exchange.content
    held = bytearray()
    while not content.at_eof():
        data = await content.readany()
        if data and call.record.first_byte_at is None:
            call.record.first_byte_at = asyncio.get_running_loop().time()
        held += data
        # An array is a stream in Google's other form: its elements must not wait.
        if len(held) > _JUDGED or held.lstrip(_SPACE)[:1] == b"[":
            return bytes(held), content.at_eof() and len(held) <= _JUDGED
    return bytes(held), True


def _no_answer(call: Call, exchange: Exchange, plain: bytes) -> Failed | None:
    """The failure that a whole 200 is; None for an answer."""
    kind, _, message = read_error(plain)
    what = ""
    retryable = True
    if kind is ErrorBody.EMPTY:
        what = "an empty body"
    elif kind is ErrorBody.HTML:
        what = f'an HTML page ("{call.summary(message, 200)}")'
    elif kind is ErrorBody.TEXT or not lenient.is_whole(plain):
        what = "broken JSON"
    elif _is_error(plain):
        what = f"an error: {call.summary(message, _MESSAGE)}"
        retryable = _can_help(call, plain)
    if not what:
        return None
    call.record.upstream_body = kind
    return failures.invalid(
        f"The provider answered a request for a stream with {what}",
        retryable=retryable,
        fields=exchange.fields,
    )


def _is_error(plain: bytes) -> bool:
    value = lenient.loads(plain)
    if not isinstance(value, dict):
        return False
    return bool(value.get("error")) or "error" in (value.get("type"), value.get("object"))


def _can_help(call: Call, plain: bytes) -> bool:
    """Whether another try may get an answer, by the type of the error."""
    assert call.protocol is not None
    reader = call.protocol.reader(1)
    try:
        reader.read(b"", plain)
    except Exception:  # noqa: BLE001 - a reader's bug must not become the client's
        return True
    error = reader.facts.error
    return error is None or error.retryable
