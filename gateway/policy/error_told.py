"""One sentence about a body that is no JSON: text, a page, something broken, or nothing at all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.policy import client_words
from gateway.policy.error_body import ErrorBody, words_of
from gateway.policy.error_detail import flat
from gateway.policy.error_growth import AGAIN, MARKER, MAX_ADDED, as_before, shortened
from gateway.policy.error_markup import is_hidden
from gateway.policy.redact import cleaner
from gateway.policy.status_words import named, nothing_said, phrase_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.policy.error_body import Answer, Document

_MAX_LOOKED_AT: Final = 16_384
_MAX_SENTENCE: Final = 150

_MAKERS: Final = (
    (b"cloudflare", "Cloudflare"), (b"awselb", "an AWS load balancer"), (b"envoy", "Envoy"),
    (b"openresty", "OpenResty"), (b"nginx", "nginx"), (b"cloudfront", "CloudFront"),
    (b"azure", "Azure"), (b"google", "Google"), (b"apache", "Apache"),
)  # fmt: skip


def told(answer: Answer, document: Document, secrets: Sequence[str]) -> str:
    """One sentence about a body that is text, a page, broken, or nothing."""
    clean = cleaner(secrets)
    raw = answer.plain[:_MAX_LOOKED_AT].decode("utf-8", "replace")
    said = words_of(document, answer.status).all[:_MAX_LOOKED_AT]
    words = shortened(clean(flat(said)), MAX_ADDED - _MAX_SENTENCE)
    begin = f"The provider answered with HTTP {named(answer.status)} and"
    match document.kind:
        case ErrorBody.EMPTY:
            unreadable = f"{begin} an error that cannot be read."
            message = unreadable if answer.cut else nothing_said(answer.status)
        case ErrorBody.HTML:
            message = f'{begin} a web page{_maker(answer)} instead of an API error: "{words}".'
        case ErrorBody.JSON:
            message = f"{begin} {_fault(answer, document)}: {words}"
        case _:
            message = f"{words} {MARKER}" if answer.cut and MARKER not in words else words
    hidden = is_hidden(raw) or document.kind is ErrorBody.EMPTY
    return meaning_the_same(answer, message, raw, clean, hidden=hidden)


def _fault(answer: Answer, document: Document) -> str:
    """Why JSON cannot be read."""
    if answer.cut:
        return "an error that broke off"
    return (
        "JSON that is too large or too deep to be read"
        if document.deep or document.large
        else "broken JSON"
    )


def meaning_the_same(
    answer: Answer, message: str, raw: str, clean: Callable[[str], str], *, hidden: bool = False
) -> str:
    """The message of a body that no client understands, so that it does about it what it does about
    ``raw``, which it shows unless that is a page, and ``hidden``.
    """
    phrase = answer.reason or phrase_of(answer.status)
    shown = phrase if hidden else f"{phrase}: {raw}"
    read = partial(client_words.read, answer.status, body=False)
    before = client_words.read(answer.status, shown, body=client_words.asks_to_retry(clean(raw)))
    message = as_before(answer.status, message, before, read)
    now = read(message)
    if before.overflow and not now.overflow:
        message += f" ({client_words.OVERFLOW})"
    return message + AGAIN if before.retry and not now.retry else message


def _maker(answer: Answer) -> str:
    """Who made a page, as far as it or its server says."""
    said = answer.headers.get("server", "").encode() + b" " + answer.plain[:_MAX_LOOKED_AT]
    found = next((name for word, name in _MAKERS if word in said.lower()), None)
    return "" if found is None else f" of {found}"
