"""What clients read out of an error's text: that they should ask again, that the context is full.

Clients look for words, and even for digits, anywhere in a message. Whatever the gateway adds to one
must leave the answers here as they were, or an agent would behave differently because of it. Never
decides whether the gateway itself tries again (``policy.retry`` does).

The patterns are those of opencode 1.18 (its retry of a session's step, and its detection of a full
context), each as narrow as there: a wider one would take a message for one that is acted on anyway,
and let words into it that then are. Other clients look for some of them, or at the status alone.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

_RETRY: Final = re.compile(
    r"429|50[0234]|524"
    r"|rate increased too quickly|rate[ _-]limit|too many requests"
    r"|overloaded|service[ _-]unavailable|internal[ _]error|server[ _-]error"
    r"|provider returned error|terminated|fetch failed|failed to fetch|network[-_\s]error"
    r"|upstream connect|connection (?:error|refused|lost)|socket (?:connection was closed|hang up)"
    r"|reset before headers|getaddrinfo|enotfound|eai_again|econnrefused|econnreset|etimedout"
    r"|^timeout$|(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)"
    r"|try your request again|retry your request|resource[_ ]exhausted|try again (?:later|in)"
    r"|(?:currently|temporarily) at capacity",
    re.IGNORECASE,
)

_RETRY_IN_STREAMS: Final = re.compile(
    r"too_many_requests|exhausted|unavailable|rate_?limit|timeout|try your request", re.IGNORECASE
)
"""What else counts in errors inside streams, or for other clients."""

_OVERFLOW: Final = re.compile(
    r"prompt is too long|request_too_large|input is too long for requested model"
    r"|exceeds the context window|exceeds (?:the )?(?:model's )?maximum context length"
    r"|input token count.{0,1000}exceeds the maximum|maximum prompt length is \d"
    r"|reduce the length of the messages|maximum context length is \d"
    r"|exceeds (?:the )?maximum allowed input length of [\d,]+ token"
    r"|input \(\d+ tokens\) is longer than the model'?s context length"
    r"|exceeds the limit of \d|exceeds the available context size|greater than the context length"
    r"|context window exceeds limit|exceeded model token limit"
    r"|too large for model with \d+ maximum context length"
    r"|prompt has [\d,]+ tokens?, but the configured context size is [\d,]+ token"
    r"|model_context_window_exceeded|prompt too long; exceeded (?:max )?context length"
    r"|range of input length should be|context[_ ]length[_ ]exceeded|too many tokens"
    r"|token limit exceeded|request entity too large|context length is only \d+ tokens"
    r"|input length.{0,1000}exceeds.{0,1000}context length"
    r"|^4(?:00|13)\s*(?:status code)?\s*\(no body\)",
    re.IGNORECASE,
)

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
    in_streams = retry or _RETRY_IN_STREAMS.search(message) is not None
    overflow = status == 413 or code == "context_length_exceeded" or bool(overflow_words(message))
    return Reading(retry, in_streams, overflow)


def shown(value: Any, source: str, phrase: str, dialect: str) -> str:
    """What a client shows of JSON as it came: the message that it finds, or all of it.

    ``phrase`` is the answer's reason phrase. A body that lacks a field of the ``dialect`` is not
    understood: then, and where the message only repeats the phrase, the rest is looked at.
    """
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and _fits(value, error, dialect):
        message: str = error["message"]
        if message and message != phrase:
            return message
        if not message:
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
    return _RETRY.search(text) is not None


def overflow_words(text: str) -> str:
    """The words that clients take for a context that is full; "" where there are none."""
    found = _OVERFLOW.search(text)
    return "" if found is None else found.group()
