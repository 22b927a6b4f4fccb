"""The folder with the outputs of all commands: looks, writes and removes; follows no symbolic link.

Below it each command has a directory of its own: ``output``, ``status.json`` and ``meta.json``.
Everything is opened relative to the folder, which was checked once, and nothing outside it is ever
touched, whatever stands in it. All of it blocks: call it from a thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path

import msgspec

from gateway.policy.preview_render import Look
from gateway.sidecar.record import SPILL, STATUS
from gateway.sidecar.status import Status, read_status

META = "meta.json"

_ID = re.compile(r"x_[0-9a-f]{32}")
_PENDING = re.compile(r"\.(x_[0-9a-f]{32})\.meta")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_RECORD = 1 << 20
"""Bytes of a status or of a meta that are read: far more than the gateway writes."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What a command's record needs beside its status: whose it is, and how it is shown.

    The command itself is not here, nor are its variables: they may hold secrets.
    """

    id: str
    owner: str
    created_at: float
    key: str | None = None
    fingerprint: str = ""
    head_bytes: int = 8_192
    tail_bytes: int = 20_480
    look: Look = Look()
    warnings: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One command as it stands on the disk; ``status`` is None where none can be read."""

    meta: Meta
    status: Status | None
    size: int
    changed_at: float


def new_id() -> str:
    """A name that nobody can guess."""
    return f"x_{secrets.token_hex(16)}"


def is_id(text: str) -> bool:
    """Whether a command can have this name."""
    return _ID.fullmatch(text) is not None


class Folder:
    """An open folder. Raises OSError where the disk does."""

    def __init__(self, path: str) -> None:
        """Open it, and make it where it is missing.

        Raises OSError, or ValueError with half a sentence that follows "exec.spill_dir ".
        """
        if not os.path.lexists(path):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # whatever the umask left of it
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check(path)
        except BaseException:
            os.close(self._fd)
            raise
        self.path = os.path.realpath(path)

    def _check(self, path: str) -> None:
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid():
            raise ValueError(f"({path}) belongs to another user: chown it to the gateway's")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ValueError(f"({path}) is open to other users: chmod 700 {path}")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Two of them would take each other's commands for those of a dead one.
            raise ValueError(
                f"({path}) is in use by another gateway: each needs one of its own"
            ) from None
        except OSError:
            pass  # some network file systems lock no directories
        probe = f".probe.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(probe, flags, 0o600, dir_fd=self._fd))
        os.unlink(probe, dir_fd=self._fd)

    def close(self) -> None:
        """Let it go."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def directory(self, id_: str) -> str:
        """The path of a command's directory."""
        return os.path.join(self.path, id_)

    def spill(self, id_: str) -> str:
        """The path of a command's output."""
        return os.path.join(self.path, id_, SPILL)

    def free_bytes(self) -> int:
        """Room that this user has on the disk."""
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    # --- what is written ----------------------------------------------------------------------

    def announce(self, meta: Meta) -> None:
        """Write a command's meta before it starts: its directory is made by who runs it."""
        self._write(self._fd, f".{meta.id}.meta", msgspec.json.encode(meta))

    def adopt(self, id_: str) -> None:
        """Move the meta of a command into its directory, or drop it where there is none."""
        pending = f".{id_}.meta"
        try:
            directory = self._open(id_)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(pending, dir_fd=self._fd)
            return
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rename(pending, META, src_dir_fd=self._fd, dst_dir_fd=directory)
        finally:
            os.close(directory)

    def save(self, status: Status) -> None:
        """Replace the status of a command whose own process has died."""
        directory = self._open(status.id)
        try:
            self._write(directory, STATUS, msgspec.json.encode(status))
        finally:
            os.close(directory)

    def remove(self, id_: str) -> None:
        """Remove a command's directory with what the gateway has put there."""
        if not is_id(id_):
            raise ValueError("no id of a command")
        try:
            directory = self._open(id_)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                return  # a link or a file in its place is nothing of ours
            raise
        try:
            for name in os.listdir(directory):
                # What is a directory was put there by somebody else, and stays.
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)
        with contextlib.suppress(OSError):
            os.rmdir(id_, dir_fd=self._fd)

    def _write(self, directory: int, name: str, data: bytes) -> None:
        new = f".{secrets.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(new, flags, 0o600, dir_fd=directory)
        try:
            os.fchmod(file, 0o600)
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            os.unlink(new, dir_fd=directory)
            raise
        finally:
            os.close(file)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)

    # --- what is read -------------------------------------------------------------------------

    def scan(self) -> list[Found]:
        """Every command of which there is a record; leftovers of ones that never ran are removed.

        What is not a command's is left alone.
        """
        names = os.listdir(self._fd)
        for name in names:
            if pending := _PENDING.fullmatch(name):
                self.adopt(pending.group(1))
        found = (self.look(name) for name in names if is_id(name))
        return [each for each in found if each is not None]

    def look(self, id_: str) -> Found | None:
        """One command as it stands; None where it is none."""
        try:
            directory = self._open(id_)
        except OSError:
            return None
        try:
            changed = os.fstat(directory).st_mtime
            meta = _meta(id_, _read(directory, META), changed)
            data = _read(directory, STATUS)
            size = _size(directory)
        finally:
            os.close(directory)
        status = None
        if data is not None:
            with contextlib.suppress(msgspec.MsgspecError):
                status = read_status(data)
        if status is not None and status.id != id_:
            status = None
        return Found(meta=meta, status=status, size=size, changed_at=changed)

    def open_output(self, id_: str) -> int:
        """A descriptor to read a command's output from."""
        directory = self._open(id_)
        try:
            file = os.open(SPILL, _FILE, dir_fd=directory)
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return file

    def output_size(self, id_: str) -> int:
        """Bytes of a command's output. Raises OSError where it cannot be read."""
        file = self.open_output(id_)
        try:
            return os.fstat(file).st_size
        finally:
            os.close(file)

    def pieces(self, id_: str, size: int, head: int, tail: int) -> tuple[bytes, bytes]:
        """The first and the last bytes of the first ``size`` ones; both are all where it fits."""
        file = self.open_output(id_)
        try:
            first = read_at(file, 0, min(head, size))
            start = max(len(first), size - tail)
            return first, read_at(file, start, size - start)
        finally:
            os.close(file)

    def size(self, id_: str) -> int:
        """Bytes of a command's output that are there."""
        directory = self._open(id_)
        try:
            return _size(directory)
        finally:
            os.close(directory)

    def _open(self, id_: str) -> int:
        return os.open(id_, _DIRECTORY, dir_fd=self._fd)


_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def read_at(file: int, start: int, size: int) -> bytes:
    """So many bytes from there; fewer only where the file ends."""
    parts = []
    while size > 0 and (data := os.pread(file, size, start)):
        parts.append(data)
        start += len(data)
        size -= len(data)
    return b"".join(parts)


def _size(directory: int) -> int:
    try:
        found = os.stat(SPILL, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _read(directory: int, name: str) -> bytes | None:
    try:
        file = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return None
    try:
        return read_at(file, 0, _MAX_RECORD) if stat.S_ISREG(os.fstat(file).st_mode) else None
    finally:
        os.close(file)


def _meta(id_: str, data: bytes | None, changed: float) -> Meta:
    """What is written, or an empty one that belongs to nobody: it is only waiting to expire."""
    nobody = Meta(id=id_, owner="", created_at=changed)
    try:
        meta = nobody if data is None else msgspec.json.decode(data, type=Meta)
    except msgspec.MsgspecError:
        return nobody
    return meta if meta.id == id_ else nobody
