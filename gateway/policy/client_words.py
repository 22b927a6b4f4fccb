"""What clients read out of an error's text: that they should ask again, that the context is full.

Clients look for words, and even for digits, anywhere in a message. Whatever the gateway adds to one
must leave the answers here as they were, or an agent would behave differently because of it. Never
decides whether the gateway itself tries again (``policy.retry`` does).

The patterns are those of opencode 1.18 (its retry of a session's step, and its detection of a full
context), each as narrow as there: a wider one would take a message for one that is acted on anyway,
and let words into it that then are. Other clients look for some of them, or at the status alone.

A message is read for each piece that may be appended to it, so looking must be cheap, and the time
for it in proportion to the text whatever that is: first for plain words, then for a pattern where
one of its words is.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import Any, Final, NamedTuple

from gateway.streams import lenient


class _Signs(NamedTuple):
    """What clients look for, in small letters: plain ``words``; ``patterns``, each behind a word
    that it contains; words that stand ``in_a_row`` in one line, with anything between them.
    """

    words: tuple[str, ...]
    patterns: tuple[tuple[str, re.Pattern[str]], ...] = ()
    in_a_row: tuple[tuple[str, ...], ...] = ()

    def are_in(self, text: str) -> bool:
        text = text.lower()
        return (
            any(word in text for word in self.words)
            or any(word in text and pattern.search(text) for word, pattern in self.patterns)
            or any(_are_in_a_row(row, text) for row in self.in_a_row)
        )


def _are_in_a_row(words: tuple[str, ...], text: str) -> bool:
    if not all(word in text for word in words):
        return False
    return any(_follow(words, line) for line in _LINE_END.split(text))


def _follow(words: tuple[str, ...], line: str) -> bool:
    at = 0
    for word in words:
        found = line.find(word, at)
        if found < 0:
            return False
        at = found + len(word)
    return True


_LINE_END: Final = re.compile(r"[\n\r\u2028\u2029]")
"""What ``.`` does not match in JavaScript."""

_TIMED_OUT: Final = tuple(
    map(
        " ".join,
        product(
            ("request", "response", "connection", "network", "stream", "read"),
            ("timeout", "timed out", "time out"),
        ),
    )
)
_RETRY: Final = _Signs(
    (
        "429", "500", "502", "503", "504", "524",
        "rate increased too quickly", "rate limit", "rate-limit", "rate_limit",
        "too many requests", "overloaded", "service unavailable", "service_unavailable",
        "service-unavailable", "internal error", "internal_error", "server error", "server_error",
        "server-error", "provider returned error", "terminated", "fetch failed", "failed to fetch",
        "upstream connect", "connection error", "connection refused", "connection lost",
        "socket connection was closed", "socket hang up", "reset before headers", "getaddrinfo",
        "enotfound", "eai_again", "econnrefused", "econnreset", "etimedout",
        "try your request again", "retry your request", "resource exhausted", "resource_exhausted",
        "try again later", "try again in", "currently at capacity", "temporarily at capacity",
        *_TIMED_OUT,
    ),
    (("network", re.compile(r"network[-_\s]error")), ("timeout", re.compile(r"^timeout$"))),
)  # fmt: skip

_RETRY_IN_STREAMS: Final = _Signs(
    (
        "too_many_requests", "exhausted", "unavailable", "ratelimit", "rate_limit", "timeout",
        "try your request",
    )
)  # fmt: skip
"""What else counts in errors inside streams, or for other clients."""

_OVERFLOW: Final = _Signs(
    (
        "prompt is too long", "request_too_large", "input is too long for requested model",
        "exceeds the context window", "reduce the length of the messages",
        "exceeds the available context size", "greater than the context length",
        "context window exceeds limit", "exceeded model token limit",
        "model_context_window_exceeded", "prompt too long; exceeded context length",
        "prompt too long; exceeded max context length", "range of input length should be",
        "too many tokens", "token limit exceeded", "request entity too large",
    ),
    (
        (
            "maximum context length",
            re.compile(
                r"exceeds (?:the )?(?:model's )?maximum context length"
                r"|maximum context length is \d"
                r"|too large for model with \d+ maximum context length"
            ),
        ),
        ("maximum prompt length", re.compile(r"maximum prompt length is \d")),
        (
            "maximum allowed input length",
            re.compile(r"exceeds (?:the )?maximum allowed input length of [\d,]+ token"),
        ),
        (
            "is longer than the model",
            re.compile(r"input \(\d+ tokens\) is longer than the model'?s context length"),
        ),
        ("exceeds the limit of", re.compile(r"exceeds the limit of \d")),
        (
            "configured context size",
            re.compile(
                r"prompt has [\d,]+ tokens?, but the configured context size is [\d,]+ token"
            ),
        ),
        ("context length is only", re.compile(r"context length is only \d+ tokens")),
        ("exceeded", re.compile(r"context[_ ]length[_ ]exceeded")),
        ("(no body)", re.compile(r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)")),
    ),
    (
        ("input token count", "exceeds the maximum"),
        ("input length", "exceeds", "context length"),
    ),
)  # fmt: skip

OVERFLOW: Final = "context_length_exceeded"
"""Words for a context that is full, which each of these clients knows."""

_RETRIED_STATUSES: Final = frozenset({408, 409, 429})


class Reading(NamedTuple):
    """What clients conclude from an error."""

    retry: bool
    retry_in_streams: bool
    overflow: bool

    def adds_to(self, other: Reading) -> bool:
        """Whether clients conclude something that they do not from the other one."""
        return any(mine and not its for mine, its in zip(self, other, strict=True))


def read(status: int, message: str, *, body: bool, code: object = None) -> Reading:
    """How clients read an error: ``message`` is what they take for its message, ``body`` whether
    the rest of it asks to retry (:func:`asks_to_retry`), ``code`` the one in its error object.
    """
    retry = body or status in _RETRIED_STATUSES or status >= 500 or asks_to_retry(message)
    in_streams = retry or _RETRY_IN_STREAMS.are_in(message)
    overflow = status == 413 or code == OVERFLOW or _OVERFLOW.are_in(message)
    return Reading(retry, in_streams, overflow)


def parsed(text: str) -> Any:
    """What a client's parser, which is strict, makes of a body; None for what it does not take."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=lenient.integer)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def shown(value: Any, source: str, phrase: str, dialect: str) -> str:
    """What a client shows of JSON as it came: the message that it finds, or all of it.

    ``phrase`` is the answer's reason phrase; without one there is only the body. A body that lacks
    a field of the ``dialect`` is not understood: then, and where the message only repeats the
    phrase, the rest is looked at.
    """
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and _fits(value, error, dialect):
        message: str = error["message"]
        if message and message != phrase:
            return message
        if not message:
            return source
    if not phrase:
        return source
    for text in (value.get("message"), error) if isinstance(value, dict) else ():
        if text and isinstance(text, str):
            return f"{phrase}: {text}"
    return f"{phrase}: {source}"


def _fits(value: dict[str, Any], error: dict[str, Any], dialect: str) -> bool:
    """Whether the schema that the AI SDK has for the dialect takes the body."""
    kind, code = error.get("type"), error.get("code")
    number = isinstance(code, int | float) and not isinstance(code, bool)
    if not isinstance(error.get("message"), str):
        return False
    if dialect == "anthropic":
        return value.get("type") == "error" and isinstance(kind, str)
    if dialect == "gemini":
        known = "code" in error and (code is None or number)
        return known and isinstance(error.get("status"), str)
    return isinstance(kind, str | None) and (isinstance(code, str | None) or number)


def asks_to_retry(text: str) -> bool:
    """Whether clients take the text for a reason to ask again."""
    return _RETRY.are_in(text)
