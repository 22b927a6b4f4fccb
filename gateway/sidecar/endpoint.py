"""The HTTP of ``/v1/exec``: routes and statuses. Runs no command, reads no output itself."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from gateway.observe import exec_log, logs
from gateway.policy import exec_range
from gateway.policy.exec_access import Client, Guard, Refusal
from gateway.policy.exec_request import MAX_MS, ExecError, fingerprint, idempotency_key, parse
from gateway.sidecar import answer, reader, replies
from gateway.sidecar.answer import compose_answer, summary
from gateway.sidecar.bodies import SMALL, Bodies
from gateway.sidecar.frames import event
from gateway.sidecar.service import Caller, Service
from gateway.sidecar.status import State
from gateway.sidecar.views import looked_at, view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.model import Exec
    from gateway.observe.exec_metrics import ExecMetrics
    from gateway.policy.exec_request import ExecRequest
    from gateway.sidecar.status import Status
    from gateway.sidecar.store import Entry

_PATH = re.compile(r"/v1/exec(?:/(?P<id>[^/]+)(?:/(?P<part>output|events|kill))?)?/?")
_METHODS = {
    (False, None): ("GET", "POST"),
    (True, None): ("GET", "DELETE"),
    (True, "output"): ("GET", "HEAD"),
    (True, "events"): ("GET",),
    (True, "kill"): ("POST",),
}
_SIGNALS = {
    name: number
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
    for name in (number.name, number.name.removeprefix("SIG"), int(number))
}
_MAX_LISTED = 1000


class Endpoint:
    """Answers the requests of one listener. ``peer_of`` says where one comes from, and refuses it
    by raising ExecError."""

    def __init__(
        self,
        service: Service,
        guard: Guard,
        metrics: ExecMetrics,
        exec_: Exec,
        *,
        peer_of: Callable[[web.BaseRequest], str],
    ) -> None:
        self._service = service
        self._guard = guard
        self._metrics = metrics
        self._exec = exec_
        self._peer_of = peer_of
        self._bodies = Bodies()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; nothing but a broken connection is raised."""
        try:
            return await self._answer(request)
        except ExecError as error:
            return replies.refuse(request, error)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told so
            logs.logger().error("exec_fault", error=type(error).__name__, exc_info=error)
            return replies.fault(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = self._admit(request)
        match = _PATH.fullmatch(request.path)
        if match is None:
            raise ExecError(404, "There is no such page: commands are under /v1/exec.")
        id_, part = match.group("id", "part")
        methods = _METHODS[id_ is not None, part]
        if request.method not in methods:
            return replies.wrong_method(request, methods)
        if id_ is None:
            if request.method == "POST":
                return await self._run(request, caller)
            return self._list(caller)
        entry = self._service.store.find(id_, caller.client)
        match request.method, part:
            case "POST", "kill":
                return await self._kill(request, entry)
            case "DELETE", None:
                await self._service.delete(entry)
                return web.Response(status=204, headers=replies.NO_RETRY)
            case _, "output":
                return await self._output(request, entry)
            case _, "events":
                return await self._events(request, entry)
            case _:
                return await self._look(request, entry)

    def _admit(self, request: web.BaseRequest) -> Caller:
        """Who asks. Raises ExecError, before anything of the body is read."""
        peer = "unknown"
        try:
            peer = self._peer_of(request)
            headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in request.raw_headers
            ]
            found = self._guard.admit(request.method, headers)
            if isinstance(found, Refusal):
                raise ExecError(found.status, found.message)
        except ExecError as error:
            self._metrics.rejected()
            exec_log.refused(peer, None, error.status, error.message)
            raise
        assert isinstance(found, Client)
        return Caller(client=found.name, peer=peer)

    # --- run ----------------------------------------------------------------------------------

    async def _run(self, request: web.BaseRequest, caller: Caller) -> web.StreamResponse:
        try:
            key = idempotency_key(request.headers.get("Idempotency-Key"))
            self._service.check_room(caller, key)
            asked, mark = await self._read(request, keyed=key is not None)
            entry = self._service.submit(asked, caller, key, mark)
        except ExecError as error:
            self._metrics.rejected()
            exec_log.refused(caller.peer, caller.client, error.status, error.message)
            raise
        entry.attached += 1
        answered = False
        try:
            response = await self._wait(request, entry, asked)
            answered = True
        except ExecError:
            answered = True
            raise
        finally:
            self._service.detach(entry)
            if not answered:
                self._service.leave(entry, asked)
        return response

    async def _read(self, request: web.BaseRequest, *, keyed: bool) -> tuple[ExecRequest, str]:
        """What is asked for, and its fingerprint if it has a key."""

        def understand(body: bytes) -> tuple[ExecRequest, str]:
            asked = parse(body, self._exec.max_output)
            return asked, fingerprint(asked) if keyed else ""

        async with self._bodies.body(request) as body:
            if len(body) <= SMALL:
                return understand(body)
            return await asyncio.to_thread(understand, body)

    async def _wait(
        self, request: web.BaseRequest, entry: Entry, asked: ExecRequest
    ) -> web.StreamResponse:
        if asked.background:
            await entry.until(lambda: entry.started or entry.queued)
        elif replies.wants_events(request):
            await entry.until(lambda: entry.started)
            if entry.status.state is not State.SPAWN_FAILED:
                return await self._stream(request, entry, 0)
        else:
            seconds = None if asked.wait_ms is None else asked.wait_ms / 1000
            await entry.until(lambda: entry.answered, seconds)
        status = 200 if entry.answered else 202
        if entry.status.state is State.SPAWN_FAILED:
            status = 422
        elif status == 202:
            entry.promised = True
        return await self._told(entry, status)

    async def _told(self, entry: Entry, status: int = 200) -> web.Response:
        return replies.answer(await self._object(entry), status, entry)

    async def _object(self, entry: Entry) -> dict[str, Any]:
        view = await view_of(entry, self._service.store, self._exec)
        try:
            return await asyncio.to_thread(compose_answer, view)
        except Exception as error:  # noqa: BLE001 - it has run: a fault of ours must not repeat it
            logs.logger().error("exec_fault", error=type(error).__name__, exc_info=error)
            return answer.without_output(view)

    # --- look ---------------------------------------------------------------------------------

    def _list(self, caller: Caller) -> web.Response:
        entries = self._service.store.owned(caller.client)
        listed = [
            summary(entry.now(), watched=entry.command is not None)
            for entry in entries[:_MAX_LISTED]
        ]
        told = {"commands": listed, "total": len(entries)}
        return replies.json_response(told, headers=replies.NO_RETRY)

    async def _look(self, request: web.BaseRequest, entry: Entry) -> web.Response:
        await self._long_poll(request, entry)
        return await self._told(entry)

    async def _long_poll(self, request: web.BaseRequest, entry: Entry) -> None:
        """Wait for a state that is not the one of now, as long as the client wants to."""
        wait = request.query.get("wait_ms")
        if wait is None:
            return
        if not (wait.isascii() and wait.isdigit()) or len(wait) > 9 or int(wait) > MAX_MS:
            raise ExecError(400, f"wait_ms must be a whole number of milliseconds, 0 to {MAX_MS}.")
        state = entry.status.state
        await entry.until(
            lambda: entry.status.final or entry.status.state is not state, int(wait) / 1000
        )

    async def _readable(self, entry: Entry) -> Status:
        """The status as the file bears it out. Raises ExecError, 410 where there is none."""
        try:
            return await looked_at(entry, self._service.store)
        except FileNotFoundError:
            raise _no_longer_there() from None

    async def _output(self, request: web.BaseRequest, entry: Entry) -> web.StreamResponse:
        if request.query.get("follow") == "1" and request.method == "GET":
            return await self._follow(request, entry)
        status = await self._readable(entry)
        size, final = status.output.spill.bytes, status.final
        tag = f'"{entry.id}-{size}"' if final else None
        if tag is not None and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        wanted = request.headers.get("Range")
        if wanted is not None and request.headers.get("If-Range", tag) != tag:
            wanted = None
        if wanted is not None:
            self._metrics.range_request()
        try:
            part = exec_range.parse_range(wanted, size)
        except ExecError as error:
            return replies.refuse(request, error, {"Content-Range": f"bytes */{size}"})
        response = replies.output_response(status, tag, part, size)
        start, stop = (0, size) if part is None else (part.start, part.stop)
        entry.attached += 1
        try:
            if request.method == "HEAD" or start == stop:
                await response.prepare(request)
                return response
            async with reader.opened(self._service.store.folder, entry.id) as descriptor:
                await response.prepare(request)
                with replies.sending():
                    reached = await reader.send_part(descriptor, start, stop, response.write)
                    if reached < stop:
                        raise EOFError("the output is shorter than it was")
        except FileNotFoundError:
            raise _no_longer_there() from None
        finally:
            self._service.detach(entry)
        await response.write_eof()
        return response

    async def _follow(self, request: web.BaseRequest, entry: Entry) -> web.StreamResponse:
        """The output as it grows, up to its very end; ``offset`` says from where."""
        status = await self._readable(entry)
        start = exec_range.parse_offset(request.query.get("offset"), status.output.spill.bytes)
        await entry.until(lambda: entry.started)
        response = replies.output_response(await self._readable(entry), None, None, None)
        await response.prepare(request)
        entry.attached += 1
        try:
            if entry.status.output.spill.path is not None:
                with replies.sending():
                    await reader.follow(entry, self._service.store.folder, start, response.write)
        finally:
            self._service.detach(entry)
        await response.write_eof()
        return response

    async def _events(self, request: web.BaseRequest, entry: Entry) -> web.StreamResponse:
        start = exec_range.parse_event_id(
            request.headers.get("Last-Event-ID"), entry.now().output.spill.bytes
        )
        await entry.until(lambda: entry.started)
        entry.attached += 1
        try:
            return await self._stream(request, entry, start)
        finally:
            self._service.detach(entry)

    async def _stream(
        self, request: web.BaseRequest, entry: Entry, start: int
    ) -> web.StreamResponse:
        response = replies.event_stream()
        await response.prepare(request)
        with replies.sending():
            await response.write(event("start", {"id": entry.id}))
            await reader.send_events(entry, self._service.store.folder, start, response.write)
            await response.write(event("end", await self._object(entry)))
        await response.write_eof()
        return response

    # --- kill ---------------------------------------------------------------------------------

    async def _kill(self, request: web.BaseRequest, entry: Entry) -> web.Response:
        number = _signal_of(await replies.body_of(request, 1024))
        if entry.queued:
            self._service.cancel(entry, "The command was killed before it had started.")
        await entry.until(lambda: entry.started)
        self._service.kill(entry, number)
        await self._long_poll(request, entry)
        return await self._told(entry)


def _no_longer_there() -> ExecError:
    return ExecError(410, "The output of this command is no longer there.")


def _signal_of(body: bytes) -> int:
    """The signal that a body asks for; SIGTERM where it asks for none. Raises ExecError."""
    if not body.strip():
        return signal.SIGTERM
    wrong = ExecError(400, 'The body must be {"signal": "TERM"}, or INT, HUP, QUIT, KILL.')
    try:
        asked: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(asked, dict) or not set(asked) <= {"signal"}:
        raise wrong
    name = asked.get("signal", "TERM")
    number = _SIGNALS.get(name) if isinstance(name, str | int) else None
    if number is None or isinstance(name, bool):
        raise wrong
    return number
