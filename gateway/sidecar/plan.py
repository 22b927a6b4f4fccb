"""From a request to a spec: user, environment, sandbox, limits. Starts nothing, opens nothing."""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gateway.policy import exec_env
from gateway.sidecar import hiding, isolation, workdir
from gateway.sidecar import refusal as refused
from gateway.sidecar.spec import LIMITS, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.config.model import Exec
    from gateway.policy.exec_request import ExecRequest


_SOCKETS = ("/run",)
"""Where programs of the system listen. Who may speak with all of them is in no sandbox."""

_RESOLVER = "/etc/resolv.conf"


@dataclass(frozen=True, slots=True)
class Planner:
    """What is the same for all commands: ``roots`` are real paths, ``secret_files`` are hidden in
    a sandbox.
    """

    exec_: Exec
    spill_dir: str
    roots: tuple[str, ...]
    environ: Mapping[str, str]
    user: exec_env.User
    run_as: tuple[int, int] | None
    secret_files: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, exec_: Exec, spill_dir: str, environ: Mapping[str, str], secret_files: Sequence[str]
    ) -> Planner:
        """Look its user and its roots up. Raises KeyError where there is no user of that name."""
        roots = workdir.real_roots(exec_.allowed_roots)
        user, ids = user_of(exec_), run_as(exec_)
        return cls(exec_, spill_dir, roots, environ, user, ids, tuple(secret_files))

    def environment(self, request: ExecRequest) -> exec_env.Environment:
        """The variables of a command."""
        return exec_env.build(self.user, self.environ, self.exec_.env_allow, request.env)

    def spec(self, id_: str, request: ExecRequest, cwd_fd: int, cwd: str) -> Spec:
        """What is to be run; ``cwd`` is the real path of what ``cwd_fd`` has open. Blocks."""
        return Spec(
            id=id_,
            directory=os.path.join(self.spill_dir, id_),
            cwd=cwd,
            cwd_fd=cwd_fd,
            env=self.environment(request).variables,
            command=request.command,
            argv=request.argv,
            umask=request.umask,
            stdin=request.stdin or b"",
            timeout_ms=request.timeout_ms,
            kill_grace_ms=request.kill_grace_ms,
            output_grace_ms=request.output_grace_ms,
            on_output_open=request.on_output_open,
            on_output_limit=request.on_output_limit,
            max_output_bytes=request.max_output_bytes,
            head_bytes=request.head_bytes,
            tail_bytes=request.tail_bytes,
            want_sha256=request.sha256,
            limits=self._limits(),
            run_as=self.run_as,
            wrap=self.wrap(cwd),
        )

    def wrap(self, cwd: str) -> tuple[str, ...]:
        """The sandbox that is asked for, around a command in this directory; blocks a little.

        Raises RefusedError where something that it has to hide is not there.
        """
        if self.exec_.isolation != "bwrap":
            return ()
        bwrap = isolation.find_bwrap()
        if bwrap is None:
            # It was there at the start. Without it nothing may run: exec fails, and says so.
            bwrap = "/usr/bin/bwrap"
        if (exposed := self.exposed()) is not None:
            # The start refuses it; but the configuration may have been read again since.
            raise refused.unavailable(exposed)
        secrets = hiding.hide(self.secret_files, (*self.roots, self.user.home))
        roots = [root for root in self.roots if os.path.isdir(root)]
        hidden = [path for path in (self.spill_dir, *_SOCKETS) if os.path.isdir(path)]
        hidden = [path for path in {*hidden, *secrets.directories} if path not in roots]
        files = [*_resolver(), *((os.devnull, file) for file in secrets.files)]
        return isolation.bwrap_argv(bwrap, roots=roots, cwd=cwd, hidden=sorted(hidden), files=files)

    def exposed(self) -> str | None:
        """Why a sandbox would not hide what it has to, in one sentence; None where it would."""
        if self.exec_.isolation != "bwrap":
            return None
        for what, path in (("exec.spill_dir", self.spill_dir), *self._secrets()):
            if root := hiding.root_of(path, self.roots):
                return (
                    f"{what} ({path}) lies within {root}, one of exec.allowed_roots, where a "
                    "command can move it to where it is not hidden: move it elsewhere."
                )
        return None

    def _secrets(self) -> Iterator[tuple[str, str]]:
        return (("A file with a key or token", path) for path in self.secret_files)

    def _limits(self) -> dict[str, int]:
        asked = self.exec_.limits
        wanted = {"cpu": asked.cpu, "as": asked.memory, "nproc": asked.processes}
        return {**LIMITS, **{name: value for name, value in wanted.items() if value is not None}}


def _resolver() -> list[tuple[str, str]]:
    """Names of hosts are looked up with a file that often lies where sockets do."""
    real = os.path.realpath(_RESOLVER)
    within = any(real.startswith(f"{path}/") for path in _SOCKETS)
    return [(real, real)] if within and os.path.isfile(real) else []


def run_as(exec_: Exec) -> tuple[int, int] | None:
    """The user and the group of commands, None for the gateway's. Raises KeyError for no user."""
    if exec_.isolation != "uid" or exec_.run_as is None:
        return None
    found = pwd.getpwnam(exec_.run_as)
    return found.pw_uid, found.pw_gid


def user_of(exec_: Exec) -> exec_env.User:
    """Who runs commands, as they see it. Raises KeyError for no user."""
    if exec_.isolation == "uid" and exec_.run_as is not None:
        found = pwd.getpwnam(exec_.run_as)
        own = found.pw_uid == os.geteuid()
    else:
        try:
            found, own = pwd.getpwuid(os.geteuid()), True
        except KeyError:
            # In a container the number often has no name.
            return exec_env.User(name=str(os.geteuid()), home="/")
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    return exec_env.User(name=found.pw_name, home=found.pw_dir, shell=shell, is_gateway=own)


def refusal(exec_: Exec, *, root: bool, platform: str = sys.platform) -> str | None:
    """Why commands may not be run as it is configured, in one sentence; None where they may."""
    try:
        user = run_as(exec_)
    except KeyError:
        return (
            f"exec.run_as names {exec_.run_as}, which is no user here: create it, or name another."
        )
    missing = isolation.missing(
        exec_.isolation,  # type: ignore[arg-type]  # one of the levels: the config has checked it
        platform=platform,
        root=root,
        run_as=user,
        bwrap=isolation.find_bwrap(),
    )
    if missing is not None:
        return f"exec.isolation cannot be had: {missing}"
    limits = msgspec.structs.astuple(exec_.limits)
    if platform != "linux" and any(limit is not None for limit in limits):
        return "exec.limits can be had on Linux only: take them out, or run the gateway on Linux."
    as_root = user is not None and user[0] == 0
    if not exec_.allow_root and (as_root or (root and exec_.isolation == "none")):
        return (
            "exec would run commands as root: start the gateway as another user, set "
            'exec.isolation = "uid" with exec.run_as or "bwrap", or say exec.allow_root = true.'
        )
    return None
