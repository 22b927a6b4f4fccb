"""Breaks an answer as its script says: (script, events) → plan; sends and waits for nothing.

Scripts that break a stream do the like to an answer without streaming: its JSON counts as two
events, the halves of its text. Those that have no meaning there (``sim-no-done`` …) leave it whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gateway.sim.plan import Beat, End, Headers, Pause, Plan, Send, Step, whole
from gateway.sim.problem import PROBLEMS, Problem, for_status
from gateway.sim.replies import Exchange, page, problem_reply
from gateway.sim.shape import ErrorForm, Event, HeadersFor, Keepalive, Kind, encode, renumber

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.sim.script import Script

_EOLS: Final = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def stage(script: Script, exchange: Exchange) -> Plan:
    """The plan of a request that shall be answered as ``script`` says."""
    draft = _Draft(script, exchange)
    builders = _BUILDERS if draft.streams else {**_BUILDERS, **_WITHOUT_STREAM}
    plan = builders[script.name](draft)
    return replace(
        plan, piece=script.chunk, delay=script.headers + plan.delay, coding=draft.coding(plan)
    )


class _Draft:
    """The events of one answer, and the steps that plans are made of."""

    def __init__(self, script: Script, exchange: Exchange) -> None:
        self.script = script
        self.exchange = exchange
        self.shape = exchange.shape
        self.streams = exchange.ask.stream
        self.array = self.streams and not exchange.ask.sse
        self.events = self._stream() if self.streams else self._halves()

    def _stream(self) -> list[Event]:
        events = self.shape.events(self.exchange.answer, self.exchange.ask)
        return [Event(event.kind, self.line_ends(event.data)) for event in events]

    def _halves(self) -> list[Event]:
        text = encode(self.shape.whole(self.exchange.answer, self.exchange.ask)).encode()
        middle = len(text) // 2
        return [Event(Kind.CONTENT, text[:middle]), Event(Kind.FINISH, text[middle:])]

    def line_ends(self, data: bytes) -> bytes:
        eol = _EOLS.get(self.script.eol)
        if eol is None or self.array or not self.streams:
            return data
        return data.replace(b"\r\n", b"\n").replace(b"\n", eol)

    def coding(self, plan: Plan) -> str:
        streamed = plan.status is not None and plan.length is None
        return self.script.coding if streamed else "identity"

    def cut(self) -> int:
        """How many events pass before the fault."""
        kinds = [event.kind for event in self.events]
        contents = [at for at, kind in enumerate(kinds) if kind is Kind.CONTENT]
        match self.script.after:
            case "none":
                return 0
            case "end":
                return len(kinds)
            case "finish":
                return max(at for at, kind in enumerate(kinds) if kind is Kind.FINISH) + 1
            case "all":
                return contents[-1] + 1
            case int() as count:
                return contents[0] if count == 0 else contents[min(count, len(contents)) - 1] + 1

    def paced(self, events: list[Event], *, start: bool = True) -> list[Step]:
        """The events, with the script's pauses before the first and between all."""
        every = self.exchange.every if self.script.every is None else self.script.every
        first = self.script.first if start else every
        steps: list[Step] = []
        for at, event in enumerate(events):
            wait = every if at else first
            steps += [Pause(wait)] if wait else []
            steps.append(Send(event.data))
        return steps

    def headers(self) -> Headers:
        about = HeadersFor(self.exchange.request_id, self.exchange.now)
        kind = self.shape.stream_type if self.streams else "application/json"
        headers = [("content-type", "application/json; charset=UTF-8" if self.array else kind)]
        headers += [("cache-control", "no-cache")] if self.streams else []
        headers += self.shape.headers(about)
        if self.script.coding != "identity":
            headers.append(("content-encoding", self.script.coding))
        return headers

    def plan(self, steps: list[Step], end: End | None = None, rest: bytes = b"") -> Plan:
        """An answer that starts as a success; its end is the script's unless told."""
        end = End(self.script.end) if end is None else end
        return Plan(
            status=200, headers=self.headers(), steps=steps, end=end, rest=rest or b"data: {}\n\n"
        )

    def heartbeat(self) -> Callable[[int], bytes]:
        """The heartbeat at a sequence number, in the form asked for."""
        form, answer = Keepalive(self.script.form), self.exchange.answer
        if not self.streams or self.array:
            return lambda _sequence: b"\n"
        return lambda sequence: self.line_ends(self.shape.keepalive(form, answer, sequence))

    def problem(self, default: str = "server_error") -> Problem:
        return PROBLEMS[self.script.type or default]


def _shifted(events: list[Event], beats: int, beat: bytes) -> list[Event]:
    """The events after so many heartbeats, which may have used sequence numbers up."""
    by = beats if b'"sequence_number"' in beat else 0
    return [Event(event.kind, renumber(event.data, by)) for event in events]


def _ok(draft: _Draft) -> Plan:
    plan = draft.plan(draft.paced(draft.events), End.CLEAN)
    if draft.streams or draft.script.coding != "identity":
        return plan
    return replace(plan, length=len(plan.body()))


def _cut_as(end: End) -> Callable[[_Draft], Plan]:
    def build(draft: _Draft) -> Plan:
        at = draft.cut()
        rest = draft.events[at].data if at < len(draft.events) else b""
        return draft.plan(draft.paced(draft.events[:at]), end, rest)

    return build


def _torn(draft: _Draft) -> Plan:
    at = draft.cut()
    torn = [Event(event.kind, _half(event.data)) for event in draft.events[at : at + 1]]
    return draft.plan(draft.paced(draft.events[:at] + torn))


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _without(draft: _Draft, *kinds: Kind) -> list[Event]:
    return [event for event in draft.events if event.kind not in kinds]


def _no_done(draft: _Draft) -> Plan:
    return draft.plan(draft.paced(_without(draft, Kind.DONE)))


def _half_finish(draft: _Draft) -> Plan:
    finishes = [event for event in draft.events if event.kind is Kind.FINISH]
    kept = finishes[:-1]
    events = [event for event in draft.events if event.kind is not Kind.FINISH or event in kept]
    return draft.plan(draft.paced([event for event in events if event.kind is not Kind.DONE]))


def _done_only(draft: _Draft) -> Plan:
    done = b"]" if draft.array else draft.line_ends(draft.shape.done)
    if draft.shape.name == "anthropic":
        # Here the sentinel of other protocols stands in for the frame that is missing.
        done = draft.line_ends(b"data: [DONE]\n\n")
    return draft.plan(draft.paced([*draft.events[: draft.cut()], Event(Kind.DONE, done)]))


def _no_blank(draft: _Draft) -> Plan:
    at = max(at for at, event in enumerate(draft.events) if event.kind is Kind.FINISH)
    last = draft.events[at].data
    eol = next((eol for eol in (b"\r\n", b"\n", b"\r") if last.endswith(eol * 2)), b"")
    stripped = Event(Kind.FINISH, last.removesuffix(eol))
    return draft.plan(draft.paced([*draft.events[:at], stripped]))


def _linger(draft: _Draft) -> Plan:
    return draft.plan([*draft.paced(draft.events), Pause(draft.script.lasts)], End.CLEAN)


def _empty(draft: _Draft) -> Plan:
    return draft.plan([])


def _stall(draft: _Draft) -> Plan:
    at = draft.cut()
    before, after = draft.paced(draft.events[:at]), draft.paced(draft.events[at:], start=False)
    return draft.plan([*before, Pause(draft.script.lasts), *after], End.CLEAN)


def _stall_keepalive(draft: _Draft) -> Plan:
    # Blanks may stand before a JSON body, but not inside its strings.
    at = draft.cut() if draft.streams else 0
    beats = int(draft.script.lasts / draft.script.beat)
    make = draft.heartbeat()
    rest = _shifted(draft.events[at:], beats, make(at))
    return draft.plan(
        [
            *draft.paced(draft.events[:at]),
            Beat(lambda index: make(at + index), draft.script.beat, beats),
            *draft.paced(rest, start=False),
        ],
        End.CLEAN,
    )


def _drip(draft: _Draft) -> Plan:
    at = draft.cut() if draft.streams else 0
    beats = int(draft.script.lasts / draft.script.beat)
    if at == len(draft.events):
        return _ok(draft)
    dripping = draft.events[at].data
    opened = dripping.index(b"{") + 1
    # Once the object is open, blanks are legal for as long as it takes.
    sent, kept = dripping[: min(opened, beats)], dripping[min(opened, beats) :]
    return draft.plan(
        [
            *draft.paced(draft.events[:at]),
            Beat(lambda index: sent[index : index + 1] or b" ", draft.script.beat, beats),
            Send(kept),
            *draft.paced(draft.events[at + 1 :], start=False),
        ],
        End.CLEAN,
    )


def _keepalive(draft: _Draft) -> Plan:
    """A heartbeat before every second content event, where all clients take them."""
    make = draft.heartbeat()
    woven: list[Event] = []
    beats = contents = 0
    for at, event in enumerate(draft.events):
        if event.kind is Kind.CONTENT and contents % 2 == 0:
            woven.append(Event(Kind.OPEN, make(at + beats)))
            beats += 1
        contents += event.kind is Kind.CONTENT
        woven += _shifted([event], beats, woven[-1].data if beats else b"")
    return draft.plan(draft.paced(woven), End.CLEAN)


def _no_headers(draft: _Draft) -> Plan:
    return replace(_ok(draft), delay=draft.script.lasts)


def _error_as(form: ErrorForm, *, done: bool = False) -> Callable[[_Draft], Plan]:
    def build(draft: _Draft) -> Plan:
        at = draft.cut()
        problem, answer = draft.problem(), draft.exchange.answer
        if draft.array:
            payload = encode(draft.shape.error_body(problem)).encode()
            errors = [(b",\r\n" if at else b"[") + payload + (b"]" if done else b"")]
        else:
            errors = draft.shape.error_events(form, problem, answer, at)
            errors += [draft.shape.done] if done else []
        events = [Event(Kind.CLOSE, draft.line_ends(data)) for data in errors]
        return draft.plan(draft.paced(draft.events[:at] + events))

    return build


def _error_instead(body: str) -> Callable[[_Draft], Plan]:
    return lambda draft: problem_reply(draft.exchange, draft.problem(), body)


def _status(draft: _Draft) -> Plan:
    script = draft.script
    problem = PROBLEMS[script.type] if script.type else for_status(script.status)
    problem = replace(problem, status=script.status, retry_after=script.retry_after)
    return problem_reply(draft.exchange, problem, script.body)


def _html_200(_draft: _Draft) -> Plan:
    return whole(200, [("content-type", "text/html")], page("Welcome to nginx!").encode())


def _json_error_200(draft: _Draft) -> Plan:
    reply = problem_reply(draft.exchange, draft.problem(), draft.script.body)
    return replace(reply, status=200)


def _truncated_json(draft: _Draft) -> Plan:
    total = b"".join(event.data for event in draft.events)
    steps: list[Step] = [Send(_half(total))]
    plan = draft.plan(steps, End.FIN)
    headers = [header for header in plan.headers if header[0] != "content-encoding"]
    return replace(plan, headers=headers, length=len(total))


def _no_answer(draft: _Draft) -> Plan:
    end = End.RESET if draft.script.end == "reset" else End.FIN
    return Plan(status=None, headers=[], steps=[], end=end)


def _garbage(_draft: _Draft) -> Plan:
    line = b"SSH-2.0-OpenSSH_9.9\r\n"
    return Plan(status=None, headers=[], steps=[Send(line)], end=End.FIN)


_BUILDERS: Final[Mapping[str, Callable[[_Draft], Plan]]] = {
    "sim-ok": _ok,
    "sim-tool": _ok,
    "sim-reasoning": _ok,
    "sim-keepalive": _keepalive,
    "sim-slow": _ok,
    "sim-crlf": _ok,
    "sim-gzip": _ok,
    "sim-big-event": _ok,
    "sim-length": _ok,
    "sim-weird-finish": _ok,
    "sim-finish-error": _ok,
    "sim-no-done": _no_done,
    "sim-no-blank": _no_blank,
    "sim-linger": _linger,
    "sim-bare-eof": _cut_as(End.CLEAN),
    "sim-cut": _cut_as(End.FIN),
    "sim-short-chunk": _cut_as(End.SHORT),
    "sim-bad-chunk": _cut_as(End.BAD),
    "sim-reset": _cut_as(End.RESET),
    "sim-torn": _torn,
    "sim-half-finish": _half_finish,
    "sim-done-only": _done_only,
    "sim-empty": _empty,
    "sim-stall": _stall,
    "sim-stall-keepalive": _stall_keepalive,
    "sim-drip": _drip,
    "sim-no-headers": _no_headers,
    "sim-error-event": _error_as(ErrorForm.FULL),
    "sim-error-flat": _error_as(ErrorForm.FLAT),
    "sim-error-half": _error_as(ErrorForm.HALF),
    "sim-error-done": _error_as(ErrorForm.FULL, done=True),
    "sim-html-200": _html_200,
    "sim-json-error-200": _json_error_200,
    "sim-status-NNN": _status,
    "sim-truncated-json": _truncated_json,
    "sim-no-answer": _no_answer,
    "sim-garbage": _garbage,
}

_WITHOUT_STREAM: Final[Mapping[str, Callable[[_Draft], Plan]]] = {
    "sim-keepalive": _ok,
    "sim-no-done": _ok,
    "sim-no-blank": _ok,
    "sim-half-finish": _ok,
    "sim-done-only": _ok,
    "sim-error-event": _error_instead("json"),
    "sim-error-flat": _error_instead("flat"),
    "sim-error-half": _error_instead("json"),
    "sim-error-done": _error_instead("json"),
}
