"""Starts the leader of a command from a shim; does not watch it.

The leader is the process that the caller asked for, in a session of its own. All that is done
between fork and exec happens here, and the first thing that fails is told by errno through a pipe
that exec closes: a command that was not started is never taken for one that has failed.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.sidecar import kernel
from gateway.sidecar.record import SpawnFailed

if TYPE_CHECKING:
    from gateway.sidecar.sandbox import Sandbox

SECONDS = 30.0
"""From fork to exec, also in a sandbox: a dead network file system can hold a chdir for ever."""


@dataclass(frozen=True, slots=True)
class Files:
    """Descriptors for the leader; ``cwd`` and ``stdin`` may be missing."""

    output: int
    cwd: int | None
    stdin: int | None


def launch(
    request: dict[str, Any], files: Files, control: int, sandbox: Sandbox | None = None
) -> int:
    """Fork and exec what the request says, which runs by then; the pid of the process forked.

    That is the leader, or what makes the sandbox and stays around it. ``control`` is the socket to
    the gateway: what comes there before the command runs can only mean that it shall not. Raises
    SpawnFailed; nothing is left of the attempt then.
    """
    if select.select([control], [], [], 0)[0]:
        raise SpawnFailed("start", errno.ECANCELED)
    told, tell = os.pipe2(os.O_CLOEXEC)
    shim, give_up = os.getpid(), time.monotonic() + SECONDS
    try:
        leader = os.fork()
    except OSError as error:
        os.close(told)
        os.close(tell)
        raise SpawnFailed("fork", error.errno or errno.EAGAIN) from None
    if leader == 0:
        _become(request, files, shim, tell, sandbox)
    os.close(tell)
    try:
        failure = _what_it_says(told)
    finally:
        os.close(told)
    if sandbox is not None:
        left = give_up - time.monotonic()
        failure = sandbox.explain(failure) if failure else sandbox.await_start(left, control)
    if failure is not None:
        os.kill(leader, signal.SIGKILL)
        # What hangs in the kernel dies when it comes back; waiting for it would hang as well.
        os.waitpid(leader, os.WNOHANG if failure.number == errno.ETIMEDOUT else 0)
        raise failure
    return leader


def _what_it_says(told: int) -> SpawnFailed | None:
    """None once exec has closed the pipe."""
    poll = select.poll()
    poll.register(told, select.POLLIN)
    if not poll.poll(SECONDS * 1000):
        return SpawnFailed("exec", errno.ETIMEDOUT)
    said = os.read(told, 256).decode()
    if not said:
        return None
    stage, _, number = said.partition(":")
    return SpawnFailed(stage, int(number))


def _become(
    request: dict[str, Any], files: Files, shim: int, tell: int, sandbox: Sandbox | None
) -> None:
    """Turn this process, just forked, into the leader or the sandbox. Never returns."""
    stage = ["setup"]
    try:
        _set_up(request, files, shim, stage, sandbox)
        if sandbox is not None:
            stage[0] = "sandbox"
            argv = sandbox.argv()
            # What a loader reads is the command's to set, and not for what shuts it in.
            os.execve(argv[0], argv, {})  # noqa: S606 - its purpose
        stage[0] = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - its purpose
    except OSError as error:
        number = error.errno or errno.EIO
        if number == errno.EACCES and stage[0] == "exec" and _is_nowhere(request):
            number = errno.ENOENT
    except (ValueError, UnicodeError):
        # A NUL in an argument, an "=" in the name of a variable.
        number = errno.EINVAL
    except BaseException:  # noqa: BLE001 - nothing may unwind into the shim's own code
        number = errno.EIO
    try:
        os.write(tell, f"{stage[0]}:{number}".encode())
    finally:
        os._exit(127)


def _is_nowhere(request: dict[str, Any]) -> bool:
    """Whether no directory of PATH has the program: one that may not be read is none that has it,
    as for a shell."""
    name, path = request["argv"][0], request["env"].get("PATH", os.defpath)
    return "/" not in name and not any(
        os.path.isfile(os.path.join(directory, name)) for directory in path.split(":")
    )


def _set_up(
    request: dict[str, Any], files: Files, shim: int, stage: list[str], sandbox: Sandbox | None
) -> None:
    """Everything before exec, in the one order in which it works."""
    os.setsid()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    stage[0] = "stdio"
    _set_stdio(files)
    stage[0] = "limits"
    if sandbox is None:
        for limit, value in limits_of(request["limits"]):
            resource.setrlimit(limit, (value, value))
    else:
        # They are for the command, and set within: memory that is enough for it may not be for us.
        sandbox.hand_over()
    _be_expendable(request["oom_score_adj"])
    os.umask(request["umask"])
    stage[0] = "run_as"
    if request["run_as"] is not None:
        uid, gid = request["run_as"]
        os.setgroups([gid])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    stage[0] = "setup"
    # After the change of user, which clears it. A parent that died before is not told any more.
    kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != shim:
        os._exit(127)
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    stage[0] = "cwd"
    if files.cwd is not None:
        os.fchdir(files.cwd)
    else:
        os.chdir(request["cwd"])
    # A directory that has been removed can still be entered; nothing can be done in it.
    os.getcwd()


def _set_stdio(files: Files) -> None:
    stdin = files.stdin
    if stdin is None:
        stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(stdin, 0)
    os.dup2(files.output, 1)
    os.dup2(files.output, 2)


def limits_of(limits: dict[str, int]) -> list[tuple[int, int]]:
    """Numbers and values, soft and hard, as far down or up as this user may set them."""
    found = []
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(number)[1]
        found.append((number, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)))
    return found


def _be_expendable(oom_score_adj: int) -> None:
    """A rank for the out-of-memory killer; a system that refuses runs on."""
    try:
        # Without it the files below /proc/self belong to root. There is no secret in here.
        kernel.prctl(kernel.SET_DUMPABLE, 1)
        # Bytes: a text file would import a codec here, in every command anew.
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"%d" % oom_score_adj)
    except OSError:
        return
