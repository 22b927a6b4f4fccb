"""Shows a waiting client that its request lives: one timer per request, and none for most.

Before the commit: when a provider has answered with a stream and the client has waited for long,
status and header fields go out with a keepalive, and more follow through retries and their waits.
Another try stays possible; what then fails for good is told in-band. After the commit: a keepalive
in each long silence, so that load balancers do not cut a model that thinks. Never in the middle of
an event, and never where the protocol has no harmless form.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from gateway.policy import headers
from gateway.relay import replies

if TYPE_CHECKING:
    from gateway.config.model import Provider
    from gateway.relay.call import Call, Destination
    from gateway.relay.upstream import Exchange
    from gateway.streams.stream import Stream

AUTO_SECONDS = 25.0
"""What ``keepalive = "auto"`` is for clients elsewhere; many load balancers cut at 60 s."""


class Pulse:
    """The keepalives of one request."""

    __slots__ = (
        "_beat", "_call", "_exchange", "_of", "_seen", "_stream", "_timer", "beaten", "inside",
    )  # fmt: skip

    def __init__(self, call: Call) -> None:
        self._call = call
        self._beat = b""
        self._exchange: Exchange | None = None
        self._stream: Stream | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen = (-1, 0)
        self._of: Destination | None = None
        self.beaten = False
        """At least one is out."""
        self.inside = False
        """The client has a part of what is to be written: nothing may come in between."""

    def hold(self, exchange: Exchange, beat: bytes) -> None:
        """A stream has begun that is held back; ``beat`` is the protocol's keepalive."""
        call = self._call
        assert call.destination is not None
        provider = call.destination.provider
        if not beat or provider.keepalive == "off":
            return
        self._beat, self._exchange, self._of = beat, exchange, call.destination
        if self._timer is None:
            wait = provider.held_keepalive(call.hold.value)
            due = call.received_at + wait
            self._timer = asyncio.get_running_loop().call_at(due, self._beat_held, wait)

    def flow(self, stream: Stream, beat: bytes) -> None:
        """The stream is being handed on from here."""
        self.stop()
        call = self._call
        assert call.destination is not None
        every = interval(call.destination.provider, call.request.remote)
        if beat and every is not None:
            self._beat, self._stream = beat, stream
            # Half the interval: silence is seen after one and ends before one and a half.
            self._timer = asyncio.get_running_loop().call_later(
                every / 2, self._beat_flowing, every / 2
            )

    def stop(self) -> None:
        """No more of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat_held(self, wait: float) -> None:
        call = self._call
        if not call.downstream.started:
            self._begin()
            call.primed = True
        self._send()
        self._timer = asyncio.get_running_loop().call_later(wait, self._beat_held, wait)

    def _begin(self) -> None:
        """The head of the answer: that of the stream that is held. Of a provider that has failed,
        and whose place another one has taken, nothing but the kind of answer is told.
        """
        call, exchange = self._call, self._exchange
        assert exchange is not None
        if call.destination is self._of:
            replies.begin(call, exchange, headers.Body.STREAMED, stream=True, commit=False)
            return
        record = call.record
        record.status = exchange.status
        kept = [pair for pair in exchange.fields if pair[0].lower() == "content-type"]
        fields = headers.to_client(
            kept,
            body=headers.Body.STREAMED,
            request_id=record.request_id,
            provider=record.provider or "",
            attempts=record.attempts,
            stream=True,
        )
        call.downstream.start(exchange.status, exchange.reason, fields)

    def _beat_flowing(self, half: float) -> None:
        down, stream = self._call.downstream, self._stream
        assert stream is not None
        if stream.closed:
            return
        record = self._call.record
        sent, quiet = self._seen
        quiet = quiet + 1 if record.bytes_down == sent else 0
        if quiet >= 2 and stream.at_boundary and not (down.blocked or self.inside):
            self._send()
            quiet = 0
        self._seen = (record.bytes_down, quiet)
        self._timer = asyncio.get_running_loop().call_later(half, self._beat_flowing, half)

    def _send(self) -> None:
        self.beaten = True
        self._call.downstream.send(self._beat)
        self._call.record.bytes_down += len(self._beat)


def interval(provider: Provider, client: str | None) -> float | None:
    """Seconds of silence after which a client at that address gets a keepalive; None for never.

    ``client`` is empty or None on a unix socket. A client on this machine has no load balancer in
    between, unless configuration says so by a number.
    """
    if isinstance(provider.keepalive, str):
        here = not client or ipaddress.ip_address(client.partition("%")[0]).is_loopback
        return None if provider.keepalive == "off" or here else AUTO_SECONDS
    return provider.keepalive
