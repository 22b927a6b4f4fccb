"""The audit log of the sidecar: who ran what, where, and how it ended. Never output or variables.

A line when a command starts, for the gateway may die with it, and one when it has ended.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.observe import logs
from gateway.policy.redact import bounded, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN = 200
"""Characters of a command in the log."""

_LOOKED_AT = 4096
"""Characters that are redacted for it: a secret that ends later begins after what is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asked for a command, and what is told of it; ``client`` is the name of the token."""

    id: str
    peer: str
    client: str
    sha256: str
    command: str
    cwd: str

    def fields(self) -> dict[str, Any]:
        """As they stand in a line."""
        return {
            "id": self.id,
            "peer": self.peer,
            "client": self.client,
            "sha256": self.sha256,
            "command": self.command,
            "cwd": self.cwd,
        }


def asked(
    id_: str, peer: str, client: str, command: str | None, argv: Sequence[str] | None, cwd: str
) -> Asked:
    """What may be told of a command."""
    text = shlex.join(argv or ()) if command is None else command
    return Asked(
        id=id_,
        peer=peer,
        client=client,
        sha256=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        command=bounded(redact(text[:_LOOKED_AT]), SHOWN),
        cwd=cwd,
    )


def started(command: Asked) -> None:
    """It is about to run."""
    logs.logger().info("exec_start", **command.fields())


def ended(command: Asked, result: Mapping[str, object]) -> None:
    """It has ended, and its output."""
    logs.logger().info("exec_end", **command.fields(), **result)


def refused(
    peer: str, client: str | None, status: int, reason: str, id_: str | None = None
) -> None:
    """Nothing was run."""
    logs.logger().warning(
        "exec_refused", id=id_, peer=peer, client=client, status=status, reason=reason
    )
