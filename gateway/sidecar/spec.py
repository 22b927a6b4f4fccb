"""What is to be run, and within which bounds; runs nothing and asks nobody."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMITS: Mapping[str, int] = MappingProxyType({"core": 0, "nofile": 65536, "fsize": 10 << 30})
"""What every command gets. No ``cpu``: it sums threads. No ``nproc``: it counts all of a user's."""

LIMIT_NAMES = frozenset(
    {"as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "stack"}
)

MAX_STDIN = 8 << 20
MAX_KEPT = 256 << 10
"""Bytes of head and tail together."""

_SHELLS = (("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"), ("/bin/sh",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One command. Exactly one of ``command`` (for the shell) and ``argv`` is given.

    ``cwd_fd`` is a directory that has been opened and checked; it stays the caller's, who may close
    it when ``spawn`` has returned. ``cwd`` names the same directory, and is used without it.

    ``directory`` holds the spill (``output``) and ``status.json``; it must not exist, its parent
    must. ``env`` is the whole environment. ``run_as`` is (uid, gid) and needs root. ``wrap`` is the
    argv of a sandbox: see ``gateway.sidecar.isolation``.

    Times are in milliseconds, sizes in bytes. After ``timeout_ms`` every process of the command
    gets SIGTERM, and SIGKILL ``kill_grace_ms`` later. When the leader has ended and others hold its
    output open for ``output_grace_ms``: ``return`` answers and drains on for ``max_background_ms``
    at most, ``wait`` waits until the timeout, ``kill`` ends them. ``on_output_limit``: ``kill``
    ends the command, ``drain`` lets it run on, and only counts. ``on_gone``: what becomes of it
    when the gateway dies. ``sink_delay_ms`` makes each write of the spill slow, for tests.

    Raises ValueError where it contradicts itself.
    """

    id: str
    directory: str
    cwd: str
    env: Mapping[str, str]
    command: str | None = None
    argv: tuple[str, ...] | None = None
    cwd_fd: int | None = None
    stdin: bytes = b""
    timeout_ms: int = 120_000
    kill_grace_ms: int = 3_000
    output_grace_ms: int = 5_000
    max_background_ms: int = 3_600_000
    on_output_open: Literal["return", "wait", "kill"] = "return"
    on_output_limit: Literal["kill", "drain"] = "kill"
    on_gone: Literal["kill", "finish"] = "kill"
    max_output_bytes: int = 1 << 30
    head_bytes: int = 8_192
    tail_bytes: int = 20_480
    want_sha256: bool = False
    limits: Mapping[str, int] = field(default_factory=lambda: LIMITS)
    umask: int = 0o022
    oom_score_adj: int = 500
    run_as: tuple[int, int] | None = None
    wrap: tuple[str, ...] = ()
    sink_delay_ms: int = 0

    def __post_init__(self) -> None:
        if (self.command is None) == (self.argv is None):
            raise ValueError("exactly one of command and argv must be given")
        if self.argv is not None and not self.argv:
            raise ValueError("argv must not be empty")
        if not os.path.isabs(self.directory) or not os.path.isabs(self.cwd):
            raise ValueError("directory and cwd must be absolute paths")
        if len(self.stdin) > MAX_STDIN:
            raise ValueError(f"stdin must not be longer than {MAX_STDIN} bytes")
        if min(self.head_bytes, self.tail_bytes) < 0:
            raise ValueError("head_bytes and tail_bytes must not be negative")
        if self.head_bytes + self.tail_bytes > MAX_KEPT:
            raise ValueError(f"head_bytes and tail_bytes must not exceed {MAX_KEPT} together")
        if unknown := sorted(set(self.limits) - LIMIT_NAMES):
            raise ValueError(f"there is no limit named {unknown[0]!r}")

    @property
    def containment(self) -> str:
        """What holds the command's processes together where the kernel is Linux."""
        return "pidns" if self.wrap else "subreaper"

    def full_argv(self) -> list[str]:
        """What is executed, within ``wrap``: the argv, or the shell and the command."""
        return list(self.argv or (*shell(), "-c", self.command or ""))

    def request(self, asked: float) -> dict[str, Any]:
        """As the shim reads it; ``asked`` is now, in seconds of the monotonic clock."""
        return {
            "id": self.id,
            "directory": self.directory,
            "argv": self.full_argv(),
            "wrap": list(self.wrap),
            "containment": self.containment,
            "cwd": self.cwd,
            "env": dict(self.env),
            "limits": dict(self.limits),
            "run_as": self.run_as,
            "asked": asked,
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
        }


_AS_THEY_ARE = (
    "timeout_ms",
    "kill_grace_ms",
    "output_grace_ms",
    "max_background_ms",
    "on_output_open",
    "on_output_limit",
    "on_gone",
    "max_output_bytes",
    "head_bytes",
    "tail_bytes",
    "want_sha256",
    "umask",
    "oom_score_adj",
    "sink_delay_ms",
)


def shell() -> tuple[str, ...]:
    """The shell for commands: bash without anybody's start-up files, sh where there is no bash."""
    bashes, shs = _SHELLS
    for bash in bashes:
        if os.access(bash, os.X_OK):
            return (bash, "--noprofile", "--norc")
    return (shs[0],)
