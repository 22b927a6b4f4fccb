"""Where the choices of one chat answer stand; reads no chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.streams.events import Facts


class Choices:
    """Which of an answer's choices have their finish, and whether that is the last word.

    Some servers say "stop" with every piece, or with the reasoning: of a choice that had shown
    nothing since its last one, it proves nothing until ``[DONE]`` or the end. Nor does any more of
    a choice that has gone on after one that was sure.
    """

    __slots__ = ("_done", "_doubtful", "_reopened", "_resumed", "_seen", "_unsure", "_wanted",
                 "speaking", "unfinished")  # fmt: skip

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._seen: set[int] = set()
        self._doubtful: set[int] = set()
        self._reopened: set[int] = set()
        self._resumed: set[int] = set()
        self._unsure: set[int] = set()
        self._done = False
        self.unfinished: set[int] = set()
        self.speaking: set[int] = set()
        """Those of them that have shown something, and not only thoughts."""

    def open(self, index: int) -> bool:
        """A choice is there; whether for the first time."""
        if index in self._seen:
            return False
        self._seen.add(index)
        self.unfinished.add(index)
        return True

    def finish(self, index: int, *, sure: bool) -> None:
        """A choice has its finish; ``sure``: by its reason, or for it was :attr:`speaking`."""
        if sure and index not in self._unsure:
            self._doubtful.discard(index)
            self._resumed.discard(index)
        elif index in self.unfinished:
            # Not where it is only said again.
            self._doubtful.add(index)
        self.unfinished.discard(index)
        self.speaking.discard(index)
        self._reopened.discard(index)

    def speak(self, index: int, *, thought: bool) -> None:
        """A choice has content, maybe after its finish. A thought after a sure one is a trailer."""
        if index not in self.unfinished:
            sure = index not in self._doubtful
            if self._done or (thought and sure):
                return
            if sure:
                self._unsure.add(index)
            self.unfinished.add(index)
            self._reopened.add(index)
            self._resumed.add(index)
        if not thought:
            self.speaking.add(index)

    def end(self) -> None:
        """No further choice will come, and none goes on."""
        self._done = True
        self.unfinished -= self._reopened

    def settle(self, facts: Facts) -> None:
        """Say where they stand."""
        facts.finished = bool(self._seen) and not self.unfinished
        facts.awaited = len(self._seen) < self._wanted and not self._done
        facts.doubtful = bool(self._doubtful) and not self._done
        facts.resumed = bool(self._resumed) and not self._done
