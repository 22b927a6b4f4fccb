"""What ties a request to its provider, and what of a client's own only looks like it."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from gateway.policy.bound import holds_what_was_made_there


def binds(value: Any) -> bool:
    return holds_what_was_made_there(json.dumps({"model": "m", "x": [value]}).encode())


@pytest.mark.parametrize(
    "value",
    [
        {"type": "input_file", "file_id": "file-1"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"id": "msg_1"},
        {"type": "reasoning.encrypted", "data": "c2VhbGVk"},
        {"api_key": "secret"},
        {"apiKey": "secret"},
        {"aws_secret_access_key": "secret"},
        {"azure_ad_token": "secret"},
        {"vertex_credentials": {"type": "service_account"}},
        {"aws_session_token": "secret"},
        {"aws_bearer_token_bedrock": "secret"},
        {"extra_headers": {"Authorization": "Bearer secret"}},
        {"extra_headers": {"x-api-key": "secret"}},
        {"authConfig": {"apiKeyConfig": {"apiKeyString": "secret"}}},
        {"type": "tool_result", "content": [{"source": {"type": "file", "file_id": "f"}}]},
        {"type": "tool_use", "input": {}, "container": "cntr_1"},
    ],
)
def test_what_is_stored_there_or_secret_binds(value: Any) -> None:
    assert binds(value)


@pytest.mark.parametrize("inner", [{"id": "ABC-12"}, {"file_id": "f"}, {"api_key": "secret"}])
@pytest.mark.parametrize(
    "around",
    [
        lambda inner: {"type": "tool_use", "id": "t", "name": "f", "input": inner},
        lambda inner: {"functionCall": {"name": "f", "args": inner}},
        lambda inner: {"functionResponse": {"name": "f", "response": inner}},
        lambda inner: {"name": "f", "input_schema": {"examples": [inner]}},
        lambda inner: {"type": "function", "parameters": {"example": inner}},
        lambda inner: {"type": "json_schema", "schema": {"default": inner}},
        lambda inner: {"plugins": [inner]},
    ],
    ids=["use", "call", "response", "schema", "parameters", "format", "plugins"],
)
def test_what_a_clients_own_tools_say_binds_nothing(around: Any, inner: Any) -> None:
    assert binds(inner)
    assert not binds(around(inner))


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": "5"},
        {"stop_token": "x"},
        {"pad_token": "x"},
        {"token": "x"},
        {"content": '"api_key": "x"'},
        {"key": "x"},
        {},
    ],
)
def test_other_words_bind_nothing(value: Any) -> None:
    assert not binds(value)


def test_what_cannot_be_looked_into_binds() -> None:
    body = b'{"file_id":"f"}'
    assert holds_what_was_made_there(gzip.compress(body), "gzip")
    assert not holds_what_was_made_there(gzip.compress(b"{}"), "gzip")
    assert holds_what_was_made_there(body, "novel")
    assert holds_what_was_made_there(body[:-1])
    assert holds_what_was_made_there(b'{"args":' * 100_000 + body)
