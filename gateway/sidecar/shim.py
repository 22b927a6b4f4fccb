"""One command's own process: adopts what it starts, drains it, reports. Never runs a second one.

It is forked by the zygote, without an exec, and imports nothing but the standard library and its
neighbours, so that a shim costs few pages of memory of its own.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gateway.sidecar import family, kernel, launch, priority, record, sandbox, session, sink

PIPE = 1 << 20
"""Bytes of the pipe that are asked for; an ordinary user gets 64 pipes of this size."""


@dataclass(frozen=True, slots=True)
class Handed:
    """Descriptors that came with the request: ``request`` holds it, as JSON."""

    control: int
    request: int
    cwd: int | None
    stdin: int | None


def main(handed: Handed) -> None:
    """Run one command to its end, in a process just forked for it."""
    # Not a session: this stays in that of the zygote, which has been made nice. If that dies, the
    # kernel sends SIGHUP to a group in which somebody has been stopped.
    os.setpgid(0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=handed.control)
    # From here on the command may have run: a caller that has seen it must not send it again.
    control.sendall(b'{"event":"accepted","pid":%d}\n' % os.getpid())
    request = read_request(handed.request)
    made = new_record(request)
    try:
        run(request, made, control, launch.Files(-1, handed.cwd, handed.stdin))
    except record.SpawnFailed as failure:
        report_failure(made, failure, control)


def read_request(descriptor: int) -> dict[str, Any]:
    """The request from the file that holds it, which is closed."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    return request


def new_record(request: dict[str, Any]) -> record.Record:
    """The record of a command that is about to be started by this process."""
    me = kernel.process(os.getpid())
    return record.Record(
        id=request["id"],
        directory=request["directory"],
        containment=request["containment"],
        asked=request["asked"],
        shim_pid=os.getpid(),
        shim_started=0 if me is None else me.started,
    )


def run(
    request: dict[str, Any], made: record.Record, control: socket.socket, files: launch.Files
) -> None:
    """Start the command and see it through. Raises SpawnFailed where it cannot be started."""
    directory, spill = record.make_directory(made.directory)
    read, write = open_pipe(request["run_as"])
    bell = kernel.ChildBell()
    try:
        policy = policy_of(request)
        own = launch.Files(write, files.cwd, files.stdin)
        relatives = start(request, own, control.fileno())
    except record.SpawnFailed as failure:
        made.state, made.spawn_failed = "spawn_failed", failure
        with suppress(OSError):
            record.write_status(directory, made.as_dict(None, time.monotonic()))
        raise
    # A copy of the write end in here would keep the pipe from ever ending.
    for descriptor in (write, files.cwd, files.stdin):
        if descriptor is not None:
            os.close(descriptor)
    made.leader, made.exec_at = relatives.leader.pid, time.monotonic()
    session.Session(
        made,
        sink.Sink(spill, bounds_of(request), os.path.join(made.directory, record.SPILL)),
        relatives,
        policy,
        pipe=read,
        control=control,
        directory=directory,
        lowering=priority.Lowering(relatives.leader),
    ).run(bell)


def start(request: dict[str, Any], files: launch.Files, control: int) -> family.Descendants:
    """Start the leader, in a sandbox where there is to be one. Raises SpawnFailed."""
    if not request["wrap"]:
        return family.Descendants(launch.launch(request, files, control))
    box = sandbox.Sandbox(request, launch.limits_of(request["limits"]), files.output)
    return family.Boxed(launch.launch(request, files, control, box), box)


def open_pipe(owner: tuple[int, int] | None) -> tuple[int, int]:
    """One pipe for both streams, so that their order is kept; as large as can be had.

    A file would not do: opening ``/dev/stderr`` for writing truncates a file, and not a pipe. Only
    its owner may open a pipe so, and only for writing: ``owner`` is the user and the group of the
    command, if others.
    """
    import fcntl

    try:
        read, write = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise record.SpawnFailed("pipe", error.errno or errno.EMFILE) from None
    with suppress(OSError):
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE)
    with suppress(OSError):
        # A command that takes its answers from ``/dev/stderr`` would take its own output away.
        os.fchmod(read, 0o200)
    if owner is not None:
        with suppress(OSError):
            # Both ends are of one inode.
            os.fchown(read, *owner)
    return read, write


def bounds_of(request: dict[str, Any]) -> sink.Bounds:
    """What is kept of the output."""
    return sink.Bounds(
        spill=request["max_output_bytes"],
        head=request["head_bytes"],
        tail=request["tail_bytes"],
        sha256=request["want_sha256"],
        delay=request["sink_delay_ms"] / 1000,
    )


def policy_of(request: dict[str, Any]) -> session.Policy:
    """How long, and what then."""
    return session.Policy(
        timeout=request["timeout_ms"] / 1000,
        kill_grace=request["kill_grace_ms"] / 1000,
        output_grace=request["output_grace_ms"] / 1000,
        max_background=request["max_background_ms"] / 1000,
        on_output_open=request["on_output_open"],
        on_output_limit=request["on_output_limit"],
        on_gone=request["on_gone"],
    )


def report_failure(
    made: record.Record, failure: record.SpawnFailed, control: socket.socket
) -> None:
    """Tell the gateway that nothing was started."""
    made.state, made.spawn_failed = "spawn_failed", failure
    message = {"event": "final", "status": made.as_dict(None, time.monotonic())}
    with suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")
