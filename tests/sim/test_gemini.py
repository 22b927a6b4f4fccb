"""Gemini as the simulator speaks it."""

from __future__ import annotations

import json
from typing import Any

from tests.sim.support import TOOL_SCHEMA, contents, events, joined, planned, whole_stream

TOOLS: list[dict[str, Any]] = [
    {"functionDeclarations": [{"name": "bash", "parameters": TOOL_SCHEMA}]}
]


def stream(model: str, **more: Any) -> list[Any]:
    return [payload for _, payload in events(joined(whole_stream("gemini", model, **more)))]


def test_lines_end_with_crlf_and_only_data_is_sent() -> None:
    data = joined(whole_stream("gemini", "sim-ok"))
    assert data.count(b"\n") == data.count(b"\r\n")
    assert {line[:6] for line in data.split(b"\r\n")} == {b"data: ", b""}


def test_only_the_last_event_has_a_finish_and_the_whole_usage() -> None:
    made = stream("sim-ok")
    finishes = [item["candidates"][0].get("finishReason") for item in made]
    assert finishes == [*[None] * (len(made) - 1), "STOP"]
    usage = made[-1]["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
    assert "candidatesTokenCount" not in made[0]["usageMetadata"]


def test_events_are_fewer_and_longer_than_tokens() -> None:
    data = joined(whole_stream("gemini", "sim-ok"))
    assert 10 < len(contents("gemini", data)) < 20


def test_thoughts_are_parts_marked_as_such() -> None:
    parts = [item["candidates"][0]["content"]["parts"][0] for item in stream("sim-reasoning")]
    marks = [part.get("thought", False) for part in parts]
    assert marks == sorted(marks, reverse=True)
    assert marks[0]


def test_a_function_call_comes_whole_before_the_finish() -> None:
    made = stream("sim-tool", tools=TOOLS)
    call = made[-2]["candidates"][0]["content"]["parts"][0]["functionCall"]
    assert call == {"name": "bash", "args": {"command": "echo hello from the simulator"}}
    assert made[-1]["candidates"][0]["finishReason"] == "STOP"


def test_after_a_functions_response_the_answer_is_text() -> None:
    part = {"functionResponse": {"name": "bash", "response": {"ok": True}}}
    made = stream("sim-tool", tools=TOOLS, contents=[{"role": "user", "parts": [part]}])
    assert "text" in made[0]["candidates"][0]["content"]["parts"][0]


def test_every_candidate_finishes() -> None:
    made = stream("sim-ok", generationConfig={"candidateCount": 2})
    ended = [item["candidates"][0] for item in made if "finishReason" in item["candidates"][0]]
    assert [candidate["index"] for candidate in ended] == [0, 1]


def test_finish_reasons_follow_the_script() -> None:
    def reason(model: str) -> str:
        return str(stream(model)[-1]["candidates"][0]["finishReason"])

    assert reason("sim-length") == "MAX_TOKENS"
    assert reason("sim-weird-finish") == "UNUSUAL_STOP"
    assert reason("sim-finish-error") == "MALFORMED_FUNCTION_CALL"


def test_without_alt_sse_the_stream_is_one_json_array() -> None:
    plan = planned("gemini", "sim-ok", sse=False)
    assert ("content-type", "application/json; charset=UTF-8") in plan.headers
    elements = json.loads(plan.body())
    assert len(elements) > 10
    assert elements[-1]["candidates"][0]["finishReason"] == "STOP"


def test_an_array_can_be_cut_and_can_hold_an_error() -> None:
    cut = planned("gemini", "sim-bare-eof,after=2", sse=False).body()
    assert len(json.loads(cut + b"]")) == 2
    broken = json.loads(planned("gemini", "sim-error-done,after=1", sse=False).body())
    assert broken[1]["error"]["status"] == "INTERNAL"
    first = planned("gemini", "sim-error-event,after=none", sse=False).body()
    assert json.loads(first + b"]")[0]["error"]["code"] == 500
    unfinished = json.loads(planned("gemini", "sim-done-only", sse=False).body())
    assert not any("finishReason" in item["candidates"][0] for item in unfinished)


def test_http_errors_of_an_array_stream_are_an_array_too() -> None:
    plan = planned("gemini", "sim-status-503", sse=False)
    assert json.loads(plan.body())[0]["error"]["status"] == "UNAVAILABLE"


def test_the_whole_answer_has_all_parts() -> None:
    whole = json.loads(planned("gemini", "sim-reasoning", stream=False).body())
    thought, text = whole["candidates"][0]["content"]["parts"]
    assert thought["thought"] is True
    assert text["text"].startswith("You said")


def test_errors_have_the_forms_that_the_service_sends() -> None:
    full = events(planned("gemini", "sim-error-event,type=overloaded").body())[-1][1]
    assert full["error"]["status"] == "UNAVAILABLE"
    flat = planned("gemini", "sim-error-flat,after=none,type=rate_limit").body()
    assert flat.startswith(b"{\r\n")
    assert json.loads(flat)["error"]["code"] == 429
    half = events(planned("gemini", "sim-error-half,after=none").body())[-1][1]
    assert half[0]["error"]["status"] == "INTERNAL"


def test_the_wait_stands_in_the_details_not_in_a_header() -> None:
    plan = planned("gemini", "sim-status-429,retry_after=34")
    details = json.loads(plan.body())["error"]["details"]
    assert details[-1]["retryDelay"] == "34s"
    assert not any(name.startswith("retry") for name, _ in plan.headers)
