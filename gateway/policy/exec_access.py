"""Who may run commands, and where: the guard of the shell endpoint. Opens nothing, shows no token.

Whoever gets past it runs commands as the gateway's user. So beside the token every request is held
against what a web page in somebody's browser could send to an address on the same machine: an
``Origin``, a form instead of JSON, a name of an attacker's that resolves to this machine.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SCHEME = "bearer "


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of ``status`` with one sentence, which repeats nothing that the client sent."""

    status: int
    message: str


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the name of its token, which is where the token stands and not the token."""

    name: str


class Guard:
    """The rules for all requests of one listener.

    ``tokens`` are the tokens by their names. ``hosts`` may stand in a client's URL, in lower case
    and without ports; ``None``: any may, for a unix socket is reached by no name.
    """

    def __init__(self, tokens: Mapping[str, str], hosts: Iterable[str] | None) -> None:
        self._tokens = {name: _digest(token) for name, token in tokens.items()}
        self._hosts = None if hosts is None else frozenset(hosts)

    def admit(self, method: str, headers: Iterable[tuple[str, str]]) -> Client | Refusal:
        """Who asks, or why it may not. ``headers`` in any case and order."""
        fields: dict[str, list[str]] = {}
        for name, value in headers:
            fields.setdefault(name.lower(), []).append(value)
        return (
            self._check_host(fields.get("host", []))
            or _check_origin(fields)
            or (_check_content(fields.get("content-type", [])) if method == "POST" else None)
            or self._identify(fields.get("authorization", []))
        )

    def _check_host(self, values: Sequence[str]) -> Refusal | None:
        if self._hosts is None:
            return None
        if len(values) == 1 and host_name(values[0]) in self._hosts:
            return None
        return Refusal(
            status=403,
            message="The Host of this request is not one of exec.hosts: use a URL with one that "
            "is, or add it there.",
        )

    def _identify(self, values: Sequence[str]) -> Client | Refusal:
        if len(values) != 1 or not values[0].lower().startswith(_SCHEME):
            return Refusal(
                status=401,
                # The log leaves out what looks like a header with a token.
                message="A token is needed: send one of exec.token in the header Authorization, "
                "after the word Bearer.",
            )
        presented = _digest(values[0][len(_SCHEME) :].strip())
        found = None
        for name, token in self._tokens.items():
            # All of them, always: the time must not tell which one was nearly right.
            if hmac.compare_digest(presented, token):
                found = name
        if found is None:
            return Refusal(
                status=401, message="This token is not one of exec.token: check the client's."
            )
        return Client(name=found)


def _digest(token: str) -> bytes:
    """Of one length whatever the token's, which comparing would tell."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def host_name(value: str) -> str:
    """The host of a ``Host`` header in lower case, without port, brackets and final dot."""
    value = value.strip().lower()
    if value.startswith("["):
        return value[1:].partition("]")[0]
    return value.partition(":")[0].removesuffix(".")


def _check_origin(fields: Mapping[str, Sequence[str]]) -> Refusal | None:
    if "origin" not in fields:
        return None
    return Refusal(
        status=403,
        message="A request with an Origin comes from a web page, and none may run commands.",
    )


def _check_content(values: Sequence[str]) -> Refusal | None:
    if len(values) == 1:
        kind = values[0].partition(";")[0].strip().lower()
        if kind == "application/json":
            return None
    return Refusal(
        status=415,
        message="The body must be JSON: send Content-Type: application/json.",
    )


def working_directory(cwd: str | None, roots: Sequence[str]) -> str | Refusal:
    """``cwd`` in its plain form if it lies within ``roots``, of which the first is the default.

    Looks at the text alone. A symbolic link may still lead out of the roots: who opens the
    directory must hold what was opened against them again.
    """
    if cwd is None:
        cwd = roots[0] if roots else ""
    if not cwd.startswith("/") or "\0" in cwd:
        return Refusal(status=400, message="cwd must be an absolute path.")
    steps = _steps(cwd)
    if ".." in steps:
        # What it means depends on symbolic links: the text cannot say where it leads.
        return Refusal(status=400, message="cwd must not contain ..: give the path it leads to.")
    if any(steps[: len(root)] == root for root in map(_steps, roots)):
        return "/" + "/".join(steps)
    return Refusal(
        status=403,
        message="cwd is not within exec.allowed_roots: use a directory that is, or add it there.",
    )


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if step not in ("", ".")]
