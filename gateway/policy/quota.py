"""Whether an error says that a quota is used up, and when a limit passes. Reads words only.

A status says too little: providers send 429 for a limit of a minute, of a week, and for an empty
account. Sources: the providers' error pages, their SDKs, and what users have reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway.policy.error_body import Words

_LINK: Final = re.compile(r"https?://\S+")
_EXHAUSTED: Final = re.compile(
    r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota|credit balance"
    r"|billing[_ ](hard|details|limit|not)|usage[_ ]limits?|out of credits"
    r"|spend(ing)?[_ ](limit|cap)|models-per-day|budget has been exceeded|no credits"
    r"|(monthly|daily) quota"
    r"|(hour|day|week|month)(ly)? allocated quota|limit exhausted|extra usage|setlimitexceeded"
    r"|credits (are |were |have been )?(depleted|exhausted|used up)|daily free allocation"
    r"|(tokens|requests) per (day|week|month)|calls ?/ ?(day|week|month)\b|\b[TR]PD\b"
    r"|(daily|weekly|monthly)[ _](rate[ _])?limit|request too large|arrearage"
    r"|quota[_ ]exhausted|quota will reset after \d{1,4}h"
    r"|使用上限|欠费|余额不足|额度已?用[尽完]",
    re.IGNORECASE,
)
_OF_MONEY: Final = re.compile(r"quota|billing|payment|credit|budget|\b402\b", re.IGNORECASE)
"""What codes and types of errors have in them that are about money."""

_OF_A_MINUTE: Final = re.compile(r"(token|request)_quota_exceeded", re.IGNORECASE)
"""Cerebras's codes for limits that pass, of all lengths."""

_WAIT: Final = re.compile(
    r"(?:(?:try again|retry)(?: your request)? (?:in|after)|wait(?: for)?) (?:about )?"
    r"((?:\d{1,9}(?:\.\d{1,9})? ?(?:ms|milliseconds?|d|days?|h|hours?|m|minutes?|s|seconds?)\b ?)+"
    r"|(?:\d{1,4}(?:\.\d{1,9})?(?:d|h|ms|m|s)){1,5}\b)",
    re.IGNORECASE,
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|d|h|m|s)", re.IGNORECASE)
_SECONDS: Final = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def is_exhausted(code: str | None, message: str) -> bool:
    """Whether an error says that a quota or credit is used up, which no waiting of ours mends."""
    message = _LINK.sub("", message)  # a rate limit's may lead to the page on billing
    return _EXHAUSTED.search(f"{code or ''} {message}") is not None


def is_spent(words: Words, details: Any = None, *, told_to_wait: bool) -> bool:
    """Whether an error says that a quota is used up. What says when to come back is a limit that
    passes, unless it is called by that name.

    ``details`` are Google's, who tells of a wait of seconds also where the quota is a day's.
    """
    names = _OF_A_MINUTE.sub("", f"{words.code} {words.type}")
    if is_exhausted(names, "") or "PerDay" in str(details):
        return True
    named = _OF_MONEY.search(names) is not None
    return not told_to_wait and (named or is_exhausted(words.code, words.all))


def wait_in_words(text: str) -> float | None:
    """Seconds of "try again in 7m12s" (OpenAI, Groq), "retry after 26 seconds" (Azure) and such;
    None where a text has none.
    """
    found = _WAIT.search(text)
    if found is None:
        return None
    wait = sum(float(number) * _SECONDS[unit.lower()] for number, unit in _PART.findall(found[1]))
    return wait or None
