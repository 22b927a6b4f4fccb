"""An HTTP error of a provider, held: another try may make it good, and a client is told more of it
than it would see. Tells nobody itself.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

from gateway.observe import logs
from gateway.policy.error_body import details_in, words_of
from gateway.policy.quota import is_spent, wait_in_words
from gateway.policy.retry import retry_after, retry_delay
from gateway.protocols.base import SPENT_CODES, limit_passes, provider_error
from gateway.relay import failures, passage
from gateway.relay.failures import Failed, Held, Outcome
from gateway.streams.coding import Decoder, is_compressed

if TYPE_CHECKING:
    from gateway.policy.error_body import Document
    from gateway.relay.call import Call
    from gateway.relay.upstream import Exchange

ERROR_SECONDS: Final = 10.0
"""Seconds for which an HTTP error may be held."""

_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0e-\x1a]")
_STEP: Final = 16
"""Bytes of a compressed error that are expanded at once: so many are lost before a fault, and one
kilobyte of a bomb is megabytes.
"""


def may_be_told(call: Call, content_type: str) -> bool:
    """Whether an HTTP error is held to be tried again, told better, or rid of credentials. Of a
    request that no protocol claims a stream goes on as it comes.
    """
    if call.destination_observes or call.request.method == "HEAD":
        return False
    return call.known or content_type != "text/event-stream"


def _must_be_told(call: Call, exchange: Exchange, held: bytes) -> bool:
    """Whether an error that is too long or too slow may not go on as it comes: it may be told by
    its beginning, or the key in it is not the client's. Files hold no key.
    """
    assert call.destination is not None
    if call.known or call.downstream.started:
        return True
    own_key = call.destination.provider.api_key is not None
    return own_key and not _is_binary(_plain_error(exchange, held)[0] or b"")


def _is_binary(plain: bytes) -> bool:
    """Whether it is no text in any encoding."""
    return (
        not plain.startswith(passage.UTF16)
        and _NO_TEXT.search(plain, 0, passage.SAMPLE) is not None
    )


async def hold(call: Call, exchange: Exchange) -> Outcome:
    """Hold an HTTP error, for another try may make it good, and a client is told more of it than it
    would see. Of one that is too long, too slow or broken the beginning is enough.
    """
    held = bytearray()
    whole = False
    try:
        async with asyncio.timeout(ERROR_SECONDS):
            whole = await passage.hold(call, exchange, held) and not exchange.broke
    except Exception:  # noqa: BLE001 - too slow, or however it is told, the transport broke
        whole = False
        held += exchange.ready()
    if not (whole or exchange.broke or _must_be_told(call, exchange, bytes(held))):
        return await passage.relay(call, exchange, bytes(held))
    try:
        return _as_read(call, exchange, bytes(held), whole=whole)
    except Exception:  # noqa: BLE001 - a fault of reading must not take the provider's error away
        logs.logger().error("internal_error", request_id=call.record.request_id, exc_info=True)
        return _as_it_came(exchange, bytes(held), whole=whole)


def _as_read(call: Call, exchange: Exchange, body: bytes, *, whole: bool) -> Failed:
    """The failure that an HTTP error is, by what its body says."""
    plain, decoded = _plain_error(exchange, body)
    document = passage.read(exchange, plain or b"")
    passage.note_error(call, exchange, document)
    wait = retry_after(exchange.headers, time.time())  # noqa: TID251 - Retry-After may be a date
    wait = wait if wait is not None else retry_delay(details_in(document))
    if wait is None and exchange.status == 429:
        wait = wait_in_words(words_of(document).all)
    broken = not (whole and decoded)
    told_to_wait = wait is not None
    return failures.of_status(
        Held(exchange.status, exchange.reason, exchange.fields, body, plain, broken, document),
        exchange.headers,
        final=not _can_help(call, exchange, plain or b"", document, told_to_wait=told_to_wait),
        retry_after=wait,
    )


def _as_it_came(exchange: Exchange, body: bytes, *, whole: bool) -> Failed:
    """The failure that an HTTP error is, by its head alone."""
    wait = retry_after(exchange.headers, time.time())  # noqa: TID251 - Retry-After may be a date
    held = Held(exchange.status, exchange.reason, exchange.fields, body, None, not whole)
    return failures.of_status(held, exchange.headers, final=False, retry_after=wait)


def _plain_error(exchange: Exchange, body: bytes) -> tuple[bytes | None, bool]:
    """The body of an error without its content coding, or its beginning; and whether that is all of
    it. None for a coding that is not known.
    """
    coding = exchange.headers.get("Content-Encoding")
    if not (body and is_compressed(coding)):
        return body[: passage.JUDGED], len(body) <= passage.JUDGED
    decoder = Decoder(coding or "")
    if decoder.failed:
        return None, True
    plain = bytearray()
    for start in range(0, len(body), _STEP):
        plain += decoder.feed(body[start : start + _STEP])
        if decoder.failed or len(plain) > passage.JUDGED:
            return bytes(plain[: passage.JUDGED]), False
    return bytes(plain), decoder.finished


def _can_help(
    call: Call, exchange: Exchange, plain: bytes, document: Document, *, told_to_wait: bool
) -> bool:
    """Whether another try may get an answer, by what the error says.

    A provider that says when to come back means a limit that passes, whatever it calls it. With 5xx
    it says that the fault is its own, which only a used up quota contradicts.
    """
    words = words_of(document)
    spent = is_spent(words, details_in(document), told_to_wait=told_to_wait)
    spent = spent or words.code in SPENT_CODES
    if spent or exchange.status >= 500:
        return not spent
    errors = [provider_error(words.type, words.message, words.code)]
    errors += [error for error in (passage.error_in(call, plain),) if error is not None]
    if exchange.status == 429:
        return all(limit_passes(each.type, each.code, told_to_wait=told_to_wait) for each in errors)
    return all(error.retryable for error in errors)
