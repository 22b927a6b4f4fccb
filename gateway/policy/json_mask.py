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


def masked(text: str, value: Any, secrets: Sequence[str]) -> tuple[str, Any]:
    """The JSON ``text`` of ``value``, and that, without ``secrets``."""
    plain = without(text, secrets)
    if plain == text and ("\\u" not in text or not secrets):
        return text, value
    try:
        left = value if plain == text else lenient.loads(plain.encode("utf-8", "replace"))
    except ValueError:
        left = None  # it was a number somewhere
    if left is None or _holds_one(left, secrets):
        # Or a sign of it is spelled as an escape: all is spelled anew.
        left = _masked_in(value, secrets)
        plain = dump(left)
    return plain, left


def without(text: str, secrets: Sequence[str]) -> str:
    """The text with each of the secrets masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _holds_one(value: Any, secrets: Sequence[str]) -> bool:
    """Whether a value holds a secret in whatever spelling."""
    plain = dump(value)
    return any(secret in plain for secret in secrets)


def _masked_in(value: Any, secrets: Sequence[str]) -> Any:
    """The value with secrets masked in its strings, and where one is the name of a member."""
    if isinstance(value, dict):
        return {
            MASK if key in secrets else key: _masked_in(each, secrets)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_masked_in(each, secrets) for each in value]
    return without(value, secrets) if isinstance(value, str) else value
