"""Where a request goes, decided from its raw target. Never rewrites what is sent on.

::

    /{provider}/{rest…}     → that provider; the rest stays as it came, byte for byte
    /v1/…, /v1beta/…        → the default provider, if one is set
    /metrics, /healthz, /readyz, /-/…   the gateway's own pages
    HEAD /, HEAD /{provider}            answered at once: clients ask whether anybody is there
    anything else           → no provider; a mistyped name must not carry a key to another provider
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gateway.policy.redact import bounded, redact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OWN_PAGES = frozenset({"/metrics", "/healthz", "/readyz"})
OWN_TREE = "/-/"
DEFAULT_TREES = ("v1", "v1beta")
RESERVED_NAMES = frozenset({"metrics", "healthz", "readyz", "-", *DEFAULT_TREES})
"""First path segments that can name no provider."""

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+://[^/?#]*+")
_NAME_LIMIT = 64


@dataclass(frozen=True, slots=True)
class ToProvider:
    """Send it on: ``rest`` is what follows the base URL, path and query as they came."""

    provider: str
    rest: str


@dataclass(frozen=True, slots=True)
class OwnPage:
    """A page of the gateway's own: ``path`` without the query."""

    path: str


@dataclass(frozen=True, slots=True)
class Greeting:
    """Somebody asks whether anybody is there: answer 200 and nothing."""


@dataclass(frozen=True, slots=True)
class NoProvider:
    """Nobody to send it to. ``message`` is one sentence that says so and names the mend."""

    name: str
    nearest: str | None
    message: str


Route = ToProvider | OwnPage | Greeting | NoProvider


def route(
    method: str, target: str, providers: Collection[str], default: str | None = None
) -> Route:
    """Decide on a request target in any form of RFC 9112 section 3.2.

    A target in absolute form never goes to the default provider: a client that takes the gateway
    for a forward proxy names another host there, and its key belongs to that host.
    """
    absolute = _ABSOLUTE.match(target)
    if absolute is not None:
        target, default = target[absolute.end() :], None
    path, query = _split(target)
    if path in ("", "/", "*") and method in ("HEAD", "OPTIONS"):
        return Greeting()
    if path in OWN_PAGES or path.startswith(OWN_TREE):
        return OwnPage(path)
    if not path.startswith("/"):
        return _no_provider("", providers)
    segment, slash, tail = path[1:].partition("/")
    if segment in DEFAULT_TREES and slash and default is not None:
        return ToProvider(default, target)
    name = unquote(segment)
    if name not in providers:
        return _no_provider(name or tail.lstrip("/").partition("/")[0], providers)
    if not tail and method == "HEAD":
        return Greeting()
    return ToProvider(name, slash + tail + query)


def _split(target: str) -> tuple[str, str]:
    """Path, and query with its question mark, so that an empty query stays one."""
    at = target.find("?")
    return (target, "") if at < 0 else (target[:at], target[at:])


def _no_provider(segment: str, providers: Collection[str]) -> NoProvider:
    name = bounded(redact(segment), _NAME_LIMIT)
    example = min(providers, default="openai")
    if segment in DEFAULT_TREES:
        message = (
            f"No provider is named in front of /{segment}/: write /{example}/{segment}/… instead, "
            "or set server.default_provider in the config."
        )
        return NoProvider(name, None, message)
    nearest = nearest_name(name, providers)
    if not name:
        message = (
            f"No provider is named in the path: write /{example}/…, with a name from the config."
        )
    elif nearest is None:
        message = f'There is no provider named "{name}": the known ones are {_listing(providers)}.'
    else:
        message = f'There is no provider named "{name}": did you mean "{nearest}"?'
    return NoProvider(name, nearest, message)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one most likely means; None where nothing is near."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower()[:_NAME_LIMIT], by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def _listing(providers: Collection[str], limit: int = 12) -> str:
    names = sorted(providers)
    if not names:
        return "none (the config names no provider)"
    return ", ".join(names[:limit]) + (", …" if len(names) > limit else "")
