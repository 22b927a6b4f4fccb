"""What has come of a stream and may not be handed on yet. Does not know what the bytes mean."""

from __future__ import annotations

from gateway.streams.events import Hold


class HoldBack:
    """Holds bytes until the event that was waited for; ``released`` from then on.

    ``until`` is the moment at which waiting ends whatever has come, None for never.
    """

    __slots__ = ("_most", "_parts", "_size", "_wanted", "released", "until")

    def __init__(self, wanted: Hold, most: int, until: float | None, *, released: bool) -> None:
        """``most`` is how many bytes are held before they are released all the same."""
        self.released = released
        self.until = until
        self._wanted = wanted
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def reached(self, hold: Hold) -> None:
        """An event of the class that ``hold`` names has come."""
        wanted = self._wanted
        if wanted is hold or (wanted is Hold.FIRST_EVENT and hold is Hold.FIRST_CONTENT):
            self.released = True

    def put(self, out: bytes, waiting: int = 0) -> bytes:
        """Take bytes in order; return what may be handed on.

        ``waiting`` is how many bytes are held elsewhere because their event is not whole yet.
        """
        if not self.released:
            if out:
                self._parts.append(out)
                self._size += len(out)
            if self._size + waiting <= self._most:
                return b""
            self.released, out = True, b""
        return self.take(out) if self._parts else out

    def keep(self, out: bytes) -> None:
        """Hold bytes that will only be handed on by ``take``."""
        self._parts.append(out)

    def take(self, out: bytes = b"") -> bytes:
        """Everything that is held, and ``out`` after it; nothing is held any more."""
        whole = b"".join((*self._parts, out))
        self._parts.clear()
        return whole

    def shift(self, seconds: float) -> None:
        """Leave so many seconds out of its clock."""
        if self.until is not None:
            self.until += seconds

    def expired(self, now: float) -> bool:
        """Whether bytes have been waited for long enough."""
        return self.until is not None and not self.released and now >= self.until

    def bound(self, deadline: float) -> float:
        """The deadline, or the end of the waiting if that is sooner."""
        if self.until is None or self.released:
            return deadline
        return min(deadline, self.until)
