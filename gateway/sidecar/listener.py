"""The sidecar's own socket: who may reach it. Answers nothing.

On a unix socket the permissions decide, and once more the kernel's word on who is at the other end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.policy.exec_access import host_name
from gateway.policy.exec_request import ExecError
from gateway.sidecar.runner import SidecarError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from gateway.config import Address

_CREDENTIALS = struct.Struct("3i")
_SHARED = stat.S_IWGRP | stat.S_IWOTH


def bind(address: Address) -> socket.socket:
    """A socket that listens. Raises SidecarError, one sentence."""
    try:
        return _bind_unix(address.path) if address.path else _bind_tcp(address)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRINUSE:
            raise SidecarError(
                f"exec.listen ({address}) is in use by another program: stop it, or choose another."
            ) from None
        reason = os.strerror(number) if number and number > 0 else str(error)
        raise SidecarError(
            f"Listening on exec.listen ({address}) is not possible ({reason}): choose another."
        ) from None


def unlink(path: str) -> None:
    """Remove a socket of ours."""
    Path(path).unlink(missing_ok=True)


def _bind_tcp(address: Address) -> socket.socket:
    family, kind, number, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, number)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_unix(path: str) -> socket.socket:
    _check_directory(os.path.dirname(path))
    _clear(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Made with these permissions, not given them: there is no moment in which others could connect.
    before = os.umask(0o177)
    try:
        bound.bind(path)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _check_directory(path: str) -> None:
    """Nobody else may put another socket in the place of this one. Raises SidecarError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.stat(path)
    sticky = bool(found.st_mode & stat.S_ISVTX)
    if found.st_uid not in (os.geteuid(), 0) or (found.st_mode & _SHARED and not sticky):
        raise SidecarError(
            f"exec.listen: the directory {path} belongs to, or can be written by, other users: "
            "use one that is the gateway's own, such as /run/gateway."
        )


def _clear(path: str) -> None:
    """Remove what a dead process left; raises SidecarError if somebody is listening."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SidecarError(f"exec.listen: {path} exists and is no socket: choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A full queue of connections, too, means that somebody is there.
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            unlink(path)
        else:
            raise SidecarError(
                f"exec.listen: {path} is in use by another program: stop it, or choose another."
            )


def peers(address: Address) -> Callable[[web.BaseRequest], str]:
    """What says where a request comes from; it raises ExecError for one that may not come."""
    return _unix_peer if address.path else _tcp_peer


def _tcp_peer(request: web.BaseRequest) -> str:
    return host_name(request.remote or "") or "unknown"


def _unix_peer(request: web.BaseRequest) -> str:
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix"
    given = None if request.transport is None else request.transport.get_extra_info("socket")
    if given is None:
        raise ConnectionResetError("the client has left")
    try:
        # A duplicate: what an event loop hands out is not a whole socket everywhere.
        with socket.socket(fileno=os.dup(given.fileno())) as own:
            data = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        raise ConnectionResetError("the client has left") from None
    pid, uid, _ = _CREDENTIALS.unpack(data)
    if uid not in (os.geteuid(), 0):
        raise ExecError(403, "This socket is for the gateway's own user and for root.")
    return f"uid={uid} pid={pid}"
