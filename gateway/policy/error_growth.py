"""How an error's message grows by what its body says elsewhere.

What a client *does* must not change (``policy.client_words``): a piece that would make it ask
again, or take the context for full, is left out; what made it do so before is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.policy import client_words, json_edit
from gateway.policy.error_detail import APART, contains, pieces, sentence
from gateway.policy.status_words import named, nothing_said, only_says, phrase_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.policy.error_body import Answer, Document
    from gateway.policy.json_edit import Edit, Path

MAX_ADDED: Final = 2000
"""Characters that a message may grow by, the marker included."""

MAX_MESSAGE: Final = 65_536
"""Characters of a provider's own message that are passed on, and of a body that are looked at."""

MARKER: Final = "… [shortened]"
"""Ends what was cut."""

AGAIN: Final = " Retry your request."
"""For whom asked again before, and would not any more."""

_FULL: Final = f" ({client_words.OVERFLOW})"

_MAX_DECIDED: Final = 4000
"""Characters at the end of a message that are looked at together with what is appended."""


class Growth:
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
        self._answer, self._value, self._rest, self._clean = answer, value, came.rest, clean
        self._code = error.get("code") if isinstance(error, dict) else None
        self._native = isinstance(error, dict) and isinstance(error.get("message"), str)
        source = answer.plain.decode("utf-8", "replace").removeprefix("\ufeff")
        same = not came.repaired and source.strip() == came.text
        read = came.value if same else client_words.parsed(source)
        source = source[:MAX_MESSAGE]
        self._body = client_words.asks_to_retry(source)
        phrase = answer.reason or phrase_of(answer.status)
        self._shown = client_words.shown(read, source, phrase, dialect)[:MAX_MESSAGE]
        self._before = self._read(self._shown)

    def grow(self, base: str) -> str:
        """The message with what the body says elsewhere."""
        answer = self._answer
        base = shortened(base, MAX_MESSAGE)
        cleaned = self._clean(base)
        own = cleaned if cleaned.strip() and self._native else ""
        message = as_before(answer.status, cleaned, self._before, self._read, own)
        empty = only_says(answer.status, base)
        said = "" if empty else message
        if cleaned != base and cleaned in said:
            said = f"{base}{APART}{said}"  # what was masked there is not said again elsewhere
        told = pieces(self._value, said, answer.status, clean=self._clean)
        said = APART.join((said, *told))
        told += pieces(list(self._rest), said, answer.status, clean=self._clean)
        told = [piece for piece in told if not only_says(answer.status, piece)]
        if answer.amazon_type and not contains(message, answer.amazon_type):
            told.append(self._clean(answer.amazon_type))
        if empty and told:
            whole = shortened("; ".join(told), MAX_ADDED)
            if self._read(whole) == self._before:
                return whole
        if not _has_grown(base):
            message += self._appendix(message, told)
        if self._before.overflow and not self._read(message).overflow:
            message += _FULL
        return message

    @property
    def full(self) -> bool:
        """Whether clients take it for a context that is full."""
        return self._before.overflow

    def would_reveal(self, message: str) -> bool:
        """Whether a client would act on the message that does not see it as the body is, for that
        lacks a field.
        """
        return self._native and self._read(message).overflow and not self.full

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
            longer = shortened(f"{kept}; {piece}" if kept else piece, MAX_ADDED - len(" ()"))
            now = self._read(f"{end} ({longer})")
            if not (now.adds_to(self._before) and now.adds_to(bare)) and not bare.adds_to(now):
                kept = longer
            if kept.endswith(MARKER):
                break
        return f" ({kept})" if kept else ""


def _has_grown(message: str) -> bool:
    """Whether a message was cut, whatever has been put behind that for clients' sake."""
    message = message.removesuffix(AGAIN).removesuffix(_FULL)
    return message.removesuffix(")").endswith(MARKER)


def base_message(value: dict[str, Any]) -> str:
    """The message as the body has it, unchanged if it is one."""
    error = value.get("error")
    if isinstance(error, dict):
        own = error.get("message")
        return own if isinstance(own, str) else sentence(error)
    return sentence(error) or sentence(value)


def native_edits(source: str, root: Path, base: str, message: str) -> list[Edit]:
    """Exchange the message; where it only grew, its own characters stay as they were spelled."""
    span = json_edit.find(source, (*root, "error", "message"))
    if span is None or (message == base and source[span.start] == '"'):
        return []
    if base and message.startswith(base) and source[span.start] == '"':
        grown = json_edit.dump(message[len(base) :])[1:]
        return [json_edit.Edit(json_edit.Span(span.end - 1, span.end), grown)]
    return [json_edit.Edit(span, json_edit.dump(message))]


def as_before(
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


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(MARKER)] + MARKER
