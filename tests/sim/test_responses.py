"""OpenAI Responses as the simulator speaks them."""

from __future__ import annotations

import json
from typing import Any

from gateway.sim.plan import Beat
from tests.sim.support import TOOL_SCHEMA, events, joined, planned, whole_stream

TOOLS: list[dict[str, Any]] = [{"type": "function", "name": "bash", "parameters": TOOL_SCHEMA}]


def stream(model: str, **more: Any) -> list[Any]:
    made = events(joined(whole_stream("responses", model, **more)))
    assert all(name == payload["type"] for name, payload in made)
    return [payload for _, payload in made]


def shortened(payloads: list[Any]) -> list[str]:
    names = [payload["type"].removeprefix("response.") for payload in payloads]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def test_the_sequence_of_a_text_answer_is_whole_and_numbered() -> None:
    made = stream("sim-ok")
    assert shortened(made) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [payload["sequence_number"] for payload in made] == list(range(len(made)))


def test_the_done_events_and_the_completed_response_hold_the_whole_text() -> None:
    made = stream("sim-ok")
    text = "".join(item["delta"] for item in made if item["type"].endswith("text.delta"))
    final = made[-1]["response"]
    assert made[-4]["text"] == text
    assert final["output"] == [made[-2]["item"]]
    assert final["output"][0]["content"][0]["text"] == text
    assert final["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_reasoning_is_an_item_of_its_own_before_the_message() -> None:
    made = stream("sim-reasoning")
    assert shortened(made)[2:8] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    final = made[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
    assert final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_a_tool_call_streams_its_arguments() -> None:
    made = stream("sim-tool", tools=TOOLS)
    assert shortened(made)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    arguments = "".join(item["delta"] for item in made if item["type"].endswith("arguments.delta"))
    assert json.loads(arguments)["command"]
    assert made[-1]["response"]["output"][0]["arguments"] == arguments


def test_after_a_tools_result_the_answer_is_text() -> None:
    items = [{"type": "function_call_output", "call_id": "c", "output": "done"}]
    final = stream("sim-tool", tools=TOOLS, input=items)[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["message"]


def test_the_terminal_event_follows_the_script() -> None:
    def ending(model: str) -> tuple[str, Any, Any]:
        last = stream(model)[-1]
        response = last["response"]
        return last["type"], response["incomplete_details"], response["error"]

    assert ending("sim-length") == (
        "response.incomplete",
        {"reason": "max_output_tokens"},
        None,
    )
    assert ending("sim-weird-finish,reason=steered")[1] == {"reason": "steered"}
    kind, _, error = ending("sim-finish-error")
    assert (kind, error["code"]) == ("response.failed", "server_error")


def test_the_whole_answer_is_the_completed_response() -> None:
    whole = json.loads(planned("responses", "sim-ok", stream=False).body())
    assert whole == stream("sim-ok")[-1]["response"]


def test_an_error_comes_nested_and_then_as_a_failed_response_in_sequence() -> None:
    made = [payload for _, payload in events(planned("responses", "sim-error-event").body())]
    assert [payload["sequence_number"] for payload in made] == list(range(len(made)))
    assert made[-2]["error"]["code"] == made[-1]["response"]["error"]["code"] == "server_error"
    assert made[-1]["type"] == "response.failed"


def test_the_other_forms_of_an_error_lack_what_some_clients_need() -> None:
    flat = events(planned("responses", "sim-error-flat").body())[-1][1]
    assert (flat["type"], flat["code"], "error" in flat) == ("error", "server_error", False)
    half = events(planned("responses", "sim-error-half").body())[-1][1]
    assert half["type"] == "error"
    assert half["error"]["message"]


def test_heartbeats_use_sequence_numbers_up() -> None:
    plan = planned("responses", "sim-stall-keepalive,after=1,for=3,beat=1")
    (beat,) = [step for step in plan.steps if isinstance(step, Beat)]
    beats = events(b"".join(beat.make(index) for index in range(beat.count)))
    numbers = [payload["sequence_number"] for _, payload in events(plan.body())]
    assert [name for name, _ in beats] == ["keepalive"] * 3
    assert [payload["sequence_number"] for _, payload in beats] == [5, 6, 7]
    assert numbers == [0, 1, 2, 3, 4, *range(8, 8 + len(numbers) - 5)]


def test_comments_use_no_sequence_number_up() -> None:
    plan = planned("responses", "sim-stall-keepalive,after=1,for=3,beat=1,form=comment")
    numbers = [payload["sequence_number"] for _, payload in events(plan.body())]
    assert numbers == list(range(len(numbers)))


def test_a_healthy_stream_with_heartbeats_is_numbered_without_a_gap() -> None:
    made = [payload for _, payload in events(planned("responses", "sim-keepalive").body())]
    assert [payload["sequence_number"] for payload in made] == list(range(len(made)))
    assert sum(payload["type"] == "keepalive" for payload in made) > 10
