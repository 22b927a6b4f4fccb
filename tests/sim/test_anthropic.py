"""Anthropic Messages as the simulator speaks them."""

from __future__ import annotations

import json
from typing import Any

from gateway.sim.anthropic import SHAPE
from gateway.sim.problem import PROBLEMS
from gateway.sim.shape import HeadersFor
from tests.sim.support import TOOL_SCHEMA, events, joined, planned, whole_stream

TOOLS: list[dict[str, Any]] = [{"name": "bash", "input_schema": TOOL_SCHEMA}]


def stream(model: str, **more: Any) -> list[Any]:
    made = events(joined(whole_stream("anthropic", model, **more)))
    assert all(name == payload["type"] for name, payload in made)
    return [payload for _, payload in made]


def shortened(payloads: list[Any]) -> list[str]:
    names = [payload["type"] for payload in payloads]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def test_the_sequence_of_a_text_answer_is_whole() -> None:
    assert shortened(stream("sim-ok")) == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_events_are_padded_before_their_last_brace() -> None:
    data = joined(whole_stream("anthropic", "sim-ok"))
    assert b'"} }\n\n' in data or b"  }\n\n" in data


def test_usage_counts_cached_input_apart_and_grows() -> None:
    made = stream("sim-ok")
    start, last = made[0]["message"]["usage"], made[-2]["usage"]
    assert start["output_tokens"] == 1
    assert last["output_tokens"] > 40
    assert start["input_tokens"] + start["cache_read_input_tokens"] == 101


def test_thinking_is_a_signed_block_before_the_text() -> None:
    made = stream("sim-reasoning")
    blocks = [item["content_block"]["type"] for item in made if "content_block" in item]
    thought = [item["delta"] for item in made if item.get("index") == 0 and "delta" in item]
    assert blocks == ["thinking", "text"]
    assert thought[-1]["type"] == "signature_delta"
    assert {item["type"] for item in thought[:-1]} == {"thinking_delta"}


def test_a_tool_call_streams_its_input_and_stops_for_it() -> None:
    made = stream("sim-tool", tools=TOOLS)
    pieces = [
        item["delta"]["partial_json"] for item in made if item["type"].endswith("block_delta")
    ]
    assert len(pieces) == 4
    assert json.loads("".join(pieces))["command"]
    assert made[-2]["delta"]["stop_reason"] == "tool_use"


def test_after_a_tools_result_the_answer_is_text() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "done"}
    messages = [{"role": "user", "content": [result]}]
    made = stream("sim-tool", tools=TOOLS, messages=messages)
    assert made[-2]["delta"]["stop_reason"] == "end_turn"


def test_stop_reasons_follow_the_script() -> None:
    def reason(model: str) -> str:
        return str(stream(model)[-2]["delta"]["stop_reason"])

    assert reason("sim-length") == "max_tokens"
    assert reason("sim-weird-finish") == "unusual_stop"
    assert reason("sim-finish-error") == "refusal"
    assert reason("sim-weird-finish,reason=pause_turn") == "pause_turn"


def test_the_whole_answer_has_the_blocks_of_the_stream() -> None:
    message = json.loads(planned("anthropic", "sim-reasoning", stream=False).body())
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    called = json.loads(planned("anthropic", "sim-tool", stream=False, tools=TOOLS).body())
    assert called["content"][0]["input"] == {"command": "echo hello from the simulator"}
    assert called["stop_reason"] == "tool_use"


def test_errors_have_the_forms_that_providers_send() -> None:
    name, error = events(planned("anthropic", "sim-error-event,type=overloaded").body())[-1]
    assert (name, error["error"]["type"]) == ("error", "overloaded_error")
    assert error["request_id"]
    name, flat = events(planned("anthropic", "sim-error-flat").body())[-1]
    assert (name, flat["type"], "error" in flat) == ("error", "server_error", False)
    name, half = events(planned("anthropic", "sim-error-half").body())[-1]
    assert (name, half["type"]) == ("", "error")


def test_an_error_may_be_followed_by_message_stop() -> None:
    names = [name for name, _ in events(planned("anthropic", "sim-error-done").body())]
    assert names[-2:] == ["error", "message_stop"]


def test_error_bodies_carry_a_stable_sub_code() -> None:
    error = SHAPE.error_body(PROBLEMS["quota"])["error"]
    assert error["details"] == {"error_code": "insufficient_quota"}


def test_rate_limits_are_reset_at_a_time_of_day() -> None:
    headers = dict(SHAPE.headers(HeadersFor("x", 0.0, success=False)))
    assert headers["request-id"] == "req_x"
    assert headers["anthropic-ratelimit-requests-reset"] == "1970-01-01T00:01:00Z"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "0"
