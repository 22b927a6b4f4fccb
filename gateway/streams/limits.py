"""How long each kind of silence in a stream may last. Pure arithmetic on moments that the caller
names."""

from __future__ import annotations

from dataclasses import dataclass

SILENT_LINE = 290.0
"""Seconds. Clients give up at 300 s without a byte, so on a silent line the gateway speaks
first."""

TRAILER = 0.2
"""Seconds that a stream may still trail something after the frame that ends it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, per provider.

    ``first_event`` runs from the request to the first event. ``gap`` is the longest silence between
    events that mean progress on a line without heartbeats, ``gap_alive`` while heartbeats arrive,
    ``silent_phase`` where the protocol says that silence is normal. ``linger`` is the lull after a
    finish that ends the client's answer.
    """

    first_event: float = 280.0
    gap: float = 290.0
    gap_alive: float = 600.0
    silent_phase: float = 900.0
    linger: float = 2.0

    @property
    def silences(self) -> tuple[float, float]:
        """How long after progress the line may be silent: where content is awaited, and where the
        protocol says that silence is normal.
        """
        return self.gap, min(self.silent_phase, SILENT_LINE)

    def after_progress(self, progress: float, heartbeat: float | None, *, waiting: bool) -> float:
        """The moment at which silence becomes a stall.

        ``progress`` is the moment of the last event that meant progress, ``heartbeat`` that of the
        last sign of life since then, if any. A heartbeat never moves the deadline past ``progress``
        plus the longer limit.
        """
        longest, silent = self.silent_phase if waiting else self.gap_alive, self.silences[waiting]
        if heartbeat is None or heartbeat < progress:
            return progress + silent
        return min(progress + longest, heartbeat + silent)
