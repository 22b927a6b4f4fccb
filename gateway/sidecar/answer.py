"""What a client is told of one command: the object of every answer. Reads and decides nothing.

First what an agent hands to its model, then everything else under ``detail``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.policy.preview import Bounds, Kept, Preview, compose, preview
from gateway.policy.preview_notice import Facts
from gateway.policy.preview_render import Look
from gateway.sidecar.status import Output, Reason, State, Status


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One command at one moment. ``head`` and ``tail`` are of the first ``bytes`` of its output.

    ``path`` is the file as the client may know it, ``expires_at`` in seconds since 1970.
    """

    status: Status
    head: bytes
    tail: bytes
    look: Look
    bounds: Bounds
    path: str | None
    url: str
    expires_at: float | None
    warnings: tuple[str, ...] = ()


def url_of(id_: str) -> str:
    """Where the whole output of a command can be had."""
    return f"/v1/exec/{id_}/output"


def compose_answer(view: View) -> dict[str, Any]:
    """The object for JSON."""
    status, output = view.status, view.status.output
    kept = Kept(view.head, view.tail, _facts(view), view.look)
    text = compose(kept, view.bounds)
    return {
        "id": status.id,
        "text": text.text,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "complete": output.complete,
        "truncated": text.truncated,
        "timed_out": status.timed_out,
        "output_open": status.state is State.OUTPUT_OPEN,
        "spill": {
            "path": view.path,
            "url": view.url,
            "bytes": output.spill.bytes,
            "lines": output.lines,
        },
        "detail": _detail(view, kept),
    }


def without_output(view: View) -> dict[str, Any]:
    """The same object where the output cannot be shown, for a fault of this program's own."""
    nothing = msgspec.structs.replace(
        view, head=b"", tail=b"", warnings=(*view.warnings, "the output could not be shown here")
    )
    told = compose_answer(
        msgspec.structs.replace(
            nothing, status=msgspec.structs.replace(view.status, output=Output())
        )
    )
    output, shown = view.status.output, told["detail"]["output"]
    place = view.path or view.url
    told |= {
        "text": f"[The output could not be shown here: {output.bytes} bytes, in {place}]",
        "complete": output.complete,
        "truncated": output.bytes > 0,
    }
    counts = {"bytes": output.spill.bytes, "lines": output.lines}
    told["spill"] |= counts
    shown["spill"] |= {"bytes": output.spill.bytes, "error": output.spill.error}
    shown |= {
        "complete": output.complete,
        "open": output.open,
        "bytes": output.bytes,
        "lines": output.lines,
        "omitted_bytes": output.bytes,
        "omitted_lines": output.lines,
        "truncated_preview": output.bytes > 0,
    }
    return told


def summary(status: Status, *, watched: bool) -> dict[str, Any]:
    """One line of the list of commands; ``watched``: there is something of it that can be killed.

    ``survivors`` are what an ended one has left behind, as many as there were at its end.
    """
    return {
        "id": status.id,
        "state": status.state.value,
        "reason": _reason(status),
        "exit_code": status.exit_code,
        "signal": status.signal,
        "complete": status.output.complete,
        "bytes": status.output.bytes,
        "survivors": status.survivors if watched else 0,
        "started_at": status.started_at,
        "duration_ms": status.duration_ms,
    }


def _detail(view: View, kept: Kept) -> dict[str, Any]:
    status, failure = view.status, view.status.spawn_error
    return {
        "state": status.state.value,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "signal_name": status.signal_name,
        "core_dumped": status.core_dumped,
        "reason": _reason(status),
        "timed_out": status.timed_out,
        "output": _output(view, preview(kept)),
        "survivors": status.survivors,
        "killed": status.killed,
        "containment": status.containment,
        "started_at": status.started_at,
        "duration_ms": status.duration_ms,
        "spawn_ms": status.spawn_ms,
        "drain_ms": status.drain_ms,
        "cpu_ms": status.cpu_ms,
        "max_rss_kb": status.max_rss_kb,
        "spawn_error": None if failure is None else msgspec.to_builtins(failure),
        "warnings": [*view.warnings, *status.warnings],
    }


def _output(view: View, shown: Preview) -> dict[str, Any]:
    output = view.status.output
    return {
        "complete": output.complete,
        "open": output.open,
        "bytes": output.bytes,
        "lines": output.lines,
        "encoding": shown.encoding,
        "invalid_utf8": shown.invalid_utf8,
        "head": shown.head,
        "tail": shown.tail,
        "head_bytes": shown.head_bytes,
        "tail_bytes": shown.tail_bytes,
        "omitted_bytes": shown.omitted_bytes,
        "omitted_lines": shown.omitted_lines,
        "truncated_preview": shown.truncated_preview,
        "spill": {
            "path": view.path,
            "url": view.url,
            "bytes": output.spill.bytes,
            "sha256": output.spill.sha256,
            "error": output.spill.error,
            "expires_at": _moment(view.expires_at),
        },
    }


def _facts(view: View) -> Facts:
    status, output = view.status, view.status.output
    return Facts(
        bytes=output.bytes,
        lines=output.lines,
        complete=output.complete,
        spilled=output.spill.bytes,
        open=output.open,
        error=output.spill.error,
        path=view.path or view.url,
        state=status.state.value,
        reason=(status.reason or Reason.EXIT).value,
        signal=status.signal,
        signal_name=status.signal_name,
        problem=None if status.spawn_error is None else status.spawn_error.message,
    )


def _reason(status: Status) -> str | None:
    return None if status.reason is None else status.reason.value


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
