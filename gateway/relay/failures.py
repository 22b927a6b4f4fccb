"""What can go wrong with one try, as values: library exceptions become failures here and nowhere
else. Decides nothing about retrying and answers nobody.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http import HttpProcessingError

from gateway.errors import Code, GatewayError, Origin
from gateway.policy.error_body import (
    ErrorBody,
    Words,
    details_of,
    error_in_stream,
    read_error,
)
from gateway.policy.quota import is_spent, wait_in_words
from gateway.policy.retry import (
    REFUSALS,
    Failure,
    Reason,
    failure_of_status,
    retry_after,
    retry_delay,
)
from gateway.protocols.base import limit_passes
from gateway.relay.body import ClientBodyError
from gateway.relay.upstream import NotHttpError
from gateway.streams import faults
from gateway.streams.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.policy.error_body import Document
    from gateway.policy.headers import Fields
    from gateway.relay.upstream import Exchange
    from gateway.streams.events import ProviderError
    from gateway.streams.stream import Stream

STALE_SECONDS = 0.5
"""A pooled connection that ends within this time of the request was dead when it was sent: the
provider's end of it was on its way. Later, it may have been worked on."""

_GREETING = 16
"""Tokens of output that a Messages stream may report before it has any (``message_start``)."""

_COUNTED = re.compile(
    rb'"(?:completion_tokens|output_tokens|(?:candidates|thoughts)TokenCount)"\s{0,20}:\s{0,20}[1-9]'
)
"""A count of tokens of an answer in JSON."""

_CALLED = re.compile(rb'"type"\s{0,20}:\s{0,20}"mcp_(?:call|tool_use)"')
"""A call of another server's tool in JSON."""

_STALLS = frozenset({Verdict.STALLED, Verdict.STALLED_FIRST})


@dataclass(frozen=True, slots=True)
class Answered:
    """The client has its answer, or as much of one as there was: nothing is left to be done."""


@dataclass(frozen=True, slots=True)
class Held:
    """A provider's HTTP error that has been read and not handed on. ``plain`` is its body without
    the content coding, None for a coding that is not known here."""

    status: int
    reason: str
    fields: Fields
    body: bytes
    plain: bytes | None
    broken: bool = False
    """It is not whole: it broke off, or was too long or too slow to be read to its end."""
    document: Document | None = None
    """The body, read; None where that failed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A try that gave the client nothing.

    ``error`` is what the client is told, unless ``provider_error`` holds the provider's own words,
    or ``held`` its whole answer. ``failure`` is for the decision about another try. ``fields`` are
    those of the answer, if one had begun. ``said`` is the JSON in which a 200 told of an error, and
    ``frames`` are the events of a stream that did, if it was one.
    """

    error: GatewayError
    failure: Failure
    provider_error: ProviderError | None = None
    fields: Fields = ()
    held: Held | None = None
    said: bytes = b""
    frames: bytes = b""


Outcome = Answered | Failed


class TryFailedError(Exception):
    """Carries a :class:`Failed` out of the depth of a try."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error.message)
        self.failed = failed


class StaleConnectionError(Exception):
    """A pooled connection had died before the request came: nothing of the answer was seen."""


@contextmanager
def while_connecting(host: str, seconds: float) -> Iterator[None]:
    """Failures before anything was sent: DNS, connect, TLS, proxy."""
    try:
        yield
    except aiohttp.ClientHttpProxyError as error:
        raise _unreachable(
            f"Cannot reach {host}: the proxy refused to connect to it (HTTP {error.status}). "
            "Check the provider's proxy setting or HTTPS_PROXY."
        ) from error
    except aiohttp.ClientProxyConnectionError as error:
        raise _unreachable(
            f"Cannot reach {host}: the proxy cannot be reached ({_reason(error)}). "
            "Check the provider's proxy setting or HTTPS_PROXY."
        ) from error
    except aiohttp.ClientConnectorDNSError as error:
        raise _unreachable(
            f"Cannot reach {host}: its name could not be resolved (DNS: {_reason(error)}). "
            "Check the provider's base_url and the network."
        ) from error
    except (aiohttp.ClientSSLError, ssl.SSLError) as error:
        raise _unreachable(
            f"Cannot reach {host}: the TLS handshake failed ({_tls_reason(error)}). "
            "If it uses a private certificate authority, set the provider's ca_file."
        ) from error
    except TimeoutError as error:
        raise _unreachable(
            f"Cannot reach {host}: connecting took longer than {seconds:g} s. Retry your request."
        ) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unreachable(
            f"Cannot connect to {host}: {_reason(error)}. Is the provider running there?"
        ) from error


@contextmanager
def while_waiting(host: str, exchange: Exchange, limit: float) -> Iterator[None]:
    """Failures between the request and the head of its answer.

    Raises :class:`StaleConnectionError` where the same request may be sent again at once.
    """
    try:
        yield
    except TimeoutError as error:
        message = (
            f"Upstream response timed out: {host} sent no answer within {limit:g} s. "
            "Retry your request."
        )
        raise _no_answer(Code.TIMEOUT, message, Reason.TIMEOUT) from error
    except (HttpProcessingError, NotHttpError) as error:
        message = (
            f"The answer of {host} is no valid HTTP. Is base_url right: https or http, the port?"
        )
        failed = invalid(message)
        # What could not be parsed came all the same, and may hold an answer.
        failed = replace(failed, failure=replace(failed.failure, ambiguous=True))
        raise TryFailedError(failed) from error
    except (aiohttp.ClientError, OSError, RuntimeError) as error:
        if exchange.upload_error is not None:
            if isinstance(exchange.upload_error, ClientBodyError):
                raise exchange.upload_error.error from None
            raise exchange.upload_error from None
        # Of what has not been sent whole nothing can have been made yet.
        soon = not exchange.sent or monotonic() - exchange.sent_at < STALE_SECONDS
        if exchange.reused and soon and not exchange.heard:
            raise StaleConnectionError from error
        processed = "The request may have been processed." if exchange.sent else ""
        message = (
            f"Upstream connection lost: {host} closed the connection before it answered. "
            f"{processed} Retry your request."
        ).replace("  ", " ")
        raise _no_answer(Code.STREAM_TRUNCATED, message, Reason.NO_ANSWER) from error


def invalid(
    message: str, *, retryable: bool = True, begun: bytes | None = None, fields: Fields = ()
) -> Failed:
    """An answer that is none; ``begun`` is what had come of one in one piece."""
    retryable = retryable and not _is_final(fields)
    error = GatewayError(Origin.UPSTREAM, Code.INVALID_RESPONSE, message, retryable=retryable)
    failure = Failure(Reason.INVALID, retryable)
    if begun is not None:
        failure = replace(_in_part(Reason.INVALID, begun), retryable=retryable)
    return Failed(error, failure, fields=fields)


def of_status(
    held: Held, headers: Mapping[str, str], *, final: bool, retry_after: float | None
) -> Failed:
    """An HTTP error of the provider's; ``final`` if its type says that no other try can help."""
    failure = failure_of_status(held.status, headers, final_error=final, retry_after=retry_after)
    begun = _COUNTED.search(held.plain or b"") is not None
    acted = _CALLED.search(held.plain or b"") is not None
    failure = replace(failure, begun=begun, refused=failure.refused and not begun, acted=acted)
    error = GatewayError(
        Origin.UPSTREAM,
        Code.INVALID_RESPONSE,
        f"The provider answered with HTTP {held.status}.",
        retryable=failure.retryable,
        status=held.status,
    )
    return Failed(error, failure, fields=held.fields, held=held)


def error_in_200(error: ProviderError, fields: Fields, said: bytes) -> Failed:
    """A 200 that holds an error object: it is the HTTP error that its type means."""
    headers = {name.lower(): value for name, value in fields}
    wait = retry_after(headers, time.time())  # noqa: TID251 - Retry-After may be a date
    wait = _wait(error, said) if wait is None else wait
    error = _weighed(error, said, told_to_wait=wait is not None)
    again = error.retryable and not _is_final(fields)
    begun = _COUNTED.search(said) is not None
    reason, refused = _reason_of(error, Reason.INVALID), error.status in REFUSALS and not begun
    failure = Failure(reason, again, begun=begun, refused=refused, retry_after=wait)
    if error.code is None:
        error = replace(error, code=Code.INVALID_RESPONSE.value)
    return Failed(_told(error), failure, provider_error=error, fields=fields, said=said)


def _wait(error: ProviderError, said: bytes) -> float | None:
    """Seconds to wait as an error in a 200 says, in its details or, of a rate limit, its words. The
    head of a stream came before it: some providers send ``Retry-After`` with every answer.
    """
    wait = retry_delay(details_of(said))
    return wait_in_words(error.message) if wait is None and error.status == 429 else wait


def _reason_of(error: ProviderError, otherwise: Reason) -> Reason:
    """A rate limit is one in whatever form it comes."""
    return Reason.RATE_LIMIT if error.status == 429 else otherwise


def _weighed(error: ProviderError, said: bytes, *, told_to_wait: bool) -> ProviderError:
    """An error that speaks of a used up quota stays, whatever its type says, wherever in ``said``
    it does; a limit that says when to come back passes.
    """
    own = Words(ErrorBody.JSON, error.code, error.message or "", error.type)
    spent = is_spent(own, details_of(said), told_to_wait=told_to_wait)
    if spent or is_spent(read_error(said), told_to_wait=told_to_wait):
        return replace(error, retryable=False)
    if told_to_wait and error.status == 429:
        passes = limit_passes(error.type, error.code, told_to_wait=True)
        return replace(error, retryable=passes)
    return error


def _is_final(fields: Fields) -> bool:
    """Whether the provider says in the head of a 200 that asking again is of no use."""
    words = [value.strip().lower() for name, value in fields if name.lower() == "x-should-retry"]
    return "false" in words


def _told(error: ProviderError) -> GatewayError:
    """What a client is told of an error that came with status 200."""
    return GatewayError(
        Origin.UPSTREAM,
        Code.INVALID_RESPONSE,
        error.message or error.type,
        retryable=error.retryable,
        status=error.status,
    )


def broken_off(host: str, fields: Fields, held: bytes) -> Failed:
    """An answer in one piece that ended after ``held``, which is without its content coding."""
    error = GatewayError(
        Origin.UPSTREAM,
        Code.STREAM_TRUNCATED,
        f"Upstream connection lost: {host} broke off its answer. Retry your request.",
        retryable=True,
    )
    return Failed(error, _in_part(Reason.TRUNCATED, held), fields=fields)


def fell_silent(host: str, fields: Fields, held: bytes) -> Failed:
    """An answer in one piece that came no further in time than ``held``."""
    error = GatewayError(
        Origin.UPSTREAM,
        Code.STALLED,
        f"Upstream response timed out: {host} did not finish its answer. Retry your request.",
        retryable=True,
    )
    return Failed(error, _in_part(Reason.STALLED, held), fields=fields)


def _in_part(reason: Reason, held: bytes) -> Failure:
    # Its head comes when it has been made: it is billed.
    acted = _CALLED.search(held) is not None
    return Failure(reason, retryable=True, after_content=True, acted=acted)


def of_stream(
    stream: Stream, sent_at: float, now: float, fields: Fields, *, begun: bool = False
) -> Failed:
    """A stream that ended before anything of it was handed on; ``begun``: a part of what may have
    been one had come.
    """
    # What could not be read may have been content.
    after_content = stream.first_content_at is not None or stream.opaque_events > 0
    begun = begun or stream.facts.worked or _has_reported_work(stream)
    verdict, error = stream.verdict, stream.error
    if error is not None:
        frames = stream.withheld
        said = error_in_stream(frames)
        wait = _wait(error, said)
        error = _weighed(error, said, told_to_wait=wait is not None)
        failure = Failure(
            _reason_of(error, Reason.ERROR_EVENT),
            error.retryable and not _is_final(fields),
            after_content=after_content,
            begun=begun,
            refused=error.status in REFUSALS and not (after_content or begun or _began(stream)),
            acted=stream.facts.acted,
            retry_after=wait,
        )
        return Failed(
            _told(error), failure, provider_error=error, fields=fields, said=said, frames=frames
        )
    if verdict in _STALLS:
        silence = now - (stream.last_progress_at or sent_at)
        fault, reason = faults.stalled(silence, begun=False), Reason.STALLED
    else:
        assert verdict is not None
        fault, reason = faults.cut(verdict, begun=False), Reason.TRUNCATED
    told = GatewayError(Origin.UPSTREAM, Code(fault.code), fault.message, retryable=True)
    failure = Failure(
        reason,
        retryable=not _is_final(fields),
        after_content=after_content,
        begun=begun or stream.broken_inside,
        acted=stream.facts.acted,
    )
    return Failed(told, failure, fields=fields)


def _began(stream: Stream) -> bool:
    """Whether anything but its error, and what says nothing, had come."""
    return stream.state_events + stream.content_events + stream.opaque_events > 1


def _has_reported_work(stream: Stream) -> bool:
    """Whether the provider has counted tokens of an answer, though none was seen."""
    greeting = _GREETING if stream.protocol == "anthropic" else 0
    return max(stream.usage.output or 0, stream.usage.reasoning or 0) > greeting


def _unreachable(message: str) -> TryFailedError:
    error = GatewayError(Origin.UPSTREAM, Code.UNREACHABLE, message, retryable=True)
    return TryFailedError(Failed(error, Failure(Reason.CONNECT, retryable=True, sent=False)))


def _no_answer(code: Code, message: str, reason: Reason) -> TryFailedError:
    """What was sent in part may have been refused in words that were lost with the connection."""
    error = GatewayError(Origin.UPSTREAM, code, message, retryable=True)
    return TryFailedError(Failed(error, Failure(reason, retryable=True, ambiguous=True)))


def _reason(error: BaseException) -> str:
    """What the system says, without addresses and objects."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror) or not isinstance(cause, OSError) or not cause.errno:
        return getattr(cause, "strerror", None) or type(cause).__name__
    return os.strerror(cause.errno)


def _tls_reason(error: BaseException) -> str:
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and cause.reason:
        return str(cause.reason).replace("_", " ").lower()
    return _reason(cause)
