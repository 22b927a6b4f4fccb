"""Legacy Completions as the simulator speaks them."""

from __future__ import annotations

import json

from tests.sim.support import contents, events, finishes, joined, planned, whole_stream


def test_a_stream_is_text_a_finish_and_done() -> None:
    data = joined(whole_stream("completions", "sim-ok,words=4"))
    made = [payload for _, payload in events(data)]
    assert "".join(contents("completions", data)) == "You said “Tell me"
    assert made[-2]["choices"][0]["finish_reason"] == "stop"
    assert made[-1] == "[DONE]"


def test_a_prompt_may_be_a_list() -> None:
    data = joined(whole_stream("completions", "sim-ok", prompt=["hello", "there", 7]))
    assert "You said “hello there”." in "".join(contents("completions", data))


def test_usage_comes_in_a_chunk_of_its_own_if_asked_for() -> None:
    options = {"include_usage": True}
    made = events(joined(whole_stream("completions", "sim-ok", stream_options=options)))
    assert made[-2][1]["choices"] == []
    assert made[-2][1]["usage"]["completion_tokens"] > 0


def test_several_choices_each_finish() -> None:
    assert finishes("completions", joined(whole_stream("completions", "sim-length", n=2))) == 2


def test_the_whole_answer_is_the_streams_text() -> None:
    whole = json.loads(planned("completions", "sim-ok", stream=False).body())
    streamed = contents("completions", joined(whole_stream("completions", "sim-ok")))
    assert whole["choices"][0]["text"] == "".join(streamed)
    assert whole["object"] == "text_completion"


def test_an_error_beside_choices_has_this_protocols_choices() -> None:
    half = events(planned("completions", "sim-error-half").body())[-1][1]
    assert half["choices"][0]["text"] == ""
    assert half["error"]["code"] == 500


def test_an_empty_heartbeat_is_a_choice_without_text() -> None:
    body = planned("completions", "sim-keepalive,form=empty,words=1").body()
    assert events(body)[0][1]["choices"][0]["text"] == ""
