"""What clients read out of an error's text: that they should ask again, that the context is full.

Clients look for words, and even for digits, anywhere in a message. Whatever the gateway adds to one
must leave the answers here as they were, or an agent would behave differently because of it. Never
decides whether the gateway itself tries again (``policy.retry`` does).

The patterns are those of opencode 1.18 (its retry of a session's step, and its detection of a full
context); other clients look for some of them, or at the status alone.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RETRY: Final = re.compile(
    r"429|50[0234]|524"
    r"|rate increased too quickly|rate[-_ ]?limit|too[ _]many[ _]requests"
    r"|overloaded|service[ _-]?unavailable|internal[ _](?:server[ _])?error|server[ _-]?error"
    r"|provider returned error|terminated|fetch failed|failed to fetch|network[-_\s]?error"
    r"|upstream connect|connection (?:error|refused|lost)|socket (?:connection was closed|hang up)"
    r"|reset before headers|getaddrinfo|enotfound|eai_again|econnrefused|econnreset|etimedout"
    r"|^timeout$|(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)"
    r"|(?:try|retry) your request|resource[_ ]exhausted|try again (?:later|in)"
    r"|(?:currently|temporarily) at capacity|exhausted|unavailable",
    re.IGNORECASE,
)

_OVERFLOW: Final = re.compile(
    r"(?:prompt|input|request) (?:is )?too (?:long|large)|prompt_too_long|request_too_large"
    r"|(?:input|prompt|content) is too long for|exceeds (?:the|its)(?: available| maximum| max)?"
    r" (?:context|input|token)|input token count.{0,200}exceeds|maximum (?:prompt|context) length"
    r"|reduce the length of|exceeds (?:the )?limit|greater than the context length"
    r"|context window exceeds|exceeded model token limit|context[ _-](?:length|window)[ _-]exceed"
    r"|context length is only|input length.{0,200}exceeds|exceeded (?:max )?context length"
    r"|maximum context|model_context_window_exceeded|too many (?:input )?tokens"
    r"|token limit exceeded|entity too large|^4(?:00|13)\b.{0,40}\(no body\)"
    r"|context_length_exceeded",
    re.IGNORECASE,
)

_RETRIED_STATUSES: Final = frozenset({408, 409, 429})


class Reading(NamedTuple):
    """What a client concludes from an error."""

    retry: bool
    overflow: bool


def read(status: int, message: str, *, body: bool, code: object = None) -> Reading:
    """How clients read an error: ``message`` is what they take for its message, ``body`` whether
    the rest of it asks to retry (:func:`asks_to_retry`), ``code`` the one in its error object.
    """
    retry = body or status in _RETRIED_STATUSES or status >= 500 or asks_to_retry(message)
    overflow = status == 413 or code == "context_length_exceeded" or bool(overflow_words(message))
    return Reading(retry, overflow)


def asks_to_retry(text: str) -> bool:
    """Whether clients take the text for a reason to ask again."""
    return _RETRY.search(text) is not None


def overflow_words(text: str) -> str:
    """The words that clients take for a context that is full; "" where there are none."""
    found = _OVERFLOW.search(text)
    return "" if found is None else found.group()
