"""Anthropic Messages, as streams. Never rewrites a provider's event.

Finished means: ``message_stop``. A ``stop_reason`` alone is not enough: clients disagree about it
(https://platform.claude.com/docs/en/build-with-claude/streaming; the same on Vertex, Azure Foundry
and AWS; dialects: llama.cpp, SGLang, vLLM).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.protocols.base import BaseReader, StreamProtocol, convert, decode, encode, event
from gateway.streams.events import Fault, Kind, Phase, ProviderError

ABNORMAL = frozenset({"max_tokens", "refusal", "model_context_window_exceeded", "compaction"})
"""Stop reasons that are explicit and no normal end; any other one (``pause_turn``, too) is."""

_SERVER_TOOLS = frozenset({"server_tool_use", "mcp_tool_use"})
_TOOLS = _SERVER_TOOLS | {"tool_use"}
_SILENT_BLOCKS = _TOOLS | {"thinking", "redacted_thinking", "compaction"}
"""Blocks inside which silence is normal: hidden thinking, arguments that come in one piece."""


class _QuickDelta(msgspec.Struct, gc=False):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _Quick(msgspec.Struct, gc=False):
    """Just enough of an event to conclude that it is content. Nothing else."""

    type: str
    delta: _QuickDelta
    error: None = None


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Message(msgspec.Struct, gc=False):
    model: str | None = None
    usage: _Usage | None = None


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: Any = None
    thinking: Any = None
    partial_json: Any = None
    citation: Any = None
    content: Any = None
    stop_reason: Any = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    name: Any = None
    text: Any = None
    thinking: Any = None
    data: Any = None
    """Of redacted thinking."""


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: Any = None
    usage: _Usage | None = None
    error: Any = None
    code: Any = None


_quick = msgspec.json.Decoder(_Quick)
_full = msgspec.json.Decoder(_Event)


class Reader(BaseReader):
    """Reads the events of one message."""

    __slots__ = ("_block", "_server_tools")

    def __init__(self) -> None:
        super().__init__()
        self._block = ""
        self._server_tools = 0

    def read(self, name: bytes, data: bytes) -> Kind:
        """Take one event: its ``type`` says what it is, the ``event:`` line if there is none."""
        if name == b"content_block_delta" or not name:
            quick = self._read_delta(data)
            if quick is not None:
                return quick
        found = decode(data, _full, _Event)
        if found is None:
            return self._fail_text(data) if name == b"error" else Kind.OPAQUE
        kind = found.type or name.decode("utf-8", "replace")
        if kind == "error" or name == b"error" or found.error:
            return self._read_error(found, name, data)
        match kind:
            case "ping":
                return Kind.HEARTBEAT
            case "message_start":
                self._note_message(found.message)
            case "content_block_start":
                return self._start_block(found.content_block or _Block())
            case "content_block_delta":
                return self._note_delta(found.delta or _Delta())
            case "content_block_stop":
                self._stop_block()
            case "message_delta":
                self._note_end(found)
            case "message_stop":
                return self._finish()
            case _:
                return Kind.OPAQUE
        return Kind.STATE

    def _read_delta(self, data: bytes) -> Kind | None:
        """The usual event: text, thinking or arguments. None when a full reading is needed."""
        try:
            found = _quick.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        if found.type != "content_block_delta":
            return None
        delta, facts = found.delta, self.facts
        if delta.text:
            facts.phase = Phase.IN_TEXT
        elif delta.partial_json:
            facts.phase = Phase.IN_TOOL_CALL
        elif delta.thinking:
            facts.phase = Phase.IN_REASONING
        else:
            return None
        return Kind.CONTENT

    def _note_delta(self, delta: _Delta) -> Kind:
        phase: Phase | None = None
        match delta.type:
            case "signature_delta":
                # All that is seen of hidden thinking: no content, but it ends the silence.
                return Kind.STATE
            case "text_delta" | "citations_delta" | "compaction_delta" | None:
                if delta.text or delta.citation or delta.content:
                    phase = Phase.IN_TEXT
            case "input_json_delta":
                phase = Phase.IN_TOOL_CALL if delta.partial_json else None
            case "thinking_delta":
                phase = Phase.IN_REASONING if delta.thinking else None
            case _:
                return Kind.OPAQUE
        if phase is None:
            return Kind.HEARTBEAT
        self.facts.phase = phase
        return Kind.CONTENT

    def _start_block(self, block: _Block) -> Kind:
        facts, kind = self.facts, block.type
        self._block = kind
        facts.acted = facts.acted or kind == "mcp_tool_use"
        if kind.endswith("_tool_result"):
            self._server_tools = max(0, self._server_tools - 1)
        elif kind not in _SERVER_TOOLS:
            # The model speaks again, so nothing of the server's is still running.
            self._server_tools = 0
        facts.waiting = kind in _SILENT_BLOCKS
        worked = "thinking" in kind or kind == "compaction" or kind.endswith("_tool_result")
        facts.worked = facts.worked or worked
        if kind in _TOOLS:
            # Its name is the first thing a client can show.
            facts.phase = Phase.IN_TOOL_CALL
            return Kind.CONTENT
        shown = block.text or block.thinking or block.data
        if shown or facts.phase is not Phase.BEFORE_CONTENT:
            facts.phase = Phase.IN_REASONING if "thinking" in kind else Phase.IN_TEXT
        return Kind.CONTENT if shown else Kind.STATE

    def _stop_block(self) -> None:
        if self._block in _SERVER_TOOLS:
            self._server_tools += 1
        self._block = ""
        self.facts.waiting = self._server_tools > 0

    def _note_message(self, value: object) -> None:
        message = convert(value, _Message)
        if message is None:
            return
        self.facts.model = message.model or self.facts.model
        self._count(message.usage)

    def _note_end(self, found: _Event) -> None:
        self._count(found.usage)
        reason = found.delta.stop_reason if found.delta is not None else None
        if reason and isinstance(reason, str):
            self.facts.finish_reason = reason
            self.facts.abnormal = reason in ABNORMAL
        self.facts.waiting = False

    def _count(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        counted, details = self.facts.usage, usage.output_tokens_details
        if usage.input_tokens is not None:
            counted.input = usage.input_tokens
        if usage.output_tokens is not None:
            counted.output = usage.output_tokens
        if usage.cache_read_input_tokens is not None:
            counted.cached = usage.cache_read_input_tokens
        if details is not None and details.thinking_tokens is not None:
            counted.reasoning = details.thinking_tokens

    def _finish(self) -> Kind:
        facts = self.facts
        facts.finished = facts.terminal = True
        facts.phase, facts.waiting = Phase.AFTER_FINISH, False
        return Kind.FINISH

    # Failures.

    def _read_error(self, found: _Event, name: bytes, data: bytes) -> Kind:
        """Nested as documented, or flat as llama.cpp sends it."""
        error = found.error
        if not error:
            kind = None if found.type == "error" else found.type
            return self._fail(kind, found.message, found.code)
        if not isinstance(error, dict):
            return self._fail_beside(data)
        if name == b"error" and found.type == "error" and isinstance(error.get("message"), str):
            self._raises = True
        details = error.get("details")
        if isinstance(details, dict) and details.get("error_code"):
            # Tells a spend limit, which no waiting lifts, from a rate limit of the same type.
            error = {**error, "code": details["error_code"]}
        return self._fail_object(error)

    def _raising_form(self, error: ProviderError) -> bytes:
        """The SDKs raise on ``event: error`` only, the AI SDK on a nested error object only."""
        return event(_error(error.type, error.message or error.type, error.code), "error")

    def fault(self, fault: Fault) -> bytes | None:
        """``event: error`` of type ``api_error``: SDKs raise on it, clients that can retry do."""
        return event(_error(fault.type or "api_error", fault.message, fault.code), "error")


def _error(kind: str, message: str, code: str | None) -> dict[str, object]:
    error: dict[str, object] = {"type": kind, "message": message}
    if code is not None:
        error["code"] = code
    return {"type": "error", "error": error}


_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(status: int, code: str | None, message: str) -> bytes:
    """A failure in Anthropic's shape. Ids stay in headers: clients look for digits in bodies."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return encode({**_error(kind, message, code), "request_id": None})


_VERTEX_PATH = re.compile(r"/publishers/anthropic/models/[^/]+(?::|%3[Aa])(?:streamR|r)awPredict\Z")
_PATH = re.compile(r"(?:\A(?:/[^/]*+)?|/v\d[^/]*+|/anthropic)/messages\Z")
"""At the root or below one name, below a version, or below the provider's own name. Others store
messages under the id of a thread, an agent or a session, and their paths end in the same word."""


def _claims(method: str, path: str) -> bool:
    if method != "POST":
        return False
    return _PATH.search(path) is not None or _VERTEX_PATH.search(path) is not None


PROTOCOL = StreamProtocol(
    name="anthropic",
    claims=_claims,
    reader=lambda choices: Reader(),  # noqa: ARG005 - there is one answer only
    keepalive=b":\n\n",
    error_body=error_body,
    error_fields=("type",),
)
