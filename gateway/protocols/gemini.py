"""Gemini (AI Studio and Vertex) with ``alt=sse``, as streams. Never ends an answer on a finish.

Finished means: the last word of every candidate seen is a ``finishReason``, or the prompt was
blocked before there was a candidate. There is no end marker, and old models put ``STOP`` on every
chunk, so only the end of the stream settles it (https://ai.google.dev/api/generate-content).
Clients take nothing but ``data:`` lines, blank lines and bare JSON, which is how some errors come.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.protocols.base import (
    BaseReader,
    StreamProtocol,
    convert,
    decode,
    encode,
    event,
    names_of,
)
from gateway.streams import lenient
from gateway.streams.events import Fault, Kind, Phase, ProviderError
from gateway.streams.sse import bare_lines

ABNORMAL = frozenset(
    {
        "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "SPII",
        "PROHIBITED_CONTENT", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT", "IMAGE_OTHER", "IMAGE_RECITATION", "NO_IMAGE",
        "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "ESCALATION",
        "PUP_LIMITED_DISABLED", "CONTINUATION", "MODEL_ARMOR",
    }
)  # fmt: skip
"""Finish reasons that are explicit and no normal end."""

RETRYABLE = frozenset(
    {
        "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED",
        "CANCELLED", "UNKNOWN",
    }
)  # fmt: skip
FINAL = frozenset(
    {
        "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNAUTHENTICATED",
        "PERMISSION_DENIED", "NOT_FOUND", "ALREADY_EXISTS", "UNIMPLEMENTED",
    }
)  # fmt: skip
"""Statuses of google.rpc.Code by whether trying again can help."""

_NO_FINISH = (None, "", "FINISH_REASON_UNSPECIFIED")
_NO_BLOCK = (None, "", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")
_TOOL_PARTS = frozenset({"functionCall", "executableCode", "toolCall"})
_SIGNS = frozenset({"thought", "thoughtSignature"})
"""Keys of a part that say something about it and are no content."""


class _Content(msgspec.Struct, gc=False):
    parts: list[dict[str, Any]] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    index: int = 0
    content: _Content | None = None
    finish_reason: Any = None
    grounding_metadata: Any = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: Any = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    response_id: Any = None
    error: Any = None


class _PlainPart(msgspec.Struct, gc=False):
    text: str
    thought: bool = False


class _PlainContent(msgspec.Struct, gc=False):
    parts: tuple[_PlainPart]


class _PlainCandidate(msgspec.Struct, gc=False, rename="camel"):
    content: _PlainContent
    index: int = 0
    finish_reason: None = None


class _Plain(msgspec.Struct, gc=False, rename="camel"):
    """Just enough of a chunk to conclude: text of one candidate that goes on. Nothing else."""

    candidates: tuple[_PlainCandidate]
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    error: None = None


_full = msgspec.json.Decoder(_Chunk)
_plain = msgspec.json.Decoder(_Plain)


class Reader(BaseReader):
    """Reads the chunks of one answer."""

    __slots__ = ("_reasons", "_wanted")

    def __init__(self, choices: int = 1) -> None:
        super().__init__()
        self._wanted = choices
        # By candidate: the finish reason that is its last word so far, None while it goes on.
        self._reasons: dict[int, str | None] = {}

    def read(self, name: bytes, data: bytes) -> Kind:  # noqa: ARG002 - Gemini names no events
        """Take one chunk."""
        quick = self._read_plain(data)
        if quick is not None:
            return quick
        chunk = decode(data, _full, _Chunk)
        if chunk is None:
            # Seen around errors only: the array that the endpoint gives without ``alt=sse``.
            return self._read_array(data)
        return self._read_chunk(chunk, data)

    def _read_plain(self, data: bytes) -> Kind | None:
        """The usual chunk: a piece of text. None when a full reading is needed."""
        try:
            chunk = _plain.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return None
        (candidate,) = chunk.candidates
        (part,) = candidate.content.parts
        if not part.text or self._reasons.get(candidate.index, "unseen") is not None:
            return None
        facts = self.facts
        facts.phase = Phase.IN_REASONING if part.thought else Phase.IN_TEXT
        facts.waiting = False
        self._note_model(chunk.model_version)
        self._note_usage(chunk.usage_metadata)
        return Kind.CONTENT

    def read_bare(self, block: bytes) -> Kind:
        """Clients collect bare lines as JSON by its braces, and so are some errors sent."""
        text = bare_lines(block)
        if text[:1] not in (b"{", b"["):
            return Kind.HEARTBEAT
        return self.read(b"", text)

    def _read_array(self, data: bytes) -> Kind:
        try:
            value = lenient.loads(data)
        except ValueError:
            return Kind.OPAQUE
        if isinstance(value, list) and len(value) == 1:
            chunk = convert(value[0], _Chunk)
            if chunk is not None and chunk.error:
                return self._read_error(chunk.error, encode(value[0]), raises=False)
        return Kind.OPAQUE

    def _read_chunk(self, chunk: _Chunk, data: bytes) -> Kind:
        if chunk.error:
            return self._read_error(chunk.error, data, raises=True)
        news = self._note_model(chunk.model_version)
        news = self._note_usage(chunk.usage_metadata) or news
        if chunk.candidates:
            return self._read_candidates(chunk.candidates, news=news)
        reason = chunk.prompt_feedback.block_reason if chunk.prompt_feedback is not None else None
        if reason not in _NO_BLOCK and not self._reasons:
            facts = self.facts
            facts.finished = facts.abnormal = True
            facts.finish_reason = str(reason)
            facts.phase = Phase.AFTER_FINISH
            return Kind.FINISH
        if news or chunk.prompt_feedback is not None:
            return Kind.STATE
        known = chunk.usage_metadata is not None or chunk.model_version or chunk.response_id
        return Kind.HEARTBEAT if known or data.strip() == b"{}" else Kind.OPAQUE

    def _read_candidates(self, candidates: list[_Candidate], *, news: bool) -> Kind:
        content = finish = False
        for candidate in candidates:
            parts = candidate.content.parts if candidate.content is not None else None
            speaks = self._note_parts(parts) if parts else False
            content = content or speaks
            signed = any("thoughtSignature" in part for part in parts or ())
            self.facts.worked = self.facts.worked or signed or bool(candidate.grounding_metadata)
            news = news or signed
            if speaks and self._reasons.get(candidate.index) is not None:
                self.facts.resumed = True
            if candidate.finish_reason not in _NO_FINISH:
                finish = True
                self._reasons[candidate.index] = str(candidate.finish_reason)
            elif speaks:
                self._reasons[candidate.index] = None
            else:
                self._reasons.setdefault(candidate.index, None)
        self._settle()
        if content:
            return Kind.CONTENT
        if finish:
            return Kind.FINISH
        return Kind.STATE if news else Kind.HEARTBEAT

    def _note_parts(self, parts: list[dict[str, Any]]) -> bool:
        """Whether there is content in them; sets the phase by the last one that has some."""
        phase: Phase | None = None
        for part in parts:
            if not any(value for key, value in part.items() if key not in _SIGNS):
                continue
            if not _TOOL_PARTS.isdisjoint(part):
                phase = Phase.IN_TOOL_CALL
            else:
                phase = Phase.IN_REASONING if part.get("thought") else Phase.IN_TEXT
        if phase is None:
            return False
        self.facts.phase = phase
        # The server may be running the code or the tool that it has just named.
        self.facts.waiting = phase is Phase.IN_TOOL_CALL
        return True

    def _settle(self) -> None:
        facts, reasons = self.facts, self._reasons
        facts.finished = None not in reasons.values()
        facts.awaited = len(reasons) < self._wanted
        said = [reason for _, reason in sorted(reasons.items()) if reason is not None]
        failed = [reason for reason in said if reason in ABNORMAL]
        facts.abnormal = bool(failed)
        facts.finish_reason = next(iter(failed or said), None)
        if facts.finished:
            if facts.phase is not Phase.AFTER_FINISH:
                # Translators say STOP before they have said anything, old models with each piece.
                facts.doubtful = facts.phase is Phase.BEFORE_CONTENT or facts.resumed
            facts.phase, facts.waiting = Phase.AFTER_FINISH, False

    def _note_model(self, model: str | None) -> bool:
        """Whether that is news."""
        if not model or model == self.facts.model:
            return False
        self.facts.model = model
        return True

    def _note_usage(self, usage: _Usage | None) -> bool:
        """Whether there is news in the counts, which come with every chunk."""
        if usage is None:
            return False
        counted, news = self.facts.usage, False
        # Of a search, say.
        self.facts.worked = self.facts.worked or bool(usage.tool_use_prompt_token_count)
        prompt, cached = usage.prompt_token_count, usage.cached_content_token_count
        answer, thoughts = usage.candidates_token_count, usage.thoughts_token_count
        if prompt is not None and prompt != counted.input:
            counted.input, news = prompt, True
        if answer is not None and answer != counted.output:
            counted.output, news = answer, True
        if cached is not None and cached != counted.cached:
            counted.cached, news = cached, True
        if thoughts is not None and thoughts != counted.reasoning:
            counted.reasoning, news = thoughts, True
        return news

    # Failures.

    def _read_error(self, error: object, data: bytes, *, raises: bool) -> Kind:
        if self.facts.error is None:
            self._raises = raises and isinstance(error, dict) and isinstance(error.get("code"), int)
        if not isinstance(error, dict):
            return self._fail_beside(data)
        kind, code = names_of(error)
        return self._fail(kind, error.get("message"), code, retryable=_retryable(error))

    def may_close(self) -> bool:
        """Never: the next chunk may take the finish back."""
        return False

    def _raising_form(self, error: ProviderError) -> bytes:
        """Google's SDK raises on an ``error`` object with a numeric code."""
        return _event(error.status, error.message or error.type, error.type)

    def fault(self, fault: Fault) -> bytes | None:
        """An error chunk: Google's SDK raises on it, with the whole of it in the text."""
        return _event(fault.status, fault.message, fault.code)


_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    504: "DEADLINE_EXCEEDED",
}


def _error(status: int, message: str, reason: str | None) -> dict[str, object]:
    """A ``google.rpc.Status``: its code must be a number, so the gateway's own is a detail."""
    name = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
    error: dict[str, object] = {"code": status, "message": message, "status": name}
    if reason is not None:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": reason, "domain": "gateway"}]
    return {"error": error}


def _event(status: int, message: str, reason: str) -> bytes:
    return event(_error(status, message, reason), line_end=b"\r\n")


def _retryable(error: dict[str, Any]) -> bool | None:
    """By status, None where it says nothing. A daily quota does not come back within a retry."""
    status = error.get("status")
    if not isinstance(status, str):
        return None
    if error.get("code") == 402:
        return False
    if status == "RESOURCE_EXHAUSTED":
        return "PerDay" not in str(error.get("details"))
    if status in RETRYABLE:
        return True
    return False if status in FINAL else None


def error_body(status: int, code: str | None, message: str) -> bytes:
    """A failure in Google's shape."""
    return encode(_error(status, message, code))


_PATH = re.compile(
    r"/(?:models|tunedModels|endpoints)/[^/]+(?::|%3[Aa])(?:streamGenerateContent|generateContent)\Z"
)


def _claims(method: str, path: str) -> bool:
    return method == "POST" and _PATH.search(path) is not None


PROTOCOL = StreamProtocol(
    name="gemini",
    claims=_claims,
    reader=Reader,
    keepalive=b"\n",
    error_body=error_body,
    error_fields=("code", "status"),
)
