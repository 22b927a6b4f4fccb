"""What of a request is a client's own tools' to say."""

from __future__ import annotations

import json

from gateway.policy.arguments import without_arguments

REQUEST = {
    "model": "m",
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "input": {"id": "x"}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "text"}]},
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "input": "kept",
}


def test_arguments_and_schemas_are_left_out_and_all_else_stays() -> None:
    rest = without_arguments(json.dumps(REQUEST).encode())
    assert rest is not None
    assert json.loads(rest) == REQUEST | {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "text"}]},
        ],
        "tools": [{"name": "f"}],
    }


def test_what_is_no_json_or_too_deep_is_none() -> None:
    assert without_arguments(b"{") is None
    assert without_arguments(b'{"x":' * 100_000) is None
