"""The sidecar as a whole: checks, starts, drains and stops it. Knows nothing of the relay."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from gateway.config import ConfigError, parse_address
from gateway.observe import logs
from gateway.policy.exec_access import Guard
from gateway.sidecar import kernel, listener, plan, sandbox
from gateway.sidecar.endpoint import Endpoint
from gateway.sidecar.fallback import make_runner
from gateway.sidecar.folder import Folder
from gateway.sidecar.plan import Planner
from gateway.sidecar.refusal import RefusedError
from gateway.sidecar.runner import SidecarError
from gateway.sidecar.service import STOP, Service
from gateway.sidecar.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config import Address
    from gateway.config.model import Exec
    from gateway.observe.exec_metrics import ExecMetrics

_CLOSING = 1.0
"""Seconds that answers get to be written in, in the end."""

_MAX_HEADER = 64 * 1024
_PROBE_SECONDS = 20.0


def harden() -> None:
    """Nobody of this user may look into this process, which holds keys; nor is it ever dumped.

    As root this hides nothing: there commands need another user or a sandbox.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        kernel.prctl(kernel.SET_DUMPABLE, 0)


class Sidecar:
    """Made from a checked ``[exec]`` table that is enabled. One per process and event loop.

    ``environ`` is what commands may inherit from, ``secret_files`` what a sandbox hides from them.
    """

    def __init__(
        self,
        exec_: Exec,
        metrics: ExecMetrics,
        environ: Mapping[str, str] = os.environ,
        secret_files: Sequence[str] = (),
    ) -> None:
        self._exec = exec_
        self._metrics = metrics
        self._environ = environ
        self._secret_files = secret_files
        self.address: Address = parse_address(exec_.listen)
        self._runner = make_runner()
        self._folder: Folder | None = None
        self._service: Service | None = None
        self._server: web.ServerRunner | None = None
        self._listening = False

    async def start(self) -> None:
        """Listen. Raises ConfigError for what must be configured otherwise, SidecarError for the
        rest, with everything undone."""
        try:
            # First of all: the processes that start commands never had anything of ours to hold.
            await self._runner.start()
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        exec_ = self._exec
        refusal = plan.refusal(exec_, root=os.geteuid() == 0)
        if refusal is not None:
            raise ConfigError([refusal])
        folder = self._folder = _open_folder(exec_.spill_dir)
        _look_for_roots(exec_)
        planner = Planner.of(exec_, folder.path, self._environ, self._secret_files)
        if (exposed := planner.exposed()) is not None:
            raise ConfigError([exposed])
        await asyncio.to_thread(_try_sandbox, planner)
        store = Store(folder, retention=exec_.retention, most=exec_.retention_bytes)
        self._service = Service(exec_, self._runner, store, planner, self._metrics)
        await self._service.start()
        await self._listen(self._service)

    async def _listen(self, service: Service) -> None:
        exec_ = self._exec
        tokens = {secret.reference: secret.reveal() for secret in exec_.tokens}
        endpoint = Endpoint(
            service,
            Guard(tokens, None if self.address.path else exec_.hosts),
            self._metrics,
            exec_,
            peer_of=listener.peers(self.address),
        )
        server = web.Server(
            endpoint.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )
        self._server = web.ServerRunner(server, shutdown_timeout=_CLOSING)
        await self._server.setup()
        bound = listener.bind(self.address)
        self._listening = True
        await web.SockSite(self._server, bound).start()
        if not self.address.path:
            self.address = msgspec.structs.replace(self.address, port=bound.getsockname()[1])

    def hide(self, secret_files: Sequence[str]) -> None:
        """Take over which files hold keys and tokens, after a reload."""
        self._secret_files = secret_files
        if self._service is not None:
            self._service.hide(secret_files)

    async def drain(self, seconds: float = STOP) -> None:
        """Refuse new commands, end those that run, and let their clients have the answer."""
        if self._service is not None:
            await self._service.drain(seconds)

    async def stop(self) -> None:
        """End everything; afterwards nothing of it is left."""
        if self._service is not None:
            await self._service.stop()
        else:
            await self._runner.stop(1.0)
        if self._server is not None:
            await self._server.cleanup()
        if self.address.path and self._listening:
            listener.unlink(self.address.path)
        if self._folder is not None:
            self._folder.close()


def _open_folder(path: str) -> Folder:
    try:
        return Folder(path)
    except ValueError as error:
        raise ConfigError([f"exec.spill_dir {error}."]) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            [
                f"exec.spill_dir ({path}) cannot be used: {reason}: name a directory that the "
                "gateway can make and write to."
            ]
        ) from None


def _look_for_roots(exec_: Exec) -> None:
    """One may come later, with a disk; where it is a mistake, its commands would say so only."""
    for root in exec_.allowed_roots:
        if not os.path.isdir(root):
            logs.logger().warning("exec_root_missing", path=root)


def _try_sandbox(planner: Planner) -> None:
    """Where a sandbox is asked for it is tried once: the program alone does not make one, and the
    first process of each is of this interpreter.
    """
    try:
        wrap = planner.wrap("/")
    except RefusedError as error:
        raise ConfigError([f"exec.isolation cannot be had: {error.message}"]) from None
    if not wrap:
        return
    try:
        done = subprocess.run(  # noqa: S603 - bubblewrap, around a program that does nothing
            [*wrap, sandbox.PYTHON, "-I", "-S", "-c", ""],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            timeout=_PROBE_SECONDS,
            check=False,
        )
        said = done.stderr.decode(errors="replace").strip()[:200]
    except (OSError, subprocess.TimeoutExpired) as error:
        said = type(error).__name__
    else:
        if done.returncode == 0:
            return
    raise ConfigError(
        [
            f"exec.isolation cannot be had: bwrap makes no sandbox here ({said}): allow user "
            f"namespaces, let the gateway's user read {sandbox.PYTHON} without capabilities, or "
            'choose "uid" or "none".'
        ]
    )


__all__ = ["Sidecar", "SidecarError", "harden"]
