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

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.policy import json_edit, json_mask
from gateway.policy.error_body import ErrorBody, as_utf8, cut_short, read_document
from gateway.policy.error_detail import pieces, sentence
from gateway.policy.error_dialect import completion, shaped
from gateway.policy.error_growth import (
    AGAIN,
    MAX_ADDED,
    MAX_MESSAGE,
    Growth,
    base_message,
    native_edits,
    shortened,
)
from gateway.policy.error_markup import is_hidden
from gateway.policy.error_told import meaning_the_same, told
from gateway.policy.redact import cleaner
from gateway.policy.status_words import nothing_said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.policy.error_body import Answer, Document
    from gateway.policy.json_edit import Path
    from gateway.protocols.base import StreamProtocol

_LEFT_TO_CLIENTS: Final = frozenset({401, 403})
"""Statuses for whose pages some clients have better words of their own."""


class Enriched(NamedTuple):
    """The body to send instead, and how it came to be: JSON that is ``grown`` or ``wrapped``, or
    what came with credentials ``masked``; ``recoded`` says that it came in another encoding than
    UTF-8, in which it now is.
    """

    body: bytes
    how: str
    recoded: bool = False


def enrich(
    answer: Answer,
    protocol: StreamProtocol | None,
    secrets: Sequence[str] = (),
    document: Document | None = None,
) -> Enriched | None:
    """The body for a client of ``protocol``; None where the provider's own is to pass as it came.

    Without a protocol the dialect is not known: a message may grow, but nothing is wrapped.
    ``secrets`` are the request's credentials, which must not be shown. ``document`` is the body, if
    it has been read.
    """
    body = as_utf8(answer.plain, answer.headers.get("content-type", ""))
    document = read_document(body) if document is None else document
    enriched = None
    if "x-gateway-error" not in answer.headers:  # another gateway has said all there is to say
        enriched = _enriched(answer, document, protocol, secrets)
    if enriched is None:
        enriched = _masked(body, document, secrets)
    return enriched and enriched._replace(recoded=body != answer.plain)


def _enriched(
    answer: Answer, document: Document, protocol: StreamProtocol | None, secrets: Sequence[str]
) -> Enriched | None:
    try:
        if document.large and _may_stay(document.value, protocol):
            return None  # not worth the time of changing it
        if document.kind is ErrorBody.JSON and document.readable and not document.large:
            return _of_json(answer, document, protocol, secrets)
    except (ValueError, RecursionError):
        document = cut_short(document.text, deep=True)
    if protocol is None or (answer.status in _LEFT_TO_CLIENTS and _is_hidden(answer)):
        return None
    message = told(answer, document, secrets)
    return Enriched(shaped(protocol, answer, message), "wrapped")


def _is_hidden(answer: Answer) -> bool:
    """Whether clients have better words for it than its own."""
    return is_hidden(answer.plain[:MAX_MESSAGE].decode("utf-8", "replace"))


def _may_stay(value: Any, protocol: StreamProtocol | None) -> bool:
    """Whether it has a message where the clients of the protocol look for one, of sensible size."""
    if _is_listed(value) and (protocol is None or protocol.name == "gemini"):
        value = value[0]
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return isinstance(message, str) and len(message) <= MAX_MESSAGE


def _is_listed(value: Any) -> bool:
    """Whether it is an array of one object, which is how Google sends errors of streams."""
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)


def _masked(body: bytes, document: Document, secrets: Sequence[str]) -> Enriched | None:
    """A body that stays as it is, but for the request's credentials."""
    if document.kind is ErrorBody.JSON and document.readable and not document.rest:
        try:
            document, came = _without(document, secrets), document
        except (ValueError, RecursionError):
            return _masked(body, cut_short(document.text, deep=True), secrets)
        if document is came:
            return None
        return Enriched(document.text.encode("utf-8", "replace"), "masked")
    masked = json_mask.without(body.decode("utf-8", "surrogateescape"), secrets)
    plain = masked.encode("utf-8", "surrogateescape")
    return None if plain == body else Enriched(plain, "masked")


def _without(document: Document, secrets: Sequence[str]) -> Document:
    """The document without the request's credentials, wherever in it a provider repeats them."""
    text, value = json_mask.masked(document.text, document.value, secrets)
    if text == document.text:
        return document
    return document._replace(text=text, value=value, repaired=True)


def _of_json(
    answer: Answer, document: Document, protocol: StreamProtocol | None, secrets: Sequence[str]
) -> Enriched | None:
    came, document = document, _without(document, secrets)
    source, value, changed = document.text, document.value, document.repaired
    root: Path = ()
    if _is_listed(value):
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
    base = base_message(value)
    dialect = "" if protocol is None else protocol.name
    growth = Growth(answer, came, value, dialect, cleaner(secrets))

    def edited(message: str) -> str:
        edits = native_edits(source, root, base, message) if native else []
        if protocol is not None and not growth.would_reveal(message):
            edits += completion(source, root, value, protocol, answer, message, full=growth.full)
        return json_edit.apply(source, edits)

    message = growth.grow(base)
    text = edited(message)
    if growth.would_end(message, text):
        text = edited(message + AGAIN)
    if text == source and not changed:
        return None
    return Enriched(text.encode("utf-8", "replace"), "grown" if native else "wrapped")


def _wrap_value(
    answer: Answer, document: Document, protocol: StreamProtocol | None, secrets: Sequence[str]
) -> Enriched | None:
    """JSON that is no object: an array of faults, mostly."""
    if protocol is None:
        return None
    value, clean = document.value, cleaner(secrets)
    said = [sentence(value) or "; ".join(pieces(value, "", answer.status))]
    said += pieces(list(document.rest), said[0], answer.status)
    words = "; ".join(filter(None, said))
    message = shortened(clean(words), MAX_ADDED) or nothing_said(answer.status)
    raw = answer.plain[:MAX_MESSAGE].decode("utf-8", "replace")
    message = meaning_the_same(answer, message, raw, clean)
    return Enriched(shaped(protocol, answer, message), "wrapped")
