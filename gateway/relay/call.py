"""What is known of one request, and of the provider it goes to. Values only.

A :class:`Call` is filled in from the top of the handler down, and read by everything below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.policy.breaker import Breaker, ModelBreakers
from gateway.policy.budget import RetryBudget
from gateway.policy.peek import RequestFacts
from gateway.policy.redact import redact, repeats, scrub, secrets_of, summary
from gateway.protocols import generic
from gateway.relay.pulse import Pulse
from gateway.streams.events import Hold
from gateway.streams.limits import Limits
from gateway.streams.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from gateway.config.model import Provider
    from gateway.observe.records import RequestRecord
    from gateway.protocols.base import StreamProtocol
    from gateway.relay.body import RequestBody
    from gateway.relay.downstream import Downstream
    from gateway.relay.upstream import Endpoint


def text_fields(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Header fields as text: latin-1 maps each byte to one character, and back."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


class Health:
    """What recent requests say about a provider: its retry budget and its circuits.

    ``in_force`` until another configuration takes its place; requests may still be on their way.
    """

    __slots__ = ("budget", "in_force", "last_error", "models", "provider")

    def __init__(self, provider: Provider) -> None:
        circuit = provider.circuit
        self.budget = RetryBudget(provider.retry.budget, provider.retry.budget_floor)
        self.provider = Breaker(circuit.failures, circuit.open_for)
        self.models = ModelBreakers(circuit.failures, circuit.open_for)
        self.last_error = "none that is known."
        self.in_force = True


_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/\-]{0,63}")


@dataclass(frozen=True, slots=True)
class Destination:
    """A provider, ready to be asked.

    ``endpoint`` is None where it cannot be reached, and ``unusable`` is why: one sentence.
    """

    provider: Provider
    endpoint: Endpoint | None
    health: Health
    unusable: str = ""

    @property
    def host(self) -> str:
        """The provider's address for people."""
        return self.provider.name if self.endpoint is None else self.endpoint.host

    @property
    def observes(self) -> bool:
        """Whether the provider's answers are only to be understood, and nothing be changed."""
        return self.provider.mode == "observe"

    def limits(self) -> Limits:
        """How long each kind of silence in a stream may last."""
        timeouts = self.provider.timeouts
        return Limits(
            first_event=timeouts.first_event,
            gap=timeouts.gap,
            gap_alive=timeouts.gap_alive,
            silent_phase=timeouts.silent_phase,
            linger=timeouts.linger,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asked for, and of whom, before any fallback renamed the model."""

    provider: Provider
    rest: str
    body: bytes


@dataclass(slots=True, eq=False)
class Call:
    """One request on its way.

    ``target`` is its request target and ``rest`` what of it follows the provider's base URL, both
    byte for byte (latin-1 text). ``protocol`` is the one that claims the request; None for none.
    """

    request: web.BaseRequest
    record: RequestRecord
    downstream: Downstream
    target: str
    protocol: StreamProtocol | None = None
    destination: Destination | None = None
    rest: str = ""
    facts: RequestFacts = field(default_factory=RequestFacts)
    inference: bool = False
    """It is a protocol's inference: sending it twice costs money at worst."""
    hold: Hold = Hold.FIRST_CONTENT
    body: RequestBody | None = None
    received_at: float = 0.0
    """When the request was at hand, as much of its body as is kept included."""
    interrupted: bool = False
    """The gateway itself ends this request, for it is shutting down."""
    asked: Asked | None = None
    """Kept from the first fallback on."""
    primed: bool = False
    """The head of a stream is out, for keepalives, and nothing of a stream."""
    met_stale: bool = False
    """One of its tries was sent on a pooled connection that was dead: there may be more of them."""
    pulse: Pulse = field(init=False)
    """Its keepalives."""

    def __post_init__(self) -> None:
        self.pulse = Pulse(self)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The request's header fields as on the wire (latin-1 text)."""
        return text_fields(self.request.raw_headers)

    @property
    def known(self) -> bool:
        """Whether a protocol claims the request whose streams have a finish."""
        return self.protocol is not None and self.protocol.known

    @property
    def destination_observes(self) -> bool:
        """Whether the answer is only to be understood, and nothing be changed."""
        return self.destination is not None and self.destination.observes

    @property
    def asks_no_retry(self) -> bool:
        """Whether the client wants the first failure."""
        return self.request.headers.get("x-gateway-no-retry", "").strip() not in ("", "0")

    @property
    def may_stream(self) -> bool:
        """Whether the answer is going to be a stream, as far as one can know."""
        facts = self.facts
        return facts.stream is True or (facts.stream is None and not facts.readable)

    @property
    def goes_once(self) -> bool:
        """Whether asking twice would do something twice at the provider: the answer may go on being
        made, and billed, after its request has failed, or it becomes a part of what is stored. What
        only reads a stored answer does nothing.
        """
        facts = self.facts
        responses = self.protocol is not None and self.protocol.name == "openai_responses"
        unknown = responses and not facts.readable and self.request.method == "POST"
        return facts.background is True or facts.appends or unknown

    def secrets(self) -> tuple[str, ...]:
        """The credentials of this request: the client's own, and the gateway's for the provider."""
        own = self.destination.provider.api_key if self.destination is not None else None
        fields = self.fields if own is None else [*self.fields, ("api-key", own.reveal())]
        return secrets_of(fields, self.target.partition("?")[2])

    def code(self, text: str | None) -> str | None:
        """An error's code or type as it may be logged; None for what is no such word."""
        if text is None or not _CODE.fullmatch(text):
            return None
        return text if redact(scrub(text, self.secrets())) == text else None

    def summary(self, text: str, limit: int = 300) -> str:
        """``text`` as one bounded line, without credentials and without what the client sent."""
        if self.body is not None and repeats(text, self.body.head):
            return "(the provider's message repeats the request)"
        return summary(text, self.secrets(), limit)

    def release_body(self) -> None:
        """There will be no other try: nothing of the request is kept any more."""
        self.asked = None
        if self.body is not None:
            self.body.release()

    def settings(self, protocol: StreamProtocol, sent_at: float) -> Settings:
        """How a stream that answers this request, sent at that moment, is to be treated."""
        destination = self.destination
        assert destination is not None
        provider = destination.provider
        endless = not protocol.known and self.request.method == "GET"
        return Settings(
            limits=None if endless else destination.limits(),
            hold=self.hold,
            hold_max_bytes=provider.held_bytes(self.hold.value),
            # Codex counts parsed events, not comments: a held stream would starve it.
            hold_max=self._longest_hold(provider, protocol, sent_at),
            max_event=provider.max_event,
            finish_optional=provider.finish_optional,
            known=protocol.known,
            observe=destination.observes,
        )

    def _longest_hold(
        self, provider: Provider, protocol: StreamProtocol, sent_at: float
    ) -> float | None:
        """Seconds from ``sent_at``; the limit is that of the request, whichever try this is."""
        if protocol.name != "openai_responses":
            return None
        return max(0.0, provider.hold_max - (sent_at - self.received_at))

    def reading(self) -> StreamProtocol:
        """The protocol in which a stream is read."""
        return self.protocol or generic.PROTOCOL
