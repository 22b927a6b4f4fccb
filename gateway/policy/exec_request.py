"""The body of ``POST /v1/exec``: what is asked for, or one sentence of what is wrong. Runs nothing.

No sentence repeats a value: commands, variables and standard input may hold secrets.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from gateway.policy.preview_render import Look
from gateway.policy.redact import bounded, redact
from gateway.policy.routing import nearest_name

KiB = 2**10
MiB = 2**20

MAX_BODY = 16 * MiB
"""Bytes of a body: the largest standard input in base64, and room for the rest."""

MAX_STRING = 128 * KiB - 1
"""Bytes of one argument or variable; Linux takes 128 KiB with the NUL at its end."""

MAX_TOGETHER = 1 * MiB
"""Bytes of all arguments, and of all variables; Linux takes 2 MiB of both."""

DEFAULT_OUTPUT = 1024 * MiB
"""Bytes of output that are kept where the request says nothing."""

MAX_STDIN = 8 * MiB
MAX_PREVIEW = 256 * KiB
MAX_MS = 3_600_000
MAX_PATH = 4095

_MAX_KEY = 255
_OCTAL = re.compile("0?[0-7]{3}")
_NAME_SHOWN = 40


class ExecError(Exception):
    """A request that cannot be met: the HTTP ``status`` and one sentence with the mend."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One command, with every default in place. Times are in milliseconds, sizes in bytes.

    Exactly one of ``command`` and ``argv`` is set. ``cwd`` is ``None`` where the server chooses;
    ``umask`` is what files that the command makes do without; ``stdin`` is ``None`` for an empty
    one; ``wait_ms`` is ``None`` for as long as it takes.
    """

    command: str | None = None
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    umask: int = 0o022
    stdin: bytes | None = None
    timeout_ms: int = 120_000
    kill_grace_ms: int = 3_000
    output_grace_ms: int = 5_000
    on_output_open: Literal["return", "wait", "kill"] = "return"
    wait_ms: int | None = None
    on_disconnect: Literal["kill", "continue"] = "kill"
    max_output_bytes: int = DEFAULT_OUTPUT
    on_output_limit: Literal["kill", "drain"] = "kill"
    head_bytes: int = 8_192
    tail_bytes: int = 20_480
    sha256: bool = False
    preview: Look = Look()
    background: bool = False


class _TooLargeError(ValueError):
    """What would be right if it were smaller."""


def parse(body: bytes, max_output: int) -> ExecRequest:
    """The request in ``body``; ``max_output`` is the most bytes of output that the server keeps.

    Raises :class:`ExecError` with 400, or with 413 for what is too large.
    """
    if len(body) > MAX_BODY:
        raise ExecError(413, f"The body must be {MAX_BODY} bytes or less.")
    values = _values(_document(body))
    if ("command" in values) == ("argv" in values):
        raise ExecError(400, "Exactly one of command and argv must be given.")
    if "stdin" in values and "stdin_b64" in values:
        raise ExecError(400, "Only one of stdin and stdin_b64 may be given.")
    if "stdin_b64" in values:
        values["stdin"] = values.pop("stdin_b64")
    limit = values.setdefault("max_output_bytes", min(max_output, DEFAULT_OUTPUT))
    if limit > max_output:
        raise ExecError(
            400, f"max_output_bytes must be {max_output} or less, the server's exec.max_output."
        )
    request = ExecRequest(**values)
    if request.head_bytes + request.tail_bytes > MAX_PREVIEW:
        raise ExecError(400, f"head_bytes and tail_bytes must be {MAX_PREVIEW} or less together.")
    return request


def fingerprint(request: ExecRequest) -> str:
    """What two requests have in common that mean the same, as 64 hexadecimal digits."""
    plain = {**msgspec.structs.asdict(request), "env": dict(request.env)}
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def idempotency_key(value: str | None) -> str | None:
    """The value of an ``Idempotency-Key`` header. Raises :class:`ExecError` if it is unusable."""
    if value is None:
        return None
    key = value.strip()
    if not key or len(key) > _MAX_KEY or not key.isascii() or not key.isprintable():
        raise ExecError(
            400, f"Idempotency-Key must have 1 to {_MAX_KEY} visible characters of ASCII."
        )
    return key


def _document(body: bytes) -> dict[str, object]:
    try:
        document = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise ExecError(400, f"The body is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ExecError(400, 'The body must be a JSON object such as {"command": "ls"}.')
    return document


def _values(document: Mapping[str, object]) -> dict[str, Any]:
    """The fields that were given, read. ``null`` is "not given"."""
    values: dict[str, Any] = {}
    _refuse_unknown(document, _FIELDS, "")
    for name, value in document.items():
        if value is None:
            continue
        try:
            values[name] = _FIELDS[name](value)
        except ValueError as error:
            status = 413 if isinstance(error, _TooLargeError) else 400
            raise ExecError(status, f"{name} {error}.") from None
    return values


def _refuse_unknown(given: Mapping[str, object], known: Mapping[str, object], where: str) -> None:
    for name in given:
        if name not in known:
            guess = nearest_name(name, known)
            hint = f"did you mean {where}{guess}?" if guess else f"known are {', '.join(known)}."
            shown = bounded(redact(name), _NAME_SHOWN)
            raise ExecError(400, f"{where}{shown} is not a known field: {hint}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _argument(value: object) -> str:
    """A string that a program can be given."""
    text = _text(value)
    if "\0" in text:
        raise ValueError("must not contain a NUL character, which no program can be given")
    if len(text.encode()) > MAX_STRING:
        raise _TooLargeError(
            f"must be {MAX_STRING} bytes or less: put more into a file or into stdin"
        )
    return text


def _command(value: object) -> str:
    command = _argument(value)
    if not command.strip():
        raise ValueError("must not be empty")
    return command


def _argv(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError('must be a list of strings such as ["ls", "-l"]')
    argv = tuple(map(_argument, value))
    if not argv or not argv[0]:
        raise ValueError("must begin with the name of a program")
    if sum(len(each.encode()) + 1 for each in argv) > MAX_TOGETHER:
        raise _TooLargeError(f"must be {MAX_TOGETHER} bytes or less together")
    return argv


def _path(value: object) -> str:
    path = _text(value)
    if not path.startswith("/") or "\0" in path or len(path.encode()) > MAX_PATH:
        raise ValueError(
            f'must be an absolute path of {MAX_PATH} bytes or less such as "/repo", without NUL'
        )
    return path


def _env(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError('must be an object of strings such as {"NAME": "value"}')
    size = 0
    for name, text in value.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError("must have names that are not empty and contain neither = nor NUL")
        if "\0" in text:
            raise ValueError("must have values without NUL, which no program can be given")
        bytes_ = len(name.encode()) + len(text.encode()) + 1
        if bytes_ > MAX_STRING:
            raise _TooLargeError(f"must have variables of {MAX_STRING} bytes or less each")
        size += bytes_ + 1
    if size > MAX_TOGETHER:
        raise _TooLargeError(f"must be {MAX_TOGETHER} bytes or less together")
    return MappingProxyType(dict(value))


def _umask(value: object) -> int:
    if not isinstance(value, str) or not _OCTAL.fullmatch(value):
        raise ValueError('must be three or four octal digits in a string such as "0022"')
    return int(value, 8)


def _stdin(value: object) -> bytes:
    return _bounded(_text(value).encode())


def _stdin_b64(value: object) -> bytes:
    text = _text(value)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ValueError("must be base64 with its padding and without line ends") from None
    return _bounded(data)


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_STDIN:
        raise _TooLargeError(f"must be {MAX_STDIN} bytes or less: put more into a file")
    return data


def _number(least: int, most: int | None, what: str) -> Callable[[object], int]:
    top = "or more" if most is None else f"to {most}"
    bounds = f"{least} {top}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"must be a whole number of {what}, {bounds}")
        if value < least or (most is not None and value > most):
            raise ValueError(f"must be a whole number of {what}, {bounds}")
        return value

    return read


def _word(*known: str) -> Callable[[object], str]:
    choice = ", ".join(f'"{word}"' for word in known)

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"must be one of {choice}")
        return value

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _look(value: object) -> Look:
    if not isinstance(value, dict):
        raise ValueError('must be an object such as {"ansi": "keep"}')
    _refuse_unknown(value, _LOOK, "preview.")
    given: dict[str, Any] = {}
    for name, each in value.items():
        if each is not None:
            try:
                given[name] = _LOOK[name](each)
            except ValueError as error:
                raise ValueError(f"is wrong: {name} {error}") from None
    return Look(**given)


_LOOK: Mapping[str, Callable[[object], str]] = MappingProxyType(
    {"ansi": _word("strip", "keep"), "cr": _word("collapse", "keep")}
)

_FIELDS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "command": _command,
        "argv": _argv,
        "cwd": _path,
        "env": _env,
        "umask": _umask,
        "stdin": _stdin,
        "stdin_b64": _stdin_b64,
        "timeout_ms": _number(1, MAX_MS, "milliseconds"),
        "kill_grace_ms": _number(0, 60_000, "milliseconds"),
        "output_grace_ms": _number(0, MAX_MS, "milliseconds"),
        "on_output_open": _word("return", "wait", "kill"),
        "wait_ms": _number(0, MAX_MS, "milliseconds"),
        "on_disconnect": _word("kill", "continue"),
        "max_output_bytes": _number(1, None, "bytes"),
        "on_output_limit": _word("kill", "drain"),
        "head_bytes": _number(0, MAX_PREVIEW, "bytes"),
        "tail_bytes": _number(0, MAX_PREVIEW, "bytes"),
        "sha256": _flag,
        "preview": _look,
        "background": _flag,
    }
)
