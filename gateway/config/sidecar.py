"""Whether the sidecar for shell commands may start as it is configured; starts and binds nothing.

Everything here is about an ``[exec]`` table with ``enabled = true``: of one that is switched off
only the single values are checked.
"""

from __future__ import annotations

import ipaddress
import posixpath
from typing import TYPE_CHECKING

from gateway.config.address import Address, parse_address
from gateway.config.credentials import ReadFile, Secret, resolve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gateway.config.model import Exec

MIN_TOKEN = 32
"""Bytes of the shortest token: who guesses it runs commands."""

_ANY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound


def tokens(
    references: Sequence[str], environ: Mapping[str, str], read_file: ReadFile
) -> tuple[Secret, ...]:
    """What checked ``references`` refer to, in their order.

    Raises ``ValueError`` with the half sentence that follows "exec.token ", for the first that is
    missing, shorter than ``MIN_TOKEN`` bytes, or the same as another.
    """
    found: dict[str, Secret] = {}
    for reference in references:
        secret = resolve(reference, environ, read_file)
        value = secret.reveal()
        if len(value) < MIN_TOKEN:
            raise ValueError(
                f"names in {reference} a token of {len(value)} bytes: it must have {MIN_TOKEN} or "
                "more, such as those of `openssl rand -hex 32`"
            )
        if value in found:
            raise ValueError(
                f"names the same token in {found[value].reference} and {reference}: each client "
                "needs its own, for it sees the commands of its token"
            )
        found[value] = secret
    return tuple(found.values())


def faults(exec_: Exec, relay: str, broken: Collection[str] = ()) -> Iterator[str]:
    """A sentence for each reason why the sidecar must not start beside a relay on ``relay``.

    ``broken`` are keys whose own faults have been told: nothing is said about them here.
    """
    if not exec_.enabled:
        return
    if not exec_.token and "token" not in broken:
        yield (
            "exec.token is not set: name a file that holds one, "
            'such as "file:/etc/gateway/exec.token", for who reaches the sidecar runs commands.'
        )
    if not exec_.allowed_roots and "allowed_roots" not in broken:
        yield (
            "exec.allowed_roots is empty: name the directories in which commands may run, "
            'such as ["/repo"].'
        )
    if exec_.isolation == "uid" and exec_.run_as is None and "run_as" not in broken:
        yield (
            'exec.run_as is not set: exec.isolation = "uid" needs the name of the user '
            "that runs the commands."
        )
    if "listen" not in broken:
        yield from _listen_faults(exec_, relay, broken)


def _listen_faults(exec_: Exec, relay: str, broken: Collection[str]) -> Iterator[str]:
    address = parse_address(exec_.listen)
    if collide(address, parse_address(relay)):
        yield (
            f"exec.listen ({exec_.listen}) is the address of the relay, server.listen ({relay}): "
            "the sidecar needs one of its own."
        )
    if address.path or _is_loopback(address.host):
        return
    if not exec_.allow_remote and "allow_remote" not in broken:
        yield (
            f"exec.listen is {exec_.listen}, which other machines can reach: use "
            '"unix:/run/gateway/exec.sock" or 127.0.0.1, or say exec.allow_remote = true as well.'
        )
    elif "hosts" not in broken and all(_is_loopback(host) for host in exec_.hosts):
        yield (
            "exec.hosts names only this machine, so that every other client of "
            f"{exec_.listen} would be refused: name the host in the clients' URL."
        )


def collide(one: Address, other: Address) -> bool:
    """Whether two listeners would be one, or who means the one could reach the other."""
    if one.path or other.path:
        return bool(one.path) and posixpath.normpath(one.path) == posixpath.normpath(other.path)
    if one.port != other.port or not one.port:
        return False
    hosts = {one.host, other.host}
    return (
        len(hosts) == 1 or not hosts.isdisjoint(_ANY) or all(_is_loopback(host) for host in hosts)
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
