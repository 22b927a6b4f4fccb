"""What an error's body says, in any of the shapes that providers, proxies and frameworks use.

Never changes a body, and redacts nothing: what it returns is still the provider's text.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, NamedTuple

from gateway.protocols.base import text_of
from gateway.streams import lenient

_TITLE = re.compile(rb"<title[^>]{0,200}>\s*([^<]{1,300})", re.IGNORECASE)
_LINK = re.compile(r"https?://\S+")
_EXHAUSTED = re.compile(
    r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota|credit balance"
    r"|billing[_ ](hard|details|limit|not)|usage limits?|spend(ing)?[_ ]limit|out of credits",
    re.IGNORECASE,
)
_SPACE: Final = b" \t\r\n"


class ErrorBody(StrEnum):
    """What kind of body came with an upstream error; a metric label."""

    JSON = "json"
    HTML = "html"
    TEXT = "text"
    EMPTY = "empty"


class Words(NamedTuple):
    """Kind of body, the provider's code or type, its message, and its type alone."""

    kind: ErrorBody
    code: str | None = None
    message: str = ""
    type: str | None = None


def read_error(plain: bytes) -> Words:
    """Read a body that has been decompressed; its beginning is enough."""
    text = plain.strip(_SPACE)
    if not text:
        return Words(ErrorBody.EMPTY)
    if text[:1] in (b"{", b"["):
        try:
            value = lenient.loads(text)
        except ValueError:
            # It may only have been too long to be looked at whole.
            return Words(ErrorBody.JSON, None, text.decode("utf-8", "replace"))
        return _words_of(value)
    if _is_html(text):
        return Words(ErrorBody.HTML, None, _title(text))
    return Words(ErrorBody.TEXT, None, text.decode("utf-8", "replace"))


def is_exhausted(code: str | None, message: str) -> bool:
    """Whether an error says that a quota or credit is used up, which no waiting of ours mends."""
    message = _LINK.sub("", message)  # a rate limit's may lead to the page on billing
    return _EXHAUSTED.search(f"{code or ''} {message}") is not None


def details_of(plain: bytes) -> Any:
    """Google's ``details`` of an error; None for any other body."""
    try:
        value = lenient.loads(plain)
    except ValueError:
        return None
    if isinstance(value, list):
        value = value[0] if value else None
    error = value.get("error") if isinstance(value, dict) else None
    return error.get("details") if isinstance(error, dict) else None


def _words_of(value: Any) -> Words:
    if isinstance(value, list):
        value = value[0] if value else {}
    if not isinstance(value, dict):
        return Words(ErrorBody.JSON, None, text_of(value))
    error = value.get("error")
    inner = next((each for each in (error, value.get("detail")) if isinstance(each, dict)), value)
    kind = _word(inner.get("type")) or _word(inner.get("status"))
    code = _word(inner.get("code")) or kind
    message = inner.get("message") or inner.get("detail")
    if not message and isinstance(error, str):
        message = error
    return Words(ErrorBody.JSON, code, _sentence(message), kind)


def _word(value: Any) -> str | None:
    """A code or type: a string or a number, nothing that could hold more."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


def _sentence(message: Any) -> str:
    """A message as text. Of a validation report (FastAPI), where it is wrong and why, not what was
    sent.
    """
    if not isinstance(message, list):
        return message if isinstance(message, str) else ""
    parts = []
    for entry in message:
        if isinstance(entry, dict) and isinstance(entry.get("msg"), str):
            place = ".".join(str(step) for step in entry.get("loc") or ())
            parts.append(f"{place}: {entry['msg']}" if place else entry["msg"])
    return "; ".join(parts)


def _is_html(text: bytes) -> bool:
    start = text[:512].lower()
    return start.startswith(b"<") and (b"<html" in start or b"<!doctype" in start or b"<h" in start)


def _title(text: bytes) -> str:
    found = _TITLE.search(text)
    return " ".join(found[1].decode("utf-8", "replace").split()) if found else "an HTML page"
