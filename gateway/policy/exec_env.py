"""The environment of a command, built from nothing. Never inherits a variable by accident.

Three layers, each over the one before it: what every command needs, the gateway's own variables
that the operator allows (and that do not look like a credential, nor make programs load code), and
the variables of the request as they are: who sends a command may choose its environment.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

CREDENTIALS = (
    "*KEY*",
    "*TOKEN*",
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",
)
"""Names of variables that may hold one, in upper case."""

LOADERS = (
    "LD_*",
    "DYLD_*",
    "BASH_ENV",
    "BASH_FUNC_*",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PYTHON*STARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PERL5OPT",
    "RUBYOPT",
    "NODE_OPTIONS",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
)
"""Names of variables that make programs run code or ask a person, in upper case."""

_IDENTITY = ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the command. ``is_gateway``: the same user as the gateway's."""

    name: str
    home: str
    shell: str = "/bin/bash"
    tmpdir: str = "/tmp"  # noqa: S108 - what commands expect, nothing of ours is put there
    is_gateway: bool = True


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The variables of one command, and a sentence for each that was withheld: never its value."""

    variables: dict[str, str]
    warnings: tuple[str, ...]


def build(
    user: User, inherited: Mapping[str, str], allowed: Iterable[str], requested: Mapping[str, str]
) -> Environment:
    """The environment of a command that ``user`` runs.

    ``inherited`` are the gateway's own variables, of which only the ``allowed`` names are looked
    at. A user other than the gateway's keeps a home of its own even so. ``requested`` are taken as
    given.
    """
    variables = _needed(user)
    warnings: list[str] = []
    for name in allowed:
        if name not in inherited or (name in _IDENTITY and not user.is_gateway):
            continue
        reason = _denied(name)
        if reason is None:
            variables[name] = inherited[name]
        elif name not in requested:
            warnings.append(f"{name} of exec.env_allow was not passed on: {reason}.")
    variables.update(requested)
    return Environment(variables=variables, warnings=tuple(warnings))


def _needed(user: User) -> dict[str, str]:
    """What a command needs to run without a person: no colours, no pager, no prompt."""
    return {
        "PATH": DEFAULT_PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
        "TMPDIR": user.tmpdir,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _denied(name: str) -> str | None:
    """Why an inherited variable of this name is withheld."""
    upper = name.upper()
    for pattern in CREDENTIALS:
        if fnmatchcase(upper, pattern):
            return f"its name looks like a credential's ({pattern})"
    for pattern in LOADERS:
        if fnmatchcase(upper, pattern):
            return f"it can change what programs run ({pattern})"
    return None
