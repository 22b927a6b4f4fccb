"""Finds what an error's body says beside its message, as pieces that a person can read.

Providers put the cause into ``code``, ``param``, ``metadata.raw``, ``details``, ``innererror``,
lists of validation faults and JSON inside strings; clients show the message alone. Never says what
the message says already, and leaves out what helps nobody there: ids, links, times, what was sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.policy.error_markup import title_of
from gateway.streams import lenient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_PIECES: Final = 40
_MAX_DEPTH: Final = 10
_MAX_VALUE: Final = 4000
_MAX_TEXT: Final = 70_000
_MAX_KEY: Final = 100
_MAX_VISITED: Final = 400
_MAX_NODES: Final = 2000
"""Values and names that are looked at in all, whether they say something or not."""

_MAX_JSON: Final = 65_536
"""Characters of a string that is read as JSON."""

_MAX_READ: Final = 65_536
"""Characters that are looked at in all: so much can be told of them, and secrets sought in them."""

_MAX_TRIED: Final = 100

APART: Final = " ¦ "
"""Keeps things that are said apart: the end of one and the beginning of the next say nothing."""

MESSAGE_KEYS: Final = (
    "message", "Message", "detail", "msg", "error_description", "error_message", "errorMessage",
    "error_msg", "description", "title", "raw", "reason",
)  # fmt: skip
"""Fields that hold a sentence, which needs no name in front of it."""

_CONTAINERS: Final = frozenset(
    {
        "error", "errors", "metadata", "detail", "details", "innererror", "inner_error", "cause",
        "causes", "violations", "fieldViolations", "raw", "response", "data", "body", "links",
        *MESSAGE_KEYS,
    }
)  # fmt: skip
"""Names that say nothing about what is inside."""

_FIRST: Final = ("code", "type", "status", "param", "failed_generation")
_LEFT_OUT: Final = re.compile(
    r"@type|object|success|ok|(?:.*[_-])?u?u?ids?|.*(?:Id|ID)|.*request_?id.*|.*trace.*|ray|.*time"
    r"|timestamp|date|input|ctx|url|.*_url|uri|href|link|instance|user|account|org.*|domain|service"
    r"|consumer|locale|stack.*|status_?[cC]ode|httpStatus|path|documentation.*|doc_url|is_byok"
    r"|previous_errors|headers|retryable"
)
_ANSWERS: Final = frozenset({"failed_generation", "partial_output", "output"})
"""Fields that hold what the model said: for the client, not for a log."""

_GENERIC: Final = frozenset(
    {
        "error", "errors", "apierror", "invalidrequest", "invalidrequesterror", "badrequest",
        "badrequesterror", "servererror", "internalservererror", "internalerror", "internal",
        "apiexception", "authenticationerror", "unauthorized", "permissionerror", "forbidden",
        "notfounderror", "notfound", "ratelimiterror", "overloadederror", "requesttoolarge",
        "unavailable", "invalidargument", "permissiondenied", "unauthenticated", "upstreamerror",
        "requestrejected", "unknown", "unknownerror", "none", "null", "missing", "valueerror",
        "fail", "failed", "failure", "aborted", "timeouterror", "billingerror", "timeout",
        "resourceexhausted", "deadlineexceeded", "cancelled", "unimplemented",
    }
)  # fmt: skip
"""Types, codes and statuses that say no more than the HTTP status does."""

_NOTHING: Final = frozenset({"", "none", "null", "undefined"})
"""What some frameworks write for a value that is not there."""

_KINDS: Final = frozenset({"type", "status", "code", "error_type", "errorType"})
_WORD: Final = re.compile(r"\w")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\s]+")


class _Effort:
    """How much of a body may still be looked at."""

    def __init__(self) -> None:
        self._left = _MAX_NODES

    def is_spent(self) -> bool:
        """Whether there has been enough; counts each question."""
        self._left -= 1
        return self._left < 0


class Piece(NamedTuple):
    """One thing that an error says: its name ("" for a sentence) and its words."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}" if self.name else self.words


def pieces(
    value: Any,
    message: str,
    status: int | None = None,
    *,
    clean: Callable[[str], str] = str,
    log: bool = False,
) -> list[str]:
    """What ``value`` says beyond ``message``, in the order of the body, each thing once.

    ``status`` is that of the answer: a code that only repeats it says nothing. ``clean`` takes
    secrets out. For a ``log``, what the model said is left out.
    """
    return _pieces(value, message, status, _Effort(), clean=clean, log=log)


def _pieces(
    value: Any,
    message: str,
    status: int | None,
    effort: _Effort,
    *,
    clean: Callable[[str], str] = str,
    log: bool = False,
) -> list[str]:
    said = one_line(message).lower()
    found: list[str] = []
    left = _MAX_READ
    for visited, piece in enumerate(_walk(value, (), 0, effort)):
        left -= len(piece.words)
        if visited >= _MAX_VISITED or left < 0 or len(found) >= MAX_PIECES:
            break
        if (log and piece.name in _ANSWERS) or not _is_telling(piece, status):
            continue
        text = clean(str(piece))
        words = text.removeprefix(f"{piece.name}: ").lower()
        if not _says(said, words):
            found.append(text)
            said = f"{said}{APART}{text.lower()}"
    return found


def sentence(value: Any) -> str:
    """The message that an error is made of, in any of its forms; "" for none, and for one that
    stands too deep inside others.
    """
    return _sentence(value, 0, _Effort())


def _sentence(value: Any, depth: int, effort: _Effort) -> str:
    if depth > _MAX_DEPTH or effort.is_spent():
        return ""
    if isinstance(value, str):
        inner = _json_in(value)
        if inner is not None:
            words = _sentence(inner, depth + 1, effort)
            words = words or "; ".join(_pieces(inner, "", None, effort))
            return words or flat(value)
        return flat(value)
    if isinstance(value, list):
        parts = [_sentence(each, depth + 1, effort) for each in value[:MAX_PIECES]]
        return "; ".join(part for part in parts if part)
    if not isinstance(value, dict):
        return ""
    placed = _placed(value)
    if placed is not None:
        return placed.words
    said = (_sentence(value.get(key), depth + 1, effort) for key in MESSAGE_KEYS if key in value)
    return next(filter(None, said), "")


def flat(text: str) -> str:
    """On one line, as :func:`one_line`; of an HTML page, its title."""
    return one_line(title_of(text[:_MAX_TEXT]) or text)


def one_line(text: str) -> str:
    """On one line, without control characters, its beginning only."""
    return _CONTROL.sub(" ", text[:_MAX_TEXT]).strip()


def contains(text: str, words: str) -> bool:
    """Whether ``text`` says ``words`` already, as words of their own, in any case."""
    return _says(text.lower(), words.lower())


def _says(text: str, words: str) -> bool:
    """:func:`contains`, in small letters."""
    at = text.find(words)
    for _ in range(_MAX_TRIED):
        if at < 0:
            return False
        end = at + len(words)
        if not _goes_on(text[max(0, at - 1) : at], words[:1]) and not _goes_on(
            words[-1:], text[end : end + 1]
        ):
            return True
        at = text.find(words, at + 1)
    return True  # so often that it is no use to say it once more


def _goes_on(before: str, after: str) -> bool:
    """Whether two neighbouring characters belong to one word."""
    return bool(_WORD.match(before) and _WORD.match(after))


def _walk(
    value: Any, path: tuple[str, ...], depth: int, effort: _Effort, *, listed: bool = False
) -> Iterator[Piece]:
    """Everything that is said inside ``value``, which stands at ``path``, maybe in a list."""
    if depth > _MAX_DEPTH or effort.is_spent():
        return
    if isinstance(value, dict):
        placed = _placed(value) if listed else None
        if placed is not None:
            yield placed
            return
        for key in _in_order(value):
            if effort.is_spent():
                return
            if isinstance(key, str) and len(key) <= _MAX_KEY and not _LEFT_OUT.fullmatch(key):
                yield from _walk(value[key], (*path, key), depth + 1, effort)
    elif isinstance(value, list):
        for each in value[:_MAX_NODES]:
            yield from _walk(each, path, depth + 1, effort, listed=True)
    elif isinstance(value, str):
        yield from _walk_text(value, path, depth, effort)
    elif value is not None and value is not False:
        words = "true" if value is True else str(value)
        yield Piece(_name(path), words)


def _walk_text(text: str, path: tuple[str, ...], depth: int, effort: _Effort) -> Iterator[Piece]:
    """A string, which may be JSON once more."""
    value = _json_in(text)
    if value is not None:
        yield from _walk(value, path, depth + 1, effort)
        return
    words = flat(text[:_MAX_VALUE])
    if words:
        yield Piece(_name(path), words)


def _json_in(text: str) -> dict[Any, Any] | list[Any] | None:
    """The object or array that a string holds, if it does."""
    inner = text.strip() if len(text) <= _MAX_JSON else ""
    if inner[:1] not in ("{", "["):
        return None
    try:
        value = lenient.loads(inner.encode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _placed(value: dict[Any, Any]) -> Piece | None:
    """An entry of a validation report: where it is wrong and why, not what was sent."""
    words = value.get("msg") or value.get("description") or value.get("message")
    steps = value.get("path")
    place = value.get("loc") or value.get("field") or (steps if isinstance(steps, list) else None)
    if not isinstance(words, str) or not place:
        return None
    steps = place if isinstance(place, list) else [place]
    return Piece("", flat(f"{'.'.join(str(step) for step in steps)}: {words}"))


def _in_order(value: dict[Any, Any]) -> Iterator[Any]:
    """What an error is comes before what it is about; the rest as it stands in the body."""
    yield from (key for key in _FIRST if key in value)
    yield from (key for key in value if key not in _FIRST)


def _name(path: tuple[str, ...]) -> str:
    if path and path[-1] in MESSAGE_KEYS:
        return ""
    return ".".join(step for step in path if step not in _CONTAINERS)


def _is_telling(piece: Piece, status: int | None) -> bool:
    if piece.words.lower() in _NOTHING:
        return False
    kind = piece.name.rpartition(".")[2]
    if kind not in _KINDS:
        return True
    if piece.words == str(status):
        return False
    return re.sub(r"[\W_]", "", piece.words.lower()) not in _GENERIC
