"""The process that forks a shim per command; started by path, knows no secret, runs no command.

``python -I -S zygote.py FD``, with an environment made from nothing and before keys are read: what
is forked here cannot hold what the gateway holds. Requests come through the SEQPACKET socket FD:
a list of names in JSON, and that many descriptors. Answers go through the descriptor ``control``
alone, from the shim.

A shim keeps its command's processes for as long as it lives. So what is reparented to this process
comes from a shim that was killed, and is killed as well.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
import types

if __name__ == "__main__":
    # Only the files beside this one can be imported, not the gateway: this is not its Python.
    for _name, _path in (("gateway", []), ("gateway.sidecar", [os.path.dirname(__file__)])):
        _package = types.ModuleType(_name)
        _package.__path__ = _path
        sys.modules[_name] = _package

from gateway.sidecar import kernel, priority, record, shim

_RESCAN_MS = 20
_MAX_MESSAGE = 4096
_MAX_DESCRIPTORS = 8


class Zygote:
    """Forks shims, collects them, and kills what a killed one has left."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests: socket.socket | None = requests
        self._bell = kernel.ChildBell()
        self._shims: set[int] = set()
        self._orphans = False
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._poll.register(self._bell.fileno(), select.POLLIN)

    def run(self) -> None:
        """Until the gateway has gone and every shim has ended."""
        while self._requests is not None or self._shims or self._orphans:
            for descriptor, _ in self._poll.poll(_RESCAN_MS if self._orphans else None):
                if self._requests is not None and descriptor == self._requests.fileno():
                    self._accept(self._requests)
            self._bell.silence()
            self._reap()
            if self._orphans:
                self._kill_orphans()

    def _accept(self, requests: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(requests, _MAX_MESSAGE, _MAX_DESCRIPTORS)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._poll.unregister(requests)
            requests.close()
            self._requests = None
            return
        for descriptor in descriptors:
            # Python's recv_fds takes flags and drops them, MSG_CMSG_CLOEXEC among them.
            os.set_inheritable(descriptor, False)
        handed = dict(zip(json.loads(data), descriptors, strict=True))
        try:
            pid = os.fork()
        except OSError as error:
            _refuse(handed, error)
            pid = -1
        if pid == 0:
            self._be_a_shim(requests, handed)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._shims.add(pid)

    def _be_a_shim(self, requests: socket.socket, handed: dict[str, int]) -> None:
        """In the fork. Never returns."""
        code = 1
        try:
            requests.close()
            self._bell.drop()
            shim.main(
                shim.Handed(
                    handed["control"], handed["request"], handed.get("cwd"), handed.get("stdin")
                )
            )
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may unwind into the zygote's own loop
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            # One that fails has not looked after its children: not 0.
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._orphans = False
                return
            if pid == 0:
                return
            if pid not in self._shims or status != 0:
                self._orphans = True
            self._shims.discard(pid)

    def _kill_orphans(self) -> None:
        found = kernel.descendants(os.getpid(), without=self._shims)
        for orphan in found:
            kernel.send(orphan, signal.SIGKILL)
        self._orphans = bool(found)


def _refuse(handed: dict[str, int], error: OSError) -> None:
    """Answer in the place of the shim that could not be forked."""
    made = shim.new_record(shim.read_request(os.dup(handed["request"])))
    failure = record.SpawnFailed("fork", error.errno or errno.EAGAIN)
    with socket.socket(fileno=os.dup(handed["control"])) as control:
        shim.report_failure(made, failure, control)


def main(descriptor: int) -> None:
    """Serve the socket until the gateway has gone."""
    os.set_inheritable(descriptor, False)
    requests = socket.socket(fileno=descriptor)
    # First: the files of what is not dumpable belong to root.
    priority.lower()
    kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.SET_DUMPABLE, 0)
    os.umask(0o077)
    # What exists by now is never collected, so that a fork does not copy its pages.
    gc.collect()
    gc.freeze()
    requests.send(b"ready")
    Zygote(requests).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
