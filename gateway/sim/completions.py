"""OpenAI's legacy Completions as the simulator speaks them; no tools, no reasoning, no I/O."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from gateway.sim import chat, openai
from gateway.sim.content import Answer, Ask, Finish
from gateway.sim.shape import ErrorForm, Event, Json, Keepalive, Kind, Shape, sse, texts

if TYPE_CHECKING:
    from gateway.sim.problem import Problem


def read(body: Json, size: int) -> Ask:
    """What a request body of ``size`` bytes asks for."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        prompt = " ".join(part for part in prompt if isinstance(part, str))
    return Ask(
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        prompt=texts(prompt),
        choices=openai.choice_count(body),
        include_usage=openai.wants_usage(body),
        prompt_tokens=size // 4 + 1,
    )


def _finish_reason(answer: Answer) -> str:
    words = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.WEIRD: "unusual_stop"}
    return answer.reason or words.get(answer.finish, "error")


def _chunk(answer: Answer, choices: list[Json]) -> Json:
    return {
        "id": f"cmpl-{answer.id}",
        "object": "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
    }


def _choice(index: int, text: str, finish: str | None = None) -> Json:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


def events(answer: Answer, ask: Ask) -> list[Event]:
    """The whole stream: text, a finish per choice, usage if asked for, ``[DONE]``."""
    choices = [
        (Kind.CONTENT, _choice(index, text))
        for row in zip_longest(*answer.choices)
        for index, text in enumerate(row)
        if text is not None
    ]
    reason = _finish_reason(answer)
    choices += [(Kind.FINISH, _choice(at, "", reason)) for at in range(len(answer.choices))]
    made = [Event(kind, sse(_chunk(answer, [choice]))) for kind, choice in choices]
    if ask.include_usage:
        made.append(Event(Kind.AFTER, sse({**_chunk(answer, []), "usage": chat.usage(answer)})))
    return [*made, Event(Kind.DONE, chat.DONE)]


def whole(answer: Answer, _ask: Ask) -> Json:
    """The answer without streaming."""
    reason = _finish_reason(answer)
    choices = [_choice(at, "".join(pieces), reason) for at, pieces in enumerate(answer.choices)]
    return {**_chunk(answer, choices), "usage": chat.usage(answer)}


def error_events(form: ErrorForm, problem: Problem, answer: Answer, _sequence: int) -> list[bytes]:
    """The forms of Chat Completions, with this protocol's choices."""
    if form is ErrorForm.HALF:
        beside = {"code": problem.status, "message": problem.message}
        return [sse({**_chunk(answer, [_choice(0, "", "error")]), "error": beside})]
    return chat.error_events(form, problem, answer, 0)


def keepalive(form: Keepalive, answer: Answer, sequence: int) -> bytes:
    """As Chat Completions; EMPTY is a choice without text."""
    if form is Keepalive.EMPTY:
        return sse(_chunk(answer, [_choice(0, "")]))
    return chat.keepalive(form, answer, sequence)


SHAPE = Shape(
    name="completions",
    read=read,
    events=events,
    whole=whole,
    error_events=error_events,
    error_body=openai.error_body,
    flat_body=openai.flat_body,
    keepalive=keepalive,
    headers=openai.headers,
)
