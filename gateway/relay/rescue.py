"""Sees a request through its tries: again, at another provider, or given up. Holds no rule itself.

When to try again is ``policy.retry``'s to say, how many retries a provider may cost
``policy.budget``'s, when not to ask it at all ``policy.breaker``'s. Here are the waiting and the
counting.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from gateway.observe import logs
from gateway.policy.clients import retry_count
from gateway.policy.retry import Again, Reason, Stop, Story, decide
from gateway.relay import error_answers, fallback
from gateway.relay.attempt import attempt
from gateway.relay.circuits import Guard
from gateway.relay.failures import Answered, Failed, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.relay.attempt import Tools
    from gateway.relay.call import Call, Destination

_OF_AN_ATTEMPT = (
    "provider", "upstream_status", "upstream_body", "upstream_request_id", "error", "error_code",
    "error_type",
)  # fmt: skip
"""What a record says of one try."""

_MAY_GO_ELSEWHERE = frozenset({Stop.SPENT, Stop.WAIT_TOO_LONG, Stop.BUDGET})
"""Ends of one provider's tries after which another provider may be asked."""

_OWN_REASONS = frozenset({400, 401, 403, 404, 413, 422})
"""Statuses by which a provider says that it and the request do not fit."""


async def see_through(tools: Tools, call: Call, destinations: Mapping[str, Destination]) -> None:
    """Answer a request with the first try that succeeds, or with the failure that says most."""
    waiting = list(fallback.chain(call, destinations))
    reason: Reason | None = None
    told: _Told | None = None
    retries = 0
    while True:
        story = _story(call, retries)
        outcome, stop = await _at_one_provider(tools, call, story, replaceable=bool(waiting))
        retries += story.retries
        reason = story.last or reason
        if isinstance(outcome, Answered):
            _note_rescue(tools, call, reason)
            return
        reason = reason or outcome.failure.reason
        if told is None or not told.says_more_than(outcome):
            told = _Told.of(call, outcome, stop)
        # What may have been billed is not billed a second time elsewhere.
        billed = story.billed or outcome.failure.billed
        may_go = stop in _MAY_GO_ELSEWHERE and not billed and _is_in_time(call, call.destination)
        if not may_go or not _go_elsewhere(tools, call, waiting):
            told.restore(tools, call)
            tools.metrics.discard(call.record)
            error_answers.failed(call, told.outcome, told.stop)
            return


@dataclass(frozen=True, slots=True)
class _Told:
    """A failure that the client is to be told, why it was not tried again, and what the record said
    when it happened.
    """

    outcome: Failed
    stop: Stop | None
    destination: Destination
    seen: dict[str, Any]

    @classmethod
    def of(cls, call: Call, outcome: Failed, stop: Stop | None) -> _Told:
        assert call.destination is not None
        seen = {name: getattr(call.record, name) for name in _OF_AN_ATTEMPT}
        return cls(outcome, stop, call.destination, seen)

    def says_more_than(self, later: Failed) -> bool:
        """Whether it and not a fallback's failure is what the client needs to know: that one could
        not be reached, or refuses the request for a reason of its own (key, model, route).
        """
        if later.failure.reason is Reason.CONNECT:
            return True
        refused = not later.failure.retryable and later.error.status in _OWN_REASONS
        return refused and self.outcome.failure.retryable

    def restore(self, tools: Tools, call: Call) -> None:
        """Make it the request's again, if another provider has been asked since."""
        if call.destination is self.destination:
            return
        fallback.count_failed_try(tools, call)
        call.destination = self.destination
        for name, value in self.seen.items():
            setattr(call.record, name, value)
        call.record.upstream_body = None  # it was counted when the next provider was turned to


async def _at_one_provider(
    tools: Tools, call: Call, story: Story, *, replaceable: bool
) -> tuple[Outcome, Stop | None]:
    """All tries at the provider that the call goes to now; the last outcome, and why there is no
    other try. ``replaceable``: there is another provider to go to.
    """
    destination = call.destination
    assert destination is not None
    provider, health, time = destination.provider, destination.health, monotonic
    health.budget.note_request(time())
    outcome: Outcome | None = None
    while True:
        guard = Guard(tools, call, destination, replaceable=replaceable)
        refused = guard.refusal()
        if refused is not None:
            # What a provider has said says more than that it is not asked again.
            return outcome or refused, Stop.SPENT
        outcome = await _guarded(tools, call, guard)
        if isinstance(outcome, Answered):
            return outcome, None
        failure = outcome.failure
        answer = decide(
            provider.retry,
            failure,
            story,
            now=time(),
            jitter=random.random(),  # noqa: S311 - spreads retries, guards nothing
            budget=health.budget.allows(time()),
        )
        if isinstance(answer, Stop):
            if answer is Stop.BUDGET:
                _note_budget(tools, call, failure.reason)
            return outcome, answer
        story.note(failure)
        _note_retry(tools, call, outcome, answer)
        await asyncio.sleep(answer.delay)


async def _guarded(tools: Tools, call: Call, guard: Guard) -> Outcome:
    """One try; what it says about the provider goes to the circuits as soon as it is known."""
    outcome: Outcome | None = None
    try:
        outcome = await attempt(tools, call, guard.heard)
    finally:
        guard.ended(outcome)
    return outcome


def _is_in_time(call: Call, destination: Destination | None) -> bool:
    """Whether a provider may still be asked: no try starts after its deadline."""
    assert destination is not None
    return monotonic() <= call.received_at + destination.provider.retry.deadline


def _go_elsewhere(tools: Tools, call: Call, waiting: list[Destination]) -> bool:
    """Turn to the next provider that can take the request, if there is one."""
    while waiting:
        other = waiting.pop(0)
        if _is_in_time(call, other) and fallback.redirect(tools, call, other):
            return True
    return False


def _story(call: Call, retries: int) -> Story:
    """What the request allows at the provider it goes to now, after so many retries elsewhere: how
    often, and whether at all.
    """
    provider = call.destination.provider if call.destination is not None else None
    assert provider is not None
    allowed = provider.retry.max_retries
    if call.asks_no_retry or provider.mode == "observe":
        allowed = 0
    elif retry_count(call.request.headers) > 0:
        # The client's own retries multiply ours: one is for all providers together.
        allowed = min(max(0, 1 - retries), allowed)
    # Some requests do something at the provider although they have failed, and a body that was not
    # kept is gone.
    kept = call.body is not None and call.body.kept is not None
    inference = call.inference and kept and not call.goes_once
    return Story(call.received_at, inference, allowed, acts=call.facts.acts)


def _note_retry(tools: Tools, call: Call, outcome: Failed, answer: Again) -> None:
    destination = call.destination
    assert destination is not None
    failure, name = outcome.failure, destination.provider.name
    tools.metrics.retry(name, failure.reason.value)
    fallback.count_failed_try(tools, call)
    if failure.reason is not Reason.RATE_LIMIT:
        destination.health.budget.note_retry(monotonic())
    logs.note_retry(call.record, failure.reason.value, outcome.error.message, answer.delay)


def _note_budget(tools: Tools, call: Call, reason: Reason) -> None:
    name = call.record.provider or ""
    tools.metrics.budget_exhausted(name)
    logs.logger().warning(
        "retry_budget_exhausted",
        request_id=call.record.request_id,
        provider=name,
        reason=reason.value,
    )


def _note_rescue(tools: Tools, call: Call, reason: Reason | None) -> None:
    """Count an answer that there would not have been without the gateway."""
    record = call.record
    stream = record.stream
    whole = stream is None or not (stream.cut or stream.must_abort or stream.error)
    whole = whole and record.error_code is None and not call.downstream.aborted
    if reason is not None and whole and record.status < 400 and record.provider is not None:
        record.rescued = True
        tools.metrics.rescued(record.provider, reason.value)
