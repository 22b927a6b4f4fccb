"""What a command is shut in with, as an argv; starts nothing, and never settles for less.

Three levels: ``none`` (the gateway's own user), ``uid`` (another user, for which the gateway must
be root) and ``bwrap`` (bubblewrap: the file system read-only but for the roots, processes of its
own, no capabilities).
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Literal

from gateway.sidecar import sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

Level = Literal["none", "uid", "bwrap"]


def missing(
    level: Level, *, platform: str, root: bool, run_as: tuple[int, int] | None, bwrap: str | None
) -> str | None:
    """Why a level cannot be had here, in one sentence; None where it can.

    ``platform`` is ``sys.platform``, ``bwrap`` the path of the program or None: see
    :func:`find_bwrap`. Whether the system lets bwrap work, only a trial tells.
    """
    if level == "none":
        return None
    if level == "uid":
        if run_as is None:
            return "Isolation 'uid' needs a user to run commands as: name one."
        if not root:
            return "Isolation 'uid' needs a gateway that runs as root: start it so, or use 'bwrap'."
        return None
    if platform != "linux":
        return "Isolation 'bwrap' exists on Linux only: use 'none', or run the gateway on Linux."
    if bwrap is None:
        return (
            "Isolation 'bwrap' needs the program bwrap, which is not in PATH: "
            "install bubblewrap (Debian: apt install bubblewrap)."
        )
    return None


def find_bwrap() -> str | None:
    """The path of bubblewrap, None where it is not installed."""
    return shutil.which("bwrap")


def bwrap_argv(
    bwrap: str,
    *,
    roots: Sequence[str],
    cwd: str,
    hidden: Sequence[str] = (),
    files: Sequence[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """What stands before the first process of a sandbox to shut it in; for ``Spec.wrap``.

    ``roots`` are directories that stay writable, ``hidden`` ones that look empty (the spills of all
    commands), ``cwd`` is where the command starts, and ``files`` are shown read-only: each as it
    is, and where. All are real, absolute paths. What lies deeper wins over what it lies in. The
    interpreter of the first process can be read in any case, unless its own directory is hidden.
    Raises ValueError where a directory is to be both.
    """
    if both := sorted(set(roots) & set(hidden)):
        raise ValueError(f"{both[0]} cannot be writable and hidden at once")
    argv = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    mounts = [("/tmp", ["--tmpfs", "/tmp"])]  # noqa: S108 - the sandbox's own, empty
    mounts += [(root, ["--bind", root, root]) for root in roots]
    mounts += [(path, ["--tmpfs", path]) for path in hidden]
    for place in sandbox.PLACES:
        over = [path for path, _ in mounts if os.path.commonpath((path, place)) == path]
        if over and max(over, key=_depth) not in (*roots, place):
            mounts.append((place, ["--ro-bind", place, place]))
    for _, mount in sorted(mounts, key=lambda mount: _depth(mount[0])):
        argv += mount
    for file, place in files:
        argv += ["--ro-bind", file, place]
    argv += ["--unshare-pid", "--as-pid-1", "--unshare-ipc", "--unshare-uts"]
    argv += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--chdir", cwd, "--"]
    return tuple(argv)


def _depth(path: str) -> int:
    return path.rstrip("/").count("/")
