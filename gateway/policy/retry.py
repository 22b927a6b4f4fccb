"""When a failed try is made again: one pure decision. Sleeps nowhere, sends nothing.

The table (what ``failure_of_status`` and the readers' error types say, and ``decide`` then bounds):

====================================================  ========================================
failure before anything was handed on                 tried again
====================================================  ========================================
DNS, connect, TLS (nothing was sent)                  yes
a reused connection that died without a byte          once per request, at once, not counted (1)
sent, and no byte came back (may be billed)           inference: ``ambiguous`` times, within 30 s
an answer whose head is no valid HTTP                 as the one before
408, 409, 425, 5xx (not 501, 505)                     yes
424 that the provider calls ModelErrorException       yes
429 for a rate limit                                  yes, when told to wait no longer than allowed
429 or 5xx for quota, credit, billing                 never
other 4xx (invalid request, authentication, size …)   never
``x-should-retry`` of the provider                    followed, unless its error's type says never
stream: bare EOF, torn, reset, empty, stalled         yes
stream: overloaded, server, timeout, rate limit       yes
stream: invalid request, quota, context length …      never
200 that is no answer (HTML, error, broken JSON)      yes, unless its error is of a kind above
anything once content was seen (``hold = finish``)    ``max_retries_after_content`` times
an answer in one piece that breaks off                as the one before
anything once a byte was handed on                    never
anything that is not this protocol's inference        only if nothing was sent
``background``, ``deferred`` or ``conversation``      only if nothing was sent
tools of other servers (MCP)                          429, 503, 529, or if nothing was sent
====================================================  ========================================

(1) What may change something at the provider (:func:`may_change_state`) is never sent on a reused
connection, so that this cannot happen to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.policy.headers import Fields

AMBIGUOUS_WINDOW = 30.0
"""Seconds after the request came in which a try that may have been billed is made again."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods that do the same however often they are done (RFC 9110, section 9.2.2)."""

_ONLY_COMPUTES = re.compile(
    r"/(?:embeddings?|embed|count_tokens|input_tokens|moderations|rerank|tokenize|detokenize)\Z"
    r"|(?::|%3[Aa])(?:embedContent|batchEmbedContents|countTokens|computeTokens|predict)\Z"
)
"""Ends of paths whose POST leaves nothing behind."""

_MAKES = re.compile(
    r"/(?:threads|runs|conversations|images|videos|audio|async|batch|batches|jobs)(?:/|\Z)"
)
"""Parts of paths whose POST makes something, though it may hold a prompt and want a stream."""

_MAKES_A_JOB = re.compile(
    r"/(?:async|batch|batches|context)/"
    r"|/(?:agents|chats|conversations|runs|sessions|threads)/[^/]++/"
)
"""Parts of paths that end like inference and make a job of it (Z.ai, Perplexity, Ark), or a turn of
something that is stored (RAGFlow)."""

REFUSALS = frozenset({429, 503, 529})
"""Statuses of providers that have too much to do to begin."""

RETRYABLE_4XX = frozenset({408, 409, 425, 429})
FINAL_5XX = frozenset({501, 505})


class Reason(StrEnum):
    """Why a try failed; a metric label."""

    CONNECT = "connect"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    STATUS = "status"
    ERROR_EVENT = "error_event"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    INVALID = "invalid_response"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try.

    ``retryable``: trying again can help. ``sent``: the provider may have the whole request.
    ``ambiguous``: it has, and not a byte came back that says what became of it. ``after_content``:
    content had been seen (and held). ``begun``: a part of an answer in one piece had come, of an
    event, or of something that was no HTTP. ``refused``: the provider says that it has not begun,
    for it has too much to do. ``acted``: it has called a tool of another server. ``retry_after``:
    seconds that it asked for.
    """

    reason: Reason
    retryable: bool
    sent: bool = True
    ambiguous: bool = False
    after_content: bool = False
    begun: bool = False
    refused: bool = False
    acted: bool = False
    retry_after: float | None = None

    @property
    def billed(self) -> bool:
        """Whether it may cost money, so that no other provider may be asked for the same."""
        return self.ambiguous or self.after_content or self.begun


@dataclass(slots=True)
class Story:
    """What has become of one request at one provider so far.

    ``received`` is when it came. ``inference``: a protocol claims it, so that sending it twice
    costs money at worst, and its body was kept. ``allowed``: the most retries, 0 where the client
    asked for none. ``acts``: the provider may use tools that change something elsewhere. ``last``
    is why the last one was made. ``billed``: a try may have cost money.
    """

    received: float
    inference: bool
    allowed: int
    acts: bool = False
    retries: int = 0
    ambiguous: int = 0
    after_content: int = 0
    billed: bool = False
    last: Reason | None = None

    def note(self, failure: Failure) -> None:
        """The failed try is going to be made again."""
        self.retries += 1
        self.ambiguous += failure.ambiguous
        self.after_content += failure.after_content
        self.billed = self.billed or failure.billed
        self.last = failure.reason


class Rule(Protocol):
    """The configured bounds; seconds and counts (see ``[providers.NAME.retry]``)."""

    @property
    def backoff_initial(self) -> float: ...
    @property
    def backoff_max(self) -> float: ...
    @property
    def retry_after_max(self) -> float: ...
    @property
    def max_retries_after_content(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def ambiguous(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after ``delay`` seconds."""

    delay: float


class Stop(StrEnum):
    """Why there is no further try."""

    FINAL = "final"
    SPENT = "no_retries_left"
    NOT_REPEATABLE = "not_repeatable"
    AMBIGUOUS = "may_have_been_billed"
    CONTENT = "content_was_seen"
    WAIT_TOO_LONG = "asked_to_wait_too_long"
    TOO_LATE = "deadline"
    BUDGET = "budget"
    ACTED = "a_tool_may_have_been_used"


def decide(
    rule: Rule, failure: Failure, story: Story, *, now: float, jitter: float, budget: bool
) -> Again | Stop:
    """Whether and when to try again. ``jitter`` is a random number in [0, 1).

    ``budget`` says whether the provider's retry budget has room; rate limits do not need it, for
    their waiting is the provider's own.
    """
    if not failure.retryable:
        return Stop.FINAL
    if failure.sent and not story.inference:
        return Stop.NOT_REPEATABLE
    if failure.acted or (failure.sent and story.acts and not failure.refused):
        return Stop.ACTED
    if failure.ambiguous and (
        story.ambiguous >= rule.ambiguous or now - story.received > AMBIGUOUS_WINDOW
    ):
        return Stop.AMBIGUOUS
    if failure.after_content and story.after_content >= rule.max_retries_after_content:
        return Stop.CONTENT
    if story.retries >= story.allowed:
        return Stop.SPENT
    delay = backoff(rule, story.retries, jitter)
    if failure.retry_after is not None:
        if failure.retry_after > rule.retry_after_max:
            return Stop.WAIT_TOO_LONG
        # A tenth on top, so that clients told the same do not all come back at once.
        delay = max(failure.retry_after * (1 + 0.1 * jitter), delay)
        if now <= story.received + rule.deadline < now + failure.retry_after:
            return Stop.WAIT_TOO_LONG
    if now + delay > story.received + rule.deadline:
        return Stop.TOO_LATE
    if not budget and failure.reason is not Reason.RATE_LIMIT:
        return Stop.BUDGET
    return Again(delay)


def may_change_state(method: str, path: str) -> bool:
    """Whether a request that is no inference may do something twice if it is sent twice; ``path``
    without its query.
    """
    return method not in _IDEMPOTENT and _ONLY_COMPUTES.search(path) is None


def makes_something(path: str) -> bool:
    """Whether a prompt to this path, without its query, makes something other than an answer: a run
    of a thread, a turn of a conversation, a picture.
    """
    return _MAKES.search(path) is not None


def makes_a_job(path: str) -> bool:
    """Whether a path, without its query, asks for more than an answer now, whatever its end."""
    return _MAKES_A_JOB.search(path) is not None


def backoff(rule: Rule, retries: int, jitter: float) -> float:
    """Exponential, from ``backoff_initial`` up to ``backoff_max``; jitter takes away up to half."""
    longest = min(rule.backoff_max, rule.backoff_initial * 2.0 ** min(retries, 32))
    return longest * (1 - 0.5 * jitter)


def failure_of_status(
    status: int, headers: Mapping[str, str], *, final_error: bool, retry_after: float | None
) -> Failure:
    """The failure that an HTTP error is.

    ``final_error``: the body names a type or code that never becomes right by trying again.
    ``headers`` is case-insensitive.
    """
    reason = Reason.RATE_LIMIT if status == 429 else Reason.STATUS
    word = headers.get("x-should-retry", "").strip().lower()
    if word in ("true", "false"):
        retryable = word == "true" and not final_error
    elif status == 424:
        retryable = headers.get("x-amzn-errortype", "").startswith("ModelErrorException")
    else:
        server_fault = status >= 500 and status not in FINAL_5XX
        retryable = (status in RETRYABLE_4XX or server_fault) and not final_error
    return Failure(reason, retryable, refused=status in REFUSALS, retry_after=retry_after)


def retry_after(headers: Mapping[str, str], wall_clock: float) -> float | None:
    """Seconds to wait by ``retry-after-ms`` or ``Retry-After`` (seconds or HTTP date, RFC 9110).

    ``wall_clock`` is seconds since the epoch. None for what is absent, malformed, negative or past.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        wait = parsedate_to_datetime(value).timestamp() - wall_clock
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return wait if wait > 0 else None


def says_when(fields: Fields, wall_clock: float) -> bool:
    """Whether one of the fields of :func:`retry_after` can be read by a client: at once counts."""
    headers = {name.lower(): value.strip() for name, value in fields}
    return retry_after(headers, wall_clock) is not None or any(
        re.fullmatch(r"0+(?:\.0+)?", value) for value in headers.values()
    )


def retry_delay(details: object) -> float | None:
    """Seconds of Google's ``RetryInfo`` (``{"retryDelay": "34s"}``) in an error's ``details``."""
    for detail in details if isinstance(details, list) else ():
        value = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(value, str) and value.endswith("s"):
            return _number(value[:-1])
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
