"""Answers that are no stream of the model: HTTP errors in every form, and pages; sends nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from gateway.sim.plan import Plan, whole
from gateway.sim.shape import HeadersFor, Shape, encode

if TYPE_CHECKING:
    from gateway.sim.content import Answer, Ask
    from gateway.sim.problem import Problem

HTML = (
    "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n"
    "<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
TEXT = (
    "upstream connect error or disconnect/reset before headers. "
    "reset reason: connection termination"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and its answer. ``every`` is the server's pace; ``now`` is seconds since 1970."""

    shape: Shape
    ask: Ask
    answer: Answer
    request_id: str
    now: float
    every: float = 0.0


def problem_reply(exchange: Exchange, problem: Problem, body: str = "json") -> Plan:
    """An HTTP error in the protocol's own shape; ``body`` is one of the forms of ``body=``."""
    kind, text = _error_text(exchange, problem, body)
    about = HeadersFor(exchange.request_id, exchange.now, success=False)
    headers = [("content-type", kind)] if kind else []
    headers += exchange.shape.headers(about)
    if problem.retry_after is not None and exchange.shape.name != "gemini":
        headers.append(("retry-after", str(math.ceil(problem.retry_after))))
        if exchange.shape.name != "anthropic":
            headers.append(("retry-after-ms", str(math.ceil(problem.retry_after * 1000))))
    if 300 <= problem.status <= 399:
        headers.append(("location", "/elsewhere"))
    return whole(problem.status, headers, text.encode())


def _error_text(exchange: Exchange, problem: Problem, body: str) -> tuple[str, str]:
    shape, ask = exchange.shape, exchange.ask
    in_array = body == "json" and ask.stream and not ask.sse
    match "array" if in_array else body:
        case "html":
            return "text/html", page(_title(problem.status))
        case "text":
            return "text/plain", TEXT
        case "empty":
            return "", ""
        case "flat":
            payload: Any = shape.flat_body(problem)
        case "detail":
            payload = {"detail": problem.message}
        case "array":
            payload = [shape.error_body(problem)]
        case _:
            payload = shape.error_body(problem)
    return "application/json", encode(payload)


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Error"


def page(title: str) -> str:
    """An HTML page as a web server makes it for its own errors."""
    return HTML.format(title=title)
