"""One request from its first byte to its log line: finds out where it goes, and sees it through.

Never holds a policy of its own, and never lets a request for a provider end without being answered,
counted and logged.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway import protocols
from gateway.config.model import AUTO
from gateway.errors import Code, GatewayError, Origin
from gateway.observe import logs
from gateway.observe.records import NO_PROTOCOL, RequestRecord
from gateway.policy import clients, peek, redact, routing
from gateway.policy.retry import makes_a_job, makes_something
from gateway.relay import body, network, replies, upstream
from gateway.relay.attempt import Tools
from gateway.relay.call import Call, Destination, Health
from gateway.relay.downstream import Downstream
from gateway.relay.rescue import see_through
from gateway.streams.events import Fault, Hold, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aiohttp import web

    from gateway.config.model import Config, Provider
    from gateway.observe.metrics import Metrics
    from gateway.protocols.base import StreamProtocol

    Pages = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]

CLIENT_GONE: Final = 499
"""The status that is logged where the client left before it got one (nginx's number for it)."""

_GONE: Final = frozenset({None, Verdict.CLIENT_GONE})

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@=/+\-]{0,127}")


class Relay:
    """Everything between the server and the providers. Made inside the running loop.

    ``pages`` answers what is asked of the gateway itself (``/metrics``, ``/healthz``, ``/-/…``): it
    gets the request and the path.
    """

    def __init__(self, config: Config, metrics: Metrics, *, pages: Pages | None = None) -> None:
        self._metrics = metrics
        self._pages = pages
        self._upstreams = upstream.Upstreams()
        self._background: set[asyncio.Task[None]] = set()
        self._open: dict[Call, asyncio.Task[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self._tools = Tools(self._loop, self._upstreams, metrics, self._run_in_background)
        self._budget = body.Budget(config.server.buffer_total)
        self._draining = False
        self._destinations: dict[str, Destination] = {}
        self.configure(config)

    @property
    def draining(self) -> bool:
        """Set to refuse every new request with 503; answers then end their connections."""
        return self._draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._draining = draining
        for call in self._open:
            call.downstream.last = draining

    def configure(self, config: Config) -> None:
        """Take over a configuration; requests that are running keep the one they began with."""
        self._server = config.server
        self._unavailable = config.unavailable
        before, self._destinations = self._destinations, {}
        for name, provider in config.providers.items():
            known = before.get(name)
            health = known.health if known and _is_as_healthy(known.provider, provider) else None
            self._destinations[name] = _destination(provider, health or Health(provider))
        kept = {id(destination.health) for destination in self._destinations.values()}
        for destination in before.values():
            destination.health.in_force = id(destination.health) in kept
        self._names = {*self._destinations, *self._unavailable}

    def interrupt(self) -> None:
        """End every open request now, telling each client the truth."""
        for call, task in tuple(self._open.items()):
            if not call.interrupted:
                call.interrupted = True
                task.cancel()

    async def close(self) -> None:
        """Close all connections to providers."""
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._upstreams.close()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; for the low-level server, with handler_cancellation."""
        # Bytes as they came: latin-1 maps each to one character and back.
        target = request.raw_path.encode("utf-8", "surrogateescape").decode("latin-1")
        default = self._server.default_provider
        route = routing.route(request.method, target, self._names, default)
        downstream = Downstream(request)
        downstream.last = self._draining
        if isinstance(route, routing.OwnPage) and self._pages is not None:
            return await self._pages(request, route.path)
        if isinstance(route, routing.Greeting):
            replies.greet(downstream)
            return downstream.done
        call = self._begin(request, target, downstream)
        try:
            await self._answer(call, route)
        except GatewayError as error:
            self._refuse(call, error)
        except asyncio.CancelledError:
            if not self._was_interrupted(call):
                self._note_gone(call)
                raise
            self._refuse(call, _draining())
        except Exception:  # noqa: BLE001 - the last resort: a fault of ours must be answered, too
            if downstream.gone:
                self._note_gone(call)
            else:
                logs.logger().error(
                    "internal_error", request_id=call.record.request_id, exc_info=True
                )
                self._refuse(call, _internal())
        finally:
            self._conclude(call)
        return downstream.done

    # The steps of one request.

    def _begin(self, request: web.BaseRequest, target: str, downstream: Downstream) -> Call:
        asked_id = request.headers.get("x-request-id", "")
        record = RequestRecord(
            request_id=asked_id if _REQUEST_ID.fullmatch(asked_id) else uuid.uuid4().hex,
            method=request.method,
            path=redact.redact_path(target),
            started=monotonic(),
            started_at=time.time(),  # noqa: TID251 - for people who read the page of open streams
            client_app=clients.client_app(request.headers),
            client=request.remote or "",
            session=clients.session(request.headers),
        )
        call = Call(request, record, downstream, target)
        self._metrics.begin(record)
        task = asyncio.current_task()
        assert task is not None
        self._open[call] = task
        return call

    async def _answer(self, call: Call, route: routing.Route) -> None:
        request = call.request
        call.protocol = protocols.for_path(request.method, call.target.partition("?")[0])
        if self._draining:
            raise _draining()
        self._check_head(call)
        call.destination = destination = self._find(route)
        assert isinstance(route, routing.ToProvider)
        provider = destination.provider
        call.record.provider = provider.name
        call.rest = route.rest
        call.protocol = _protocol(provider, request.method, route.rest)
        if call.protocol is not None:
            call.record.protocol = call.protocol.name
        if request.headers.get("Upgrade", "").lower() == "websocket":
            raise _no_websockets()
        if destination.endpoint is None:
            raise GatewayError(Origin.GATEWAY, Code.UNREACHABLE, destination.unusable)
        call.hold = _hold(request.headers.get("x-gateway-hold"), provider)
        await self._receive(call)
        await see_through(self._tools, call, self._destinations)

    def _check_head(self, call: Call) -> None:
        """The server bounds each field; here is the bound of all of them."""
        size = sum(len(name) + len(value) + 4 for name, value in call.fields) + len(call.target)
        if size > self._server.max_header:
            raise replies.head_too_large()

    def _find(self, route: routing.Route) -> Destination:
        if isinstance(route, routing.NoProvider):
            raise GatewayError(Origin.CLIENT, Code.UNKNOWN_PROVIDER, route.message)
        if not isinstance(route, routing.ToProvider):
            raise GatewayError(Origin.CLIENT, Code.UNKNOWN_PROVIDER, "There is no such page.")
        destination = self._destinations.get(route.provider)
        if destination is None:
            mend = self._unavailable[route.provider]
            message = f'The provider "{route.provider}" is not configured: {mend}.'
            raise GatewayError(Origin.CLIENT, Code.PROVIDER_NOT_CONFIGURED, message)
        return destination

    async def _receive(self, call: Call) -> None:
        """Read the request's body, as much as is kept of it, and look into it."""
        request = call.request
        call.body = await body.receive(
            request,
            self._budget,
            most=self._server.retry_body if call.known else None,
            limit=self._server.max_body,
        )
        call.received_at = monotonic()
        call.facts = peek.peek(
            call.body.head,
            path=call.rest,
            content_type=request.headers.get("Content-Type"),
            content_encoding=request.headers.get("Content-Encoding"),
        )
        self._understand(call)
        call.record.model = call.facts.model
        call.record.streaming = call.facts.stream

    def _understand(self, call: Call) -> None:
        """Whether a request is what its protocol says.

        A path that a protocol claims says so. Where a provider's protocol is set for all its paths,
        the body has to say it on the others: JSON that holds a prompt or wants a stream is read in
        that protocol, and what wants a stream is inference, for it leaves nothing behind but its
        stream. Files, forms, batches and jobs are neither, nor is what makes something else.
        """
        protocol, facts = call.protocol, call.facts
        if protocol is None or not protocol.known:
            return
        assert call.destination is not None
        path = call.rest.partition("?")[0]
        # What the client writes may be the end of a longer path.
        whole = urlsplit(call.destination.provider.base_url).path.rstrip("/") + path
        claimed = protocols.for_path(call.request.method, path) is not None
        claimed = claimed and not makes_a_job(whole)
        asks = facts.asks and not (makes_something(whole) or makes_a_job(whole))
        call.inference = claimed or (asks and facts.stream is True)
        if not (claimed or asks):
            call.protocol = None
            call.record.protocol = NO_PROTOCOL

    # Ends.

    def _refuse(self, call: Call, error: GatewayError) -> None:
        """Answer with a failure of the gateway's own, or break an answer that has begun."""
        downstream = call.downstream
        if not downstream.started:
            replies.refuse(call, error)
        elif not downstream.ended and not downstream.aborted:
            call.record.error_code = error.code.value
            if call.primed:
                replies.tell(call, Fault(error.code.value, error.message))
            else:
                downstream.abort()

    def _was_interrupted(self, call: Call) -> bool:
        return call.interrupted and self._open[call].uncancel() == 0

    def _note_gone(self, call: Call) -> None:
        record = call.record
        record.status = record.status or CLIENT_GONE
        if record.stream is not None and not record.stream.committed:
            self._metrics.discard(record)
        stream = record.stream
        # One that has seen the end of a stream may leave before its connection says so.
        whole = call.downstream.ended or (stream is not None and stream.verdict not in _GONE)
        if record.error is None and not whole:
            record.error = "The client left before its answer was complete."

    def _conclude(self, call: Call) -> None:
        record = call.record
        del self._open[call]
        call.pulse.stop()
        if call.body is not None:
            record.bytes_up = call.body.received
            call.body.release()
        record.ended = monotonic()
        self._metrics.observe(record)
        logs.log_request(record)


def _is_as_healthy(before: Provider, now: Provider) -> bool:
    """Whether what is known of one provider's health holds for the other: it is the same."""
    rules = (before.retry, before.circuit) == (now.retry, now.circuit)
    return rules and before.base_url == now.base_url


def _destination(provider: Provider, health: Health) -> Destination:
    if not provider.base_url:
        return Destination(
            provider, None, health, f'The provider "{provider.name}" has no base_url.'
        )
    try:
        proxy = network.find_proxy(provider.base_url, provider.proxy)
        tls = network.trust(provider.ca_file)
        return Destination(provider, upstream.Endpoint(provider, proxy, tls), health)
    except (network.UnusableProxyError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        unusable = f'The provider "{provider.name}" cannot be reached: {reason}.'
        return Destination(provider, None, health, unusable)


def _protocol(provider: Provider, method: str, rest: str) -> StreamProtocol | None:
    if provider.protocol == AUTO:
        return protocols.for_path(method, rest.partition("?")[0])
    return protocols.BY_NAME[provider.protocol] if method == "POST" else None


def _hold(asked: str | None, provider: Provider) -> Hold:
    if asked is None:
        return Hold(provider.hold)
    try:
        return Hold(asked.strip().lower())
    except ValueError:
        known = ", ".join(hold.value for hold in Hold)
        message = f"The header x-gateway-hold must be one of {known}."
        raise GatewayError(Origin.CLIENT, Code.BAD_REQUEST, message) from None


def _draining() -> GatewayError:
    return GatewayError(Origin.GATEWAY, Code.DRAINING, replies.DRAINING.message, retryable=True)


def _internal() -> GatewayError:
    return GatewayError(
        Origin.GATEWAY,
        Code.INTERNAL,
        "The gateway met a fault of its own; its log has the details under the id that the header "
        "x-gateway-request-id names.",
    )


def _no_websockets() -> GatewayError:
    return GatewayError(
        Origin.GATEWAY,
        Code.NOT_IMPLEMENTED,
        "WebSocket connections are not supported by this version of the gateway: use the "
        "provider's HTTP streaming instead.",
    )
