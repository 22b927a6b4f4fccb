"""Makes an error's body say, where every client shows it, what the provider said anywhere in it.

Two ways, and no third:

- A body in the client's dialect keeps every character; only its message grows, by what the body
  says elsewhere (:func:`gateway.policy.error_detail.pieces`).
- Any other body becomes one of the dialect: JSON is completed with the fields that its SDKs read,
  text, pages and nothing at all are told in one sentence.

What a client *does* must not change (``policy.client_words``): a piece that would make it ask
again, or take the context for full, is left out; what made it do so before is kept. Doing it twice
changes nothing more. Never changes a status, and never reads a header but for a type that only it
names.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.policy import client_words, json_edit, json_mask
from gateway.policy.error_body import Document, ErrorBody, read_document
from gateway.policy.error_detail import APART, contains, flat, pieces, sentence
from gateway.policy.redact import redact, scrubber
from gateway.policy.status_words import named, nothing_said, only_says, phrase_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.policy.json_edit import Edit, Path
    from gateway.protocols.base import StreamProtocol

MAX_ADDED: Final = 2000
"""Characters that a message may grow by, the marker included."""

MAX_MESSAGE: Final = 65_536
"""Characters of a provider's own message that are passed on, and of a body that are looked at."""

MARKER: Final = "… [shortened]"
"""Ends what was cut."""

_MAX_LOOKED_AT: Final = 16_384
_MAX_SENTENCE: Final = 150
_MAX_DECIDED: Final = 4000
"""Characters at the end of a message that are looked at together with what is appended."""

_LEFT_TO_CLIENTS: Final = frozenset({401, 403})
"""Statuses for whose pages some clients have better words of their own."""

_MAKERS: Final = (
    (b"cloudflare", "Cloudflare"), (b"awselb", "an AWS load balancer"), (b"envoy", "Envoy"),
    (b"openresty", "OpenResty"), (b"nginx", "nginx"), (b"cloudfront", "CloudFront"),
    (b"azure", "Azure"), (b"google", "Google"), (b"apache", "Apache"),
)  # fmt: skip
_FLAT_FIELDS: Final = ("code", "param")
_AGAIN: Final = " Retry your request."


class Enriched(NamedTuple):
    """The body to send instead, as JSON, and how it came to be: ``grown`` or ``wrapped``."""

    body: bytes
    how: str


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


def enrich(
    answer: Answer, protocol: StreamProtocol | None, secrets: Sequence[str] = ()
) -> Enriched | None:
    """The body for a client of ``protocol``; None where the provider's own is to pass as it came.

    Without a protocol the dialect is not known: a message may grow, but nothing is wrapped.
    ``secrets`` are the request's credentials, which must not be shown.
    """
    if "x-gateway-error" in answer.headers:
        return None  # another gateway has said all there is to say
    document = read_document(answer.plain)
    try:
        if document.kind is ErrorBody.JSON and document.readable:
            return _of_json(answer, document, protocol, secrets)
    except (ValueError, RecursionError):
        document = document._replace(readable=False, text="")
    if protocol is None or (document.kind is ErrorBody.HTML and answer.status in _LEFT_TO_CLIENTS):
        return None
    message = _told(answer, document, secrets)
    return Enriched(_shape(protocol, answer, message), "wrapped")


def _without(document: Document, secrets: Sequence[str]) -> Document:
    """The document without the request's credentials, wherever in it a provider repeats them."""
    text = json_mask.masked(document.text, document.value, secrets)
    if text == document.text:
        return document
    return document._replace(text=text, value=json.loads(text), repaired=True)


def _cleaner(secrets: Sequence[str]) -> Callable[[str], str]:
    scrub = scrubber(secrets)
    return lambda text: redact(scrub(text))


# JSON.


def _of_json(
    answer: Answer, document: Document, protocol: StreamProtocol | None, secrets: Sequence[str]
) -> Enriched | None:
    came, document = document, _without(document, secrets)
    source, value, changed = document.text, document.value, document.repaired
    root: Path = ()
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]
        if protocol is None or protocol.name == "gemini":
            root = (0,)
        else:
            span = json_edit.find(source, (0,))
            assert span is not None
            source, changed = source[span.start : span.end], True
    if not isinstance(value, dict):
        return _wrap_value(answer, document, protocol, secrets)
    error = value.get("error")
    native = isinstance(error, dict) and "message" in error
    if protocol is None and not native:
        return None
    base = _base_message(value)
    dialect = "" if protocol is None else protocol.name
    growth = _Growth(answer, came, value, dialect, _cleaner(secrets))

    def edited(message: str) -> str:
        edits = _native_edits(source, root, base, message) if native else []
        if protocol is not None:
            edits += _completion(source, root, value, protocol, answer, message)
        return json_edit.apply(source, edits)

    message = growth.grow(base)
    text = edited(message)
    if growth.would_end(message, text):
        text = edited(message + _AGAIN)
    if text == source and not changed:
        return None
    return Enriched(text.encode("utf-8", "replace"), "grown" if native else "wrapped")


def _base_message(value: dict[str, Any]) -> str:
    """The message as the body has it, unchanged if it is one."""
    error = value.get("error")
    if isinstance(error, dict):
        own = error.get("message")
        return own if isinstance(own, str) else sentence(error)
    return sentence(error) or sentence(value)


class _Growth:
    """How one message grows without a client doing something else because of it."""

    def __init__(
        self,
        answer: Answer,
        came: Document,
        value: dict[str, Any],
        dialect: str,
        clean: Callable[[str], str],
    ) -> None:
        error = value.get("error")
        self._answer, self._value, self._clean = answer, value, clean
        self._code = error.get("code") if isinstance(error, dict) else None
        self._native = isinstance(error, dict) and isinstance(error.get("message"), str)
        source, read = came.text[:MAX_MESSAGE], came.value
        if came.repaired:  # clients cannot read it
            source, read = answer.plain[:MAX_MESSAGE].decode("utf-8", "replace"), None
        self._body = client_words.asks_to_retry(source)
        phrase = answer.reason or phrase_of(answer.status)
        self._shown = client_words.shown(read, source, phrase, dialect)[:MAX_MESSAGE]
        self._before = self._read(self._shown)

    def grow(self, base: str) -> str:
        """The message with what the body says elsewhere."""
        answer = self._answer
        base = _shortened(base, MAX_MESSAGE)
        cleaned = self._clean(base)
        if MARKER in base[-2 * len(MARKER) :]:
            return cleaned
        own = cleaned if cleaned.strip() and self._native else ""
        message = _as_before(answer.status, cleaned, self._before, self._read, own)
        empty = only_says(answer.status, base)
        said = "" if empty else message
        if cleaned != base and cleaned in said:
            said = f"{base}{APART}{said}"  # what was masked there is not said again elsewhere
        told = pieces(self._value, said, answer.status, clean=self._clean)
        told = [piece for piece in told if not only_says(answer.status, piece)]
        if answer.amazon_type and not contains(message, answer.amazon_type):
            told.append(self._clean(answer.amazon_type))
        if empty and told:
            whole = _shortened("; ".join(told), MAX_ADDED)
            if self._read(whole) == self._before:
                return whole
        message += self._appendix(message, told)
        if self._before.overflow and not self._read(message).overflow:
            message += f" ({client_words.overflow_words(self._shown)})"
        return message

    def would_end(self, message: str, body: str) -> bool:
        """Whether a client that would ask again does not, now that it gets this."""
        now = client_words.asks_to_retry(body[: 2 * MAX_MESSAGE])
        status = self._answer.status
        return self._before.retry and not client_words.read(status, message, body=now).retry

    def _read(self, message: str) -> client_words.Reading:
        return client_words.read(self._answer.status, message, body=self._body, code=self._code)

    def _appendix(self, message: str, told: list[str]) -> str:
        """`` (code: …; param: …)``, without the pieces that would change what a client does."""
        end = message[-_MAX_DECIDED:]
        bare = self._read(end)
        kept = ""
        for piece in told:
            longer = _shortened(f"{kept}; {piece}" if kept else piece, MAX_ADDED - len(" ()"))
            now = self._read(f"{end} ({longer})")
            if not (now.adds_to(self._before) and now.adds_to(bare)) and not bare.adds_to(now):
                kept = longer
            if kept.endswith(MARKER):
                break
        return f" ({kept})" if kept else ""


def _native_edits(source: str, root: Path, base: str, message: str) -> list[Edit]:
    """Exchange the message; where it only grew, its own characters stay as they were spelled."""
    span = json_edit.find(source, (*root, "error", "message"))
    if span is None or (message == base and source[span.start] == '"'):
        return []
    if base and message.startswith(base) and source[span.start] == '"':
        grown = json_edit.dump(message[len(base) :])[1:]
        return [json_edit.Edit(json_edit.Span(span.end - 1, span.end), grown)]
    return [json_edit.Edit(span, json_edit.dump(message))]


def _completion(
    source: str,
    root: Path,
    value: dict[str, Any],
    protocol: StreamProtocol,
    answer: Answer,
    message: str,
) -> list[Edit]:
    """Put in what SDKs of the protocol look for and the body lacks, beside all that it has."""
    error = value.get("error")
    shape: dict[str, Any] = json.loads(_shape(protocol, answer, message, value))
    inner: dict[str, Any] = shape.pop("error")
    edits: list[Edit] = []
    lacking: dict[str, Any] = {}
    for name, wanted in shape.items():
        if name not in value:
            lacking |= {name: wanted} if wanted is not None else {}
        elif value[name] != wanted and wanted is not None:
            edits += _exchange(source, (*root, name), wanted)
    if not isinstance(error, dict):
        if "error" in value:
            edits += _exchange(source, (*root, "error"), inner)
        else:
            lacking["error"] = inner
    else:
        wanted = inner if "message" not in error else protocol.error_fields
        added = {name: inner[name] for name in wanted if name not in error}
        edit = json_edit.into_object(source, (*root, "error"), added) if added else None
        edits += [] if edit is None else [edit]
    if lacking:
        edit = json_edit.into_object(source, root, lacking)
        edits += [] if edit is None else [edit]
    return edits


def _exchange(source: str, path: Path, value: object) -> list[Edit]:
    span = json_edit.find(source, path)
    return [] if span is None else [json_edit.Edit(span, json_edit.dump(value))]


def _wrap_value(
    answer: Answer, document: Document, protocol: StreamProtocol | None, secrets: Sequence[str]
) -> Enriched | None:
    """JSON that is no object: an array of faults, mostly."""
    if protocol is None:
        return None
    value, clean = document.value, _cleaner(secrets)
    words = sentence(value) or "; ".join(pieces(value, "", answer.status))
    message = _shortened(clean(words), MAX_ADDED) or nothing_said(answer.status)
    message = _meaning_the_same(answer, message, document.text[:MAX_MESSAGE], clean)
    return Enriched(_shape(protocol, answer, message), "wrapped")


def _shape(
    protocol: StreamProtocol, answer: Answer, message: str, value: dict[str, Any] | None = None
) -> bytes:
    """The dialect's body, with the code and param that a flat body has of its own."""
    shape: dict[str, Any] = json.loads(
        protocol.error_body(answer.status, answer.amazon_type or None, message)
    )
    error = shape["error"]
    for name in _FLAT_FIELDS if value is not None and "param" in error else ():
        own = value.get(name) if value is not None else None
        if isinstance(own, str | int) and not isinstance(own, bool):
            error[name] = own
    return json_edit.dump(shape).encode("utf-8", "replace")


# What is no JSON.


def _told(answer: Answer, document: Document, secrets: Sequence[str]) -> str:
    """One sentence about a body that is text, a page, broken, or nothing."""
    clean = _cleaner(secrets)
    raw = answer.plain[:_MAX_LOOKED_AT].decode("utf-8", "replace")
    words = _shortened(clean(flat(document.text[:_MAX_LOOKED_AT])), MAX_ADDED - _MAX_SENTENCE)
    begin = f"The provider answered with HTTP {named(answer.status)} and"
    match document.kind:
        case ErrorBody.EMPTY:
            unreadable = f"{begin} an error that cannot be read."
            message = unreadable if answer.cut else nothing_said(answer.status)
        case ErrorBody.HTML:
            message = f'{begin} a web page{_maker(answer)} instead of an API error: "{words}".'
        case ErrorBody.JSON:
            what = "an error that broke off" if answer.cut else "broken JSON"
            message = f"{begin} {what}: {words}" if words else f"{begin} {what}."
        case _:
            message = f"{words} {MARKER}" if answer.cut and MARKER not in words else words
    hidden = document.kind in (ErrorBody.HTML, ErrorBody.EMPTY)
    return _meaning_the_same(answer, message, raw, clean, hidden=hidden)


def _meaning_the_same(
    answer: Answer, message: str, raw: str, clean: Callable[[str], str], *, hidden: bool = False
) -> str:
    """The message of a body that no client understands, so that it does about it what it does about
    ``raw``, which it shows unless that is a page, and ``hidden``.
    """
    phrase = answer.reason or phrase_of(answer.status)
    shown = phrase if hidden else f"{phrase}: {raw}"
    read = partial(client_words.read, answer.status, body=False)
    before = client_words.read(answer.status, shown, body=client_words.asks_to_retry(clean(raw)))
    message = _as_before(answer.status, message, before, read)
    now = read(message)
    if before.overflow and not now.overflow:
        message += f" ({client_words.overflow_words(shown)})"
    return message + _AGAIN if before.retry and not now.retry else message


def _as_before(
    status: int,
    message: str,
    before: client_words.Reading,
    read: Callable[[str], client_words.Reading],
    otherwise: str = "",
) -> str:
    """The message, changed where a client would do something because of it that it did not: some
    words act only where they begin a message, and others not across lines.
    """
    nothing = otherwise or nothing_said(status)
    if not message.strip():
        return nothing
    told = f"{named(status)}: {message}"
    before = before._replace(retry_in_streams=True)  # it is no stream that these words come in
    return next((each for each in (message, told) if not read(each).adds_to(before)), nothing)


def _maker(answer: Answer) -> str:
    """Who made a page, as far as it or its server says."""
    said = answer.headers.get("server", "").encode() + b" " + answer.plain[:_MAX_LOOKED_AT]
    found = next((name for word, name in _MAKERS if word in said.lower()), None)
    return "" if found is None else f" of {found}"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(MARKER)] + MARKER
