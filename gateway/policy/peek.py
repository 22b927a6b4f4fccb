"""Reads the few facts in a request that say how its answer is to be read. Never raises.

Bodies are JSON (whatever their Content-Type says) or multipart forms, plain or compressed. What
cannot be read is unknown, not an error: the provider is the one to judge a request.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

import msgspec

from gateway.policy.arguments import without_arguments
from gateway.streams import coding

MAX_PLAIN = 64 << 20
"""Bytes that a compressed body may expand to; of a larger one, only the path's facts are known."""

MAX_NAME = 256
"""Characters of a model's name that are kept."""

_MAX_LENIENT = 4 << 20
_MAX_CHOICES = 1024
# Small steps: one kilobyte of a compression bomb can become tens of megabytes.
_STEP = 1024
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of a request; None means that nothing says so.

    ``choices`` is how many answers are asked for at once. ``background``: its answer is made
    whether or not its client waits (``background``, xAI's ``deferred``), unless it says no.
    ``asks``: its JSON holds a prompt or wants a stream. ``bound``: it goes on from something that
    is stored at the provider (an earlier response, a conversation, a cache, a prompt, a container).
    ``appends``: its answer is added to something stored there. ``acts``: it gives the provider
    tools of other servers (MCP) to use, which may change something there. ``readable`` is whether
    the body was understood.
    """

    model: str | None = None
    stream: bool | None = None
    choices: int = 1
    background: bool | None = None
    asks: bool = False
    bound: bool = False
    appends: bool = False
    acts: bool = False
    readable: bool = False


class _GenerationConfig(msgspec.Struct):
    candidate_count: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="candidateCount")
    candidate_count_snake: msgspec.Raw = msgspec.field(
        default_factory=msgspec.Raw, name="candidate_count"
    )


class _Body(msgspec.Struct):
    """The fields that are looked at, undecoded: an odd type in one must not hide the others."""

    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()
    n: msgspec.Raw = msgspec.Raw()
    background: msgspec.Raw = msgspec.Raw()
    deferred: msgspec.Raw = msgspec.Raw()
    generation_config: msgspec.Raw = msgspec.field(
        default_factory=msgspec.Raw, name="generationConfig"
    )
    generation_config_snake: msgspec.Raw = msgspec.field(
        default_factory=msgspec.Raw, name="generation_config"
    )
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    contents: msgspec.Raw = msgspec.Raw()
    previous_response_id: msgspec.Raw = msgspec.Raw()
    previous_interaction_id: msgspec.Raw = msgspec.Raw()
    agent_id: msgspec.Raw = msgspec.Raw()
    context_id: msgspec.Raw = msgspec.Raw()
    mcp_servers: msgspec.Raw = msgspec.Raw()
    conversation: msgspec.Raw = msgspec.Raw()
    container: msgspec.Raw = msgspec.Raw()
    cached_content: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="cachedContent")
    cached_content_snake: msgspec.Raw = msgspec.field(
        default_factory=msgspec.Raw, name="cached_content"
    )


class _Named(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()


_BODY = msgspec.json.Decoder(_Body)
_NAMED = msgspec.json.Decoder(_Named)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_GENERATION = msgspec.json.Decoder(_GenerationConfig)
_VALUE = msgspec.json.Decoder()

_GOOGLE_PATH = re.compile(r"/models/([^/?]+?)(?::|%3[Aa])([A-Za-z]++)(?![^/?])")
_BEDROCK_PATH = re.compile(
    r"/model/([^/?]++)/(converse|invoke)(-stream|-with-response-stream)?+(?![^?])"
)
_DEPLOYMENT_PATH = re.compile(r"/deployments/([^/?]++)/")
_REFERENCE = re.compile(
    b'"%b"' % b"".join(b"(?:%c|\\\\u00(?i:%02x))" % (mark, mark) for mark in b"item_reference")
)
"""The word as a whole text, any of its letters escaped."""
_MCP = re.compile(
    rb'"type"\s*+:\s*+"(?:mcp(?:_server|_approval_response)?|connector)"'
    rb'|"mcp_?[sS]ervers"\s*+:\s*+\[\s*+[{"]'
)
"""Tools of other servers, and what lets one of them be used."""
_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_FORM_FIELD = re.compile(
    rb'name="(model|stream|n)"(?:\r\n[^\r\n]{1,200}+)?+\r\n\r\n([^\r\n]{0,256}+)\r\n'
)


def peek(
    body: bytes,
    *,
    path: str = "",
    content_type: str | None = None,
    content_encoding: str | None = None,
) -> RequestFacts:
    """The facts in a request's body and path (its raw target); where both speak, the path wins."""
    facts = _of_body(body, content_type or "", content_encoding)
    model, stream = _of_path(path)
    if model is None and stream is None:
        return facts
    return replace(
        facts,
        model=facts.model if model is None else model,
        stream=facts.stream if stream is None else stream,
    )


def _of_body(body: bytes, content_type: str, content_encoding: str | None) -> RequestFacts:
    if coding.is_compressed(content_encoding):
        plain = expand(body, content_encoding or "")
        if plain is None:
            return RequestFacts()
        body = plain
    head = body[:64].removeprefix(_BOM).lstrip(_SPACE)
    # By its first byte, not by its type: curl labels JSON as a form.
    if head[:1] == b"{" or (not head and body[64:65]):
        return _of_json(body.removeprefix(_BOM))
    if content_type.lower().startswith("multipart/form-data"):
        return _of_form(body)
    return RequestFacts()


def expand(body: bytes, content_encoding: str) -> bytes | None:
    """The plain body, or None if it cannot be had within bounds."""
    if "," in content_encoding:
        return None  # stacked codings multiply their expansion; no client sends them
    decoder = coding.Decoder(content_encoding)
    view = memoryview(body)
    out = bytearray()
    for start in range(0, len(body), _STEP):
        out += decoder.feed(bytes(view[start : start + _STEP]))
        if decoder.failed or len(out) > MAX_PLAIN:
            return None
    return bytes(out)


def _of_json(body: bytes) -> RequestFacts:
    try:
        fields = _BODY.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        lenient = _reread(body)
        if lenient is None:
            return RequestFacts()
        fields = lenient
    stream = _flag(fields.stream)
    prompted = _says(fields.messages, fields.prompt, fields.input, fields.contents)
    return RequestFacts(
        model=_text(fields.model),
        stream=stream,
        choices=_choices(fields),
        background=_background(fields.background, fields.deferred),
        asks=prompted or stream is True,
        bound=_is_bound(fields, body),
        appends=_says(fields.conversation),
        acts=_acts(fields, body),
        readable=True,
    )


def _reread(body: bytes) -> _Body | None:
    """Read what strict JSON forbids but providers take: NaN, control characters, lone surrogates.

    Agents cut prompts in the middle of an emoji, and then send half of its surrogate pair.
    """
    try:
        return _BODY.decode(_HALF_PAIR.sub(rb"\\ufffd", body))
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        pass
    if len(body) > _MAX_LENIENT:
        return None
    try:
        value = json.loads(
            body.decode("utf-8", "replace"),
            strict=False,
            parse_float=_finite,
            parse_constant=_finite,
        )
        if not isinstance(value, dict):
            return None
        kept = {name: value[name] for name in _Body.__struct_encode_fields__ if name in value}
        for name, field in kept.items():
            if isinstance(field, list):  # of a prompt: that it is there, and how many there are
                kept[name] = [type(item)() if isinstance(item, str | list) else 0 for item in field]
        return _BODY.decode(json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None


def _finite(number: str) -> float | None:
    """A number as strict JSON can hold it; None for the others (NaN, Infinity, 1e999)."""
    value = float(number)
    return value if math.isfinite(value) else None


def _value(raw: msgspec.Raw) -> object:
    """One decoded field; None for one that is absent, too long to be meant, or no JSON."""
    data = bytes(raw)
    if not data or len(data) > 8 * MAX_NAME:
        return None
    try:
        return _VALUE.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _text(raw: msgspec.Raw) -> str | None:
    value = _value(raw)
    return value[:MAX_NAME] if isinstance(value, str) and value else None


def _flag(raw: msgspec.Raw) -> bool | None:
    value = _value(raw)
    return value if isinstance(value, bool) else None


def _background(*fields: msgspec.Raw) -> bool | None:
    """What is neither false nor null may be taken for true."""
    said = [bytes(memoryview(raw)[:6]) != b"false" for raw in fields if _says(raw)]
    return any(said) if said else None


def _is_bound(fields: _Body, body: bytes) -> bool:
    stored = _says(
        fields.previous_response_id,
        fields.previous_interaction_id,
        fields.agent_id,
        fields.context_id,
        fields.conversation,
        fields.cached_content,
        fields.cached_content_snake,
    )
    stored = stored or _begins(fields.container, b'"') or _has_id(fields.container)
    # A text that holds the word has its quotation marks escaped.
    refers = _says(fields.input) and _REFERENCE.search(body) is not None
    return stored or refers or _has_id(fields.prompt)


def _acts(fields: _Body, body: bytes) -> bool:
    """Such tools are given in ``tools``, in items of ``input``, or apart."""
    # Prompts are long, and most know nothing of it.
    if not (b'"mcp' in body or b'"connector"' in body):
        return False
    if _holds(fields.mcp_servers):
        return True
    return (
        _MCP.search(body) is not None and _MCP.search(without_arguments(body) or body) is not None
    )


def _holds(raw: msgspec.Raw) -> bool:
    """Whether there is a list or an object, and it is not empty."""
    return re.match(rb"[\[{]\s*+[^\s\]}]", memoryview(raw)) is not None


def _begins(raw: msgspec.Raw, marks: bytes) -> bool:
    first = bytes(memoryview(raw)[:1])
    return first != b"" and first in marks


def _has_id(raw: msgspec.Raw) -> bool:
    """Whether this is an object that names something stored."""
    try:
        return _begins(raw, b"{") and _says(_NAMED.decode(raw).id)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return False


def _says(*fields: msgspec.Raw) -> bool:
    """Whether one of them is there and no null."""
    # Prompts are long: they are looked at where they are.
    return any(bytes(memoryview(raw)[:5]) not in (b"", b"null") for raw in fields)


def _count(raw: msgspec.Raw) -> int:
    value = _value(raw)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str):
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 1
    return min(max(value, 1), _MAX_CHOICES)


def _number(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,4}", text) else 1


def _prompts(raw: msgspec.Raw) -> int:
    """How many prompts there are: each text and each list of tokens in a list is one, and so is a
    list of tokens.
    """
    first = bytes(memoryview(raw)[1:64]).lstrip(_SPACE)[:1]
    if not _begins(raw, b"[") or not first or first not in b'"[{':
        return 1
    try:
        prompts = _LIST.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return 1
    # Texts among tokens are parts of one prompt.
    return len(prompts) if all(_begins(prompt, b'"[{') for prompt in prompts) else 1


def _choices(fields: _Body) -> int:
    config = bytes(fields.generation_config) or bytes(fields.generation_config_snake)
    if not config:
        return min(_count(fields.n) * _prompts(fields.prompt), _MAX_CHOICES)
    try:
        generation = _GENERATION.decode(config)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return 1
    return max(_count(generation.candidate_count), _count(generation.candidate_count_snake))


def _of_form(body: bytes) -> RequestFacts:
    """An upload with form fields beside the file (audio transcription, image edits)."""
    found = {
        match[1]: match[2].decode("utf-8", "replace").strip()
        for match in _FORM_FIELD.finditer(body)
    }
    stream = found.get(b"stream", "").lower()
    return RequestFacts(
        model=found.get(b"model") or None,
        stream={"true": True, "1": True, "false": False, "0": False}.get(stream),
        choices=min(max(_number(found.get(b"n", "")), 1), _MAX_CHOICES),
        readable=True,
    )


def _of_path(path: str) -> tuple[str | None, bool | None]:
    """What a path says: Google's and Bedrock's both, Azure's the model only."""
    google = _GOOGLE_PATH.search(path)
    if google is not None:
        verb = google[2].lower()
        known = verb in ("generatecontent", "rawpredict") or verb.startswith("stream")
        return unquote(google[1])[:MAX_NAME], verb.startswith("stream") if known else None
    bedrock = _BEDROCK_PATH.search(path)
    if bedrock is not None:
        return unquote(bedrock[1])[:MAX_NAME], bedrock[3] is not None
    azure = _DEPLOYMENT_PATH.search(path)
    return (None, None) if azure is None else (unquote(azure[1])[:MAX_NAME], None)
