"""Which header fields cross the gateway, in both directions. Never merges, sorts or renames one.

Fields are (name, value) pairs in the order of the wire; names keep their case, repeats stay
separate. A deny-list, not an allow-list: providers add headers that clients depend on (rate limits,
request ids, usage displays).

Names and values are Latin-1 text, one character for each byte of the wire. What the bytes mean is
nobody's business here, and none is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from urllib.parse import unquote

from gateway.policy.clients import SESSION_HEADERS
from gateway.policy.redact import is_secret_name

Fields = Sequence[tuple[str, str]]
"""Header fields in the order of the wire."""

HOP_BY_HOP = frozenset(
    {
        "connection", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Fields that belong to one connection (RFC 9110 section 7.6.1); those that Connection names join
them.
"""

CREDENTIALS = frozenset({"api-key", "authorization", "x-api-key", "x-goog-api-key"})
"""Fields in which clients carry a provider's key or login."""

OF_ONE_PROVIDER = frozenset(
    {
        "anthropic-organization-id", "chatgpt-account-id", "cookie", "cookie2",
        "copilot-integration-id", "editor-device-id", "ocp-apim-subscription-key",
        "openai-organization", "openai-project", "vscode-machineid", "x-account-id",
        "x-amz-security-token", "x-goog-user-project", "x-organization-id", "x-project-id",
    }
)  # fmt: skip
"""Fields that name a client's session, account or subscription at the provider it asks: none of
them is another's business. So are those whose names say that they hold a secret.
"""

_NAMES_SOMEBODY = re.compile(
    r"(?:\A|[-_])(?:session|conv|conversation|thread|turn|window|device|account|subscription"
    r"|organi[sz]ation|org|tenant|workspace|project|user|customer|principal)"
    r"(?:[-_]?(?:id|affinity|metadata|state|email))?\Z"
)

OWN_PREFIX = "x-gateway-"
"""Request fields that talk to the gateway itself."""

_NOT_FORWARDED = HOP_BY_HOP | {"content-length", "expect", "host"}
_OWN_ANSWER = frozenset({"x-gateway-request-id", "x-gateway-attempts", "x-gateway-provider"})
# They describe the bytes of a body that is sent no more; a wrong digest or range would be a new
# fault.
_OF_REPLACED_BODY = frozenset(
    {
        "accept-ranges", "content-digest", "content-encoding", "content-md5", "content-range",
        "content-type", "digest", "etag", "repr-digest",
    }
)  # fmt: skip
_QUERY_CREDENTIALS = frozenset({"access_token", "api-key", "api_key", "key"})


class AuthForm(StrEnum):
    """How a provider wants its key."""

    BEARER = "bearer"
    X_API_KEY = "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    API_KEY = "api-key"

    def field(self, key: str) -> tuple[str, str]:
        """The header field that carries ``key``."""
        return ("Authorization", f"Bearer {key}") if self is AuthForm.BEARER else (self.value, key)


class Body(StrEnum):
    """What becomes of an upstream body on its way to the client."""

    UNCHANGED = "unchanged"
    """Every byte passes: its length is known."""
    STREAMED = "streamed"
    """It passes, but its end is the gateway's to tell: no length can be promised."""
    REPLACED = "replaced"
    """The gateway writes another one, and its type and length."""


def to_upstream(
    fields: Fields,
    *,
    identity: bool = False,
    credential: tuple[str, str] | None = None,
    elsewhere: bool = False,
) -> list[tuple[str, str]]:
    """The fields of the request to the provider, without Host and Content-Length.

    ``identity`` is for streams that must be readable: a client that names Accept-Encoding gets
    exactly one ``identity``, one that names none sends none. ``credential`` (from
    :meth:`AuthForm.field`) takes the place of every credential of the client. ``elsewhere``: the
    client has asked another provider, and what is only for that one stays out.
    """
    dropped = _NOT_FORWARDED | _named_in_connection(fields)
    out: list[tuple[str, str]] = []
    encoding_sent = credential_sent = False
    for name, value in fields:
        lower = name.lower()
        if lower in dropped or lower.startswith(OWN_PREFIX):
            continue
        if identity and lower == "accept-encoding":
            if not encoding_sent:
                out.append((name, "identity"))
                encoding_sent = True
        elif credential is not None and lower in CREDENTIALS:
            if not credential_sent:
                out.append(credential)
                credential_sent = True
        elif elsewhere and _is_of_one_provider(lower):
            continue
        else:
            out.append((name, value))
    if credential is not None and not credential_sent:
        out.append(credential)
    return out


def _is_of_one_provider(name: str) -> bool:
    return (
        name in OF_ONE_PROVIDER
        or name in SESSION_HEADERS
        or _NAMES_SOMEBODY.search(name) is not None
        or is_secret_name(name)
    )


def to_client(
    fields: Fields,
    *,
    body: Body,
    request_id: str,
    provider: str,
    attempts: int,
    stream: bool = False,
) -> list[tuple[str, str]]:
    """The fields of the answer: the provider's end-to-end ones, then the gateway's own.

    ``stream`` adds ``x-accel-buffering: no``, which keeps nginx from collecting events.
    """
    dropped = HOP_BY_HOP | _OWN_ANSWER | _named_in_connection(fields)
    if body is not Body.UNCHANGED or any(name.lower() == "transfer-encoding" for name, _ in fields):
        dropped |= {"content-length"}
    if body is Body.REPLACED:
        dropped |= _OF_REPLACED_BODY
    if stream:
        dropped |= {"x-accel-buffering"}
    out = [(name, value) for name, value in fields if name.lower() not in dropped]
    if stream:
        out.append(("x-accel-buffering", "no"))
    out += own_fields(request_id, provider, attempts)
    return out


def own_fields(request_id: str, provider: str | None, attempts: int) -> list[tuple[str, str]]:
    """The fields that every answer carries; ``provider`` of None where none was asked."""
    own = [("x-gateway-request-id", request_id), ("x-gateway-attempts", str(attempts))]
    if provider is not None:
        own.append(("x-gateway-provider", provider))
    return own


def without_query_credentials(target: str, *, elsewhere: bool = False) -> str:
    """A request target without the parameters that carry a key (``?key=``); every other byte stays.

    For requests that get the gateway's own credential: a provider that finds two refuses both.
    ``elsewhere`` as for :func:`to_upstream`: then no secret of any name stays.
    """
    path, mark, query = target.partition("?")
    if not mark:
        return target
    parts = query.split("&")
    kept = [part for part in parts if not _is_credential(part.partition("=")[0], elsewhere)]
    if len(kept) == len(parts):
        return target
    return f"{path}?{'&'.join(kept)}" if kept else path


def _is_credential(parameter: str, elsewhere: bool) -> bool:
    if elsewhere and is_secret_name(unquote(parameter)):
        return True
    return parameter.lower() in _QUERY_CREDENTIALS


def _named_in_connection(fields: Fields) -> frozenset[str]:
    named = {
        option.strip().lower()
        for name, value in fields
        if name.lower() == "connection"
        for option in value.split(",")
    }
    return frozenset(named)
