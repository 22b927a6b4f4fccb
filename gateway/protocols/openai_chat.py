"""OpenAI Chat Completions and its compatible dialects, as streams. Never rewrites a provider's
chunk.

Finished means: a non-empty ``finish_reason`` for every choice seen. ``[DONE]`` is neither needed
nor sufficient (https://platform.openai.com/docs/api-reference/chat-streaming; dialects: Azure,
DeepSeek, Groq, Kimi, llama.cpp, Mistral, Ollama, OpenRouter, SGLang, vLLM, xAI, Z.ai).
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.protocols.base import BaseReader, StreamProtocol, decode, encode, event
from gateway.protocols.chat_delta import calls, says_more, sounds, trails
from gateway.protocols.choices import Choices
from gateway.streams.events import Fault, Kind, Phase, ProviderError, Usage

ABNORMAL = frozenset(
    {
        "length", "content_filter", "sensitive", "model_length", "repetition",
        "model_context_window_exceeded",
    }
)  # fmt: skip
"""Finish reasons that are explicit and no normal end; one that nobody knows is a finish."""

_SAID_EARLY = frozenset({"stop"})
"""What some servers say with every piece, or before the first."""

FAILURES = frozenset(
    {
        "error", "abort", "insufficient_system_resource", "network_error", "ERROR", "TIMEOUT",
        "server_error",
    }
)  # fmt: skip
"""Finish reasons by which a provider says that it gave up: explicit, so no truncation, but no
answer either."""


class _PlainDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _PlainChoice(msgspec.Struct, gc=False, forbid_unknown_fields=False):
    index: int = 0
    delta: _PlainDelta | None = None
    finish_reason: msgspec.UnsetType | str | None = None
    error: msgspec.Raw | None = None


class _Plain(msgspec.Struct, gc=False):
    """Just enough of a chunk to conclude: content of one choice, no finish, no error. Nothing
    else."""

    choices: tuple[_PlainChoice] | None = None
    error: msgspec.Raw | None = None
    x_groq: msgspec.Raw | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    cached_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None


class _Delta(msgspec.Struct, gc=False):
    role: Any = None
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    images: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    text: Any = None
    finish_reason: Any = None
    error: Any = None
    usage: _Usage | None = None
    message: _Delta | None = None


class _Groq(msgspec.Struct, gc=False):
    error: Any = None
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, gc=False):
    object: Any = None
    choices: list[_Choice] | None = None
    error: Any = None
    usage: _Usage | None = None
    model: str | None = None
    x_groq: _Groq | None = None
    message: Any = None
    type: Any = None
    code: Any = None
    param: Any = None
    prompt_progress: Any = None
    content: Any = None
    stop: Any = None
    stop_type: Any = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None


_REASONING_FIELDS = (
    "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking",
)  # fmt: skip
_KNOWN_FIELDS = frozenset(_Delta.__struct_fields__)

_plain = msgspec.json.Decoder(_Plain)
_full = msgspec.json.Decoder(_Chunk)


# Python 3.11 makes a call of looking a member up on its class; these are on the hot path.
_CONTENT = Kind.CONTENT
_BEFORE, _TEXT, _REASONING = Phase.BEFORE_CONTENT, Phase.IN_TEXT, Phase.IN_REASONING


class Reader(BaseReader):
    """Reads chat chunks; also those of the legacy Completions endpoint, whose choices carry
    ``text``."""

    __slots__ = ("_choices", "_speaking", "_unfinished")

    def __init__(self, choices: int = 1) -> None:
        super().__init__()
        self._choices = Choices(choices)
        self._unfinished = self._choices.unfinished
        self._speaking = self._choices.speaking

    def read(self, name: bytes, data: bytes) -> Kind:
        """Take one chunk."""
        facts = self.facts
        if facts.phase is not _BEFORE and not name and not facts.finished:
            quick = self._read_plain(data)
            if quick is not None:
                return quick
        chunk = decode(data, _full, _Chunk)
        if chunk is None:
            return self._fail_text(data) if name == b"error" else Kind.OPAQUE
        if chunk.model:
            facts.model = chunk.model
        if chunk.usage is not None:
            self._count(chunk.usage)
        if self._read_error(chunk, name, data):
            return Kind.ERROR
        if chunk.choices is None:
            return self._read_native(chunk)
        kind = self._read_choices(chunk, chunk.choices)
        if kind is not Kind.HEARTBEAT:
            return kind
        if facts.finished:
            return Kind.STATE if trails(data) else kind
        # What says something in words that are not known here is no empty delta.
        return Kind.OPAQUE if says_more(data, _KNOWN_FIELDS) else kind

    def _read_plain(self, data: bytes) -> Kind | None:
        """The usual chunk: text or reasoning of one choice that goes on. None when a full reading
        is needed."""
        try:
            chunk = _plain.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        if chunk.error is not None or chunk.x_groq is not None or chunk.choices is None:
            return None
        (choice,) = chunk.choices
        delta = choice.delta
        if choice.finish_reason or choice.error is not None or delta is None:
            return None
        if delta.content:
            if choice.index not in self._speaking:
                return None
            self.facts.phase = _TEXT
        elif (delta.reasoning_content or delta.reasoning) and choice.index in self._unfinished:
            self.facts.phase = _REASONING
        else:
            return None
        self.facts.waiting = False
        return _CONTENT

    def _read_choices(self, chunk: _Chunk, choices: list[_Choice]) -> Kind:
        content = finish = False
        failure: str | None = None
        state = chunk.usage is not None or chunk.prompt_progress is not None
        for choice in choices:
            if choice.usage is not None:
                self._count(choice.usage)
            if self._choices.open(choice.index):
                # Some repeat the role on every chunk: only the first is news.
                state = state or (choice.delta is not None and choice.delta.role is not None)
            spoke = choice.index in self._speaking
            if self._note_delta(choice):
                content = True
                self._choices.speak(choice.index, thought=self.facts.phase is _REASONING)
            reason = choice.finish_reason
            if reason and reason != "null" and isinstance(reason, str | int):
                finish = True
                self._choices.finish(choice.index, sure=spoke or reason not in _SAID_EARLY)
                failure = self._note_reason(str(reason)) or failure
        self._settle()
        if failure is not None:
            self.facts.worked = self.facts.worked or content
            return self._fail(failure, f"The provider ended with {failure!r}.", retryable=True)
        if content:
            return _CONTENT
        if finish:
            return Kind.FINISH
        return Kind.STATE if state else Kind.HEARTBEAT

    def _note_delta(self, choice: _Choice) -> bool:
        """Whether the choice carries content; sets the phase by what it is."""
        delta = choice.delta or choice.message
        phase: Phase | None = None
        if choice.text:
            phase = _TEXT
        elif delta is not None:
            if calls(delta.tool_calls) or calls([{"function": delta.function_call}]):
                phase = Phase.IN_TOOL_CALL
            elif delta.content or delta.refusal or sounds(delta.audio) or delta.images:
                phase = _TEXT
            elif any(getattr(delta, name) for name in _REASONING_FIELDS):
                phase = _REASONING
        if phase is None:
            return False
        # Some servers write a tool call's arguments in one piece, at its end.
        self.facts.waiting = phase is Phase.IN_TOOL_CALL
        self.facts.phase = phase
        return True

    def _note_reason(self, reason: str) -> str | None:
        """Record a finish reason; return it when it means failure."""
        facts = self.facts
        if reason in FAILURES:
            return reason
        if facts.finish_reason is None or reason in ABNORMAL:
            facts.finish_reason = reason
            facts.abnormal = reason in ABNORMAL
        return None

    def _settle(self) -> None:
        facts = self.facts
        self._choices.settle(facts)
        if facts.finished and not facts.awaited:
            facts.phase = Phase.AFTER_FINISH
            facts.waiting = False

    def _read_native(self, chunk: _Chunk) -> Kind:
        """llama.cpp's own ``/completion``: ``stop`` true is its finish (tools/server README)."""
        facts = self.facts
        if chunk.stop is True:
            facts.finish_reason = str(chunk.stop_type or "stop")
            facts.abnormal = facts.finish_reason == "limit"
            facts.finished, facts.awaited = True, False
            facts.phase = Phase.AFTER_FINISH
            facts.usage.input = chunk.tokens_evaluated
            facts.usage.output = chunk.tokens_predicted
            return _CONTENT if chunk.content else Kind.FINISH
        if chunk.stop is False:
            if chunk.content:
                facts.phase = _TEXT
                return _CONTENT
            return Kind.HEARTBEAT
        if chunk.type in ("ping", "keepalive"):
            return Kind.HEARTBEAT
        return Kind.STATE if chunk.usage is not None else Kind.OPAQUE

    def _read_error(self, chunk: _Chunk, name: bytes, data: bytes) -> bool:
        """Whether a chunk reports a failure, in any of the forms seen; notes it, and whether SDKs
        raise on that form."""
        if chunk.error:
            if isinstance(chunk.error, dict) and chunk.error.get("message") and not chunk.choices:
                self._raises = True
            self._fail_nested(chunk.error, data)
        elif chunk.object == "error" or (chunk.message and _is_flat_error(chunk, name)):
            self._fail(chunk.type, chunk.message, chunk.code, chunk.param)
        elif chunk.x_groq is not None and chunk.x_groq.error:
            self._fail("x_groq.error", chunk.x_groq.error, _name(chunk.x_groq.error))
        else:
            error = next((choice.error for choice in chunk.choices or () if choice.error), None)
            if error is None:
                return False
            self._fail_nested(error, data)
        # Some tell of a failure in the chunk that has the last of the text.
        speaks = [self._note_delta(choice) for choice in chunk.choices or ()]
        self.facts.worked = self.facts.worked or any(speaks)
        return True

    def _fail_nested(self, error: object, data: bytes) -> None:
        if not isinstance(error, dict):
            self._fail_beside(data)
            return
        metadata = error.get("metadata")
        kind = metadata.get("error_type") if isinstance(metadata, dict) else None
        self._fail_object(error, kind)

    def _count(self, usage: _Usage) -> None:
        counted: Usage = self.facts.usage
        prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
        if usage.prompt_tokens is not None:
            counted.input = usage.prompt_tokens
        if usage.completion_tokens is not None:
            counted.output = usage.completion_tokens
        for cached in (
            prompt.cached_tokens if prompt is not None else None,
            usage.cached_tokens,
            usage.prompt_cache_hit_tokens,
        ):
            if cached is not None:
                counted.cached = cached
                break
        if completion is not None and completion.reasoning_tokens is not None:
            counted.reasoning = completion.reasoning_tokens

    def read_done(self) -> None:
        """No further choice will come, and none goes on."""
        self._choices.end()
        self._settle()

    def _raising_form(self, error: ProviderError) -> bytes:
        """A top-level error object, alone in its chunk, is the one form on which every SDK
        raises."""
        return event(_error(error.message or error.type, error.type, error.code, error.param))

    def fault(self, fault: Fault) -> bytes | None:
        """One error chunk without ``choices``: all clients raise on it, and those that can retry
        do."""
        return event(_error(fault.message, fault.type or "server_error", fault.code))


def _name(error: object) -> str | None:
    """The text of an error where it is a name and no sentence."""
    return error if isinstance(error, str) and error.isidentifier() else None


def _is_flat_error(chunk: _Chunk, name: bytes) -> bool:
    """Whether a chunk with a message is an error: by its event's name, or its type (Cerebras)."""
    return name == b"error" or (
        chunk.choices is None and isinstance(chunk.type, str) and chunk.type.endswith("error")
    )


def _error(
    message: str, kind: str, code: str | None, param: str | None = None
) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
}


def error_body(status: int, code: str | None, message: str) -> bytes:
    """A failure in OpenAI's shape."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return encode(_error(message, kind, code))


def _claims(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/chat/completions")


PROTOCOL = StreamProtocol(
    name="openai_chat",
    claims=_claims,
    reader=Reader,
    keepalive=b":\n\n",
    error_body=error_body,
)
