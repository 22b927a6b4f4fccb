"""Masks credentials inside a JSON text. Knows none of itself: it is told which.

Where it can it leaves every other character as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.policy.json_edit import dump
from gateway.policy.redact import MASK
from gateway.streams import lenient

if TYPE_CHECKING:
    from collections.abc import Sequence


def masked(text: str, value: Any, secrets: Sequence[str]) -> str:
    """The JSON ``text`` of ``value`` without ``secrets``."""
    plain = without(text, secrets)
    if not _still_holds_one(plain, secrets):
        return plain
    # It is a number somewhere, or a sign of it is spelled as an escape: all is spelled anew.
    return dump(_masked_in(value, secrets))


def without(text: str, secrets: Sequence[str]) -> str:
    """The text with each of the secrets masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _still_holds_one(text: str, secrets: Sequence[str]) -> bool:
    """Whether a text that was masked holds a secret in another spelling; or is no JSON any more."""
    if "\\u" not in text and MASK not in text:
        return False
    try:
        plain = dump(lenient.loads(text.encode()))
    except ValueError:
        return True
    return any(secret in plain for secret in secrets)


def _masked_in(value: Any, secrets: Sequence[str]) -> Any:
    """The value with secrets masked in its strings."""
    if isinstance(value, dict):
        return {key: _masked_in(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked_in(each, secrets) for each in value]
    return without(value, secrets) if isinstance(value, str) else value
