"""A request without what a client's own tools say: arguments, results and schemas. Judges nothing.

In them any name may stand for anything. Those of OpenAI's are texts in any case.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.streams import lenient

_TOOL_USES: Final = frozenset({"tool_use", "function_call", "custom_tool_call"})
_OF_TOOLS: Final = frozenset(
    {
        "args", "arguments", "input_schema", "inputSchema", "json_schema", "parameters",
        "parametersJsonSchema", "plugins", "response", "responseJsonSchema", "response_schema",
        "schema",
    }
)  # fmt: skip
"""Keys below which are a client's own names: arguments, results and their schemas."""


def without_arguments(body: bytes) -> bytes | None:
    """The JSON of a request without them; None for what is no JSON, or too deep."""
    try:
        return msgspec.json.encode(_pruned(lenient.loads(body)))
    except (ValueError, RecursionError, TypeError):
        return None


def _pruned(value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    used = value.get("type") in _TOOL_USES
    return {
        key: _pruned(each)
        for key, each in value.items()
        if not (key in _OF_TOOLS or (used and key == "input"))
    }
