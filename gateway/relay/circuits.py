"""One try and the circuits it passes: whether it may be made, and what it tells them.

A failed connect counts against the provider, an answer of 500 and above against its model if the
request has another provider to go to. When to open and to close is ``policy.breaker``'s to say.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from gateway.errors import Code, GatewayError, Origin
from gateway.observe import logs
from gateway.policy.breaker import State
from gateway.policy.retry import Failure, Reason
from gateway.relay.failures import Failed

if TYPE_CHECKING:
    from gateway.policy.breaker import Breaker
    from gateway.relay.attempt import Tools
    from gateway.relay.call import Call, Destination
    from gateway.relay.failures import Outcome

_HALF_OPEN = 0.5


class Guard:
    """The circuits of one try, which begins when this is made."""

    __slots__ = ("_began", "_destination", "_heard", "_model", "_named", "_provider", "_tools")

    def __init__(
        self, tools: Tools, call: Call, destination: Destination, *, replaceable: bool
    ) -> None:
        """``replaceable``: there is another provider for this request."""
        health = destination.health
        self._tools = tools
        self._destination = destination
        self._began = monotonic()
        self._heard = False
        self._named = call.facts.model
        self._provider: Breaker | None = None if destination.observes else health.provider
        self._model: Breaker | None = None
        if self._provider is not None and replaceable and self._named is not None:
            self._model = health.models.of(self._named)

    @property
    def _circuits(self) -> list[Breaker]:
        return [circuit for circuit in (self._provider, self._model) if circuit is not None]

    def refusal(self) -> Failed | None:
        """What the try fails with if a circuit is open; None if it may be made."""
        now = self._began
        half_open = self._provider is not None and self._provider.state(now) is State.HALF_OPEN
        shut = [circuit for circuit in self._circuits if not circuit.allows(now)]
        if shut:
            self._say_nothing()
            return _unavailable(self._destination, max(circuit.wait(now) for circuit in shut))
        if half_open:
            self._show(_HALF_OPEN)
        return None

    def heard(self, status: int) -> None:
        """The head of an answer is there: whatever comes of it, it may be long in coming."""
        self._heard = True
        self._note_provider(None)
        if self._model is not None:
            bad = f"The provider answered with HTTP {status}." if status >= 500 else None
            self._note(self._model, bad, model=self._named)

    def ended(self, outcome: Outcome | None) -> None:
        """The try is over; None where it was broken off."""
        if self._heard:
            return
        if isinstance(outcome, Failed):
            unreachable = outcome.failure.reason is Reason.CONNECT
            self._note_provider(outcome.error.message if unreachable else None)
        self._say_nothing()

    def _say_nothing(self) -> None:
        for circuit in self._circuits:
            circuit.note_nothing(self._began)

    def _note_provider(self, bad: str | None) -> None:
        if self._provider is not None and self._note(self._provider, bad):
            self._show(float(bad is not None))

    def _note(self, circuit: Breaker, bad: str | None, *, model: str | None = None) -> bool:
        """``bad`` is what went wrong, None for a success; whether that opened or closed it."""
        name = self._destination.provider.name
        if bad is None:
            closed = circuit.note_success(self._began)
            if closed:
                logs.logger().info("circuit_closed", provider=name, model=model)
            return closed
        self._destination.health.last_error = bad
        now = monotonic()
        opened = circuit.note_failure(now)
        if opened:
            seconds = round(circuit.wait(now), 1)
            logs.logger().warning("circuit_opened", provider=name, model=model, seconds=seconds)
        return opened

    def _show(self, value: float) -> None:
        """In the metrics, unless another configuration has taken the provider's place."""
        if self._destination.health.in_force:
            self._tools.metrics.circuit(self._destination.provider.name, value)


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
