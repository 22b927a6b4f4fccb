"""What an error's body says, in any of the shapes that providers, proxies and frameworks use.

Never changes a body, and redacts nothing: what it returns is still the provider's text.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.policy import client_words, error_markup, json_cut
from gateway.policy.error_detail import APART, flat, one_line, pieces, sentence
from gateway.streams import lenient

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_VALUES: Final = 100
_decode: Final = json.JSONDecoder(strict=False, parse_int=str).raw_decode

MAX_READ: Final = 65_536
"""Characters of a text or a page that are looked at."""

MAX_EDITED: Final = 256 * 1024
"""Bytes of JSON that is changed, or read again where a strict parser does not take it."""

_SPACE: Final = b" \t\r\n"
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_MAX_FRAMES: Final = 256 * 1024
_OF_EVENTS: Final = frozenset({"object", "sequence_number", "id", "event_id"})
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_CHARSET: Final = re.compile(
    r"charset\s{0,3}=\s{0,3}\"?(iso-8859-(?:[1-9]|1[0134-6])|latin-?1|windows-125\d|shift_jis|euc-(?:jp|kr)"
    r"|gb(?:2312|k|18030)|big5|koi8-[ru]|us-ascii)\b",
    re.IGNORECASE,
)
_SURROGATE: Final = re.compile(r"\\ud", re.IGNORECASE)
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
    of a page or XML what it says, else the text. ``readable`` is false where it looks like JSON and
    is none, and ``value`` its beginning then; ``deep`` says that only its depth is why.
    ``repaired`` is true where only a forgiving parser could read it as it came. ``rest`` is what
    follows the JSON.
    ``large`` is JSON that has been read, but is too long to be changed.
    """

    kind: ErrorBody
    text: str = ""
    value: Any = None
    readable: bool = True
    repaired: bool = False
    deep: bool = False
    rest: tuple[Any, ...] = ()
    large: bool = False


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


def as_utf8(plain: bytes, content_type: str) -> bytes:
    """The body in UTF-8, where it is in another encoding and its mark or its type says in which."""
    found = _CHARSET.search(content_type)
    charset = "utf-16" if plain.startswith(_UTF16) else found and found[1]
    try:
        plain.decode()
    except UnicodeDecodeError:
        return plain.decode(charset, "replace").encode() if charset else plain
    return plain


def read_document(plain: bytes) -> Document:
    """Read a body that has been decompressed; its beginning is enough. No depth makes it fail."""
    text = plain.removeprefix(_BOM).strip(_SPACE)
    try:
        return _document(text)
    except RecursionError:
        return cut_short(text.decode("utf-8", "replace"), deep=True)


def _document(text: bytes) -> Document:
    if not text.strip(b"\0"):
        return Document(ErrorBody.EMPTY)
    if text.startswith((b"data:", b"event:")):
        text = _of_events(text)
    if text[:1] in (b"{", b"["):
        return _of_json(text)
    if text[:1] == b"<":
        return _of_markup(text)
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


def read_error(plain: bytes, status: int | None = None) -> Words:
    """What a body says, for the log and for the decision about another try. What only repeats the
    ``status`` is left out.
    """
    return words_of(read_document(plain), status)


def words_of(document: Document, status: int | None = None) -> Words:
    """:func:`read_error` of a body that has been read."""
    if document.value is None:
        return Words(document.kind, None, document.text)
    words = _words_in(document.value, document.rest, status)
    return words if words.all or document.readable else words._replace(message=document.text)


def details_of(plain: bytes) -> Any:
    """Google's ``details`` of an error; None for any other body."""
    return details_in(read_document(plain))


def details_in(document: Document) -> Any:
    """:func:`details_of` a body that has been read."""
    value = unwrapped(document.value)
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
        data = _of_events(block) if b"data:" in block else block.strip(_SPACE)
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
    if len(text) > MAX_EDITED:
        return _of_large(text, source)
    try:
        value = _strict(text)
        if value is not None:
            return Document(ErrorBody.JSON, source, value)
        value = lenient.loads(text)
    except ValueError:
        return _of_several(source) or cut_short(source, deep=not lenient.is_broken(text))
    return Document(ErrorBody.JSON, _spelled(value), value, repaired=True)


def _of_large(text: bytes, source: str) -> Document:
    """JSON that is not worth the time of a second look."""
    try:
        return Document(ErrorBody.JSON, source, lenient.strictly(text), large=True)
    except ValueError:
        return cut_short(source, deep=True)


def _of_markup(text: bytes) -> Document:
    source = text[:MAX_READ].decode("utf-8", "replace")
    if error_markup.is_page(text):
        words = error_markup.words_of_page(source) or "an HTML page"
        return Document(ErrorBody.HTML, one_line(words))
    words = error_markup.words_of_xml(source) if error_markup.is_xml(text) else ""
    return Document(ErrorBody.TEXT, words or text.decode("utf-8", "replace"))


def cut_short(source: str, *, deep: bool) -> Document:
    """JSON that cannot be read, or not be gone through, to its end."""
    value = json_cut.beginning(source)
    return Document(ErrorBody.JSON, source, value or None, readable=False, deep=deep)


def _of_several(source: str) -> Document | None:
    """Values one after the other, or one and then text: of a log, of a stream. The first one that
    is an error counts, else the very first.
    """
    values: list[Any] = []
    at = 0
    while source[at : at + 1] in ("{", "[") and len(values) < _MAX_VALUES:
        try:
            end = _decode(source, at)[1]
            values.append(lenient.loads(source[at:end].encode("utf-8", "replace")))
        except (ValueError, RecursionError):
            break
        at = end + len(source[end:]) - len(source[end:].lstrip())
    if not values:
        return None
    first = next((at for at, value in enumerate(values) if error_object(value) is not None), 0)
    value, rest = values[first], values[first + 1 :]
    text = source[at : at + MAX_READ]
    rest += [text] if text and text != "[DONE]" else []
    return Document(ErrorBody.JSON, _spelled(value), value, repaired=True, rest=tuple(rest))


def _strict(text: bytes) -> Any:
    """What every client's parser makes of it; None for what one of them may not take."""
    try:
        source = text.decode()
    except UnicodeDecodeError:
        return None
    value = client_words.parsed(source)
    # Half of a pair can be read, but not written again.
    return lenient.loads(text) if value is not None and _SURROGATE.search(source) else value


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


def _of_events(text: bytes) -> bytes:
    """The data of events, where an error was dressed as a stream."""
    data = [line[5:].strip() for line in text.splitlines() if line.startswith(b"data:")]
    return b"\n".join(data) or text


def _words_in(value: Any, rest: tuple[Any, ...], status: int | None) -> Words:
    value = unwrapped(value)
    if not isinstance(value, dict):
        return Words(ErrorBody.JSON, None, sentence(value))
    error = value.get("error")
    inner = next((each for each in (error, value.get("detail")) if isinstance(each, dict)), value)
    kind = _word(inner.get("type")) or _word(inner.get("status"))
    code = _word(inner.get("code")) or kind
    message = sentence(inner) or sentence(error)
    told = pieces(value, message, status, log=True)
    told += pieces(list(rest), APART.join((message, *told)), status, log=True)
    return Words(ErrorBody.JSON, code, message, kind, "; ".join(told))


def _word(value: Any) -> str | None:
    """A code or type: a string or a number, nothing that could hold more."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value) or None
