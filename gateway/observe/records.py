"""One request as plain attributes, filled in by the relay while it runs. Decides nothing.

Moments are seconds on the monotonic clock of the event loop, ``started_at`` alone is wall-clock
time. A record is live from the first moment: the page of open streams and the gauges read it at any
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.policy.clients import ClientApp

if TYPE_CHECKING:
    from gateway.policy.error_body import ErrorBody
    from gateway.streams.stream import Stream

NO_PROTOCOL = "none"
"""The protocol of a request that no protocol claims."""


@dataclass(slots=True, eq=False)
class RequestRecord:
    """Everything that is logged or counted of one request.

    ``path`` is the request target with its secrets masked. ``provider`` is None where none was
    asked. ``status`` is what the client got, 0 while it has got nothing. ``first_byte_at`` is when
    the first byte of the answer's body came from upstream. ``upstream_body`` is None where the
    answer was no error. ``stream`` is that of the running attempt, ``streaming`` whether the client
    asked for one. ``error`` is one bounded line without secrets, ``error_type`` the provider's name
    for it, ``enriched`` what was done to its body for the client (grown, wrapped). ``overhead`` is
    seconds spent in the gateway itself.
    """

    request_id: str
    method: str
    path: str
    started: float
    started_at: float
    provider: str | None = None
    protocol: str = NO_PROTOCOL
    client_app: ClientApp = ClientApp.OTHER
    client: str = ""
    session: str | None = None
    model: str | None = None
    streaming: bool | None = None
    status: int = 0
    attempts: int = 0
    rescued: bool = False
    tokens_discarded: int = 0
    first_byte_at: float | None = None
    ended: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    upstream_request_id: str | None = None
    upstream_status: int | None = None
    upstream_body: ErrorBody | None = None
    error: str | None = None
    error_code: str | None = None
    error_type: str | None = None
    enriched: str | None = None
    stream: Stream | None = None
    overhead: float | None = None
    observed: bool = False
    """Whether the metrics have it: a record is counted once."""

    def begin_attempt(self) -> None:
        """Another try: what the last one was answered with is no longer this request's."""
        self.attempts += 1
        self.first_byte_at = None
        self.upstream_request_id = self.upstream_status = self.upstream_body = None
        self.error = self.error_code = self.error_type = self.enriched = None

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream, or the client waits for one."""
        return self.stream is not None or self.streaming is True
