"""How an answer to the client begins, and the answers that the gateway gives in its own name.

The latter have the shape that clients of the protocol expect which claims the path, else OpenAI's.
Never shows a traceback, a key or an address of this machine.
"""

from __future__ import annotations

from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

from gateway.errors import Code, GatewayError, Origin
from gateway.policy import headers
from gateway.protocols import openai_chat
from gateway.relay.downstream import Done
from gateway.streams.events import Fault

if TYPE_CHECKING:
    from gateway.policy.headers import Fields
    from gateway.protocols.base import StreamProtocol
    from gateway.relay.call import Call
    from gateway.relay.downstream import Downstream
    from gateway.relay.upstream import Exchange

DRAINING: Final = Fault(
    Code.DRAINING, "The gateway is shutting down and cannot go on. Retry your request."
)
"""What is told to those whose answers are not over when the gateway ends."""

_RETRY_SOON: Final = frozenset({Code.DRAINING, Code.OVERLOADED, Code.UNAVAILABLE})
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


def tell(call: Call, fault: Fault, withheld: bytes = b"") -> None:
    """End an answer that has begun with an in-band error, or break it where there is no such form.

    ``withheld`` is what the provider itself sent to that end.
    """
    frames = withheld or dialect(call).reader(1).fault(fault)
    down = call.downstream
    if not frames:
        down.abort()
        return
    call.record.bytes_down += len(frames)
    if down.until_close:
        # Nothing but a broken connection shows that this is not the end of a whole answer.
        down.send(frames)
        down.abort()
    else:
        down.end(frames)


def refuse(call: Call, error: GatewayError, fields: Fields = ()) -> None:
    """Tell the client of a failure in the gateway's own name; ``fields`` are the provider's."""
    note(call, error, error.code.value)
    own = [*fields_of(call, fields), ("x-gateway-error", error.code.value)]
    if error.code in _RETRY_SOON and not any(name == "Retry-After" for name, _ in own):
        own.append(("Retry-After", "1"))
    body = dialect(call).error_body(error.status, error.code.value, error.message)
    send(call, error.status, body, own)


def greet(downstream: Downstream) -> None:
    """Answer somebody who only asks whether anybody is there."""
    downstream.start(200, "OK", [("Content-Length", "0")])
    downstream.end()


def dialect(call: Call) -> StreamProtocol:
    """The protocol in whose shape the client expects errors."""
    return call.protocol if call.protocol is not None else openai_chat.PROTOCOL


def head_too_large() -> GatewayError:
    """The refusal of a request whose header fields are larger, or more, than the gateway reads. By
    how much is not told: clients act on some numbers, wherever they stand.
    """
    message = (
        "The header fields and the address of the request are larger than server.max_header "
        "allows, or there are too many fields."
    )
    return GatewayError(Origin.CLIENT, Code.HEADERS_TOO_LARGE, message)


def oversized_head(downstream: Downstream) -> Done:
    """Refuse a request whose head could not be read for its size."""
    return _send_unread(downstream, head_too_large())


def malformed(downstream: Downstream) -> Done:
    """Refuse what is no HTTP request."""
    message = "This is no valid HTTP request."
    return _send_unread(downstream, GatewayError(Origin.CLIENT, Code.BAD_REQUEST, message))


def _send_unread(downstream: Downstream, error: GatewayError) -> Done:
    body = openai_chat.error_body(error.status, error.code.value, error.message)
    fields = [*json_fields(body), ("x-gateway-error", error.code.value)]
    downstream.last = True
    downstream.start(error.status, _phrase(error.status), fields)
    downstream.end(body)
    return Done(keep=False, linger=_LINGER)


def note(call: Call, error: GatewayError, code: str) -> None:
    record = call.record
    record.error_code = call.code(code)
    record.error = call.summary(error.message)


def fields_of(call: Call, upstream: Fields) -> list[tuple[str, str]]:
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


def send(call: Call, status: int, body: bytes, fields: list[tuple[str, str]]) -> None:
    call.record.status = status
    call.record.bytes_down += len(body)
    # After a request that was not, or could not be, read to its end nothing can be told apart.
    unread = call.body is None and call.request.body_exists
    if unread or call.request.content.exception() is not None:
        call.downstream.last = True
    call.downstream.start(status, _phrase(status), [*json_fields(body), *fields])
    call.downstream.end(body)


def json_fields(body: bytes) -> list[tuple[str, str]]:
    return [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else "Error"
