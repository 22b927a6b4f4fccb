"""Google Gemini as the simulator speaks it: SSE with CRLF, or a JSON array; does no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gateway.sim.content import Answer, Ask, Finish, Tool, ToolCall
from gateway.sim.shape import (
    ErrorForm,
    Event,
    Headers,
    HeadersFor,
    Json,
    Keepalive,
    Kind,
    Shape,
    dicts,
    encode,
    texts,
)

if TYPE_CHECKING:
    from gateway.sim.problem import Problem

PIECES_PER_EVENT = 4
"""Gemini sends fewer and longer events than the others."""


def read(body: Json, size: int) -> Ask:
    """What a request body of ``size`` bytes asks for; model and streaming stand in the path."""
    contents = dicts(body.get("contents"))
    users = [content for content in contents if content.get("role", "user") == "user"]
    prompts = [text for content in users if (text := texts(content.get("parts")))]
    last = dicts(contents[-1].get("parts")) if contents else []
    config = body.get("generationConfig")
    count = config.get("candidateCount") if isinstance(config, dict) else None
    return Ask(
        prompt=prompts[-1] if prompts else "",
        choices=count if isinstance(count, int) and count > 0 else 1,
        tools=_tools(body),
        answers_tool=any("functionResponse" in part for part in last),
        prompt_tokens=size // 4 + 1,
    )


def _tools(body: Json) -> tuple[Tool, ...]:
    schemas = ("parameters", "parametersJsonSchema", "parameters_json_schema")
    found = []
    for group in dicts(body.get("tools")):
        declared = group.get("functionDeclarations") or group.get("function_declarations")
        for function in dicts(declared):
            if isinstance(name := function.get("name"), str):
                schema: Json = next((function[key] for key in schemas if function.get(key)), {})
                found.append(Tool(name, schema))
    return tuple(found)


def _finish_reason(answer: Answer) -> str:
    words = {Finish.STOP: "STOP", Finish.LENGTH: "MAX_TOKENS", Finish.WEIRD: "UNUSUAL_STOP"}
    # No finish reason of this protocol means a failing provider; this one is the nearest.
    return answer.reason or words.get(answer.finish, "MALFORMED_FUNCTION_CALL")


def _usage(answer: Answer, *, final: bool) -> Json:
    counts = {
        "promptTokenCount": answer.prompt_tokens,
        "cachedContentTokenCount": answer.cached_tokens,
    }
    if not final:
        return {**counts, "totalTokenCount": answer.prompt_tokens}
    return {
        **counts,
        "candidatesTokenCount": answer.text_tokens,
        "thoughtsTokenCount": answer.reasoning_tokens,
        "totalTokenCount": answer.prompt_tokens + answer.completion_tokens,
    }


def _body(answer: Answer, candidates: list[Json], *, final: bool) -> Json:
    return {
        "candidates": candidates,
        "usageMetadata": _usage(answer, final=final),
        "modelVersion": answer.model,
        "responseId": answer.id,
    }


def _candidate(index: int, parts: list[Json], finish: str | None = None) -> Json:
    content = {"content": {"parts": parts, "role": "model"}}
    ending = {"finishReason": finish} if finish else {}
    return {**content, **ending, "index": index}


def _grouped(pieces: tuple[str, ...]) -> list[str]:
    starts = range(0, len(pieces), PIECES_PER_EVENT)
    return ["".join(pieces[at : at + PIECES_PER_EVENT]) for at in starts]


def _call_part(call: ToolCall) -> Json:
    part = {"name": call.name, "args": json.loads(call.arguments)}
    return {"functionCall": part, "thoughtSignature": "c2ltdWxhdGVk"}


def _payloads(answer: Answer) -> list[tuple[Kind, Json]]:
    made: list[tuple[Kind, Json]] = []

    def add(kind: Kind, candidate: Json) -> None:
        made.append((kind, _body(answer, [candidate], final=kind is Kind.FINISH)))

    indices = range(len(answer.choices))
    for text in _grouped(answer.reasoning):
        for index in indices:
            add(Kind.CONTENT, _candidate(index, [{"text": text, "thought": True}]))
    groups = [_grouped(pieces) for pieces in answer.choices]
    for at in range(max(len(group) for group in groups)):
        for index, group in enumerate(groups):
            if at < len(group):
                add(Kind.CONTENT, _candidate(index, [{"text": group[at]}]))
    for index in indices:
        if answer.call:
            add(Kind.CONTENT, _candidate(index, [_call_part(answer.call)]))
    for index in indices:
        add(Kind.FINISH, _candidate(index, [{"text": ""}], _finish_reason(answer)))
    return made


def _sse(payload: Any) -> bytes:
    return f"data: {encode(payload)}\r\n\r\n".encode()


def events(answer: Answer, ask: Ask) -> list[Event]:
    """The whole stream; without ``alt=sse`` it is one JSON array, its last bracket an event too."""
    payloads = _payloads(answer)
    if ask.sse:
        return [Event(kind, _sse(payload)) for kind, payload in payloads]
    made = []
    for at, (kind, payload) in enumerate(payloads):
        separator = "[" if at == 0 else ",\r\n"
        text = json.dumps(payload, indent=2, ensure_ascii=False)
        made.append(Event(kind, f"{separator}{text}".encode("utf-8", "replace")))
    return [*made, Event(Kind.DONE, b"]")]


def whole(answer: Answer, _ask: Ask) -> Json:
    """The answer without streaming."""
    candidates = []
    for index, pieces in enumerate(answer.choices):
        parts: list[Json] = []
        if answer.reasoning:
            parts.append({"text": "".join(answer.reasoning), "thought": True})
        parts.append(_call_part(answer.call) if answer.call else {"text": "".join(pieces)})
        candidates.append(_candidate(index, parts, _finish_reason(answer)))
    return _body(answer, candidates, final=True)


def error_body(problem: Problem) -> Json:
    """The body of an HTTP error, and of the in-band one; the wait stands in its details."""
    error: Json = {
        "code": problem.status,
        "message": problem.message,
        "status": problem.gemini_status,
    }
    details: list[Json] = []
    if problem.code:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        metadata = {"field": problem.param} if problem.param else {}
        details.append({"@type": kind, "reason": problem.code.upper(), "metadata": metadata})
    if problem.retry_after is not None:
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        details.append({"@type": kind, "retryDelay": f"{problem.retry_after:g}s"})
    return {"error": {**error, "details": details} if details else error}


def flat_body(problem: Problem) -> Json:
    """The error object without its wrapping."""
    error = error_body(problem)["error"]
    return error if isinstance(error, dict) else {}


def error_events(form: ErrorForm, problem: Problem, _answer: Answer, _sequence: int) -> list[bytes]:
    """FULL is a data line, FLAT bare JSON without ``data:`` (both were seen), HALF an array."""
    body = error_body(problem)
    if form is ErrorForm.FLAT:
        text = json.dumps(body, indent=2).replace("\n", "\r\n")
        return [f"{text}\r\n".encode()]
    return [_sse([body] if form is ErrorForm.HALF else body)]


def keepalive(form: Keepalive, answer: Answer, _sequence: int) -> bytes:
    """A blank line: the protocol has no heartbeat, and comments break Google's own client."""
    match form:
        case Keepalive.COMMENT:
            return b": keep-alive\r\n\r\n"
        case Keepalive.EVENT:
            return b"data: {}\r\n\r\n"
        case Keepalive.EMPTY:
            return _sse(_body(answer, [], final=False))
        case Keepalive.AUTO | Keepalive.BLANK:
            return b"\r\n"


def headers(_about: HeadersFor) -> Headers:
    """What generativelanguage.googleapis.com sends; it names no request id."""
    return [
        ("vary", "Origin"),
        ("vary", "X-Origin"),
        ("vary", "Referer"),
        ("server-timing", "gfet4t7; dur=412"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "SAMEORIGIN"),
        ("x-xss-protection", "0"),
    ]


SHAPE = Shape(
    name="gemini",
    read=read,
    events=events,
    whole=whole,
    error_events=error_events,
    error_body=error_body,
    flat_body=flat_body,
    keepalive=keepalive,
    headers=headers,
    done=b"data: [DONE]\r\n\r\n",
    stream_type="text/event-stream",
)
