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

_KEY_WORDS: Final = (
    b"api_key", b"apikey", b"api-key", b"secret", b"_token", b"credentials", b"authorization",
)  # fmt: skip
_KEY: Final = re.compile(
    rb"""
    "(?i:(?:[a-z_-]{0,40}[_-])?(?:api[_-]?key(?:string)?|secret|secret_access_key|credentials|authorization
      |(?:access|session|auth|ad|bearer)_token(?:_bedrock)?))" \s*+:\s*+ ["{]
    """,
    re.VERBOSE,
)
"""Members of objects whose names say that they are keys or logins."""


def holds_what_was_made_there(body: bytes, content_encoding: str | None = None) -> bool:
    """Whether a request refers to what a provider has stored (a file, an item, a container), has
    reasoning that only that can read, or keys; also one that cannot be looked into.
    """
    if coding.is_compressed(content_encoding):
        plain = expand(body, content_encoding or "")
        if plain is None:
            return True
        body = plain
    # A text that holds such words has its quotation marks escaped.
    plain = body.lower()
    if _MADE_THERE.search(body) is None and not any(word in plain for word in _KEY_WORDS):
        return False
    rest = without_arguments(body)
    return rest is None or _MADE_THERE.search(rest) is not None or _KEY.search(rest) is not None
