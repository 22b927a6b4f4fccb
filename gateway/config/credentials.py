"""Keys that stand elsewhere: ``env:NAME`` and ``file:/path``; never shows what it found there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

ReadFile = Callable[[str], str]
"""Text of the file at an absolute path; raises ``OSError`` or ``UnicodeDecodeError``."""

ENV = "env:"
FILE = "file:"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Secret:
    """A key that has been found. Printing shows where it came from, :meth:`reveal` the key."""

    __slots__ = ("_value", "reference")

    def __init__(self, reference: str, value: str) -> None:
        self.reference = reference
        self._value = value

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.reference})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self.reference == other.reference and self._value == other._value

    def __hash__(self) -> int:
        return hash((self.reference, self._value))


def check_reference(value: object) -> str:
    """``value`` as a reference. Raises ``ValueError`` for all else, showing nothing of ``value``.

    A name or a path that looks like neither may be a key that was pasted behind the prefix.
    """
    mend = 'must be "env:NAME" or "file:/path" and not the key itself (it is not shown here)'
    if not isinstance(value, str):
        raise ValueError(mend)
    if value.startswith(ENV):
        if not _VARIABLE.fullmatch(value.removeprefix(ENV)):
            raise ValueError(f"{mend}: what follows env: is not the name of a variable")
        return value
    if value.startswith(FILE):
        if not value.removeprefix(FILE).startswith("/"):
            raise ValueError(f"{mend}: the path that follows file: must be absolute")
        return value
    raise ValueError(mend)


def check_references(value: object) -> tuple[str, ...]:
    """One reference or a list of them, each once.

    Raises ``ValueError`` for all else, showing nothing of ``value``.
    """
    if not isinstance(value, list):
        return (check_reference(value),)
    references = tuple(check_reference(each) for each in value)
    if len(set(references)) != len(references):
        raise ValueError("names a token twice: each may stand there once")
    return references


def resolve(reference: str, environ: Mapping[str, str], read_file: ReadFile) -> Secret:
    """What a checked ``reference`` refers to, without the white space around it.

    Raises ``ValueError`` with the half sentence that follows "KEY " where there is nothing usable.
    """
    if reference.startswith(ENV):
        name = reference.removeprefix(ENV)
        # A key pasted behind the prefix can look like a variable's name, but hardly in capitals.
        place = f"the environment variable {name}" if name.isupper() else "an environment variable"
        if name not in environ:
            raise ValueError(f"names {place}, which is not set: export it before the start")
        found = environ[name]
    else:
        path = reference.removeprefix(FILE)
        place = f"the file {path}"
        found = read_text(path, read_file)
    value = found.strip()
    if not value:
        raise ValueError(f"names {place}, which is empty")
    if not _VISIBLE.fullmatch(value):
        raise ValueError(f"names {place}, which holds more than a key: a header cannot carry it")
    return Secret(reference, value)


def read_text(path: str, read_file: ReadFile) -> str:
    """The text of a file that the configuration names.

    Raises ``ValueError`` with the half sentence that follows "KEY " where it cannot be read.
    """
    try:
        return read_file(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"names the file {path}, which cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise ValueError(f"names the file {path}, which is not text") from None
