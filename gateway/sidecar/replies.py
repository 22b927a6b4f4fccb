"""The answers of ``/v1/exec`` as HTTP: bodies, headers, codes. Knows no command's state but by what
it is given."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from gateway.observe import logs
from gateway.policy.exec_request import ExecError
from gateway.sidecar.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.policy.exec_range import Part
    from gateway.sidecar.status import Status
    from gateway.sidecar.store import Entry

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    409: "idempotency_conflict",
    410: "expired",
    413: "request_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    422: "spawn_failed",
    429: "too_many_commands",
    499: "client_closed_request",
    500: "internal_error",
    503: "unavailable",
}
"""What stands in ``error.code`` and in ``x-gateway-error``."""

NO_RETRY = {"X-Should-Retry": "false"}
"""On all that is said of a command that may have run: clients that repeat it run it twice."""

_PLAIN = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A body of JSON."""
    return web.Response(
        body=msgspec.json.encode(value) + b"\n",
        status=status,
        headers={**_PLAIN, **(headers or {})},
        content_type="application/json",
    )


def answer(told: dict[str, Any], status: int, entry: Entry) -> web.Response:
    """The object of a command, and beside it why there was none to be run."""
    headers = {**NO_RETRY, "Location": f"/v1/exec/{entry.id}"}
    problem = entry.problem
    if status == 422 or problem is not None:
        failure = told["detail"]["spawn_error"]
        why = "the system refused" if failure is None else failure["message"]
        message = f"The command was not started: {why}." if problem is None else problem.message
        code = CODES.get(422 if problem is None else problem.status, CODES[422])
        told = {"error": {"message": message, "code": code}, "spawn_error": failure, **told}
        headers["x-gateway-error"] = code
    return json_response(told, status, headers)


def refuse(
    request: web.BaseRequest, error: ExecError, headers: Mapping[str, str] | None = None
) -> web.Response:
    """One sentence. What of the body has not been read goes with the connection."""
    code = CODES.get(error.status, "bad_request")
    sent = {"x-gateway-error": code, **(headers or {})}
    body: dict[str, Any] = {"error": {"message": error.message, "code": code}}
    if isinstance(error, RefusedError):
        if error.retry_after:
            sent["Retry-After"] = str(error.retry_after)
        if error.spawn_error is not None:
            body["spawn_error"] = msgspec.to_builtins(error.spawn_error)
            sent |= NO_RETRY
    if error.status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    response = json_response(body, error.status, sent)
    if request.can_read_body:
        response.force_close()
    return response


def fault(request: web.BaseRequest) -> web.Response:
    """This program is wrong somewhere; nobody knows what has run."""
    message = "The gateway failed inside: see its log. GET /v1/exec tells what has run."
    return refuse(request, ExecError(500, message), NO_RETRY)


def wrong_method(request: web.BaseRequest, methods: Sequence[str]) -> web.Response:
    """What can be asked for here."""
    allowed = ", ".join(methods)
    error = ExecError(405, f"This page takes {allowed} only.")
    return refuse(request, error, {"Allow": allowed})


@contextmanager
def sending() -> Iterator[None]:
    """A head has been sent: whatever goes wrong now can only be told by a broken connection."""
    try:
        yield
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, there is no other way to tell
        logs.logger().warning("exec_output_cut", error=f"{type(error).__name__}: {error}")
        raise ConnectionResetError("the output cannot be sent to its end") from None


def event_stream() -> web.StreamResponse:
    """The head of a stream of events."""
    headers = {**_PLAIN, **NO_RETRY, "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    response.content_type = "text/event-stream"
    response.charset = "utf-8"
    return response


def output_response(
    status: Status, tag: str | None, part: Part | None, size: int | None
) -> web.StreamResponse:
    """The head of an output, or of a part of it; ``size`` is None for one that is followed."""
    headers = {**_PLAIN, **NO_RETRY, "Accept-Ranges": "bytes"}
    # Whoever stores the body knows from the head whether it is all there is.
    headers["x-gateway-complete"] = "true" if status.output.complete else "false"
    if tag is not None:
        headers["ETag"] = tag
    if part is not None:
        headers["Content-Range"] = part.content_range(size if status.final else None)
    response = web.StreamResponse(status=200 if part is None else 206, headers=headers)
    response.content_type = "application/octet-stream"
    if part is not None:
        response.content_length = part.stop - part.start
    elif size is not None:
        response.content_length = size
    return response


def wants_events(request: web.BaseRequest) -> bool:
    """Whether the client prefers a stream."""
    return "text/event-stream" in request.headers.get("Accept", "").lower()


def _nothing(_size: int) -> None:
    """Whoever reads little needs no leave."""


async def body_of(
    request: web.BaseRequest, most: int, take: Callable[[int], None] = _nothing
) -> bytes:
    """The body. Raises ExecError with 413 as soon as it is too large.

    ``take`` is told the size, before so much is read where it is known; it may raise, too.
    """
    if (request.content_length or 0) > most:
        raise ExecError(413, f"The body must be {most} bytes or less.")
    take(request.content_length or 0)
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and request.transport is not None:
        # This level of the server library leaves the interim answer to us.
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > most:
            raise ExecError(413, f"The body must be {most} bytes or less.")
        take(size)
        parts.append(part)
    return b"".join(parts)
