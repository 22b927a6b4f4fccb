"""How an answer to the client begins, and the answers that the gateway gives in its own name.

The latter have the shape that clients of the protocol expect which claims the path, else OpenAI's.
Never shows a traceback, a key or an address of this machine.
"""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import Code, GatewayError, Origin
from gateway.policy import headers
from gateway.policy.error_body import read_error
from gateway.policy.retry import Reason
from gateway.protocols import openai_chat
from gateway.relay.downstream import Done
from gateway.streams.events import Fault

if TYPE_CHECKING:
    from gateway.policy.headers import Fields
    from gateway.protocols.base import StreamProtocol
    from gateway.relay.call import Call
    from gateway.relay.downstream import Downstream
    from gateway.relay.failures import Failed, Held
    from gateway.relay.upstream import Exchange
    from gateway.streams.events import ProviderError

DRAINING: Final = Fault(
    Code.DRAINING, "The gateway is shutting down and cannot go on. Retry your request."
)
"""What is told to those whose answers are not over when the gateway ends."""

_RETRY_SOON: Final = frozenset({Code.DRAINING, Code.OVERLOADED, Code.UNAVAILABLE})
_WAITS: Final = frozenset({"retry-after", "retry-after-ms"})

RETRY_AFTER: Final = "5"
"""Seconds to wait after a rate limit whose provider says nothing."""

_LINGER: Final = 1.0
"""Seconds for which a client that is still sending may read why it is refused."""


def begin(
    call: Call,
    exchange: Exchange,
    body: headers.Body,
    *,
    stream: bool = False,
    commit: bool = True,
) -> None:
    """Start the answer with the provider's status and header fields: no other one can follow.

    Without ``commit`` another try may still fill it.
    """
    assert call.destination is not None
    record = call.record
    if commit:
        call.pulse.stop()
        call.release_body()
    if record.overhead is not None and record.first_byte_at is None and commit:
        record.overhead += monotonic() - exchange.head_at
    record.status = exchange.status
    fields = headers.to_client(
        exchange.fields,
        body=body,
        request_id=record.request_id,
        provider=call.destination.provider.name,
        attempts=record.attempts,
        stream=stream,
    )
    call.downstream.start(exchange.status, exchange.reason, fields)


def failed(call: Call, failure: Failed) -> None:
    """Tell the client that the last try failed, in the provider's own words where there are any."""
    error, provider_error, held = failure.error, failure.provider_error, failure.held
    if call.downstream.started:
        _tell(call, failure)
        return
    if held is not None:
        _pass_on(call, failure, held)
        return
    if provider_error is None:
        refuse(call, error, failure.fields)
        return
    body = provider_error_body(dialect(call), provider_error)
    _note(call, error, provider_error.code or provider_error.type)
    fields = _fields(call, failure.fields)
    if failure.failure.reason is Reason.INVALID:
        fields.append(("x-gateway-error", error.code.value))
    if provider_error.retryable:
        fields += _when_to_retry(provider_error.status, fields, failure.failure.retry_after)
    _send(call, provider_error.status, body, fields)


def _tell(call: Call, failure: Failed) -> None:
    """Status and header fields are out, for keepalives: what failed is told in-band."""
    error, stream = failure.error, call.record.stream
    withheld = stream.withheld if stream is not None and failure.provider_error is not None else b""
    fault = Fault(error.code, error.message)
    if failure.provider_error is not None:
        own = failure.provider_error
        fault = Fault(own.code or own.type, own.message or own.type, own.type)
    if failure.held is not None:
        words = read_error(failure.held.plain)
        fault = Fault(words.code or error.code, words.message or error.message, words.type)
    _note(call, error, fault.code)
    tell(call, fault, withheld)


def tell(call: Call, fault: Fault, withheld: bytes = b"") -> None:
    """End an answer that has begun with an in-band error, or break it where there is no such form.

    ``withheld`` is what the provider itself sent to that end.
    """
    frames = withheld or dialect(call).reader(1).fault(fault)
    if not frames:
        call.downstream.abort()
        return
    call.record.bytes_down += len(frames)
    call.downstream.end(frames)


def _pass_on(call: Call, failure: Failed, held: Held) -> None:
    """The provider's own error, as it came."""
    assert call.destination is not None
    record = call.record
    record.status = held.status
    record.bytes_down += len(held.body)
    fields = headers.to_client(
        held.fields,
        body=headers.Body.STREAMED if held.broken else headers.Body.UNCHANGED,
        request_id=record.request_id,
        provider=call.destination.provider.name,
        attempts=record.attempts,
    )
    if failure.failure.retryable:
        fields += _when_to_retry(held.status, fields, failure.failure.retry_after)
    call.downstream.start(held.status, held.reason, fields)
    call.downstream.end(held.body)


def _when_to_retry(status: int, fields: Fields, wait: float | None) -> Fields:
    """A rate limit always says when: some clients give up on one that does not. ``wait`` is what
    the provider said elsewhere, in seconds.
    """
    if status != 429 or any(name.lower() in _WAITS for name, _ in fields):
        return []
    return [("Retry-After", RETRY_AFTER if wait is None else str(math.ceil(wait)))]


def refuse(call: Call, error: GatewayError, fields: Fields = ()) -> None:
    """Tell the client of a failure in the gateway's own name; ``fields`` are the provider's."""
    _note(call, error, error.code.value)
    own = [*_fields(call, fields), ("x-gateway-error", error.code.value)]
    if error.code in _RETRY_SOON and not any(name == "Retry-After" for name, _ in own):
        own.append(("Retry-After", "1"))
    body = dialect(call).error_body(error.status, error.code.value, error.message)
    _send(call, error.status, body, own)


def greet(downstream: Downstream) -> None:
    """Answer somebody who only asks whether anybody is there."""
    downstream.start(200, "OK", [("Content-Length", "0")])
    downstream.end()


def dialect(call: Call) -> StreamProtocol:
    """The protocol in whose shape the client expects errors."""
    return call.protocol if call.protocol is not None else openai_chat.PROTOCOL


def provider_error_body(protocol: StreamProtocol, error: ProviderError) -> bytes:
    """A provider's error in the shape of ``protocol``: its own message, type, code and param."""
    message = error.message or error.type
    shaped: Any = json.loads(protocol.error_body(error.status, error.code or error.type, message))
    inner = shaped["error"]
    if "status" in inner:
        # Google's shape: the type is called status, and the code is the HTTP status.
        if error.type.isupper():
            inner["status"] = error.type
    else:
        inner["type"] = error.type
        if error.code is not None or "code" in inner:
            inner["code"] = error.code
        if error.param is not None:
            inner["param"] = error.param
    return json.dumps(shaped, ensure_ascii=False).encode("utf-8", "replace")


def head_too_large(limit: int) -> GatewayError:
    """The refusal of a request whose header fields are larger, or more, than the gateway reads."""
    message = (
        f"The header fields and the address of the request are larger than the {limit} bytes that "
        "server.max_header allows, or there are too many fields."
    )
    return GatewayError(Origin.CLIENT, Code.HEADERS_TOO_LARGE, message)


def oversized_head(downstream: Downstream, limit: int) -> Done:
    """Refuse a request whose head could not be read for its size."""
    return _send_unread(downstream, head_too_large(limit))


def malformed(downstream: Downstream) -> Done:
    """Refuse what is no HTTP request."""
    message = "This is no valid HTTP request."
    return _send_unread(downstream, GatewayError(Origin.CLIENT, Code.BAD_REQUEST, message))


def _send_unread(downstream: Downstream, error: GatewayError) -> Done:
    body = openai_chat.error_body(error.status, error.code.value, error.message)
    fields = [*_json(body), ("x-gateway-error", error.code.value)]
    downstream.last = True
    downstream.start(error.status, _phrase(error.status), fields)
    downstream.end(body)
    return Done(keep=False, linger=_LINGER)


def _note(call: Call, error: GatewayError, code: str) -> None:
    record = call.record
    record.error_code = call.code(code)
    record.error = call.summary(error.message)


def _fields(call: Call, upstream: Fields) -> list[tuple[str, str]]:
    record = call.record
    provider = call.destination.provider.name if call.destination is not None else None
    if provider is None or not upstream:
        return headers.own_fields(record.request_id, provider, record.attempts)
    return headers.to_client(
        upstream,
        body=headers.Body.REPLACED,
        request_id=record.request_id,
        provider=provider,
        attempts=record.attempts,
    )


def _send(call: Call, status: int, body: bytes, fields: list[tuple[str, str]]) -> None:
    call.record.status = status
    call.record.bytes_down += len(body)
    # After a request that was not, or could not be, read to its end nothing can be told apart.
    unread = call.body is None and call.request.body_exists
    if unread or call.request.content.exception() is not None:
        call.downstream.last = True
    call.downstream.start(status, _phrase(status), [*_json(body), *fields])
    call.downstream.end(body)


def _json(body: bytes) -> list[tuple[str, str]]:
    return [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Error"
