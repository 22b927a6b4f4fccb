"""What a client makes of an HTTP error, written down apart from the gateway: opencode 1.18 with the
AI SDK's providers. It shares no pattern with the gateway, on purpose.

Which words it looks for is data here, one entry for each form that it knows.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, Final, NamedTuple

RETRY: Final = (
    "429", "500", "502", "503", "504", "524",
    "rate increased too quickly", "rate limit", "rate-limit", "rate_limit", "too many requests",
    "overloaded", "service unavailable", "service[_-]unavailable", "internal error",
    "internal_error", "internal server error", "server error", "server[_-]error",
    "provider returned error", "terminated", "fetch failed", "failed to fetch",
    r"network[-_\s]error", "upstream connect", "connection error", "connection refused",
    "connection lost", "socket connection was closed", "socket hang up", "reset before headers",
    "getaddrinfo", "enotfound", "eai_again", "econnrefused", "econnreset", "etimedout",
    "^timeout$",
    "(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)",
    "try your request again", "retry your request", "resource[_ ]exhausted",
    "try again (?:later|in)",
    "(?:currently|temporarily) at capacity",
)  # fmt: skip

OVERFLOW: Final = (
    "prompt is too long", "request_too_large", "input is too long for requested model",
    "exceeds the context window", "exceeds (?:the )?(?:model's )?maximum context length",
    r"input token count[^\n\r\u2028\u2029]*exceeds the maximum", r"maximum prompt length is \d+",
    "reduce the length of the messages", r"maximum context length is \d+",
    r"exceeds (?:the )?maximum allowed input length of [\d,]+ tokens?",
    r"input \(\d+ tokens\) is longer than the model'?s context length",
    r"exceeds the limit of \d+", "exceeds the available context size",
    "greater than the context length", "context window exceeds limit",
    "exceeded model token limit", r"too large for model with \d+ maximum context length",
    r"prompt has [\d,]+ tokens?, but the configured context size is [\d,]+ tokens?",
    "model_context_window_exceeded", "prompt too long; exceeded (?:max )?context length",
    "range of input length should be", "context[_ ]length[_ ]exceeded", "too many tokens",
    "token limit exceeded", "request entity too large", r"context length is only \d+ tokens",
    r"input length[^\n\r\u2028\u2029]*exceeds[^\n\r\u2028\u2029]*context length",
    r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)",
)  # fmt: skip

DIALECTS: Final = ("openai_chat", "anthropic", "gemini")

SPECIAL: Final = ("FreeUsageLimitError", "GoUsageLimitError")
"""Words of a body for which it has a screen of its own."""


class Reaction(NamedTuple):
    """What a client does."""

    retry: bool
    overflow: bool
    special: bool


def reaction(status: int, body: bytes, dialect: str) -> Reaction:
    """What it does about that answer, whose reason phrase is the usual one."""
    text = body.decode("utf-8", "replace")
    message = shown(status, text, dialect)
    return Reaction(
        status in (408, 409, 429) or status >= 500 or finds(RETRY, message) or finds(RETRY, text),
        status == 413 or _code(text) == "context_length_exceeded" or finds(OVERFLOW, message),
        any(word in text for word in SPECIAL),
    )


def shown(status: int, text: str, dialect: str) -> str:
    """The message that a person sees."""
    phrase = status_text(status)
    value = _parsed(text)
    message = value["error"]["message"] if _fits(value, dialect) else phrase
    if not message:
        return text or phrase or "Unknown error"
    if not text or message != phrase:
        return str(message)
    for inner in (value.get("message"), value.get("error")) if isinstance(value, dict) else ():
        if inner and isinstance(inner, str):
            return f"{message}: {inner}"
    if re.match(r"\s*<(?:!doctype|html)", text, re.IGNORECASE):
        return f"Unauthorized or forbidden: {phrase}" if status in (401, 403) else str(message)
    return f"{message}: {text}"


def status_text(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _parsed(text: str) -> Any:
    """The AI SDK's parser is strict; it takes no NaN."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _fits(value: Any, dialect: str) -> bool:
    """Whether the schema of the dialect's provider takes the body."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return False
    if dialect == "anthropic":
        return value.get("type") == "error" and isinstance(error.get("type"), str)
    code = error.get("code")
    number = isinstance(code, int | float) and not isinstance(code, bool)
    if dialect == "gemini":
        fits = "code" in error and (code is None or number)
        return fits and isinstance(error.get("status"), str)
    return (code is None or isinstance(code, str) or number) and isinstance(
        error.get("type", ""), str | None
    )


def _code(text: str) -> object:
    value = _parsed(text)
    error = value.get("error") if isinstance(value, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def finds(patterns: tuple[str, ...], text: str) -> bool:
    """Whether one of the patterns is in the text."""
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)
