"""Anthropic Messages as the simulator speaks them: named events, blocks, errors; does no I/O."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.sim.content import Answer, Ask, Finish, Tool
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
    sse,
    texts,
)

if TYPE_CHECKING:
    from gateway.sim.problem import Problem

PING = b'event: ping\ndata: {"type": "ping"}\n\n'


def read(body: Json, size: int) -> Ask:
    """What a request body of ``size`` bytes asks for."""
    messages = dicts(body.get("messages"))
    last = dicts(messages[-1].get("content")) if messages else []
    users = [message for message in messages if message.get("role") == "user"]
    prompts = [text for message in users if (text := texts(message.get("content")))]
    tools = [
        Tool(item["name"], item.get("input_schema") or {})
        for item in dicts(body.get("tools"))
        if isinstance(item.get("name"), str)
    ]
    return Ask(
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        prompt=prompts[-1] if prompts else "",
        tools=tuple(tools),
        answers_tool=any(block.get("type") == "tool_result" for block in last),
        prompt_tokens=size // 4 + 1,
    )


def _stop_reason(answer: Answer) -> str:
    stop = "tool_use" if answer.call else "end_turn"
    words = {Finish.STOP: stop, Finish.LENGTH: "max_tokens", Finish.WEIRD: "unusual_stop"}
    # No stop reason of this protocol means a failure; a refusal is the nearest.
    return answer.reason or words.get(answer.finish, "refusal")


def usage(answer: Answer, output: int) -> Json:
    """Token counts; input is what came from no cache."""
    return {
        "input_tokens": answer.prompt_tokens - answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached_tokens,
        "output_tokens": output,
    }


def _message(answer: Answer, content: list[Json], stop: str | None, output: int) -> Json:
    return {
        "model": answer.model,
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage(answer, output),
    }


def _event(kind: Kind, name: str, **fields: Any) -> Event:
    # The provider pads events with blanks before the last brace; so does this one, by their length.
    text = encode({"type": name, **fields})
    padded = f"{text[:-1]}{' ' * (len(text) % 7)}}}"
    return Event(kind, f"event: {name}\ndata: {padded}\n\n".encode())


def _blocks(answer: Answer) -> list[tuple[Json, list[Json]]]:
    """Every block as (its opening, its deltas)."""
    blocks: list[tuple[Json, list[Json]]] = []
    if answer.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in answer.reasoning]
        deltas.append({"type": "signature_delta", "signature": "c2ltdWxhdGVk"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if answer.call:
        opening = {
            "type": "tool_use",
            "id": f"toolu_{answer.id}",
            "name": answer.call.name,
            "input": {},
        }
        pieces = answer.call.pieces
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        blocks.append((opening, deltas))
    else:
        deltas = [{"type": "text_delta", "text": piece} for piece in answer.choices[0]]
        blocks.append(({"type": "text", "text": ""}, deltas))
    return blocks


def events(answer: Answer, _ask: Ask) -> list[Event]:
    """The whole stream; a ping follows the start of the first block."""
    made = [_event(Kind.OPEN, "message_start", message=_message(answer, [], None, 1))]
    for index, (opening, deltas) in enumerate(_blocks(answer)):
        made.append(_event(Kind.OPEN, "content_block_start", index=index, content_block=opening))
        if index == 0:
            made.append(Event(Kind.OPEN, PING))
        made += [
            _event(Kind.CONTENT, "content_block_delta", index=index, delta=delta)
            for delta in deltas
        ]
        made.append(_event(Kind.CLOSE, "content_block_stop", index=index))
    stop = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    spent = usage(answer, answer.completion_tokens)
    made.append(_event(Kind.CLOSE, "message_delta", delta=stop, usage=spent))
    return [*made, _event(Kind.FINISH, "message_stop")]


def whole(answer: Answer, _ask: Ask) -> Json:
    """The answer without streaming."""
    content: list[Json] = []
    if answer.reasoning:
        thinking = "".join(answer.reasoning)
        content.append({"type": "thinking", "thinking": thinking, "signature": "c2ltdWxhdGVk"})
    if answer.call:
        opening, _ = _blocks(answer)[-1]
        content.append({**opening, "input": json.loads(answer.call.arguments)})
    else:
        content.append({"type": "text", "text": answer.text})
    return _message(answer, content, _stop_reason(answer), answer.completion_tokens)


def error_body(problem: Problem) -> Json:
    """The body of an HTTP error, and of the in-band one."""
    details = {"error_code": problem.code} if problem.code else None
    error = {"details": details, "type": problem.anthropic_type, "message": problem.message}
    return {"type": "error", "error": error, "request_id": "req_simulated"}


def flat_body(problem: Problem) -> Json:
    """The flat variant of compatible servers."""
    return {"code": problem.status, "message": problem.message, "type": problem.openai_type}


def error_events(form: ErrorForm, problem: Problem, _answer: Answer, _sequence: int) -> list[bytes]:
    """HALF lacks the ``event:`` line, without which Anthropic's own clients see nothing."""
    if form is ErrorForm.FLAT:
        return [sse(flat_body(problem), "error")]
    return [sse(error_body(problem), "error" if form is ErrorForm.FULL else None)]


def keepalive(form: Keepalive, _answer: Answer, _sequence: int) -> bytes:
    """``ping`` unless told otherwise; EMPTY is a delta of no text."""
    match form:
        case Keepalive.COMMENT:
            return b": keep-alive\n\n"
        case Keepalive.BLANK:
            return b"\n"
        case Keepalive.EMPTY:
            delta = {"type": "text_delta", "text": ""}
            return _event(Kind.OPEN, "content_block_delta", index=0, delta=delta).data
        case Keepalive.AUTO | Keepalive.EVENT:
            return PING


def headers(about: HeadersFor) -> Headers:
    """The id and the rate limits, as api.anthropic.com sends them."""
    reset = datetime.fromtimestamp(about.now + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    limits = (("requests", 4000), ("tokens", 800_000), ("input-tokens", 600_000))
    made = [
        ("request-id", f"req_{about.request_id}"),
        ("anthropic-organization-id", "00000000-0000-4000-8000-000000000000"),
    ]
    for name, limit in limits:
        prefix = f"anthropic-ratelimit-{name}"
        remaining = limit - 1 if about.success else 0
        made += [
            (f"{prefix}-limit", str(limit)),
            (f"{prefix}-remaining", str(remaining)),
            (f"{prefix}-reset", reset),
        ]
    return made


SHAPE = Shape(
    name="anthropic",
    read=read,
    events=events,
    whole=whole,
    error_events=error_events,
    error_body=error_body,
    flat_body=flat_body,
    keepalive=keepalive,
    headers=headers,
    done=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
)
