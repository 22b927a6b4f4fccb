"""What is counted and logged of a command that has ended. Counts and logs nothing by itself."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.observe.exec_metrics import Ended
from gateway.sidecar.refusal import RefusedError
from gateway.sidecar.sink import OUTPUT_LIMIT
from gateway.sidecar.status import Reason, State, Status

if TYPE_CHECKING:
    from gateway.policy.exec_request import ExecError

_BY_REASON = {
    Reason.TIMEOUT: "timeout",
    Reason.KILLED: "killed",
    Reason.CLIENT_GONE: "client_gone",
    Reason.OUTPUT_LIMIT: "output_limit",
    Reason.SERVER_SHUTDOWN: "server_shutdown",
}


def ended(status: Status, kill_signal: str, *, own_limit: bool = False) -> Ended:
    """For the metrics; ``own_limit``: its client asked for less than the server would keep."""
    error = status.output.spill.error
    return Ended(
        outcome=outcome(status),
        incomplete=incomplete(status, own_limit=own_limit),
        write_error=None if error in (None, OUTPUT_LIMIT) else error,
        output_bytes=status.output.bytes,
        killed=status.killed,
        kill_signal=kill_signal,
        survivors=status.survivors,
        duration=_seconds(status.duration_ms),
        spawn=_seconds(status.spawn_ms),
        drain=_seconds(status.drain_ms),
    )


def outcome(status: Status) -> str:
    """One word for how it ended."""
    if status.state is State.SPAWN_FAILED:
        return "spawn_failed"
    if status.state is State.INTERRUPTED:
        return "interrupted"
    if status.reason in _BY_REASON:
        return _BY_REASON[status.reason]
    if status.signal is not None:
        return "signal"
    return "exit0" if status.exit_code == 0 else "nonzero"


def incomplete(status: Status, *, own_limit: bool = False) -> str | None:
    """Why the output is not all there; None where it is, or where there is none to be had."""
    if status.output.complete or status.state is State.SPAWN_FAILED:
        return None
    if status.state is State.INTERRUPTED:
        return "interrupted"
    if status.output.spill.error == OUTPUT_LIMIT:
        return "client_limit" if own_limit else "output_limit"
    return "write_error" if status.output.spill.error else "end_not_seen"


def result(status: Status) -> dict[str, Any]:
    """For the audit log."""
    return {
        "outcome": outcome(status),
        "state": status.state.value,
        "reason": None if status.reason is None else status.reason.value,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "complete": status.output.complete,
        "bytes": status.output.bytes,
        "saved_bytes": status.output.spill.bytes,
        "spill_error": status.output.spill.error,
        "duration_ms": status.duration_ms,
        "killed": status.killed,
        "survivors": status.survivors,
    }


def not_started(status: Status, problem: ExecError) -> Status:
    """Nothing was run, for that reason, which is not always the system's."""
    failure = problem.spawn_error if isinstance(problem, RefusedError) else None
    return msgspec.structs.replace(
        status,
        state=State.SPAWN_FAILED,
        spawn_error=failure,
        warnings=(*status.warnings, problem.message),
    )


def unreadable(status: Status, error: OSError) -> Status:
    """The file cannot be read any more: what was whole is not to be had."""
    name = errno.errorcode.get(error.errno or 0, "EIO")
    spill = msgspec.structs.replace(status.output.spill, bytes=0, error=name)
    output = msgspec.structs.replace(status.output, complete=False, spill=spill)
    return msgspec.structs.replace(status, output=output)


def growing(status: Status, size: int) -> Status:
    """A command of which nothing is heard but what its file says, which has ``size`` bytes."""
    output = status.output
    spill = msgspec.structs.replace(output.spill, bytes=size)
    output = msgspec.structs.replace(output, bytes=max(output.bytes, size), lines=None, spill=spill)
    return msgspec.structs.replace(status, output=output)


def altered(status: Status, size: int) -> Status:
    """The file, of ``size`` bytes, is not the one that was written."""
    output = status.output
    spill = msgspec.structs.replace(output.spill, bytes=size, error=output.spill.error or "EIO")
    output = msgspec.structs.replace(
        output, complete=False, bytes=max(output.bytes, size), lines=None, spill=spill
    )
    return msgspec.structs.replace(status, output=output)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
