"""What every provider protocol is made of; knows no protocol itself.

A protocol is data and one reader class: how to recognise its requests, how to read its events, how
to tell its clients that an answer is not whole. See ``gateway.streams.events.Reader`` for what a
reader must do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gateway.streams import lenient
from gateway.streams.events import Facts, Fault, Kind, ProviderError, Reader
from gateway.streams.sse import bare_lines

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class StreamProtocol:
    """One provider protocol.

    ``claims`` says whether a request (method, path without its query) is this protocol's inference
    request. ``reader`` makes a fresh reader for a stream in which the client asked for that many
    choices. ``keepalive`` is what may be written to its clients between events without harm (b""
    for nothing). ``error_body`` shapes a failure as clients of the protocol expect it: (status,
    code, message) to JSON, its type following the status; a code of None is none, and
    ``error_fields`` are those of its error object that SDKs need beside the message. ``known`` is
    false where a stream has no finish frame.
    """

    name: str
    claims: Callable[[str, str], bool]
    reader: Callable[[int], Reader]
    keepalive: bytes
    error_body: Callable[[int, str | None, str], bytes]
    error_fields: tuple[str, ...] = ()
    known: bool = True


class BaseReader:
    """The parts that readers share; a reader adds ``read`` and whatever its protocol does
    differently.

    ``_raises`` is for a reader to set when the provider's own error has the form on which clients
    of the protocol raise.
    """

    __slots__ = ("_raises", "_told", "facts")

    def __init__(self) -> None:
        self.facts: Final = Facts()
        self._raises = False
        self._told = False

    def read_bare(self, block: bytes) -> Kind:
        """An event without data is a heartbeat (``event: heartbeat``, ``retry:``, ``id:``), but for
        an error as bare JSON, or in a field ``error`` (llama.cpp until 2025): that is how servers
        fail that have begun with keepalives. No client sees it there, so it is not the form on
        which they raise.
        """
        text = bare_lines(block)
        field = text.removeprefix(b"error:")
        error = _error_in(field.strip(), named=field != text) if self.facts.error is None else None
        return Kind.HEARTBEAT if error is None else self._fail_object(error)

    def read_done(self) -> None:
        """``[DONE]`` is never proof of success; readers that count choices learn that no more will
        come."""

    def may_close(self) -> bool:
        """Finish frames for all that was asked for end the answer, whether or not the upstream ends
        it."""
        facts = self.facts
        return facts.finished and not (facts.awaited or facts.doubtful)

    def complement(self, *, ending: bool) -> bytes:  # noqa: ARG002 - nothing waits for the end here
        """The raising form once, directly after an error that lacks it."""
        error = self.facts.error
        if error is None or self._raises or self._told:
            return b""
        self._told = True
        return self._raising_form(error)

    def _raising_form(self, error: ProviderError) -> bytes:  # noqa: ARG002 - the interface's parameter
        """The provider's error as an event on which clients raise; b"" where there is none."""
        return b""

    def fault(self, fault: Fault) -> bytes | None:  # noqa: ARG002 - the interface's parameter
        """No in-band form."""
        return None

    def _fail(
        self,
        kind: object,
        message: object,
        code: object = None,
        param: object = None,
        *,
        retryable: bool | None = None,
    ) -> Kind:
        """Note a failure; the first one is what went wrong, later ones follow from it."""
        if self.facts.error is None:
            self.facts.error = provider_error(kind, message, code, param, retryable=retryable)
        return Kind.ERROR

    def _fail_object(self, error: dict[str, Any], kind: object = None, code: object = None) -> Kind:
        """An error object, where ``kind`` and ``code`` stand for what it does not say itself."""
        own, number = names_of(error)
        return self._fail(own or kind, error.get("message"), number or code, error.get("param"))

    def _fail_beside(self, data: bytes) -> Kind:
        """An event whose ``error`` is a text, and whose other fields say what kind of one."""
        return self._fail_object(_flat_error(lenient.loads(data)))

    def _fail_text(self, data: bytes) -> Kind:
        """``event: error`` with text that is no JSON."""
        return self._fail("error", data.decode("utf-8", "replace"))


def _error_in(text: bytes, *, named: bool) -> dict[str, Any] | None:
    """The error that a JSON object holds, or is (``named``: it is called one); None for anything
    else.
    """
    if text[:1] != b"{":
        return None
    try:
        value: Any = lenient.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if error := value.get("error"):
        return error if isinstance(error, dict) else _flat_error(value)
    return value if named or "error" in (value.get("type"), value.get("object")) else None


def _flat_error(value: Any) -> dict[str, Any]:
    """An error that is a text as an object, with what stands beside it: a code (xAI), a type (TGI),
    a status and a message (Spring).
    """
    if not isinstance(value, dict):
        return {"message": "", "type": "error"}
    text, more = text_of(value.get("error")), value.get("message")
    kind = value.get("error_type") or value.get("type")
    return {
        "type": kind if kind and kind != "error" else "error",
        "message": f"{text}: {more}" if text and isinstance(more, str) and more else text or more,
        "code": names_of(value)[1],
        "param": value.get("param"),
    }


def names_of(error: dict[str, Any]) -> tuple[object, object]:
    """Type and code of an error object. A status is the one or the other: a word (Google), or the
    number of an HTTP status."""
    status = error.get("status")
    number = (
        status if type(status) is int or (isinstance(status, str) and status.isdigit()) else None
    )
    word = status if isinstance(status, str) and number is None else None
    code = error.get("code") or error.get("http_status_code") or number
    return error.get("type") or word, code


def encode(value: object) -> bytes:
    """Compact JSON."""
    return _encode(value)


def event(data: object, name: str = "", line_end: bytes = b"\n") -> bytes:
    """One whole server-sent event with ``data`` as JSON."""
    head = b"event: " + name.encode() + line_end if name else b""
    return head + b"data: " + _encode(data) + line_end * 2


def decode(data: bytes, decoder: msgspec.json.Decoder[T], kind: type[T]) -> T | None:
    """Decode an event into the struct ``kind``, which is the decoder's; None when it is no such
    JSON object at all.

    A field of an unexpected type must not hide the rest of the event, so it is dropped and the
    decoding tried again; JSON that only lenient parsers accept is read leniently.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        value = lenient.loads(data)
    except ValueError:
        return None
    return convert(value, kind)


def convert(value: object, kind: type[T]) -> T | None:
    """Turn decoded JSON into a struct, leaving out the fields whose types do not fit; None if
    nothing fits."""
    for _ in range(16):
        try:
            return msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            if not _drop(value, str(error)):
                return None
    return None


def _drop(value: Any, complaint: str) -> bool:
    """Delete the place that a msgspec complaint ends with (``... - at `$.a[0].b` ``)."""
    _, found, path = complaint.rpartition(" - at `$")
    if not found:
        return False
    steps = [
        int(part[1:-1]) if part.startswith("[") and part[1:-1].isdigit() else part
        for part in path.rstrip("`").replace("[", ".[").split(".")[1:]
    ]
    try:
        for step in steps[:-1]:
            value = value[step]
        del value[steps[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def text_of(value: object) -> str:
    """A message field as text: strings as they are, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value).decode("utf-8", "replace")


# Error types, codes and statuses, from the providers' error pages and SDK sources. What is not
# listed is judged by the HTTP status that it names, and else taken for a passing server fault.
_FINAL_WORDS = (
    "invalid", "authentication", "permission", "not_found", "notfound", "billing", "quota",
    "context_length", "too_large", "unsupported", "not_supported", "policy", "moderation",
    "spend_limit", "tool_use_failed", "failed_precondition", "unauthenticated",
    "usage_not_included", "data_residency", "image_", "payment", "bad_request", "badrequest",
    "exceed_context", "unprocessable", "validation", "content_filter", "budget", "unauthorized",
    "forbidden", "access_denied", "accessdenied", "above_max", "access_terminated", "deactivated",
    "suspended", "inspection", "download_image",
)  # fmt: skip
_STATUS_WORDS: tuple[tuple[str, int], ...] = (
    ("overloaded", 529), ("rate_limit", 429), ("ratelimit", 429), ("too_many_requests", 429),
    ("resource_exhausted", 429), ("quota", 429), ("timeout", 504), ("deadline_exceeded", 504),
    ("unavailable", 503), ("capacity", 503), ("authentication", 401), ("unauthenticated", 401),
    ("unauthorized", 401), ("forbidden", 403), ("access_denied", 403), ("accessdenied", 403),
    ("permission", 403), ("not_found", 404), ("notfound", 404), ("billing", 402),
    ("payment", 402), ("too_large", 413), ("internal", 500), ("server_error", 500),
    ("api_error", 500),
)  # fmt: skip
SPENT_CODES = frozenset({"1113", "1304", "1308", "1309", "1310", "1311", "1313"})
"""Z.ai business codes for arrears and for what of a plan is used up."""
_FINAL_CODES = SPENT_CODES | {
    "1000", "1001", "1002", "1003", "1004", "1110", "1111", "1112", "1121", "1211", "1301",
}  # fmt: skip
"""And for authentication, locked accounts, unknown model and refused content."""
_NO_NEWS_WITH_429 = re.compile(r"invalid_request_error|(?:token|request)_quota_exceeded")
"""Types for limits: Mistral's and Anthropic's compatible endpoint's; Cerebras's."""


def provider_error(
    kind: object,
    message: object,
    code: object = None,
    param: object = None,
    *,
    retryable: bool | None = None,
) -> ProviderError:
    """Build the error that a stream reports, deciding retryability and status by its type and code.

    Quota, billing, authentication, invalid requests and context length never become right by trying
    again; overload, rate limits, timeouts and server faults do.
    """
    type_text = text_of(kind) if kind not in (None, "") else ""
    code_text = text_of(code) if code not in (None, "") else ""
    label = type_text or code_text or "error"
    status = _status(type_text, code_text)
    if retryable is None:
        retryable = _retryable(_words(type_text, code_text), code_text, status)
    return ProviderError(
        type=label,
        message=text_of(message),
        code=code_text or None,
        param=text_of(param) or None,
        retryable=retryable,
        status=status,
    )


def _status(type_text: str, code_text: str) -> int:
    for text in (code_text, type_text):
        if len(text) == 3 and text.isdigit() and 400 <= int(text) < 600:
            return int(text)
    words = _words(code_text, type_text)
    for word, status in _STATUS_WORDS:
        if word in words:
            return status
    return 400 if any(word in words for word in _FINAL_WORDS) else 502


def _words(*names: str) -> str:
    """Names of errors in one spelling: some are sentences, some have hyphens (xAI)."""
    return " ".join(re.sub(r"[\s-]", "_", name) for name in names).lower()


def limit_passes(kind: str, code: str | None, *, told_to_wait: bool) -> bool:
    """Whether waiting can help after a 429 whose error has this type and code.

    There "invalid request" says nothing, nor does "quota" where it is said when to come back.
    """
    words = _NO_NEWS_WITH_429.sub("", f"{kind} {code or ''}".lower())
    if told_to_wait:
        words = words.replace("quota", "")
    return code not in _FINAL_CODES and not any(word in words for word in _FINAL_WORDS)


def _retryable(words: str, code_text: str, status: int) -> bool:
    if status == 429:
        return limit_passes(words, code_text, told_to_wait=False)
    if code_text in _FINAL_CODES or any(word in words for word in _FINAL_WORDS):
        return False
    return status in (408, 409, 425, 429) or status >= 500
