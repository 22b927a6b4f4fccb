"""Whether a request can be understood by the provider alone that it was written for. Never raises.

What it refers to is stored there, or only that can read it. A client's own tools may have arguments
that look like that, and are none of the provider's business.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.policy.arguments import without_arguments
from gateway.policy.peek import expand
from gateway.streams import coding

_MADE_THERE: Final = re.compile(
    rb"""
    "(?:file_id|file_?[uU]ri|encrypted_content|container(?:_id)?|skill_id|reasoning_opaque
      |knowledge_id|approval_request_id|rag_?[cC]orpus|data_?[sS]tore)" ~:~ "
    | "(?:file_ids|vector_store_ids|collection_ids|library_ids
      |file_?[sS]earch_?[sS]tore_?[nN]ames)" ~:~ \[ ~ "
    | "(?:fileid|ms)://
    | "data_sources" ~:~ \[
    | "type" ~:~ "(?:reasoning\.encrypted|container_reference|agent_reference)"
    | "audio" ~:~ \{ ~ "id" ~:
    | "id" ~:~ "(?:rs|ig)_
    | \{ ~ "id" ~:~ "[^"\\]{1,100}" ~ \}
    """.replace(b"~", rb"\s*+"),
    re.VERBOSE,
)
"""Files, stores, encrypted reasoning, an answer's sound, items by their id."""

_NAME: Final = re.compile(rb'"([A-Za-z_-]{1,60}+)"\s*+:\s*+["{]')
_OF_A_KEY: Final = re.compile(
    rb"(?:\A|.*[_-])(?:api[_-]?key(?:string)?|secret|secret_access_key|credentials|authorization"
    rb"|(?:access|session|auth|ad|bearer)_token(?:_bedrock)?)",
    re.IGNORECASE,
)
"""Names of members that are keys or logins."""


def holds_what_was_made_there(body: bytes, content_encoding: str | None = None) -> bool:
    """Whether a request refers to what a provider has stored (a file, an item, a container), has
    reasoning that only that can read, or keys; also one that cannot be looked into.
    """
    if coding.is_compressed(content_encoding):
        plain = expand(body, content_encoding or "")
        if plain is None:
            return True
        body = plain
    # A text that holds such words has its quotation marks escaped. The rest is seldom needed, and
    # costs as much as reading the whole request.
    if not _binds(body):
        return False
    rest = without_arguments(body)
    return rest is None or _binds(rest)


def _binds(body: bytes) -> bool:
    names = set(_NAME.findall(body))
    return _MADE_THERE.search(body) is not None or any(map(_OF_A_KEY.fullmatch, names))
