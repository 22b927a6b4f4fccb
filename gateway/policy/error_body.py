"""What an error's body says, in any of the shapes that providers, proxies and frameworks use.

Never changes a body, and redacts nothing: what it returns is still the provider's text.
"""

from __future__ import annotations

import html
import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.policy.error_detail import flat, pieces, sentence
from gateway.streams import lenient

if TYPE_CHECKING:
    from collections.abc import Mapping

_TITLE: Final = re.compile(rb"<title[^>]{0,200}>\s*([^<]{1,300})", re.IGNORECASE)
_BROKEN_MESSAGE: Final = re.compile(
    r'"(?:message|detail|msg|error)"\s{0,20}:\s{0,20}"([^"]{1,4000})'
)
_LINK: Final = re.compile(r"https?://\S+")
_EXHAUSTED: Final = re.compile(
    r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota|credit balance"
    r"|billing[_ ](hard|details|limit|not)|usage limits?|spend(ing)?[_ ]limit|out of credits",
    re.IGNORECASE,
)
_SPACE: Final = b" \t\r\n"
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_MAX_FRAMES: Final = 256 * 1024
_OF_EVENTS: Final = frozenset({"object", "sequence_number", "id", "event_id"})
_BOM: Final = b"\xef\xbb\xbf"


class ErrorBody(StrEnum):
    """What kind of body came with an upstream error; a metric label."""

    JSON = "json"
    HTML = "html"
    TEXT = "text"
    EMPTY = "empty"


class Answer(NamedTuple):
    """A provider's error: ``plain`` is its body without the content coding, as far as it was read;
    ``cut`` says that there was, or should have been, more of it, ``reason`` is its reason phrase,
    empty for the usual one.
    """

    status: int
    headers: Mapping[str, str]
    plain: bytes
    cut: bool = False
    reason: str = ""

    @property
    def amazon_type(self) -> str:
        """The type that AWS names in a header only."""
        return flat(self.headers.get("x-amzn-errortype", "").partition(":")[0])


class Document(NamedTuple):
    """A body, read. ``value`` is what JSON holds; ``text`` its source as a strict parser takes it,
    of a page its title, else the text. ``readable`` is false where it looks like JSON and is none,
    and ``repaired`` true where only a forgiving parser could read it as it came.
    """

    kind: ErrorBody
    text: str = ""
    value: Any = None
    readable: bool = True
    repaired: bool = False


class Words(NamedTuple):
    """Kind of body, the provider's code or type, its message, its type alone, and what it says
    elsewhere.
    """

    kind: ErrorBody
    code: str | None = None
    message: str = ""
    type: str | None = None
    detail: str = ""

    @property
    def all(self) -> str:
        """Message and detail in one."""
        return f"{self.message} ({self.detail})" if self.detail else self.message


def read_document(plain: bytes) -> Document:
    """Read a body that has been decompressed; its beginning is enough."""
    text = plain.removeprefix(_BOM).strip(_SPACE)
    if not text.strip(b"\0"):
        return Document(ErrorBody.EMPTY)
    if text.startswith((b"data:", b"event:")):
        text = _of_event(text)
    if text[:1] in (b"{", b"["):
        return _of_json(text)
    if _is_html(text):
        return Document(ErrorBody.HTML, _title(text))
    shown = text.decode("utf-8", "replace")
    if text[:1] == b'"':
        try:
            value = lenient.loads(text)
        except ValueError:
            value = None
        shown = value if isinstance(value, str) else shown
        inner = _of_json(shown.encode("utf-8", "replace")) if shown[:1] in ("{", "[") else None
        if inner is not None and inner.readable:
            return inner._replace(repaired=True)
    return Document(ErrorBody.TEXT, shown)


def read_error(plain: bytes) -> Words:
    """What a body says, for the log and for the decision about another try."""
    document = read_document(plain)
    if document.value is None:
        return Words(document.kind, None, document.text)
    return _words_of(document.value)


def is_exhausted(code: str | None, message: str) -> bool:
    """Whether an error says that a quota or credit is used up, which no waiting of ours mends."""
    message = _LINK.sub("", message)  # a rate limit's may lead to the page on billing
    return _EXHAUSTED.search(f"{code or ''} {message}") is not None


def details_of(plain: bytes) -> Any:
    """Google's ``details`` of an error; None for any other body."""
    value = unwrapped(read_document(plain).value)
    error = value.get("error") if isinstance(value, dict) else None
    return error.get("details") if isinstance(error, dict) else None


def unwrapped(value: Any) -> Any:
    """The one element of an array of one, which is how Google sends errors of streams."""
    return value[0] if isinstance(value, list) and value else value


def error_in_stream(frames: bytes) -> bytes:
    """The error object that the events in ``frames`` hold, as the JSON body of an HTTP error; b""
    where none of them has one. The first one counts: what follows it was made of it.
    """
    for block in _BLANK_LINE.split(frames[-_MAX_FRAMES:]):
        data = _of_event(block) if b"data:" in block else block.strip(_SPACE)
        if data[:1] not in (b"{", b"["):
            continue
        try:
            error = error_object(lenient.loads(data))
        except ValueError:
            continue
        if error is not None:
            return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "replace")
    return b""


def error_object(value: Any) -> Any:
    """The error in any of the forms that events have, mostly an object; None for none."""
    value = unwrapped(value)
    if not isinstance(value, dict):
        return None
    if value.get("error"):
        return value["error"]
    choices = value.get("choices")
    inner = [value.get("response"), value.get("x_groq")]
    inner += choices if isinstance(choices, list) else []
    for each in inner:
        if isinstance(each, dict) and each.get("error"):
            return each["error"]
    if value.get("message") and (value.get("object") == "error" or "code" in value):
        return {key: each for key, each in value.items() if key not in _OF_EVENTS}
    return None


def _of_json(text: bytes) -> Document:
    source = text.decode("utf-8", "replace")
    for candidate in (text, text.partition(b"\n")[0].strip()):
        try:
            value = lenient.loads(candidate)
        except ValueError:
            continue
        if candidate is text and _is_strict(text):
            return Document(ErrorBody.JSON, source, value)
        return Document(ErrorBody.JSON, _spelled(value), value, repaired=True)
    # It may only have been too long to be looked at whole.
    found = _BROKEN_MESSAGE.search(source[:100_000])
    shown = found[1] if found is not None else source
    return Document(ErrorBody.JSON, shown, None, readable=False)


def _is_strict(text: bytes) -> bool:
    """Whether every client's parser takes it."""
    try:
        json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _spelled(value: Any) -> str:
    """Strict JSON of a value that only a forgiving parser could read."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False)


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _of_event(text: bytes) -> bytes:
    """The data of the first event, where an error was dressed as a stream."""
    for line in text.splitlines():
        if line.startswith(b"data:"):
            return line[5:].strip()
    return text


def _words_of(value: Any) -> Words:
    value = unwrapped(value)
    if not isinstance(value, dict):
        return Words(ErrorBody.JSON, None, sentence(value))
    error = value.get("error")
    inner = next((each for each in (error, value.get("detail")) if isinstance(each, dict)), value)
    kind = _word(inner.get("type")) or _word(inner.get("status"))
    code = _word(inner.get("code")) or kind
    message = sentence(inner) or sentence(error)
    return Words(ErrorBody.JSON, code, message, kind, "; ".join(pieces(value, message, log=True)))


def _word(value: Any) -> str | None:
    """A code or type: a string or a number, nothing that could hold more."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None


def _is_html(text: bytes) -> bool:
    start = text[:512].lower()
    return start.startswith(b"<") and (b"<html" in start or b"<!doctype" in start or b"<h" in start)


def _title(text: bytes) -> str:
    found = _TITLE.search(text)
    if found is None:
        return "an HTML page"
    return flat(html.unescape(found[1].decode("utf-8", "replace")))
