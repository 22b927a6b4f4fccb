"""Why a command is not started: status, sentence, what helps. Decides nothing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from gateway.policy.exec_request import ExecError
from gateway.policy.redact import escape_controls
from gateway.sidecar.status import SpawnError

if TYPE_CHECKING:
    from gateway.policy.exec_access import Refusal

RETRY_AFTER = 5
"""Seconds until it is worth asking again, of which nobody knows."""


class RefusedError(ExecError):
    """Nothing has run. ``retry_after`` is in seconds; 0: the same request will not do better."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: int = 0,
        spawn_error: SpawnError | None = None,
    ) -> None:
        super().__init__(status, message)
        self.retry_after = retry_after
        self.spawn_error = spawn_error


def busy(message: str) -> RefusedError:
    """There are too many commands already."""
    return RefusedError(429, message, retry_after=RETRY_AFTER)


def unavailable(message: str) -> RefusedError:
    """No command can be started now, whichever it is."""
    return RefusedError(503, message, retry_after=RETRY_AFTER)


def stopping() -> RefusedError:
    """The gateway is about to end."""
    return unavailable("The gateway is stopping: send the command again when it is back.")


def of(refusal: Refusal) -> RefusedError:
    """What a rule of policy says."""
    return RefusedError(refusal.status, refusal.message)


def not_spawned(stage: str, error: OSError) -> RefusedError:
    """The system would not have it."""
    number = error.errno or errno.EIO
    message = os.strerror(number)
    which = f"{stage} ({escape_controls(str(error.filename))})" if error.filename else stage
    return RefusedError(
        422,
        f"The command was not started, for its {which} cannot be used: {message}.",
        spawn_error=SpawnError(stage, number, errno.errorcode.get(number, "EIO"), message),
    )
