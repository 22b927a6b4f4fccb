"""Readers of single values: what a key may hold, and what is said otherwise; knows no key's name.

Each reader takes what the TOML parser gave and returns the value for the model, or raises
``ValueError`` with the half sentence that follows "KEY ". No sentence shows a URL or a credential.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gateway.config.address import parse_address
from gateway.config.sizes import UNLIMITED, parse_size
from gateway.policy.routing import nearest_name

Reader = Callable[[object], Any]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,252})", re.ASCII)
_SHOWN = 40

_MOST = 2**30
_LEAST_MEMORY = 2**24


def shown(value: object) -> str:
    """``value`` as it is quoted in a sentence: short, in one line."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def flag(value: object) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {shown(value)}")
    return value


def text(value: object) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a string that is not empty")
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list of strings that are not empty, each once."""
    if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
        raise ValueError('must be a list of strings such as ["one", "two"]')
    if len(set(value)) != len(value):
        raise ValueError("names something twice: each may stand there once")
    return tuple(value)


def names_of_variables(value: object) -> tuple[str, ...]:
    """A list of names of environment variables."""
    names = texts(value)
    if not all(_VARIABLE.fullmatch(name) for name in names):
        raise ValueError('must be a list of names of environment variables such as ["PATH"]')
    return names


def mapping(value: object) -> Mapping[str, str]:
    """A table from strings to strings."""
    if not isinstance(value, dict) or not all(
        isinstance(v, str) and k.strip() and v.strip() for k, v in value.items()
    ):
        raise ValueError('must be a table of strings such as { "one" = "two" }')
    return MappingProxyType(dict(value))


def word(*known: str) -> Reader:
    """One of the words ``known``."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        guess = nearest_name(value, known) if isinstance(value, str) else None
        hint = f'; did you mean "{guess}"?' if guess else ""
        choice = ", ".join(f'"{name}"' for name in known)
        raise ValueError(f"must be one of {choice}, not {shown(value)}{hint}")

    return read


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def seconds(value: object) -> float:
    """A number of seconds above 0."""
    number = _number(value)
    if number is None or number <= 0:
        raise ValueError(f"must be a number of seconds above 0, not {shown(value)}")
    return number


def seconds_from_0(value: object) -> float:
    """A number of seconds, 0 included."""
    number = _number(value)
    if number is None or number < 0:
        raise ValueError(f"must be a number of seconds, 0 or more, not {shown(value)}")
    return number


def ratio(value: object) -> float:
    """A number, 0 or more."""
    number = _number(value)
    if number is None or number < 0:
        raise ValueError(f"must be a number, 0 or more, not {shown(value)}")
    return number


def count(least: int) -> Reader:
    """A whole number from ``least`` on."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"must be a whole number, {least} or more, not {shown(value)}")
        return value

    return read


def size(value: object) -> int:
    """A size in bytes."""
    return parse_size(value)


def size_above_0(value: object) -> int:
    """A size in bytes that is not 0."""
    number = parse_size(value)
    if not number:
        raise ValueError('must be a size above 0 such as "1GiB"')
    return number


def size_from(least: int) -> Reader:
    """A size of at least so many bytes, and at most 1 GiB: others would break every request."""

    def read(value: object) -> int:
        number = parse_size(value)
        if not least <= number <= _MOST:
            raise ValueError(f'must be between "{least // 1024}KiB" and "1GiB", not {shown(value)}')
        return number

    return read


def size_or_unlimited(value: object) -> int | None:
    """A size in bytes; ``None`` for ``"unlimited"``."""
    if value == UNLIMITED:
        return None
    try:
        return parse_size(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "{UNLIMITED}"') from None


def memory(value: object) -> int | None:
    """Bytes of memory in which a program can start; ``None`` for ``"unlimited"``."""
    number = size_or_unlimited(value)
    if number is not None and number < _LEAST_MEMORY:
        raise ValueError('must be "16MiB" or more, or "unlimited": in less no program starts')
    return number


def keepalive(value: object) -> float | str:
    """Seconds, or one of the words ``auto`` and ``off``."""
    if value in ("auto", "off"):
        return str(value)
    number = _number(value)
    if number is None or number <= 0:
        raise ValueError(f'must be "auto", "off" or seconds above 0, not {shown(value)}')
    return number


def listen(value: object) -> str:
    """An address to listen on, in its normal form."""
    return str(parse_address(text(value)))


def host_names(value: object) -> tuple[str, ...]:
    """A list of hosts without ports, in lower case and without the brackets of IPv6."""
    names = tuple(name.lower().removeprefix("[").removesuffix("]") for name in texts(value))
    if not all(_HOST.fullmatch(name) or _is_ipv6(name) for name in names):
        raise ValueError(
            'must be a list of hosts without ports such as ["localhost", "exec.example.com"]'
        )
    return names


def _is_ipv6(name: str) -> bool:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return False
    return True


def absolute_path(value: object) -> str:
    """The absolute path of a file or a directory."""
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError('must be an absolute path such as "/etc/gateway/file"')
    return value


def absolute_paths(value: object) -> tuple[str, ...]:
    """A list of absolute paths."""
    paths = texts(value)
    if not all(path.startswith("/") for path in paths):
        raise ValueError('must be a list of absolute paths such as ["/repo"]')
    return paths


def _split(value: object, mend: str) -> SplitResult:
    if not isinstance(value, str) or not value.isprintable() or " " in value or "\\" in value:
        raise ValueError(mend)
    try:
        url = urlsplit(value)
        port = url.port
    except ValueError:
        raise ValueError(f"{mend}: its host or port cannot be read") from None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"{mend}: it must begin with http:// or https://")
    if not url.hostname or port == 0:
        raise ValueError(f"{mend}: it has no host or a port that is none")
    return url


def base_url(value: object) -> str:
    """A provider's URL, without the slash at its end."""
    mend = 'must be a URL such as "https://api.example.com"'
    url = _split(value, mend)
    if url.username is not None or url.password is not None:
        raise ValueError(f"{mend} without user and password: a key belongs in api_key")
    if "?" in str(value) or "#" in str(value):
        raise ValueError(f"{mend} without ? and #: the query is the client's")
    return str(value).rstrip("/")


def proxy(value: object) -> str:
    """``env``, ``none`` or the URL of an HTTP proxy, which may carry user and password."""
    if value in ("env", "none"):
        return str(value)
    mend = 'must be "env", "none" or the URL of an HTTP proxy such as "http://proxy:3128"'
    url = _split(value, mend)
    if url.path not in ("", "/") or "?" in str(value) or "#" in str(value):
        raise ValueError(f"{mend}: what follows the host has no meaning")
    return str(value).rstrip("/")
