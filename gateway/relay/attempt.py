"""One try to get an answer from a provider. Never decides about another one.

The request is sent on a pooled connection if there is one. Should that turn out to have been dead
all along, the same request goes out once more, at once, on a fresh one: that is part of this try.
Later tries of the request are then sent on fresh ones at once, so that this happens only once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from gateway.policy import headers
from gateway.policy.retry import Reason, may_change_state
from gateway.relay import held_error, passage, pump
from gateway.relay.failures import (
    Failed,
    Outcome,
    StaleConnectionError,
    TryFailedError,
    while_connecting,
    while_waiting,
)
from gateway.streams.coding import is_compressed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any

    from gateway.observe.metrics import Metrics
    from gateway.relay.call import Call, Destination
    from gateway.relay.upstream import Endpoint, Exchange, Upstreams

_REQUEST_IDS = (
    "x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-amzn-request-id",
    "x-goog-request-id", "x-generation-id", "x-kong-request-id", "mistral-correlation-id",
    "x-ds-trace-id", "msh-request-id", "x-trace-id", "cf-ray",
)  # fmt: skip
"""Where providers put the id that their support asks for, the surest first."""


@dataclass(slots=True)
class Tools:
    """What every try needs: the clock, the connections, the counters, somewhere to finish reading.

    ``background`` runs a coroutine that nobody waits for, and cancels it at the end of the program.
    """

    loop: asyncio.AbstractEventLoop
    upstreams: Upstreams
    metrics: Metrics
    background: Callable[[Coroutine[Any, Any, None]], None] = field(repr=False)


async def attempt(tools: Tools, call: Call, heard: Callable[[int], None]) -> Outcome:
    """Ask the provider once and hand on what it answers; ``heard`` gets the status of that as soon
    as its head is there.

    Raises GatewayError for what is the client's fault; whatever is the provider's or the network's
    is a :class:`Failed`, unless the client has seen bytes of the answer.
    """
    destination = call.destination
    assert destination is not None
    call.record.begin_attempt()
    try:
        exchange = await _open(tools, call, destination)
    except TryFailedError as error:
        outcome: Outcome = error.failed
    else:
        heard(exchange.status)
        try:
            outcome = await _deliver(tools, call, exchange)
        finally:
            if not exchange.handed_over:
                exchange.close()
        if isinstance(outcome, Failed) and outcome.failure.reason is not Reason.RATE_LIMIT:
            exchange.distrust()
    tools.metrics.attempt(destination.provider.name, _result(call, outcome))
    return outcome


def _result(call: Call, outcome: Outcome) -> str:
    if isinstance(outcome, Failed) and outcome.held is None:
        return outcome.failure.reason.value
    return "error_status" if (call.record.upstream_status or 0) >= 400 else "answered"


async def _open(tools: Tools, call: Call, destination: Destination) -> Exchange:
    """Send the request; return when the head of the answer is there."""
    endpoint, body = destination.endpoint, call.body
    assert endpoint is not None
    assert body is not None
    head = _head(call, destination, endpoint)
    # What must be sent only once is not risked on a connection that may be dead.
    once = body.kept is None or call.asks_no_retry or _must_go_once(call)
    # Nor does another try go where the answer to the last one may still be on its way.
    fresh = once or call.met_stale or call.record.attempts > 1
    _note_overhead(call)
    for _ in range(2):
        with while_connecting(endpoint.host, destination.provider.timeouts.connect):
            exchange = await tools.upstreams.connect(endpoint, fresh=fresh)
        try:
            await _ask(call, destination, exchange, head)
        except StaleConnectionError:
            exchange.close()
            tools.metrics.attempt(destination.provider.name, "stale_connection")
            fresh = call.met_stale = True
        except BaseException:
            exchange.close()
            raise
        else:
            return exchange
    raise AssertionError("a fresh connection is never stale")


def _must_go_once(call: Call) -> bool:
    """Whether the request may do something at the provider that must not be done twice."""
    if call.inference:
        return call.goes_once or call.facts.acts
    return may_change_state(call.request.method, call.rest.partition("?")[0])


async def _ask(call: Call, destination: Destination, exchange: Exchange, head: bytes) -> None:
    timeouts, body = destination.provider.timeouts, call.body
    endpoint = destination.endpoint
    assert endpoint is not None
    assert body is not None
    limit = timeouts.first_event if call.facts.stream else timeouts.response
    with while_waiting(endpoint.host, exchange, limit):
        exchange.send(call.request.method, head, body)
        await exchange.head(limit)
    record = call.record
    record.upstream_status = exchange.status
    for name in _REQUEST_IDS:
        if name in exchange.headers:
            record.upstream_request_id = exchange.headers[name]
            break


def _note_overhead(call: Call) -> None:
    """The gateway's own time so far: what it spent since it had the request."""
    record = call.record
    if record.overhead is None:
        record.overhead = monotonic() - call.received_at


def _deliver(tools: Tools, call: Call, exchange: Exchange) -> Coroutine[Any, Any, Outcome]:
    """What hands the answer on, by what it is."""
    content_type = exchange.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    head_only = call.request.method == "HEAD" or exchange.status in (204, 205)
    content = 200 <= exchange.status < 300 and not head_only
    coding = exchange.headers.get("Content-Encoding")
    if exchange.status >= 400 and held_error.may_be_told(call, content_type):
        return held_error.hold(call, exchange)
    stream = content and pump.may_be_stream(call, content_type)
    differs = not stream or is_compressed(coding) or exchange.status != call.record.status
    if call.downstream.started and differs:
        # Its head is out, for keepalives: only a stream like the one that was announced fits it,
        # and an error's words.
        judged = content and content_type != "text/event-stream"
        return passage.judge(call, exchange) if judged else passage.refuse_kind()
    if stream:
        return pump.relay(tools, call, exchange)
    if content and passage.must_be_judged(call, content_type):
        return passage.judge(call, exchange)
    return passage.relay(call, exchange)


def _head(call: Call, destination: Destination, endpoint: Endpoint) -> bytes:
    """The request line and header fields, exactly as they go out."""
    provider, body = destination.provider, call.body
    assert body is not None
    rest, elsewhere = call.rest, call.asked is not None
    credential = None
    if provider.api_key is not None:
        credential = auth_form(call, endpoint.host).field(provider.api_key.reveal())
        rest = headers.without_query_credentials(rest, elsewhere=elsewhere)
    identity = call.known and call.may_stream and not destination.observes
    fields = [("Host", endpoint.host)]
    fields += headers.to_upstream(
        call.fields, identity=identity, credential=credential, elsewhere=elsewhere
    )
    fields += endpoint.proxy_fields
    if body.length is not None:
        fields.append(("Content-Length", str(body.length)))
    elif body.kept is None:
        fields.append(("Transfer-Encoding", "chunked"))
    elif call.request.method in ("POST", "PUT", "PATCH"):
        fields.append(("Content-Length", "0"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields).encode("latin-1", "replace")
    target = endpoint.target(rest.encode("latin-1"))
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (call.request.method.encode("ascii"), target, lines)


def auth_form(call: Call, host: str) -> headers.AuthForm:
    """How the provider wants the gateway's key: where it takes one form only, that; else as the
    client sent its own; else as is usual at its address.
    """
    name = host.partition(":")[0]
    at_home = next((form for suffix, form in _FORMS if f".{name}".endswith(f".{suffix}")), None)
    if at_home is headers.AuthForm.X_API_KEY and call.record.protocol == "anthropic":
        return at_home
    for field_name, _ in call.fields:
        lower = field_name.lower()
        if lower == "authorization":
            return headers.AuthForm.BEARER
        if lower in headers.CREDENTIALS:
            return headers.AuthForm(lower)
    return at_home or headers.AuthForm.BEARER


_FORMS = (
    ("anthropic.com", headers.AuthForm.X_API_KEY),
    ("generativelanguage.googleapis.com", headers.AuthForm.X_GOOG_API_KEY),
    ("azure.com", headers.AuthForm.API_KEY),
)
"""The usual form of a key by address; Bearer everywhere else."""
