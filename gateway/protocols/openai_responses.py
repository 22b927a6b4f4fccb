"""OpenAI Responses, as streams. Never rewrites a provider's event and never forges a completion.

Finished means: ``response.completed`` or ``response.incomplete``. The set of event types grows, so
the shape of a type says what it means
(https://platform.openai.com/docs/api-reference/responses-streaming; dialects: Azure, OpenRouter
without ``event:`` lines, Bedrock with them after the data, vLLM, SGLang).

Clients raise on different things: OpenAI's SDKs on a nested ``error`` object and nothing else,
Codex on ``response.failed`` and nothing else. The raising form is both, in that order.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.protocols.base import BaseReader, StreamProtocol, decode, event
from gateway.protocols.openai_chat import error_body
from gateway.streams import lenient
from gateway.streams.events import Fault, Kind, Phase, ProviderError

HEARTBEATS = frozenset({"keepalive", "ping"})
_SILENT_WORK = (".in_progress", ".searching", ".interpreting", ".generating", ".compacting")
_WORK_DONE = (".completed", ".failed")
_RETRIED_CODES = frozenset({"server_error", "rate_limit_exceeded", "vector_store_timeout"})
"""Codes of ``response.failed`` on which Codex tries again and keeps the message."""


class _Delta(msgspec.Struct, gc=False):
    """Just enough of an event to conclude that it is content. Nothing else."""

    type: str
    delta: str
    sequence_number: int | None = None
    error: None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: Any = None
    incomplete_details: _Incomplete | None = None
    output: msgspec.Raw = msgspec.Raw()


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    name: Any = None
    content: Any = None
    summary: Any = None
    encrypted_content: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    sequence_number: int | None = None
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    object: Any = None
    code: Any = None
    message: Any = None
    param: Any = None
    text: Any = None
    arguments: Any = None
    status: Any = None


_quick = msgspec.json.Decoder(_Delta)
_full = msgspec.json.Decoder(_Event)


def _phase_of(kind: str) -> Phase:
    """The phase that an event or an item of this type belongs to."""
    if "reasoning" in kind:
        return Phase.IN_REASONING
    return Phase.IN_TOOL_CALL if "_call" in kind else Phase.IN_TEXT


_DELTAS = {
    kind: _phase_of(kind)
    for kind in (
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
        "response.shell_call_command.delta",
        "response.apply_patch_call_operation_diff.delta",
        "response.audio.delta",
        "response.audio.transcript.delta",
    )
}
"""The deltas known to carry a string; others are read in full."""


class Reader(BaseReader):
    """Reads the events of one response."""

    __slots__ = (
        "_in_progress",
        "_last",
        "_queued",
        "_reasoning",
        "_sequence",
        "_told_failed",
        "_told_nested",
    )

    def __init__(self) -> None:
        super().__init__()
        self._sequence = -1
        self._last = b""
        self._queued = self._in_progress = False
        self._reasoning = False
        self._told_nested = False
        self._told_failed = False

    def read(self, name: bytes, data: bytes) -> Kind:
        """Take one event: its ``type`` says what it is, the ``event:`` line if there is none."""
        quick = self._read_delta(data)
        if quick is not None:
            return quick
        found = decode(data, _full, _Event)
        if found is None:
            return self._fail_text(data) if name == b"error" else Kind.OPAQUE
        kind = found.type or name.decode("utf-8", "replace")
        if found.sequence_number is not None:
            self._sequence = found.sequence_number
        if kind in HEARTBEATS:
            return Kind.HEARTBEAT
        if found.response is not None:
            self._note_response(found.response, data)
        # Tools fail, too, and their responses go on.
        own = not found.error or kind.endswith(".failed") or "_call." in kind
        if kind.startswith("response.") and own:
            return self._read_event(kind, found)
        if kind == "error" or name == b"error" or found.error or found.object == "error":
            return self._read_error(found, data)
        return Kind.OPAQUE

    def _read_delta(self, data: bytes) -> Kind | None:
        """The usual event: text, reasoning or arguments. None when a full reading is needed."""
        try:
            found = _quick.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        phase = _DELTAS.get(found.type)
        if phase is None:
            return None
        if found.sequence_number is not None:
            self._sequence = found.sequence_number
        return self._note_content(phase) if found.delta else Kind.HEARTBEAT

    def _note_content(self, phase: Phase) -> Kind:
        self.facts.phase = phase
        # Arguments may be written in one piece at their end: silence is normal in between.
        self.facts.waiting = phase is Phase.IN_TOOL_CALL
        return Kind.CONTENT

    def _read_event(self, kind: str, found: _Event) -> Kind:
        match kind:
            case "response.completed" | "response.incomplete" | "response.cancelled":
                return self._end(kind.removeprefix("response."), found.response)
            case "response.failed":
                self._told_failed = True
                return self._end("failed", found.response)
            case "response.queued":
                # Said again and again while the request waits, so only the first one is news.
                again, self._queued, self.facts.waiting = self._queued, True, True
                return Kind.HEARTBEAT if again else Kind.STATE
            case "response.in_progress":
                # Some proxies say it for as long as they wait.
                again, self._in_progress = self._in_progress, True
                self._note_work(kind, found)
                return Kind.HEARTBEAT if again else Kind.STATE
            case _:
                return self._read_growing(kind, found)

    def _read_growing(self, kind: str, found: _Event) -> Kind:
        """Types of which there will be more."""
        if kind.endswith(".delta"):
            return Kind.HEARTBEAT if found.delta == "" else self._note_content(_phase_of(kind))
        if kind.endswith("partial_image"):
            if self.facts.phase is Phase.BEFORE_CONTENT:
                self.facts.phase = Phase.IN_TEXT
            return Kind.CONTENT
        self._note_work(kind, found)
        phase = _phase_of_whole(kind, found)
        if phase is None:
            return Kind.STATE
        self.facts.phase = phase
        return Kind.CONTENT

    def _note_work(self, kind: str, found: _Event) -> None:
        """Follow whether silence is normal now: hidden reasoning, a server-side tool, a queue."""
        facts = self.facts
        called = found.item.type if found.item is not None else kind
        facts.acted = facts.acted or "mcp_call" in (called or "")
        if kind in ("response.created", "response.in_progress"):
            facts.waiting = found.response is not None and found.response.status == "queued"
        elif kind == "response.output_item.added":
            item = found.item.type if found.item is not None else None
            self._reasoning = item == "reasoning"
            # A search or a picture is made, and billed, before anything of it is seen.
            facts.worked = facts.worked or item != "message"
            facts.waiting = item != "message"
            if facts.phase is not Phase.BEFORE_CONTENT:
                facts.phase = _phase_of(item or "")
        elif kind == "response.output_item.done":
            self._reasoning = facts.waiting = False
            sealed = found.item is not None and found.item.encrypted_content is not None
            facts.worked = facts.worked or sealed
        elif kind.endswith(_SILENT_WORK):
            facts.waiting = facts.worked = True
        elif kind.endswith(_WORK_DONE):
            facts.waiting = False
        elif kind.startswith("response.reasoning") and kind.endswith(".done"):
            # The end of one summary is not the end of the reasoning.
            facts.waiting = self._reasoning

    def _note_response(self, response: _Response, data: bytes) -> None:
        self._last = data
        facts = self.facts
        facts.model = response.model or facts.model
        if response.usage is None:
            return
        counted, usage = facts.usage, response.usage
        counted.input, counted.output = usage.input_tokens, usage.output_tokens
        if usage.input_tokens_details is not None:
            counted.cached = usage.input_tokens_details.cached_tokens
        if usage.output_tokens_details is not None:
            counted.reasoning = usage.output_tokens_details.reasoning_tokens

    def _end(self, status: str, response: _Response | None) -> Kind:
        """Take a last event by the status of its response, which some servers put into another
        event than its own, so that no failure is a finish; by its name if there is none."""
        said = response.status if response is not None else None
        if status in ("completed", "incomplete") and said in ("incomplete", "failed", "cancelled"):
            status = said
        match status:
            case "completed":
                return self._finish("completed", abnormal=False)
            case "incomplete":
                details = response.incomplete_details if response is not None else None
                return self._finish((details and details.reason) or "incomplete", abnormal=True)
            case "cancelled":
                self.facts.terminal = True
                return self._fail("cancelled", "The response was cancelled.", retryable=False)
            case _:
                self.facts.terminal = True
                return self._fail_response(response)

    def _finish(self, reason: str, *, abnormal: bool) -> Kind:
        facts = self.facts
        facts.finished = facts.terminal = True
        facts.finish_reason, facts.abnormal = reason, abnormal
        facts.phase, facts.waiting = Phase.AFTER_FINISH, False
        return Kind.FINISH

    # Failures.

    def _read_error(self, found: _Event, data: bytes) -> Kind:
        """Nested as it is sent, flat as it is documented, or an ``error`` object by any name."""
        error = found.error
        if not error:
            kind = None if found.type in (None, "error") else found.type
            return self._fail(kind, found.message, found.code, found.param)
        if not isinstance(error, dict):
            return self._fail_beside(data)
        if found.type == "error" and isinstance(error.get("message"), str):
            self._told_nested = True
        # Beside it may be the status of the HTTP error that it would have been.
        return self._fail_object(
            error, code=found.status if isinstance(found.status, int) else None
        )

    def _fail_response(self, response: _Response | None) -> Kind:
        made = b"" if response is None else bytes(response.output)
        self.facts.worked = self.facts.worked or (made[:1] == b"[" and b"{" in made)
        self.facts.acted = self.facts.acted or b'"mcp_call"' in made
        error = response.error if response is not None else None
        if isinstance(error, dict):
            return self._fail(error.get("type"), error.get("message"), error.get("code"))
        return self._fail("server_error", error)

    def complement(self, *, ending: bool) -> bytes:
        """The nested ``error`` event at once, ``response.failed`` if it has not come by the end."""
        error = self.facts.error
        if error is None:
            return b""
        message = error.message or error.type
        out = b""
        if not self._told_nested:
            out = self._nested_event(message, error.type, error.code, error.param)
        if ending and not self._told_failed:
            out += self._failed_event(message, _failed_code(error))
        return out

    def fault(self, fault: Fault) -> bytes | None:
        """The nested ``error``, then ``response.failed`` with a code on which Codex retries."""
        nested = self._nested_event(fault.message, fault.type or "server_error", fault.code)
        code = "server_error" if fault.type is None else _FINAL_CODES.get(fault.status, fault.code)
        return nested + self._failed_event(fault.message, code)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _nested_event(
        self, message: str, kind: str, code: str | None, param: str | None = None
    ) -> bytes:
        self._told_nested = True
        error = {"type": kind, "code": code, "message": message, "param": param}
        number = self._next_sequence()
        return event({"type": "error", "sequence_number": number, "error": error}, "error")

    def _failed_event(self, message: str, code: str) -> bytes:
        """``response.failed`` about the response as it was last seen."""
        self._told_failed = True
        response: dict[str, Any] = {"object": "response", "output": []}
        last: Any = lenient.loads(self._last) if self._last else None
        if isinstance(last, dict) and isinstance(last.get("response"), dict):
            response = last["response"]
        response = {**response, "status": "failed", "error": {"code": code, "message": message}}
        number = self._next_sequence()
        return event(
            {"type": "response.failed", "sequence_number": number, "response": response},
            "response.failed",
        )


def _phase_of_whole(kind: str, found: _Event) -> Phase | None:
    """The phase of an event that holds content in one piece, which some servers and tools send
    without a delta before it: a named call, a whole item, a whole text. None for what holds none.
    """
    item = found.item
    if item is None:
        whole = kind.endswith(".done") and (found.text or found.arguments)
        return _phase_of(kind) if whole else None
    called = "_call" in (item.type or "")
    if kind == "response.output_item.added":
        speaks = called and bool(item.name)  # its name is the first thing a client can show
    else:
        shown = called or bool(item.content or item.summary)
        speaks = kind == "response.output_item.done" and shown
    return _phase_of(item.type or "") if speaks else None


_FINAL_CODES = {400: "invalid_prompt"}
"""Codes of ``response.failed`` by which Codex gives up where it would for the HTTP status."""


def _failed_code(error: ProviderError) -> str:
    """The provider's own code, but none that makes Codex give up on what can be retried."""
    code = error.code or error.type
    return "server_error" if error.retryable and code not in _RETRIED_CODES else code


_RESPONSE_PATH = re.compile(r"/responses/[^/]+\Z")


def _claims(method: str, path: str) -> bool:
    if method == "POST":
        return path.endswith("/responses")
    return method == "GET" and _RESPONSE_PATH.search(path) is not None


PROTOCOL = StreamProtocol(
    name="openai_responses",
    claims=_claims,
    reader=lambda choices: Reader(),  # noqa: ARG005 - there is one answer only
    keepalive=b":\n\n",
    error_body=error_body,
)
