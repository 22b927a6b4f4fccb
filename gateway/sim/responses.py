"""OpenAI Responses as the simulator speaks them: numbered events in full sequence; no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.sim import openai
from gateway.sim.content import Answer, Ask, Finish
from gateway.sim.shape import ErrorForm, Event, Json, Keepalive, Kind, Shape, dicts, sse, texts

if TYPE_CHECKING:
    from gateway.sim.problem import Problem


def read(body: Json, size: int) -> Ask:
    """What a request body of ``size`` bytes asks for."""
    given = body.get("input")
    items = dicts(given)
    last = str(items[-1].get("type") or "") if items else ""
    return Ask(
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        prompt=given if isinstance(given, str) else openai.last_user_text(items) or texts(given),
        tools=openai.tools(body),
        answers_tool=last.endswith("_call_output"),
        prompt_tokens=size // 4 + 1,
    )


def usage(answer: Answer) -> Json:
    """Token counts, with their details."""
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": answer.cached_tokens},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _response(answer: Answer, status: str, output: list[Json], **changes: Any) -> Json:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
        **changes,
    }


def _problem_response(answer: Answer, problem: Problem) -> Json:
    code = problem.code or problem.openai_type
    error = {"code": code, "message": problem.message}
    return _response(answer, "failed", [], error=error)


class _Writer:
    """Numbers the events of one stream and gathers its output items."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.events: list[Event] = []
        self.output: list[Json] = []

    def add(self, kind: Kind, event: str, /, **fields: Any) -> None:
        payload = {"type": event, "sequence_number": len(self.events), **fields}
        self.events.append(Event(kind, sse(payload, event)))

    def open(self) -> None:
        snapshot = _response(self.answer, "in_progress", [])
        self.add(Kind.OPEN, "response.created", response=snapshot)
        self.add(Kind.OPEN, "response.in_progress", response=snapshot)

    def _begin(self, item: Json) -> None:
        self.add(Kind.OPEN, "response.output_item.added", output_index=len(self.output), item=item)

    def _end(self, item: Json) -> None:
        self.add(Kind.CLOSE, "response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)

    def reasoning(self) -> None:
        item: Json = {"id": f"rs_{self.answer.id}", "type": "reasoning", "summary": []}
        place = {"item_id": item["id"], "output_index": len(self.output), "summary_index": 0}
        text = "".join(self.answer.reasoning)
        part = {"type": "summary_text", "text": text}
        name = "response.reasoning_summary"
        self._begin(item)
        self.add(Kind.OPEN, f"{name}_part.added", **place, part={**part, "text": ""})
        for piece in self.answer.reasoning:
            self.add(Kind.CONTENT, f"{name}_text.delta", **place, delta=piece)
        self.add(Kind.CLOSE, f"{name}_text.done", **place, text=text)
        self.add(Kind.CLOSE, f"{name}_part.done", **place, part=part)
        self._end({**item, "summary": [part]})

    def message(self) -> None:
        item: Json = {
            "id": f"msg_{self.answer.id}",
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        place = {"item_id": item["id"], "output_index": len(self.output), "content_index": 0}
        part = {
            "type": "output_text",
            "annotations": [],
            "logprobs": [],
            "text": self.answer.text,
        }
        self._begin(item)
        self.add(Kind.OPEN, "response.content_part.added", **place, part={**part, "text": ""})
        for piece in self.answer.choices[0]:
            self.add(Kind.CONTENT, "response.output_text.delta", **place, delta=piece, logprobs=[])
        text = self.answer.text
        self.add(Kind.CLOSE, "response.output_text.done", **place, text=text, logprobs=[])
        self.add(Kind.CLOSE, "response.content_part.done", **place, part=part)
        self._end({**item, "status": "completed", "content": [part]})

    def call(self, name: str, pieces: tuple[str, ...]) -> None:
        item: Json = {
            "id": f"fc_{self.answer.id}",
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": f"call_{self.answer.id}",
            "name": name,
        }
        place = {"item_id": item["id"], "output_index": len(self.output)}
        event = "response.function_call_arguments"
        arguments = "".join(pieces)
        self._begin(item)
        for piece in pieces:
            self.add(Kind.CONTENT, f"{event}.delta", **place, delta=piece)
        self.add(Kind.CLOSE, f"{event}.done", **place, name=name, arguments=arguments)
        self._end({**item, "status": "completed", "arguments": arguments})

    def content(self) -> None:
        if self.answer.reasoning:
            self.reasoning()
        if self.answer.call:
            self.call(self.answer.call.name, self.answer.call.pieces)
        else:
            self.message()

    def final(self) -> Json:
        """The response as the terminal event carries it."""
        spent = usage(self.answer)
        match self.answer.finish:
            case Finish.STOP:
                return _response(self.answer, "completed", self.output, usage=spent)
            case Finish.LENGTH | Finish.WEIRD:
                known = self.answer.finish is Finish.LENGTH
                reason = self.answer.reason or ("max_output_tokens" if known else "unusual_stop")
                return _response(
                    self.answer,
                    "incomplete",
                    self.output,
                    usage=spent,
                    incomplete_details={"reason": reason},
                )
            case Finish.ERROR:
                error = {
                    "code": self.answer.reason or "server_error",
                    "message": "The model failed while answering.",
                }
                return _response(self.answer, "failed", self.output, usage=spent, error=error)


def events(answer: Answer, _ask: Ask) -> list[Event]:
    """The whole stream, from ``response.created`` to its terminal event."""
    writer = _Writer(answer)
    writer.open()
    writer.content()
    final = writer.final()
    writer.add(Kind.FINISH, f"response.{final['status']}", response=final)
    return writer.events


def whole(answer: Answer, _ask: Ask) -> Json:
    """The answer without streaming."""
    writer = _Writer(answer)
    writer.content()
    return writer.final()


def error_events(form: ErrorForm, problem: Problem, answer: Answer, sequence: int) -> list[bytes]:
    """FULL is a nested ``error``, then ``response.failed``; HALF lacks that; FLAT as documented."""
    head = {"type": "error", "sequence_number": sequence}
    if form is ErrorForm.FLAT:
        fields = {"code": problem.code, "message": problem.message, "param": problem.param}
        return [sse({**head, **fields}, "error")]
    nested = sse({**head, "error": openai.error(problem)}, "error")
    if form is ErrorForm.HALF:
        return [nested]
    failed = {
        "type": "response.failed",
        "sequence_number": sequence + 1,
        "response": _problem_response(answer, problem),
    }
    return [nested, sse(failed, "response.failed")]


def keepalive(form: Keepalive, answer: Answer, sequence: int) -> bytes:
    """``keepalive`` events use up a sequence number; EMPTY repeats ``response.in_progress``."""
    match form:
        case Keepalive.COMMENT:
            return b": keep-alive\n\n"
        case Keepalive.BLANK:
            return b"\n"
        case Keepalive.EMPTY:
            name = "response.in_progress"
            response = _response(answer, "in_progress", [])
            return sse({"type": name, "sequence_number": sequence, "response": response}, name)
        case Keepalive.AUTO | Keepalive.EVENT:
            return sse({"type": "keepalive", "sequence_number": sequence}, "keepalive")


SHAPE = Shape(
    name="responses",
    read=read,
    events=events,
    whole=whole,
    error_events=error_events,
    error_body=openai.error_body,
    flat_body=openai.flat_body,
    keepalive=keepalive,
    headers=openai.headers,
)
