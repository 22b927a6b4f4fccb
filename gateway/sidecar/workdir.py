"""Opens the directory that a command starts in, within the allowed roots; never trusts its name.

A name can lead elsewhere a moment later. So the directory is opened first, the kernel is asked what
was opened, and it is that descriptor which the command is started in.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING

from gateway.policy.exec_access import Refusal, working_directory
from gateway.sidecar import refusal
from gateway.sidecar.refusal import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_F_GETPATH = 50
"""macOS: the path of a descriptor."""


def asked_for(cwd: str | None, roots: Sequence[str]) -> str:
    """The directory that a request means. Raises RefusedError where its text forbids it."""
    path = working_directory(cwd, roots)
    if isinstance(path, Refusal):
        raise refusal.of(path)
    return path


def open_within(path: str, roots: Sequence[str]) -> tuple[int, str]:
    """A descriptor of the directory and its real path. Blocks.

    Raises RefusedError: 403 where it lies outside the roots, 422 where it cannot be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise refusal.not_spawned("cwd", error) from None
    try:
        real = _path_of(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise refusal.not_spawned("cwd", error) from None
    if any(_lies_in(real, root) for root in real_roots(roots)):
        return descriptor, real
    os.close(descriptor)
    raise RefusedError(
        403,
        "cwd leads out of exec.allowed_roots through a symbolic link: use a directory that lies "
        "within them, or add where it leads.",
    )


def real_roots(roots: Sequence[str]) -> list[str]:
    """The roots that are there, as the kernel calls them."""
    return [real for real in map(os.path.realpath, roots) if os.path.isdir(real)]


def _lies_in(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root


def _path_of(descriptor: int) -> str:
    """What the kernel calls an open directory. Raises OSError where it has been removed."""
    if sys.platform == "darwin":
        path = os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
    else:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    # "(deleted)" stands behind the path of what is no more, and could also be a name.
    if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
        raise FileNotFoundError(2, os.strerror(2))
    return path
