"""Chat Completions as the simulator speaks them."""

from __future__ import annotations

import json
from typing import Any

from gateway.sim.chat import SHAPE
from gateway.sim.content import Ask, compose
from gateway.sim.problem import PROBLEMS
from gateway.sim.script import parse_model
from gateway.sim.shape import Keepalive, Kind
from tests.sim.support import TOOL_SCHEMA, events, joined, planned, whole_stream

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "bash", "parameters": TOOL_SCHEMA}}
]


ANSWER = compose(Ask(), parse_model("sim-ok"), number=1, created=0)


def chunks(model: str, **more: Any) -> list[Any]:
    return [payload for _, payload in events(joined(whole_stream("chat", model, **more)))]


def test_a_stream_opens_with_the_role_and_ends_with_finish_and_done() -> None:
    made = chunks("sim-ok")
    assert made[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert made[-2]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert made[-1] == "[DONE]"


def test_usage_comes_in_a_chunk_of_its_own_if_asked_for() -> None:
    made = chunks("sim-ok", stream_options={"include_usage": True})
    usage = made[-2]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == (
        usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    )
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in made[:-2])
    assert all("usage" not in chunk for chunk in chunks("sim-ok")[:-1])


def test_several_choices_take_turns_and_each_finishes() -> None:
    made = chunks("sim-ok", n=3)[:-1]
    indices = [chunk["choices"][0]["index"] for chunk in made]
    assert indices[:6] == [0, 1, 2, 0, 1, 2]
    finished = [
        chunk["choices"][0]["index"] for chunk in made if chunk["choices"][0]["finish_reason"]
    ]
    assert finished == [0, 1, 2]


def test_a_tool_call_is_named_once_and_its_arguments_come_in_pieces() -> None:
    made = chunks("sim-tool", tools=TOOLS)[:-1]
    calls = [call for chunk in made for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert calls[0]["function"] == {"name": "bash", "arguments": ""}
    assert [call.get("id") is None for call in calls] == [False, True, True, True, True]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"command": "echo hello from the simulator"}
    assert made[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_after_a_tools_result_the_answer_is_text() -> None:
    messages = [{"role": "user", "content": "go"}, {"role": "tool", "content": "done"}]
    made = chunks("sim-tool", tools=TOOLS, messages=messages)[:-1]
    assert made[-1]["choices"][0]["finish_reason"] == "stop"


def test_reasoning_comes_before_the_text() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks("sim-reasoning")[1:-2]]
    keys = ["".join(delta) for delta in deltas]
    assert keys == sorted(keys, reverse=True)
    assert set(keys) == {"reasoning_content", "content"}


def test_finish_reasons_follow_the_script() -> None:
    def reason(model: str) -> str:
        return str(chunks(model)[-2]["choices"][0]["finish_reason"])

    assert reason("sim-length") == "length"
    assert reason("sim-weird-finish") == "unusual_stop"
    assert reason("sim-finish-error") == "error"
    assert reason("sim-finish-error,reason=network_error") == "network_error"


def test_every_event_is_of_the_kind_that_it_says() -> None:
    kinds = [event.kind for event in whole_stream("chat", "sim-ok,words=3")]
    assert kinds == [Kind.OPEN, *[Kind.CONTENT] * 3, Kind.FINISH, Kind.DONE]


def test_the_whole_answer_is_the_streams_text() -> None:
    plan = planned("chat", "sim-reasoning", stream=False, n=2)
    completion = json.loads(plan.body())
    assert completion["object"] == "chat.completion"
    streamed = "".join(
        chunk["choices"][0]["delta"].get("content", "")
        for chunk in chunks("sim-reasoning", n=2)[:-1]
        if chunk["choices"][0]["index"] == 1
    )
    assert completion["choices"][1]["message"]["content"] == streamed
    assert completion["choices"][0]["message"]["reasoning_content"].startswith("The question")
    assert completion["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_a_whole_tool_call_has_its_arguments_in_one() -> None:
    completion = json.loads(planned("chat", "sim-tool", stream=False, tools=TOOLS).body())
    message = completion["choices"][0]["message"]
    assert message["content"] is None
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["command"]
    assert completion["choices"][0]["finish_reason"] == "tool_calls"


def test_errors_have_the_forms_that_providers_send() -> None:
    plan = planned("chat", "sim-error-event")
    assert events(plan.body())[-1][1]["error"]["type"] == "server_error"
    flat = events(planned("chat", "sim-error-flat").body())[-1][1]
    assert (flat["object"], flat["type"]) == ("error", "server_error")
    half = events(planned("chat", "sim-error-half").body())[-1][1]
    assert half["error"]["message"]
    assert half["choices"][0]["finish_reason"] == "error"


def test_an_error_names_code_and_parameter() -> None:
    error = SHAPE.error_body(PROBLEMS["invalid_request"])["error"]
    assert error == {
        "message": "Invalid request.",
        "type": "invalid_request_error",
        "param": "messages[3].tool_calls",
        "code": "bad_tool_call",
    }


def test_heartbeats_carry_no_content() -> None:
    made = {form: SHAPE.keepalive(form, ANSWER, 0) for form in Keepalive}
    assert made[Keepalive.AUTO] == made[Keepalive.COMMENT] == b": keep-alive\n\n"
    assert made[Keepalive.BLANK] == b"\n"
    assert events(made[Keepalive.EVENT]) == [("ping", {"type": "ping"})]
    assert events(made[Keepalive.EMPTY])[0][1]["choices"][0]["delta"] == {}
