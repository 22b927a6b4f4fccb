"""The first process of a sandbox: starts the command, collects what ends, tells how. Stands alone.

It runs within the sandbox, where neither this file nor the gateway need be seen: it is handed over
as an open file, and imports the standard library alone. Its arguments are descriptors::

    PLAN     argv, environment and limits of the command, as ``marshal`` writes them
    OUTPUT   the pipe for standard output and standard error
    REPORT   a SEQPACKET socket: "leader", then what is read is "go"; "started" or "failed STAGE
             ERRNO"; "ended STATUS CPU RSS" of the leader; "alone CPU RSS" when no process is left

It ends when no other process of the sandbox is left. STATUS is what ``waitpid`` says; CPU (seconds)
and RSS (KiB) are sums and the largest of all that has been collected.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource
import sys

# Each command waits for what is imported here: ``signal`` and ``typing`` would take as long as the
# interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

_SET_DUMPABLE = 4


def main(plan: int, output: int, report: int) -> None:
    """Start the command and stay until all that it has started has ended."""
    for descriptor in (plan, output, report):
        os.set_inheritable(descriptor, False)
    # The command has the same user. It must not get at the report: neither through /proc/1/fd, nor
    # with a debugger.
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the report cannot be kept from the command")
    # What has no handler does not reach the first process of a sandbox from within.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    with open(plan, "rb") as file:
        wanted: dict[str, Any] = marshal.load(file)  # noqa: S302 - a file of the shim's own
    told, tell = os.pipe()
    try:
        leader = os.fork()
    except OSError as error:
        os.write(report, b"failed fork %d" % (error.errno or errno.EAGAIN))
        return
    if leader == 0:
        _become(wanted, output, report, tell)
    os.close(tell)
    # A copy of the write end in here would keep the pipe from ever ending.
    os.close(output)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    failure = os.read(told, 256)
    if failure:
        os.write(report, b"failed " + failure)
        return
    os.write(report, b"started")
    _collect(leader, report)


def _become(wanted: dict[str, Any], output: int, report: int, tell: int) -> None:
    """Turn this process, just forked, into the leader. Never returns."""
    stage, problem = "setup", errno.EIO
    try:
        os.setsid()
        for number in _signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP}:
            _signal.signal(number, _signal.SIG_DFL)
        for standard in (1, 2):
            os.dup2(output, standard)
        stage = "limits"
        for limit, value in wanted["limits"]:
            resource.setrlimit(limit, (value, value))
        # By its sender the message says which process it is, seen from outside.
        os.write(report, b"leader")
        if os.read(report, 16) != b"go":
            os._exit(127)
        stage = "exec"
        os.execvpe(wanted["argv"][0], wanted["argv"], wanted["env"])  # noqa: S606 - its purpose
    except OSError as error:
        problem = error.errno or errno.EIO
        if problem == errno.EACCES and stage == "exec" and _is_nowhere(wanted):
            problem = errno.ENOENT
    except ValueError:
        # A NUL in an argument, an "=" in the name of a variable.
        problem = errno.EINVAL
    finally:
        os.write(tell, f"{stage} {problem}".encode())
        os._exit(127)


def _is_nowhere(wanted: dict[str, Any]) -> bool:
    """As outside of a sandbox: what may not be read does not have the program."""
    name, path = wanted["argv"][0], wanted["env"].get(b"PATH", os.fsencode(os.defpath))
    return b"/" not in name and not any(
        os.path.isfile(os.path.join(directory, name)) for directory in path.split(b":")
    )


def _collect(leader: int, report: int) -> None:
    cpu, largest, ended = 0.0, 0, False
    while True:
        try:
            pid, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        cpu += used.ru_utime + used.ru_stime
        largest = max(largest, used.ru_maxrss)
        # Its number may be given again once it has been collected.
        if pid == leader and not ended:
            ended = True
            os.write(report, b"ended %d %.6f %d" % (status, cpu, largest))
    os.write(report, b"alone %.6f %d" % (cpu, largest))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
    # What is in here is nobody's to tidy up.
    os._exit(0)
