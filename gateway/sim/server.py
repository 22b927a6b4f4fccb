"""The simulated provider's sockets: takes requests, counts them per model name, paces the answers.

It decides nothing about bytes: what is sent is a :class:`~gateway.sim.plan.Plan`, how it is broken
is ``wire``'s.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

from aiohttp import web

from gateway.sim import coding, wire
from gateway.sim.content import Answer, Ask, compose
from gateway.sim.ledger import Ledger, Seen
from gateway.sim.plan import Beat, Pause, Plan, Send, whole
from gateway.sim.problem import Problem, refusal
from gateway.sim.replies import Exchange, problem_reply
from gateway.sim.routes import Route, Task, find
from gateway.sim.script import ScriptError, model_names, parse_model, table
from gateway.sim.shape import Json, encode
from gateway.sim.stage import stage

MAX_LINE = 1024 * 1024
"""Bytes of a request line or header that are taken; the gateway's limits are under test, not these.
"""

MAX_COUNTED = 100_000
"""Model names that are counted at once; with more, all counts begin anew."""

STARTED = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
"""The ``created`` of every listed model."""


class SimServer:
    """A running simulated provider. Made by :func:`start`; ``every`` is the pace of scripts that
    set none.
    """

    def __init__(self, every: float = 0.0) -> None:
        self.url = ""
        self.port = 0
        self._every = every
        self._ledger = Ledger()
        self._counts: Counter[str] = Counter()
        self._answered = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False
        server = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=1000,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)

    @property
    def seen(self) -> list[Seen]:
        """What the provider saw, oldest first, without requests to the simulator's own pages."""
        return self._ledger.records()

    async def stop(self) -> None:
        """Ends every open answer as it stands, and the listener."""
        self._stopping = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._runner.cleanup()

    async def _listen(self, listen: str) -> None:
        await self._runner.setup()
        if path := listen.removeprefix("unix:") if listen.startswith("unix:") else "":
            await web.UnixSite(self._runner, path).start()
            self.url = listen
            return
        host, port = _host_and_port(listen)
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        route = find(request.method, request.raw_path)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers
        ]
        # The simulator's own pages are no provider's: their requests are forgotten.
        ledger = Ledger() if route.task in (Task.SEEN, Task.HELP) else self._ledger
        when = datetime.now(UTC)
        seen = ledger.open(when.isoformat(), request.method, request.raw_path, headers)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            wire.send_continue(request)
            raw = await request.content.read()
            seen.take_body(raw)
            plan = self._plan(route, raw, request.headers.get("content-encoding", ""), seen, when)
            del raw
            seen.status = plan.status
            return await _perform(request, replace(plan, headers=_dated(plan, when)))
        except (asyncio.CancelledError, ConnectionError):
            seen.closed_early = not self._stopping
            raise
        finally:
            seen.open = False
            self._running.discard(task)

    def _plan(self, route: Route, raw: bytes, encoding: str, seen: Seen, when: datetime) -> Plan:
        match route.task:
            case Task.HELP:
                return whole(200, [("content-type", "text/plain; charset=utf-8")], table().encode())
            case Task.SEEN:
                return _json(200, self._ledger.as_json())
            case Task.MODELS:
                return _json(200, _models(google=route.shape.name == "gemini"))
            case Task.MODEL | Task.ANSWER | Task.COUNT | Task.WEBSOCKET | Task.UNKNOWN:
                return self._inference(route, raw, encoding, seen, when)

    def _inference(
        self, route: Route, raw: bytes, encoding: str, seen: Seen, when: datetime
    ) -> Plan:
        self._answered += 1
        exchange = Exchange(
            shape=route.shape,
            ask=Ask(stream=bool(route.stream), sse=route.sse),
            answer=Answer(id="", model="", created=0, choices=((),)),
            request_id=f"sim{self._answered:021d}",
            now=when.timestamp(),
            every=self._every,
        )
        try:
            if route.task in (Task.WEBSOCKET, Task.UNKNOWN):
                raise _RefusedError(_no_such_path(route, seen))
            if route.task is Task.MODEL:
                parse_model(route.model)
                return _json(200, _model(route.model, google=route.shape.name == "gemini"))
            ask = _ask(route, raw, encoding)
            seen.model = ask.model
            if route.task is Task.COUNT:
                return _json(200, _token_count(route, ask))
            return self._staged(replace(exchange, ask=ask), seen)
        except ScriptError as error:
            problem = refusal(str(error), code="unknown_script", param="model")
            return problem_reply(exchange, problem)
        except _RefusedError as error:
            return problem_reply(exchange, error.problem)

    def _staged(self, exchange: Exchange, seen: Seen) -> Plan:
        script = parse_model(exchange.ask.model)
        if len(self._counts) >= MAX_COUNTED:
            self._counts.clear()
        self._counts[script.model] += 1
        seen.script, seen.number = script.name, self._counts[script.model]
        seen.faulted = script.faults(seen.number)
        script = script if seen.faulted else script.healed()
        created = int(exchange.now)
        answer = compose(exchange.ask, script, number=self._answered, created=created)
        return stage(script, replace(exchange, answer=answer))


class _RefusedError(Exception):
    """A request that the simulator cannot answer, with the error that it gets."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


async def start(listen: str = "127.0.0.1:0", *, every: float = 0.0) -> SimServer:
    """Starts a simulated provider on ``HOST:PORT`` (0: a free one) or ``unix:/path``.

    ``every`` is the pause between events, in seconds, where the model name says nothing. Raises
    ValueError for an address that is none, OSError where it cannot be had.
    """
    server = SimServer(every)
    try:
        await server._listen(listen)
    except BaseException:
        await server.stop()
        raise
    return server


async def _perform(request: web.BaseRequest, plan: Plan) -> web.StreamResponse:
    if plan.delay:
        await asyncio.sleep(plan.delay)
    line = wire.Wire(request, plan)
    await line.head()
    for step in plan.steps:
        match step:
            case Send(data):
                await line.send(data)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Beat(make, every, count):
                for index in range(count):
                    await asyncio.sleep(every)
                    await line.send(make(index))
    return await line.finish()


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"'{listen}' is no address; write HOST:PORT or unix:/path")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _dated(plan: Plan, when: datetime) -> list[tuple[str, str]]:
    date = formatdate(when.timestamp(), usegmt=True)
    return [("date", date), ("server", "gateway-sim"), *plan.headers]


def _json(status: int, payload: Json) -> Plan:
    return whole(status, [("content-type", "application/json")], encode(payload).encode())


def _ask(route: Route, raw: bytes, encoding: str) -> Ask:
    """What a request asks for. Raises :class:`_RefusedError` for a body that cannot be read."""
    try:
        body = json.loads(coding.decode(raw, encoding))
    except (ValueError, RecursionError) as error:
        message = f"The request body is not JSON: {error}"
        raise _RefusedError(refusal(message[:300], code="invalid_json")) from None
    if not isinstance(body, dict):
        raise _RefusedError(refusal("The request body is not a JSON object.", code="invalid_json"))
    ask = route.shape.read(body, len(raw))
    stream = ask.stream if route.stream is None else route.stream
    google = route.shape.name == "gemini"
    model = route.model if google else ask.model or route.model
    return replace(ask, model=model, stream=stream, sse=route.sse)


def _no_such_path(route: Route, seen: Seen) -> Problem:
    if route.task is Task.WEBSOCKET:
        message = "The simulated provider speaks no WebSocket; POST to this path."
        return refusal(message, code="websocket_unsupported", status=426)
    path = seen.path.partition("?")[0][:200]
    message = (
        f"The simulated provider does not know {seen.method} {path}; it knows POST "
        "…/chat/completions, …/completions, …/responses, …/messages, …/messages/count_tokens, "
        "…/models/MODEL:generateContent, …:streamGenerateContent and GET …/models."
    )
    return refusal(message, code="unknown_path", status=404)


def _token_count(route: Route, ask: Ask) -> Json:
    name = "totalTokens" if route.shape.name == "gemini" else "input_tokens"
    return {name: ask.prompt_tokens}


def _models(*, google: bool) -> Json:
    listed = [_model(name, google=google, summary=summary) for name, summary in model_names()]
    if google:
        return {"models": listed}
    ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"], "has_more": False}
    return {"object": "list", "data": listed, **ends}


def _model(name: str, *, google: bool, summary: str = "") -> Json:
    """One model as Google lists it, or as OpenAI and Anthropic do at the same time."""
    if google:
        return {
            "name": f"models/{name}",
            "displayName": name,
            "description": summary,
            "version": "1",
            "inputTokenLimit": 1_000_000,
            "outputTokenLimit": 100_000,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
    return {
        "id": name,
        "object": "model",
        "created": STARTED,
        "owned_by": "simulator",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(STARTED, UTC).isoformat(),
        "description": summary,
    }
