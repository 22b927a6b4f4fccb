"""Whether a request can be understood by the provider alone that it was written for. Never raises.

What it refers to is stored there, or only that can read it. A client's own tools may have arguments
that look like that, and are none of the provider's business.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.policy.peek import expand
from gateway.streams import coding, lenient

_MADE_THERE: Final = re.compile(
    rb"""
    "(?:file_id|file_?[uU]ri|encrypted_content|container(?:_id)?|skill_id|reasoning_opaque
      |knowledge_id|approval_request_id|rag_?[cC]orpus|data_?[sS]tore)" ~:~ "
    | "(?:file_ids|vector_store_ids|collection_ids|library_ids
      |file_?[sS]earch_?[sS]tore_?[nN]ames)" ~:~ \[ ~ "
    | "(?:fileid|ms)://
    | "(?i:[a-z_]*+(?<=api_key|.apikey|_secret|ess_key|d_token|s_token|entials))" ~:~ ["{]
    | "data_sources" ~:~ \[
    | "type" ~:~ "(?:reasoning\.encrypted|container_reference|agent_reference)"
    | "audio" ~:~ \{ ~ "id" ~:
    | "id" ~:~ "(?:rs|ig)_
    | \{ ~ "id" ~:~ "[^"\\]{1,100}" ~ \}
    """.replace(b"~", rb"\s*+"),
    re.VERBOSE,
)
"""Files, stores, encrypted reasoning, an answer's sound, items by their id, and keys."""

_TOOL_USES: Final = frozenset({"tool_use", "function_call", "custom_tool_call"})
_OF_TOOLS: Final = frozenset(
    {
        "args", "arguments", "input_schema", "inputSchema", "json_schema", "parameters",
        "parametersJsonSchema", "plugins", "response", "responseJsonSchema", "response_schema",
        "schema",
    }
)  # fmt: skip
"""Keys below which are a client's own names: arguments, results and their schemas."""


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
    if _MADE_THERE.search(body) is None:
        return False
    try:
        rest = msgspec.json.encode(_without_arguments(lenient.loads(body)))
    except (ValueError, RecursionError, TypeError):
        return True
    return _MADE_THERE.search(rest) is not None


def _without_arguments(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_arguments(each) for each in value]
    if not isinstance(value, dict):
        return value
    used = value.get("type") in _TOOL_USES
    return {
        key: _without_arguments(each)
        for key, each in value.items()
        if not (key in _OF_TOOLS or (used and key == "input"))
    }
