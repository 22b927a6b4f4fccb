"""Generated bodies of errors: any shape, with the words in it on which clients act, and secrets.

JSON is made as source text, so that spellings of numbers and escapes and blanks vary, too.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gateway import protocols
from gateway.policy.enrich import enrich
from gateway.policy.error_body import Answer
from gateway.streams import lenient

unhurried = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=200, derandomize=True
)
"""The same bodies in each run; on a busy machine they take their time."""

OWN_SECRET = "own-Zyxwvut-Qponmlk-98-Jihgfedc"
SECRETS = (
    "sk-ant-api03-AbCdEfGh12345678", "sk-proj-AbCdEf123456789012345", "AIzaSyA1234567890abcdefg",
    "gsk_AbCdEf1234567890AbCdEf", "xai-AbCdEf1234567890AbCdEf", "hf_AbCdEf1234567890AbCdEf",
    "AKIAABCDEFGH12345678", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "nvapi-AbCdEf1234567890AbCd", "AbCdEf1234567890AbCdEf1234567890", OWN_SECRET,
)  # fmt: skip
_SAID = (
    "Invalid value", "temperature", "messages[3].tool_calls", "is not supported", "bad_tool_call",
    "gemini", "model", "Bad Request", "Not Found", "bad request!", "", " ", "x", "Ünïcödé 😀",
    "a\nb", "a\0b", 'quoted "word"', "back\\slash", "</b>", "1", "34s", "https://api.example/v1?a=1",
    "<title>A page</title>", "None", "null",
)  # fmt: skip
_ACTED_ON = (
    "429", "500", "5004", "rate limit", "rate_limit_exceeded", "ratelimit", "too many requests",
    "too_many_requests", "Overloaded", "service_unavailable", "serviceunavailable", "unavailable",
    "exhausted", "resource exhausted", "RESOURCE_EXHAUSTED", "internal error", "server_error",
    "servererror", "Provider returned error", "terminated", "network error", "networkerror",
    "ECONNRESET", "timeout", "read timeout", "request", "timed out", "retry your request",
    "try your request", "again", "try again later", "try again", "later", "at capacity",
    "currently",
    "prompt is too long", "prompt is", "too long", "prompt too long", "input is too long",
    "request_too_large", "maximum context length is 4096 tokens", "maximum context",
    "reduce the length of the messages", "exceeds the limit of 12", "exceeds the limit",
    "input (9 tokens) is longer than the model's context length (8 tokens)",
    "range of input length should be [1, 9]", "too many tokens", "context_length_exceeded",
    "context length exceeded", "exceeds the maximum allowed input length of 9 tokens",
    "prompt has 9 tokens, but the configured context size is 8 tokens", "request entity too large",
    "400 (no body)", "(no body)", "input length", "exceeds", "context length", "input token count",
    "exceeds the maximum",
)  # fmt: skip
_KEYS = (
    "message", "code", "param", "type", "status", "metadata", "raw", "provider_name", "details",
    "errors", "innererror", "failed_generation", "detail", "loc", "msg", "reason", "field", "path",
    "request_id", "headers", "object", "success", "title", "body", "retryDelay", "@type", "user_id",
    "previous_errors", "error", "x", "cause", "fieldViolations", "description",
)  # fmt: skip
_NUMBERS = (
    "0",
    "-0",
    "1",
    "1.0",
    "1e2",
    "1E+2",
    "0.10",
    "400",
    "429",
    "500",
    "12345678901234567890",
)

_BLANKS = ("", "", "", " ", "\n  ", "\r\n\t")
_PAGE = (
    "<!DOCTYPE html><html><head><title>{}</title><style>p{{}}</style></head><body>{}</body></html>"
)

MARKUP = (
    _PAGE,
    "<?xml version='1.0'?>\n<Error><Code>{}</Code><Message>{}</Message><HostId>x</HostId></Error>",
    "<Error><Message>{}</Message><RequestId>{}</RequestId></Error>",
    "<html><body><h1>{}</h1>\n{}</body></html>",
    "<h1>{}</h1><p>{}</p>",
    "<!-- {} --><body>{}</body>",
    "<html><script>{}</script>{}</html>",
)

_words = st.one_of(
    st.sampled_from(_SAID),
    st.sampled_from(_ACTED_ON),
    st.sampled_from(SECRETS),
    st.text(max_size=8),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A few words, mostly with blanks in between."""
    words = [draw(_words) for _ in range(draw(st.integers(0, 3)))]
    glued = "" if not set(words) & set(SECRETS) else " "
    return draw(st.sampled_from((" ", " ", ": ", "; ", glued, "\n"))).join(words)


@st.composite
def strings(draw: st.DrawFn) -> str:
    return json.dumps(draw(texts()), ensure_ascii=draw(st.booleans()))


@st.composite
def values(draw: st.DrawFn, depth: int = 0) -> str:
    """Any JSON, also JSON inside strings."""
    kind = draw(st.integers(0, 9 if depth < 3 else 6))
    if kind < 4:
        return draw(strings())
    if kind < 7:
        return draw(st.sampled_from((*_NUMBERS, "null", "true")))
    if kind == 7:
        inside = [draw(values(depth + 1)) for _ in range(draw(st.integers(0, 2)))]
        return f"[{', '.join(inside)}]"
    inner = draw(objects(depth=depth + 1))
    return json.dumps(inner) if kind == 8 else inner


@st.composite
def objects(draw: st.DrawFn, has: dict[str, str] | None = None, depth: int = 0) -> str:
    """An object; ``has`` are members that it must have."""
    members = {
        draw(st.sampled_from(_KEYS)): draw(values(depth + 1))
        for _ in range(draw(st.integers(0, 3)))
    }
    members |= has or {}
    names = draw(st.permutations(list(members)))
    blank = draw(st.sampled_from(_BLANKS))
    inside = f",{blank}".join(f'"{name}"{blank}:{blank}{members[name]}' for name in names)
    return f"{{{blank}{inside}{blank}}}"


@st.composite
def native(draw: st.DrawFn) -> bytes:
    """An object with an ``error`` that has a message."""
    error = draw(objects({"message": draw(strings())}))
    return draw(objects({"error": error})).encode("utf-8", "surrogatepass")


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A body of any form, mostly JSON."""
    match draw(st.integers(0, 11)):
        case 0 | 1 | 2:
            return draw(native())
        case 3:
            return b"[" + draw(native()) + b"]"
        case 4 | 5:
            name = draw(st.sampled_from(("message", "detail", "error", "errors")))
            has = {name: draw(values())}
            if draw(st.booleans()):
                has["code"] = draw(st.sampled_from(('"context_length_exceeded"', '"c"', "429")))
            text = draw(objects(has))
        case 6:
            text = draw(values())
        case 7:
            text = draw(texts())
        case 9:
            text = "\n".join((draw(objects()), draw(st.one_of(objects(), texts()))))
        case 10:
            texts_of = (draw(objects()), draw(objects()))
            text = "\n\n".join(f"data: {' '.join(each.split())}" for each in texts_of)
        case 8:
            text = draw(st.sampled_from(MARKUP)).format(draw(texts()), draw(texts()))
        case _:
            return draw(native())[: -draw(st.integers(1, 9))]
    return text.encode("utf-8", "surrogatepass")


statuses = st.one_of(
    st.sampled_from((400, 400, 400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 529)),
    st.integers(400, 599),
)


def told(
    status: int,
    body: bytes,
    dialect: str = "openai_chat",
    headers: dict[str, str] | None = None,
    secrets: tuple[str, ...] = (),
) -> Any:
    """The JSON that the client gets, of an array its one element."""
    enriched = enrich(Answer(status, headers or {}, body), protocols.BY_NAME[dialect], secrets)
    value = json.loads(body if enriched is None else enriched.body, parse_int=lenient.integer)
    return value[0] if isinstance(value, list) else value


def message_of(status: int, body: bytes, dialect: str = "openai_chat") -> str:
    message = told(status, body, dialect)["error"]["message"]
    assert isinstance(message, str)
    return message
