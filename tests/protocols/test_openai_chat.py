"""Chat Completions: content, finish reasons, failures and counts, in all dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.protocols import openai_chat
from gateway.streams.events import Fault, Kind, Phase
from tests.protocols.reading import read, reader, told


def choice(delta: Any = None, reason: Any = None, index: int = 0, **extra: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": reason, **extra}]}


# Content.


@pytest.mark.parametrize(
    ("delta", "phase"),
    [
        ({"content": "a"}, Phase.IN_TEXT),
        ({"content": [{"type": "text", "text": "a"}]}, Phase.IN_TEXT),
        ({"refusal": "no"}, Phase.IN_TEXT),
        ({"audio": {"data": "AA=="}}, Phase.IN_TEXT),
        ({"reasoning_content": "hm"}, Phase.IN_REASONING),
        ({"reasoning": "hm"}, Phase.IN_REASONING),
        ({"reasoning_details": [{"text": "hm"}]}, Phase.IN_REASONING),
        ({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}, Phase.IN_TOOL_CALL),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, Phase.IN_TOOL_CALL),
        ({"tool_calls": [{"index": 0, "custom": {"input": "x"}}]}, Phase.IN_TOOL_CALL),
        ({"function_call": {"name": "f", "arguments": ""}}, Phase.IN_TOOL_CALL),
        ({"role": "assistant", "content": "a"}, Phase.IN_TEXT),
    ],
)
def test_what_is_content_and_of_which_phase(delta: object, phase: Phase) -> None:
    for first in (None, {"content": "before"}):
        of = reader("openai_chat")
        if first:
            read(of, choice(first))

        assert read(of, choice(delta)) is Kind.CONTENT
        assert of.facts.phase is phase
        assert of.facts.waiting == (phase is Phase.IN_TOOL_CALL)


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": []},
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        choice({}),
        choice({"content": ""}),
        choice({"content": None, "reasoning_content": ""}),
        choice({"tool_calls": []}),
        choice({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}),
        choice({"function_call": {"arguments": ""}}),
        {"type": "ping"},
        {"type": "keepalive", "sequence_number": 5},
    ],
)
def test_what_is_empty_is_a_heartbeat(chunk: object) -> None:
    of = reader("openai_chat")

    assert read(of, chunk) is Kind.HEARTBEAT
    assert of.facts.phase is Phase.BEFORE_CONTENT


@pytest.mark.parametrize(
    ("delta", "kind", "phase"),
    [
        ({"reasoning_text": "hm"}, Kind.CONTENT, Phase.IN_REASONING),
        ({"content": "", "images": [{"type": "image_url"}]}, Kind.CONTENT, Phase.IN_TEXT),
        ({"content": "", "something_new": "x"}, Kind.OPAQUE, Phase.BEFORE_CONTENT),
        ({"content": "", "something_new": ""}, Kind.HEARTBEAT, Phase.BEFORE_CONTENT),
    ],
)
def test_a_delta_that_says_something_in_other_words_is_no_heartbeat(
    delta: dict[str, Any], kind: Kind, phase: Phase
) -> None:
    of = reader("openai_chat")
    read(of, choice({"role": "assistant"}))
    assert read(of, choice(delta)) is kind
    assert of.facts.phase is phase


def test_the_role_is_news_once_only() -> None:
    of = reader("openai_chat")

    assert read(of, choice({"role": "assistant", "content": ""})) is Kind.STATE
    assert read(of, choice({"role": "assistant", "content": ""})) is Kind.HEARTBEAT


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [], "usage": {"prompt_tokens": 1}},
        choice({}) | {"prompt_progress": {"total": 5}},
        {"usage": {"prompt_tokens": 1}},
    ],
)
def test_what_says_that_work_goes_on_is_progress(chunk: object) -> None:
    assert read(reader("openai_chat"), chunk) is Kind.STATE


@pytest.mark.parametrize("chunk", [{"new": 1}, {"detail": "x"}, b"not json", [1]])
def test_what_is_not_understood_is_opaque(chunk: object) -> None:
    assert read(reader("openai_chat"), chunk) is Kind.OPAQUE


def test_text_ends_the_wait_for_a_tool_call() -> None:
    of = reader("openai_chat")
    read(of, choice({"tool_calls": [{"function": {"name": "f"}}]}))

    read(of, choice({"content": "a"}))

    assert not of.facts.waiting


# Finish.


@pytest.mark.parametrize(
    ("reason", "abnormal"),
    [
        ("stop", False), ("tool_calls", False), ("function_call", False),
        ("paused_by_policy", False), ("length", True), ("content_filter", True),
        ("sensitive", True), ("model_length", True), ("repetition", True),
    ],
)  # fmt: skip
def test_a_finish_reason_finishes(reason: str, abnormal: bool) -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))

    assert read(of, choice({}, reason)) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.finish_reason, facts.abnormal) == (True, reason, abnormal)
    assert facts.phase is Phase.AFTER_FINISH
    assert not facts.terminal
    assert of.may_close()


@pytest.mark.parametrize("reason", [None, ""])
def test_no_reason_is_no_finish(reason: object) -> None:
    of = reader("openai_chat")

    assert read(of, choice({"content": "a"}, reason)) is Kind.CONTENT
    assert not of.facts.finished


@pytest.mark.parametrize(
    "reason",
    ["error", "abort", "insufficient_system_resource", "network_error", "ERROR", "TIMEOUT"],
)
def test_some_reasons_are_failures(reason: str) -> None:
    of = reader("openai_chat")

    assert read(of, choice({}, reason)) is Kind.ERROR
    assert of.facts.error is not None
    assert (of.facts.error.type, of.facts.error.retryable) == (reason, True)
    ((_, added),) = told(of.complement(ending=False))
    assert added["error"]["type"] == reason
    assert of.complement(ending=True) == b""


def test_a_finish_may_bring_the_content() -> None:
    of = reader("openai_chat")

    assert read(of, choice({"content": "all of it"}, "stop")) is Kind.CONTENT
    assert of.facts.finished


@pytest.mark.parametrize("asked_for", [1, 2])
def test_all_choices_seen_must_finish(asked_for: int) -> None:
    of = reader("openai_chat", choices=asked_for)
    read(of, choice({"content": "a"}, index=0))
    read(of, choice({"content": "b"}, index=1))

    read(of, choice({}, "stop", index=0))
    assert not of.facts.finished
    read(of, choice({}, "stop", index=1))
    assert of.facts.finished


def test_more_choices_are_awaited_until_all_asked_for_or_the_end_marker_came() -> None:
    marked, whole = reader("openai_chat", choices=2), reader("openai_chat", choices=2)
    for of in (marked, whole):
        read(of, choice({"content": "a"}, index=0))
        read(of, choice({}, "stop", index=0))
        assert (of.facts.finished, of.facts.awaited) == (True, True)
        assert of.facts.phase is Phase.IN_TEXT
        assert not of.may_close()

    marked.read_done()
    read(whole, choice({"content": "b"}, index=1))
    assert not whole.facts.finished
    read(whole, choice({}, "stop", index=1))

    for of in (marked, whole):
        assert (of.facts.finished, of.facts.awaited) == (True, False)
        assert of.facts.phase is Phase.AFTER_FINISH
        assert of.may_close()


def test_a_failing_finish_does_not_hide_the_failure_before_it() -> None:
    of = reader("openai_chat")
    read(of, {"error": {"message": "boom", "type": "invalid_request_error"}})

    assert read(of, choice({}, "error")) is Kind.ERROR

    assert of.facts.error is not None
    assert (of.facts.error.message, of.facts.error.retryable) == ("boom", False)
    assert of.complement(ending=True) == b""


def test_what_follows_the_finish_does_not_take_it_back() -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))
    read(of, choice({}, "stop"))
    for chunk in (
        choice({}, None),
        choice({}, "stop"),
        {"choices": [{"index": 0, "content_filter_offsets": {}, "finish_reason": None}]},
        {"choices": [], "usage": {"prompt_tokens": 1}},
    ):
        assert read(of, chunk) is not Kind.CONTENT
        assert of.facts.finished
        assert of.facts.finish_reason == "stop"


def test_the_end_marker_alone_finishes_nothing() -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))

    of.read_done()

    assert not of.facts.finished


# Errors.

RAISING = {"error": {"message": "m", "type": "server_error", "code": None, "param": None}}


def test_an_error_object_alone_needs_nothing_added() -> None:
    of = reader("openai_chat")

    assert read(of, RAISING) is Kind.ERROR
    assert of.complement(ending=False) == of.complement(ending=True) == b""


@pytest.mark.parametrize(
    ("event", "name", "kind", "message"),
    [
        ({"object": "error", "message": "m", "type": "t_error", "code": 500}, "", "t_error", "m"),
        ({"error": "m"}, "", "error", "m"),
        ({"error": {"code": 429}}, "", "429", "429"),
        ({"message": "m", "code": 500}, "error", "500", "m"),
        (b"words", "error", "error", "words"),
        (RAISING | choice({}, None), "", "server_error", "m"),
        (choice({}, "error", error={"code": 502, "message": "m"}), "", "502", "m"),
        ({"x_groq": {"error": "over capacity"}}, "", "x_groq.error", "over capacity"),
        (
            {"error": {"code": 502, "message": "m", "metadata": {"error_type": "gone"}}}
            | choice({}, None),
            "",
            "gone",
            "m",
        ),
    ],
)
def test_an_error_that_some_client_swallows_is_told_again_once(
    event: object, name: str, kind: str, message: str
) -> None:
    of = reader("openai_chat")

    assert read(of, event, name) is Kind.ERROR
    assert of.facts.error is not None
    assert of.facts.error.type == kind
    ((added_name, added),) = told(of.complement(ending=False))
    assert added_name == ""
    assert set(added) == {"error"}
    assert added["error"]["message"] == message
    assert of.complement(ending=False) == of.complement(ending=True) == b""


def test_the_first_error_is_the_one_that_counts() -> None:
    of = reader("openai_chat")
    read(of, RAISING)
    read(of, {"error": {"message": "later", "type": "other"}})

    assert of.facts.error is not None
    assert of.facts.error.message == "m"


def test_the_gateways_own_fault_raises_in_every_client() -> None:
    frames = reader("openai_chat").fault(Fault("upstream_stalled", "Words."))

    assert told(frames) == [
        (
            "",
            {
                "error": {
                    "message": "Words.",
                    "type": "server_error",
                    "param": None,
                    "code": "upstream_stalled",
                }
            },
        )
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (402, "billing_error"),
     (403, "permission_error"), (404, "not_found_error"), (422, "invalid_request_error"),
     (429, "rate_limit_error"), (502, "server_error"), (503, "server_error")],
)  # fmt: skip
def test_an_error_body_has_openais_shape(status: int, kind: str) -> None:
    assert json.loads(openai_chat.error_body(status, "some_code", "Words.")) == {
        "error": {"message": "Words.", "type": kind, "param": None, "code": "some_code"}
    }


# Counts.


@pytest.mark.parametrize(
    ("chunk", "counts"),
    [
        (
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 21,
                    "completion_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 16},
                    "completion_tokens_details": {"reasoning_tokens": 4},
                },
            },
            (21, 9, 16, 4),
        ),
        (
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 6,
                    "completion_tokens": 5,
                    "prompt_cache_hit_tokens": 2,
                },
            },
            (6, 5, 2, None),
        ),
        (choice({}, "stop", usage={"prompt_tokens": 19, "cached_tokens": 8}), (19, None, 8, None)),
        ({"choices": [], "usage": {"prompt_tokens": "7"}}, (7, None, None, None)),
        ({"choices": [], "usage": {"prompt_tokens": {}, "completion_tokens": 3}},
         (None, 3, None, None)),
        ({"choices": [], "x_groq": {"usage": {"prompt_tokens": 9}}, "usage": {"prompt_tokens": 9}},
         (9, None, None, None)),
        ({"content": "", "stop": True, "tokens_predicted": 2, "tokens_evaluated": 5},
         (5, 2, None, None)),
    ],
)  # fmt: skip
def test_tokens_are_counted_wherever_they_stand(
    chunk: object, counts: tuple[int | None, ...]
) -> None:
    of = reader("openai_chat")
    read(of, chunk)
    usage = of.facts.usage

    assert (usage.input, usage.output, usage.cached, usage.reasoning) == counts


def test_the_model_is_the_one_that_answers() -> None:
    of = reader("openai_chat")
    read(of, {"choices": [], "model": ""})
    assert of.facts.model is None

    read(of, choice({"content": "a"}) | {"model": "m-1"})

    assert of.facts.model == "m-1"


# Leniency.


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop","logprob":NaN}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\\ud800"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"delta":{"content":"\xff"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a\nb"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0.0,"delta":{},"finish_reason":"stop"}],"created":1e999}',
        b'{"choices":[{"index":"0","delta":{},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":{},"delta":7,"finish_reason":"stop"}],"model":5,"usage":[]}',
    ],
)
def test_a_finish_is_found_in_json_that_strict_parsers_reject(data: bytes) -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))

    assert read(of, data) in (Kind.FINISH, Kind.CONTENT)
    assert of.facts.finished


EARLY = choice({"role": "assistant", "reasoning_content": "hm"}, "stop")


@pytest.mark.parametrize(
    "early",
    [
        [EARLY],
        [choice({"role": "assistant"}, "stop")],
        [choice({"content": "a"}, "stop"), choice({"content": "b"}, "stop")],
        [choice({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, "stop")],
    ],
    ids=["reasoning", "role", "each", "tool"],
)
def test_a_finish_that_may_not_be_the_last_word_ends_nothing(early: list[dict[str, Any]]) -> None:
    of = reader("openai_chat")
    for chunk in early:
        read(of, chunk)
    assert of.facts.finished
    assert of.facts.doubtful
    assert not of.may_close()
    of.read_done()
    assert of.may_close()


def test_what_goes_on_after_a_finish_is_not_over() -> None:
    of = reader("openai_chat")
    read(of, EARLY)
    read(of, choice({"content": "half"}))
    assert not of.facts.finished
    read(of, choice({}, "stop"))
    assert (of.facts.finished, of.facts.doubtful, of.may_close()) == (True, False, True)


def test_the_end_marker_ends_what_went_on_after_its_finish() -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))
    read(of, choice({}, "stop"))
    read(of, choice({"content": " (1 source)"}))
    assert not of.facts.finished
    of.read_done()
    assert of.facts.finished


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
@pytest.mark.parametrize("said", [{"role": "assistant"}, {"reasoning_content": "hm"}])
def test_only_stop_is_said_too_early(said: dict[str, Any], reason: str) -> None:
    """The others are the end of an answer of which there is nothing to show."""
    of = reader("openai_chat")
    read(of, choice(said))
    read(of, choice({}, reason))
    assert (of.facts.finished, of.facts.doubtful, of.may_close()) == (True, False, True)


def test_what_one_choice_has_said_makes_the_finish_of_no_other_sure() -> None:
    of = reader("openai_chat", 2)
    read(of, choice({"content": "a"}))
    read(of, choice({"content": "a2"}, "stop"))
    read(of, choice({"content": "b"}, "stop", index=1))
    assert (of.facts.finished, of.facts.doubtful, of.may_close()) == (True, True, False)
    read(of, choice({"content": "c"}, "stop", index=1))
    assert (of.facts.resumed, of.may_close()) == (True, False)
    of.read_done()
    assert (of.facts.resumed, of.may_close()) == (False, True)


def test_the_next_choice_speaks_on_its_own() -> None:
    """Each one's first piece is read in full, the others quickly; all are told apart."""
    of = reader("openai_chat", 2)
    for index in (0, 1, 0, 1):
        assert read(of, choice({"content": "a"}, index=index)) is Kind.CONTENT
    for index in (0, 1):
        read(of, choice({}, "stop", index=index))
    assert (of.facts.finished, of.facts.doubtful, of.facts.awaited) == (True, False, False)


@pytest.mark.parametrize(
    "trailer",
    [
        {"audio": {"id": "audio_1", "expires_at": 1764600000}},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
        {"reasoning": "that was it"},
    ],
)
def test_what_trails_a_finish_does_not_take_it_back(trailer: dict[str, Any]) -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))
    read(of, choice({}, "stop"))
    read(of, choice(trailer))
    assert of.facts.finished
    assert of.may_close()


def test_a_thought_after_a_doubtful_finish_takes_it_back() -> None:
    of = reader("openai_chat")
    read(of, EARLY)
    read(of, choice({"reasoning_content": "hm"}))
    assert not of.facts.finished


def test_nothing_goes_on_after_the_end_marker() -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}))
    read(of, choice({}, "stop"))
    of.read_done()
    read(of, choice({"content": "b"}))
    assert of.facts.finished


@pytest.mark.parametrize(("content", "worked"), [("Half", True), ("", False)])
def test_content_beside_an_error_was_paid_for(content: str, worked: bool) -> None:
    of = reader("openai_chat")
    read(of, choice({"content": content}, "error") | {"error": {"code": 502, "message": "m"}})
    assert of.facts.error is not None
    assert of.facts.worked is worked


def test_a_flat_error_is_known_by_its_type() -> None:
    of = reader("openai_chat")
    told = {"message": "Too many", "type": "too_many_tokens_error", "code": "token_quota_exceeded"}
    assert read(of, told) is Kind.ERROR
    assert read(reader("openai_chat"), {"message": "ok", "type": "status"}) is Kind.OPAQUE


@pytest.mark.parametrize("of_nothing", ["null", "", None])
def test_a_word_for_no_reason_is_no_reason(of_nothing: str | None) -> None:
    of = reader("openai_chat")
    read(of, choice({"content": "a"}, of_nothing))
    assert not of.facts.finished
