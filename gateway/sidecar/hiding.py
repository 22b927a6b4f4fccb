"""What a sandbox covers so that keys and tokens cannot be read in it. Looks, and mounts nothing.

A cover over a file comes off when somebody, outside, renames another file to its name, as whoever
renews a key does. One over the directory stays. So it is the directory that is covered, unless
commands need what else is in it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.sidecar import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NEEDED = (
    "/bin", "/dev", "/etc/ssl/certs", "/etc/pki/tls/certs", "/lib", "/lib64", "/proc", "/sbin",
    "/sys", "/usr/bin", "/usr/lib", "/usr/local/bin", "/usr/local/lib", "/usr/share",
)  # fmt: skip
"""Directories without which no program runs as it does elsewhere, or none at all."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is covered: directories as a whole, and single files."""

    directories: tuple[str, ...]
    files: tuple[str, ...]


def hide(files: Sequence[str], needed: Sequence[str]) -> Hidden:
    """What to cover for these files; ``needed`` are directories that stay readable. Blocks.

    Raises RefusedError where a file, or the directory to cover for it, is not there: what appears
    in its place while a command runs would be covered by nothing.
    """
    directories: set[str] = set()
    masked: set[str] = set()
    for file in files:
        real = os.path.realpath(file)
        # A link may lead elsewhere the next time: to another file beside the first, most often.
        for directory in {os.path.realpath(os.path.dirname(file)), os.path.dirname(real)}:
            if not any(_lies_in(each, directory) for each in (*_NEEDED, *needed)):
                directories.add(directory)
        if os.path.dirname(real) not in directories:
            masked.add(real)
    missing = [path for path in directories if not os.path.isdir(path)]
    missing += [path for path in masked if not os.path.isfile(path)]
    if missing:
        raise refusal.unavailable(
            f"{min(missing)} is not there, so that no sandbox can hide what will be there: "
            "restore it, or name another file for the key or token."
        )
    return Hidden(tuple(sorted(directories)), tuple(sorted(masked)))


def root_of(path: str, roots: Iterable[str]) -> str | None:
    """The root that a path lies in, as it is written or where links lead; None for none."""
    paths = (os.path.abspath(path), os.path.realpath(path))
    return next((root for root in roots if any(_lies_in(each, root) for each in paths)), None)


def _lies_in(path: str, directory: str) -> bool:
    return os.path.commonpath((path, directory)) == directory
