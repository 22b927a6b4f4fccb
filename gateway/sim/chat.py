"""OpenAI Chat Completions as the simulator speaks it: chunks, answers, errors; does no I/O."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from gateway.sim import openai
from gateway.sim.content import Answer, Ask, Finish
from gateway.sim.shape import ErrorForm, Event, Json, Keepalive, Kind, Shape, dicts, encode, sse

if TYPE_CHECKING:
    from gateway.sim.problem import Problem

DONE = b"data: [DONE]\n\n"


def read(body: Json, size: int) -> Ask:
    """What a request body of ``size`` bytes asks for."""
    messages = dicts(body.get("messages"))
    return Ask(
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        prompt=openai.last_user_text(messages),
        choices=openai.choice_count(body),
        tools=openai.tools(body),
        answers_tool=bool(messages) and messages[-1].get("role") in ("tool", "function"),
        include_usage=openai.wants_usage(body),
        prompt_tokens=size // 4 + 1,
    )


def finish_reason(answer: Answer) -> str:
    """The protocol's word for how the answer ends."""
    stop = "tool_calls" if answer.call else "stop"
    words = {Finish.STOP: stop, Finish.LENGTH: "length", Finish.WEIRD: "unusual_stop"}
    return answer.reason or words.get(answer.finish, "error")


def usage(answer: Answer) -> Json:
    """Token counts, with their details."""
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": answer.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _chunk(answer: Answer, choices: list[Json]) -> Json:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
        "choices": choices,
    }


def _delta(answer: Answer, index: int, delta: Json, finish: str | None = None) -> Json:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _chunk(answer, [choice])


def _content(answer: Answer) -> list[tuple[int, Json]]:
    """Every delta that carries content, as (choice, delta); choices take turns."""
    deltas: list[tuple[int, Json]] = []
    indices = range(len(answer.choices))
    for piece in answer.reasoning:
        deltas += [(index, {"reasoning_content": piece}) for index in indices]
    if answer.call:
        start = {"index": 0, "id": f"call_{answer.id}", "type": "function"}
        function = {"name": answer.call.name, "arguments": ""}
        deltas += [(index, {"tool_calls": [{**start, "function": function}]}) for index in indices]
        for piece in answer.call.pieces:
            call = {"index": 0, "function": {"arguments": piece}}
            deltas += [(index, {"tool_calls": [call]}) for index in indices]
    for row in zip_longest(*answer.choices):
        deltas += [(index, {"content": text}) for index, text in enumerate(row) if text is not None]
    return deltas


def events(answer: Answer, ask: Ask) -> list[Event]:
    """The whole stream: roles, content, a finish per choice, usage if asked for, ``[DONE]``."""
    extra: Json = {"usage": None} if ask.include_usage else {}
    indices = range(len(answer.choices))
    role: Json = {"role": "assistant", "content": None if answer.call else "", "refusal": None}
    reason = finish_reason(answer)
    chunks = [(Kind.OPEN, _delta(answer, index, role)) for index in indices]
    chunks += [(Kind.CONTENT, _delta(answer, index, delta)) for index, delta in _content(answer)]
    chunks += [(Kind.FINISH, _delta(answer, index, {}, reason)) for index in indices]
    made = [Event(kind, sse({**chunk, **extra})) for kind, chunk in chunks]
    if ask.include_usage:
        made.append(Event(Kind.AFTER, sse({**_chunk(answer, []), "usage": usage(answer)})))
    return [*made, Event(Kind.DONE, DONE)]


def whole(answer: Answer, _ask: Ask) -> Json:
    """The answer without streaming."""
    message: Json = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.call:
        function = {"name": answer.call.name, "arguments": answer.call.arguments}
        message["tool_calls"] = [
            {"id": f"call_{answer.id}", "type": "function", "function": function}
        ]
    choices = [
        {
            "index": index,
            "message": message if answer.call else {**message, "content": "".join(pieces)},
            "logprobs": None,
            "finish_reason": finish_reason(answer),
        }
        for index, pieces in enumerate(answer.choices)
    ]
    completion = {**_chunk(answer, choices), "object": "chat.completion"}
    return {**completion, "usage": usage(answer)}


def error_events(form: ErrorForm, problem: Problem, answer: Answer, _sequence: int) -> list[bytes]:
    """The error that goes into a stream.

    FULL is raised by every client, FLAT swallowed by OpenAI's own; HALF stands beside ``choices``.
    """
    if form is ErrorForm.FLAT:
        return [sse(openai.flat_body(problem))]
    if form is ErrorForm.HALF:
        beside = {"code": problem.status, "message": problem.message}
        return [sse({**_delta(answer, 0, {"content": ""}, "error"), "error": beside})]
    return [sse(openai.error_body(problem))]


def keepalive(form: Keepalive, answer: Answer, _sequence: int) -> bytes:
    """A comment unless told otherwise; EMPTY is a chunk without content."""
    match form:
        case Keepalive.EMPTY:
            return sse(_delta(answer, 0, {}))
        case Keepalive.EVENT:
            return f"event: ping\ndata: {encode({'type': 'ping'})}\n\n".encode()
        case Keepalive.BLANK:
            return b"\n"
        case Keepalive.AUTO | Keepalive.COMMENT:
            return b": keep-alive\n\n"


SHAPE = Shape(
    name="chat",
    read=read,
    events=events,
    whole=whole,
    error_events=error_events,
    error_body=openai.error_body,
    flat_body=openai.flat_body,
    keepalive=keepalive,
    headers=openai.headers,
    done=DONE,
)
