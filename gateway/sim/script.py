"""The grammar of simulated model names, and the table of scripts; decides no byte.

A model name is ``sim-SCRIPT`` and then parameters, each after a comma:
``sim-stall,after=2,for=1.5``. A prefix up to the last slash (``openai/sim-ok``, ``models/sim-ok``)
is ignored.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gateway.sim.params import COMMON, PARAMS, Mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ScriptError(ValueError):
    """A model name that names no script or parameter; the text is one sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to do with a request: one of :data:`SCRIPTS` with its parameters; times in seconds."""

    model: str
    name: str
    status: int = 200
    after: int | Mark = 3
    times: int | None = None
    skip: int = 0
    one_in: int = 1
    every: float | None = None
    first: float = 0.0
    headers: float = 0.0
    lasts: float = 3600.0
    beat: float = 1.0
    words: int = 48
    seed: int = 0
    chunk: int | None = None
    answer: str = "text"
    tool: str | None = None
    coding: str = "identity"
    eol: str = "auto"
    end: str = "clean"
    form: str = "auto"
    type: str | None = None
    reason: str | None = None
    finish: str = "stop"
    retry_after: float | None = None
    body: str = "json"
    size: int = 0
    common: Mapping[str, Any] = field(default_factory=dict)

    def faults(self, number: int) -> bool:
        """Whether the ``number``-th request (from 1) of this model name is faulted."""
        place = number - self.skip - 1
        if self.name == "sim-ok" or place < 0 or place % self.one_in:
            return False
        return self.times is None or place // self.one_in < self.times

    def healed(self) -> Script:
        """What the requests do that are not faulted: ``sim-ok`` with the same pace and kind of
        answer.
        """
        return Script(model=self.model, name="sim-ok", **self.common)


@dataclass(frozen=True, slots=True)
class Entry:
    """One script: its name, one line that says what it does, the parameters it takes beside the
    common ones.
    """

    name: str
    summary: str
    takes: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> tuple[str, ...]:
        """All parameters that may follow the name."""
        return (*self.takes, *COMMON)


_CUT: Final = ("after",)
_STALL: Final = ("after", "for")
_ERROR: Final = ("after", "type", "end")

_ENTRIES: Final = (
    Entry("sim-ok", "a whole answer"),
    Entry("sim-tool", "calls the request's first tool", (), {"answer": "tool"}),
    Entry("sim-reasoning", "reasons, then answers", (), {"answer": "reasoning"}),
    Entry("sim-keepalive", "a whole answer with heartbeats between its events", ("form",)),
    Entry(
        "sim-slow",
        "the first event comes late, the others slowly",
        (),
        {"first": 2.0, "every": 0.3},
    ),
    Entry("sim-crlf", "a whole answer with CRLF line ends", (), {"eol": "crlf"}),
    Entry(
        "sim-gzip",
        "a whole answer, compressed although nobody may have asked",
        (),
        {"coding": "gzip"},
    ),
    Entry("sim-big-event", "one event of `size` bytes", ("size", "after"), {"size": 1024 * 1024}),
    Entry("sim-length", "whole, ended by the token limit", ("reason",), {"finish": "length"}),
    Entry(
        "sim-weird-finish",
        "whole, with a finish reason nobody knows",
        ("reason",),
        {"finish": "weird"},
    ),
    Entry(
        "sim-finish-error",
        "a finish reason that means failure",
        ("reason",),
        {"finish": "error"},
    ),
    Entry("sim-no-done", "finish frame without [DONE]", ("end",)),
    Entry("sim-no-blank", "ends with the finish frame, which lacks its blank line", ("end",)),
    Entry("sim-linger", "finished, but the connection stays open", ("for",)),
    Entry("sim-bare-eof", "ends cleanly without a finish frame", _CUT),
    Entry("sim-cut", "the connection closes without the last chunk", _CUT),
    Entry("sim-short-chunk", "the connection closes inside a chunk", _CUT),
    Entry("sim-bad-chunk", "a chunk whose size is no number", _CUT),
    Entry("sim-reset", "the connection is reset (RST)", _CUT),
    Entry("sim-torn", "ends inside an event", ("after", "end")),
    Entry(
        "sim-half-finish", "all but the finish frame; with n > 1, all but the last one", ("end",)
    ),
    Entry("sim-done-only", "[DONE] without a finish frame", ("after", "end"), {"after": "all"}),
    Entry("sim-empty", "status 200 and not one event", ("end",)),
    Entry("sim-stall", "falls silent, the socket stays open", _STALL),
    Entry("sim-stall-keepalive", "only heartbeats from here on", (*_STALL, "beat", "form")),
    Entry("sim-drip", "one event drips in, byte by byte", (*_STALL, "beat")),
    Entry("sim-no-headers", "takes the request and does not answer", ("for",)),
    Entry("sim-error-event", "an error inside the stream, in the protocol's full form", _ERROR),
    Entry("sim-error-flat", "the same, flat: the form that many clients miss", _ERROR),
    Entry("sim-error-half", "the same, without the part that makes some clients raise", _ERROR),
    Entry("sim-error-done", "an error inside the stream, then a normal end", _ERROR),
    Entry("sim-html-200", "status 200 with an HTML page"),
    Entry("sim-json-error-200", "status 200 with an error object", ("type", "body")),
    Entry("sim-status-NNN", "an HTTP error, 300 to 599", ("type", "retry_after", "body")),
    Entry("sim-truncated-json", "a body shorter than its Content-Length"),
    Entry("sim-no-answer", "takes the request, closes without a byte", ("end",), {"end": "fin"}),
    Entry("sim-garbage", "answers with bytes that are no HTTP"),
)

SCRIPTS: Final[Mapping[str, Entry]] = {entry.name: entry for entry in _ENTRIES}
"""Every script by name, in the order of the documentation: answers, cuts, silences, errors, broken
HTTP.
"""

STATUS_EXAMPLES: Final = (400, 401, 404, 429, 500, 502, 503, 529)


def parse_model(name: str) -> Script:
    """The script that a model name asks for. Raises :class:`ScriptError`."""
    head, *parameters = name.rsplit("/", 1)[-1].split(",")
    script_name = head.strip()
    status = 200
    if match := re.fullmatch(r"sim-status-([0-9]{3})", script_name):
        status, script_name = int(match[1]), "sim-status-NNN"
    entry = SCRIPTS.get(script_name)
    if entry is None or (head.strip() == script_name == "sim-status-NNN"):
        raise ScriptError(_unknown_script(head.strip()))
    if match and not 300 <= status <= 599:
        raise ScriptError(f"sim-status-NNN takes a status from 300 to 599, not {status}")
    values = _parameters(entry, parameters)
    common = {PARAMS[key].attribute: value for key, value in values.items() if key in COMMON}
    fields = {PARAMS[key].attribute: value for key, value in values.items()}
    return Script(
        model=name, name=entry.name, status=status, common=common, **{**entry.defaults, **fields}
    )


def _parameters(entry: Entry, texts: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if key not in entry.params:
            raise ScriptError(
                f"{entry.name} takes no parameter '{key}'{_nearest(key, entry.params)}; "
                f"it takes: {', '.join(entry.params)}"
            )
        if not equals or key in values:
            problem = "is given twice" if equals else f"needs a value: {key}=…"
            raise ScriptError(f"parameter '{key}' of {entry.name} {problem}")
        try:
            values[key] = PARAMS[key].read(value)
        except ValueError as error:
            raise ScriptError(f"{key}={value} of {entry.name}: expected {error}") from None
    return values


def _unknown_script(name: str) -> str:
    names = ", ".join(SCRIPTS)
    return f"unknown script '{name[:80]}'{_nearest(name, SCRIPTS)}; known: {names}"


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name[:80], list(known), n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def model_names() -> list[tuple[str, str]]:
    """Name and description of every model, as ``GET /models`` lists them; statuses by example."""
    names: list[tuple[str, str]] = []
    for entry in SCRIPTS.values():
        if entry.name == "sim-status-NNN":
            names += [(f"sim-status-{code}", f"HTTP status {code}") for code in STATUS_EXAMPLES]
        else:
            names.append((entry.name, entry.summary))
    return names


def table() -> str:
    """The scripts and parameters as plain text, one line each."""
    lines = [
        "Models of the simulated provider (parameters follow after commas: sim-cut,after=3):",
        "",
    ]
    for entry in SCRIPTS.values():
        extra = f"  [{', '.join(entry.takes)}]" if entry.takes else ""
        lines.append(f"  {entry.name:<20} {entry.summary}{extra}")
    lines += ["", f"Parameters (all take {', '.join(COMMON)}):", ""]
    lines += [f"  {name:<20} {param.summary}" for name, param in PARAMS.items()]
    return "\n".join(lines) + "\n"
