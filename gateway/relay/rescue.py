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

from gateway.errors import Code, GatewayError, Origin
from gateway.observe import logs
from gateway.policy.breaker import State
from gateway.policy.clients import retry_count
from gateway.policy.retry import Again, Failure, Reason, Stop, Story, decide
from gateway.relay import error_answers, fallback
from gateway.relay.attempt import attempt
from gateway.relay.failures import Answered, Failed, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.policy.breaker import Breaker
    from gateway.relay.attempt import Tools
    from gateway.relay.call import Call, Destination

_OF_AN_ATTEMPT = (
    "provider", "upstream_status", "upstream_body", "upstream_request_id", "error", "error_code",
)  # fmt: skip
"""What a record says of one try."""

_MAY_GO_ELSEWHERE = frozenset({Stop.SPENT, Stop.WAIT_TOO_LONG, Stop.BUDGET})
"""Ends of one provider's tries after which another provider may be asked: nothing was billed that
must not be billed twice, and there is time."""

_HALF_OPEN = 0.5


async def see_through(tools: Tools, call: Call, destinations: Mapping[str, Destination]) -> None:
    """Answer a request with the first try that succeeds, or with the failure of the last."""
    first = call.destination
    assert first is not None
    alone = call.asks_no_retry or first.observes
    waiting = [] if alone else list(fallback.chain(first, destinations))
    reason: Reason | None = None
    told: _Told | None = None
    while True:
        outcome, stop, last = await _at_one_provider(tools, call)
        reason = last or reason
        if isinstance(outcome, Answered):
            _note_rescue(tools, call, reason)
            return
        reason = reason or outcome.failure.reason
        if told is None or outcome.failure.reason is not Reason.CONNECT:
            # That a fallback cannot be reached is not what the client needs to know.
            told = _Told.of(call, outcome)
        may_go = stop in _MAY_GO_ELSEWHERE and _costs_nothing(call, outcome)
        if not may_go or not _go_elsewhere(tools, call, waiting):
            tools.metrics.discard(call.record)
            told.restore(call)
            error_answers.failed(call, told.outcome)
            return


@dataclass(frozen=True, slots=True)
class _Told:
    """A failure that the client is to be told, with what the record said when it happened."""

    outcome: Failed
    destination: Destination
    seen: dict[str, Any]

    @classmethod
    def of(cls, call: Call, outcome: Failed) -> _Told:
        assert call.destination is not None
        seen = {name: getattr(call.record, name) for name in _OF_AN_ATTEMPT}
        return cls(outcome, call.destination, seen)

    def restore(self, call: Call) -> None:
        """Make it the request's again, if another provider has been asked since."""
        if call.destination is self.destination:
            return
        call.destination = self.destination
        for name, value in self.seen.items():
            setattr(call.record, name, value)
        call.record.upstream_body = None  # it was counted when the next provider was turned to


async def _at_one_provider(tools: Tools, call: Call) -> tuple[Outcome, Stop | None, Reason | None]:
    """All tries at the provider that the call goes to now; the last outcome, why there is no other
    try, and the reason of the last retry.
    """
    destination = call.destination
    assert destination is not None
    provider, health, time = destination.provider, destination.health, monotonic
    story = _story(call)
    health.budget.note_request(time())
    reason: Reason | None = None
    while True:
        outcome = await _guarded(tools, call, destination)
        if outcome is None:
            wait = destination.health.provider.wait(time())
            return _unavailable(destination, wait), Stop.SPENT, reason
        if isinstance(outcome, Answered):
            return outcome, None, reason
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
                tools.metrics.budget_exhausted(provider.name)
                logs.logger().warning(
                    "retry_budget_exhausted",
                    request_id=call.record.request_id,
                    provider=provider.name,
                    reason=failure.reason.value,
                )
            return outcome, answer, reason
        reason = failure.reason
        story.note(failure)
        _note_retry(tools, call, outcome, answer)
        await asyncio.sleep(answer.delay)


def _costs_nothing(call: Call, outcome: Failed) -> bool:
    """Whether another provider may be asked: what may have been billed is not billed twice there,
    and no try starts after the deadline.
    """
    assert call.destination is not None
    failure, deadline = outcome.failure, call.destination.provider.retry.deadline
    in_time = monotonic() <= call.received_at + deadline
    return in_time and not (failure.ambiguous or failure.after_content)


def _go_elsewhere(tools: Tools, call: Call, waiting: list[Destination]) -> bool:
    """Turn to the next provider that can take the request, if there is one."""
    while waiting:
        if fallback.redirect(tools, call, waiting.pop(0)):
            return True
    return False


def _story(call: Call) -> Story:
    """What the request allows: how often, and whether at all."""
    provider = call.destination.provider if call.destination is not None else None
    assert provider is not None
    allowed = provider.retry.max_retries
    if call.asks_no_retry or provider.mode == "observe":
        allowed = 0
    elif retry_count(call.request.headers) > 0:
        # The client's own retries multiply ours.
        allowed = min(1, allowed)
    # A background answer goes on at the provider although its request has failed, and a body that
    # was not kept is gone.
    kept = call.body is not None and call.body.kept is not None
    inference = call.known and kept and not call.may_run_on
    return Story(call.received_at, inference, allowed)


def _note_retry(tools: Tools, call: Call, outcome: Failed, answer: Again) -> None:
    destination = call.destination
    assert destination is not None
    failure, name = outcome.failure, destination.provider.name
    tools.metrics.retry(name, failure.reason.value)
    fallback.count_failed_try(tools, call)
    if failure.reason is not Reason.RATE_LIMIT:
        destination.health.budget.note_retry(monotonic())
    logs.note_retry(call.record, failure.reason.value, outcome.error.message, answer.delay)


def _note_rescue(tools: Tools, call: Call, reason: Reason | None) -> None:
    """Count an answer that there would not have been without the gateway."""
    record = call.record
    stream = record.stream
    whole = stream is None or not (stream.cut or stream.must_abort or stream.error)
    whole = whole and record.error_code is None and not call.downstream.aborted
    if reason is not None and whole and record.status < 400 and record.provider is not None:
        record.rescued = True
        tools.metrics.rescued(record.provider, reason.value)


# The circuit.


async def _guarded(tools: Tools, call: Call, destination: Destination) -> Outcome | None:
    """One try, and what it tells about the provider goes to the circuits; None if one is open."""
    circuits = _circuits(call, destination)
    now = monotonic()
    probes = [circuit for circuit in circuits if circuit.state(now) is State.HALF_OPEN]
    if any(circuit.state(now) is State.OPEN for circuit in circuits):
        return None
    if not all(circuit.allows(now) for circuit in circuits):
        return None
    if destination.health.provider in probes:
        tools.metrics.circuit(destination.provider.name, _HALF_OPEN)
    try:
        outcome = await attempt(tools, call)
    except BaseException:
        for circuit in probes:
            circuit.note_nothing()
        raise
    _tell(tools, circuits, outcome, call)
    return outcome


def _circuits(call: Call, destination: Destination) -> list[Breaker]:
    """The provider's circuit, and its model's where there is another provider to go to."""
    if destination.observes:
        return []
    circuits = [destination.health.provider]
    if destination.provider.fallback and call.facts.model is not None:
        circuits.append(destination.health.models.of(call.facts.model))
    return circuits


def _tell(tools: Tools, circuits: list[Breaker], outcome: Outcome, call: Call) -> None:
    """A connect failure counts against the provider, an answer of 500 and above against its
    model.
    """
    record, now = call.record, monotonic()
    unreachable = isinstance(outcome, Failed) and outcome.failure.reason is Reason.CONNECT
    broken = (record.upstream_status or 0) >= 500
    for circuit, what, bad in zip(
        circuits, ("provider", "model"), (unreachable, broken), strict=False
    ):
        if bad:
            if isinstance(outcome, Failed) and call.destination is not None:
                call.destination.health.last_error = outcome.error.message
            changed = circuit.note_failure(now)
        elif unreachable:
            circuit.note_nothing()
            continue
        else:
            changed = circuit.note_success()
        if changed:
            _announce(tools, call, circuit, what, opened=bad)


def _announce(tools: Tools, call: Call, circuit: Breaker, what: str, *, opened: bool) -> None:
    name = call.record.provider or ""
    model = call.facts.model if what == "model" else None
    if opened:
        seconds = round(circuit.wait(monotonic()), 1)
        logs.logger().warning("circuit_opened", provider=name, model=model, seconds=seconds)
    else:
        logs.logger().info("circuit_closed", provider=name, model=model)
    if what == "provider":
        tools.metrics.circuit(name, float(opened))


def _unavailable(destination: Destination, wait: float) -> Failed:
    error = GatewayError(
        Origin.GATEWAY,
        Code.UNAVAILABLE,
        f"{destination.host} failed several times in a row, so it is not being asked for a moment; "
        f"retry your request later. The last failure: {destination.health.last_error}",
        retryable=True,
    )
    failure = Failure(Reason.CONNECT, retryable=True, sent=False, retry_after=wait)
    return Failed(error, failure, fields=(("Retry-After", str(int(wait + 0.999))),))
