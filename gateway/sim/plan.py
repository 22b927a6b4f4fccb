"""What the server does for one exchange, as data: steps and an end; performs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Headers = list[tuple[str, str]]


class End(StrEnum):
    """How the body of an answer ends on the wire."""

    CLEAN = "clean"
    """As HTTP wants it; the connection may be used again."""
    FIN = "fin"
    """The connection just closes: no last chunk, or fewer bytes than Content-Length said."""
    SHORT = "short"
    """The connection closes inside a chunk."""
    BAD = "bad"
    """A chunk size that is no number, then the connection closes."""
    RESET = "reset"
    """RST; on a unix socket, which has none, as FIN."""


@dataclass(frozen=True, slots=True)
class Send:
    """One write."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Beat:
    """``count`` times: ``every`` seconds of silence, then ``make(0)``, ``make(1)``, …"""

    make: Callable[[int], bytes]
    every: float
    count: int


Step = Send | Pause | Beat


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer. ``status`` None: not even a status line. ``length`` is the Content-Length.

    Without ``length`` the body is chunked. ``rest`` is what an end inside a chunk has promised;
    ``piece`` the size of writes where they shall be small; ``delay`` the seconds before the first
    byte.
    """

    status: int | None
    headers: Headers
    steps: list[Step]
    end: End = End.CLEAN
    rest: bytes = b""
    length: int | None = None
    coding: str = "identity"
    piece: int | None = None
    delay: float = 0.0

    def body(self) -> bytes:
        """All that is sent, heartbeats left out."""
        return b"".join(step.data for step in self.steps if isinstance(step, Send))


def whole(status: int, headers: Headers, body: bytes) -> Plan:
    """A plain answer with its Content-Length."""
    return Plan(status=status, headers=headers, steps=[Send(body)], length=len(body))
