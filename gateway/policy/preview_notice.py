"""What a text says of the output it shows: what was left out, and why it may not be all.

Never says that an output is whole, or names a file as holding all of it, unless it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from gateway.policy.redact import bounded, escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

State = Literal["queued", "exited", "output_open", "running", "spawn_failed", "interrupted"]
Reason = Literal[
    "exit", "timeout", "killed", "client_gone", "output_limit", "output_open", "server_shutdown"
]

_ERROR_LIMIT = 80
_WHY = 300

_ENDED_BY = {
    "timeout": "The command ran into its timeout and was ended",
    "killed": "The command was killed on request",
    "client_gone": "The command was ended because its client had left",
    "output_limit": "The command was ended because its output reached the limit",
    "server_shutdown": "The command was ended because the server shut down",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """How a command stands and what is known of its output.

    ``bytes`` were read; ``lines`` are the newlines in them, ``None`` if nobody counted.
    ``complete``: the end was seen and all is in the file, which holds ``spilled`` bytes; ``error``
    says why that may be less: ``output_limit`` or the name of an errno. ``open``: more may come,
    for the command runs or has left a process behind. ``path`` is the file, or its URL, as the
    client may know it; ``""`` if there is none. ``problem``: why nothing was started.
    """

    bytes: int
    lines: int | None
    complete: bool
    spilled: int
    open: bool = False
    error: str | None = None
    path: str = ""
    state: State = "exited"
    reason: Reason = "exit"
    signal: int | None = None
    signal_name: str | None = None
    problem: str | None = None


def of_whole(facts: Facts, drawn_over: int = 0) -> str:
    """The line below an output that is shown whole; ``""`` where nothing is to be said.

    ``drawn_over`` states of lines are not shown, for others were drawn over them.
    """
    said = " ".join([*_sentences(facts), *_hidden(drawn_over)])
    return f"[{said}]" if said else ""


class CutNotice:
    """The line above and below an output that is not shown whole.

    It takes at most ``limit`` bytes: where the path would make it longer, it is left out.
    ``most_drawn_over`` is as for :func:`of_whole`, for whatever may be shown.
    """

    def __init__(self, facts: Facts, limit: int, most_drawn_over: int = 0) -> None:
        self._facts = facts
        self._most_drawn_over = most_drawn_over
        self._said = "".join(f" {sentence}" for sentence in _sentences(facts))
        self._place = _place(facts)
        if self.longest > limit:
            self._place = ""

    @property
    def longest(self) -> int:
        """The most bytes it can take: no count in it is larger than that of all."""
        facts = self._facts
        return len(self.text(facts.bytes, facts.lines, self._most_drawn_over).encode())

    def text(self, omitted: int, omitted_lines: int | None, drawn_over: int = 0) -> str:
        """The notice for so many bytes, newlines and states of lines that are not shown."""
        facts = self._facts
        lines = "" if omitted_lines is None else f", {omitted_lines} of {facts.lines} lines"
        hidden = "".join(f" {sentence}" for sentence in _hidden(drawn_over))
        said = self._said + hidden
        return f"[Left out: {omitted} of {facts.bytes} bytes{lines}{self._place}.{said}]"


def marker(omitted: int, omitted_lines: int | None) -> str:
    """The line between head and tail."""
    lines = "" if omitted_lines is None else f", {omitted_lines} lines"
    return f"[... {omitted} bytes{lines} left out here ...]"


def _place(facts: Facts) -> str:
    if not facts.path or not facts.spilled:
        return ""
    holds = "the whole output is" if facts.complete else "what was saved is"
    return f"; {holds} in {escape_controls(facts.path)}"


def _hidden(drawn_over: int) -> Iterator[str]:
    if drawn_over == 1:
        yield "1 earlier state of a line, which was drawn over, is not shown."
    elif drawn_over:
        yield f"{drawn_over} earlier states of lines, which were drawn over, are not shown."


def _sentences(facts: Facts) -> Iterator[str]:
    ended = _ended(facts)
    if ended:
        yield ended
    if not facts.complete:
        yield _incomplete(facts)


def _ended(facts: Facts) -> str:
    """How the command ended, unless it just did: an exit code speaks for itself."""
    if facts.state in ("queued", "running"):
        return ""
    if facts.state == "spawn_failed":
        why = f": {bounded(escape_controls(facts.problem), _WHY)}" if facts.problem else ""
        return f"The command could not be started{why.rstrip('.')}."
    signal = f"signal {facts.signal}" if facts.signal is not None else ""
    if signal and facts.signal_name:
        signal += f" ({facts.signal_name})"
    if facts.reason in _ENDED_BY:
        return f"{_ENDED_BY[facts.reason]}{' by ' * bool(signal)}{signal}."
    if facts.reason == "output_open":
        return "Processes that it left behind with its output open were ended."
    return f"The command was ended by {signal}." if signal else ""


def _incomplete(facts: Facts) -> str:
    saved = f"{facts.spilled} of {facts.bytes} bytes are saved"
    if facts.error == "output_limit":
        return f"The output is not complete: it reached the limit (output_limit), {saved}."
    if facts.error == "ENOSPC":
        return f"The saved output is not complete: the disk is full (ENOSPC), {saved}."
    if facts.error:
        error = bounded(facts.error, _ERROR_LIMIT)
        return f"The saved output is not complete: it could not be written ({error}), {saved}."
    if facts.state == "queued":
        return "The command has not started: it waits for its turn."
    if facts.state == "spawn_failed":
        return "There is no output."
    if facts.state == "running":
        return f"The command is still running: these are its first {facts.bytes} bytes of output."
    if facts.state == "interrupted":
        return "The output may not be complete: what watched the command died (interrupted)."
    if facts.open:
        return "The output is still held open by a process left behind: more may follow."
    return "The output is not complete: its end was not seen."
