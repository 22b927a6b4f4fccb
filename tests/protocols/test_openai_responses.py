"""Responses: what grows, what ends, what clients raise on, and when silence is normal."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.streams.events import Fault, Kind, Phase, Reader
from tests.protocols.reading import read, reader, told

RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "in_progress",
    "error": None,
    "model": "m-1",
    "output": [],
    "usage": None,
}


def fresh() -> Reader:
    return reader("openai_responses")


def opened() -> Reader:
    """Created, in progress, and two pieces of text: the last sequence number is 3."""
    of = fresh()
    read(of, {"type": "response.created", "sequence_number": 0, "response": RESPONSE})
    read(of, {"type": "response.in_progress", "sequence_number": 1, "response": RESPONSE})
    read(of, {"type": "response.output_text.delta", "sequence_number": 2, "delta": "a"})
    read(of, {"type": "response.output_text.delta", "sequence_number": 3, "delta": "b"})
    return of


def ended(kind: str, number: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "type": f"response.{kind}",
        "sequence_number": number,
        "response": RESPONSE | {"status": kind} | changes,
    }


def item(kind: str, event: str = "added") -> dict[str, Any]:
    return {"type": f"response.output_item.{event}", "item": {"type": kind, "id": "x"}}


# Content.


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("output_text", Phase.IN_TEXT),
        ("refusal", Phase.IN_TEXT),
        ("audio", Phase.IN_TEXT),
        ("audio.transcript", Phase.IN_TEXT),
        ("reasoning_text", Phase.IN_REASONING),
        ("reasoning_summary_text", Phase.IN_REASONING),
        ("function_call_arguments", Phase.IN_TOOL_CALL),
        ("custom_tool_call_input", Phase.IN_TOOL_CALL),
        ("mcp_call_arguments", Phase.IN_TOOL_CALL),
        ("code_interpreter_call_code", Phase.IN_TOOL_CALL),
        ("shell_call_command", Phase.IN_TOOL_CALL),
        ("apply_patch_call_operation_diff", Phase.IN_TOOL_CALL),
        ("something_new", Phase.IN_TEXT),
    ],
)
def test_every_delta_is_content(kind: str, phase: Phase) -> None:
    of = fresh()

    assert read(of, {"type": f"response.{kind}.delta", "delta": "x"}) is Kind.CONTENT
    assert of.facts.phase is phase
    assert of.facts.waiting == (phase is Phase.IN_TOOL_CALL)


def test_a_delta_need_not_be_a_string() -> None:
    of = fresh()
    output = {"type": "response.shell_call_output_content.delta", "delta": {"stdout": "x"}}

    assert read(of, output) is Kind.CONTENT
    assert of.facts.phase is Phase.IN_TOOL_CALL


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (
            {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}},
            Phase.IN_TOOL_CALL,
        ),
        (
            {"type": "response.output_item.done", "item": {"type": "local_shell_call"}},
            Phase.IN_TOOL_CALL,
        ),
        (
            {"type": "response.output_item.done", "item": {"type": "message", "content": [{}]}},
            Phase.IN_TEXT,
        ),
        ({"type": "response.output_text.done", "text": "Hello"}, Phase.IN_TEXT),
        (
            {"type": "response.function_call_arguments.done", "arguments": "{}"},
            Phase.IN_TOOL_CALL,
        ),
    ],
)
def test_content_in_one_piece_needs_no_delta(event: dict[str, Any], phase: Phase) -> None:
    of = reader("openai_responses")
    assert read(of, event) is Kind.CONTENT
    assert of.facts.phase is phase


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added", "item": {"type": "web_search_call"}},
        {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
        {"type": "response.output_item.done", "item": {"type": "message", "content": []}},
        {"type": "response.output_item.done", "item": {"type": "reasoning", "summary": []}},
        {"type": "response.output_text.done", "text": ""},
    ],
)
def test_an_item_that_holds_nothing_yet_is_no_content(event: dict[str, Any]) -> None:
    of = reader("openai_responses")
    assert read(of, event) is Kind.STATE
    assert of.facts.phase is Phase.BEFORE_CONTENT


def test_a_piece_of_a_picture_is_content() -> None:
    of = fresh()
    piece = {"type": "response.image_generation_call.partial_image", "partial_image_b64": "AA=="}

    assert read(of, piece) is Kind.CONTENT
    assert of.facts.phase is Phase.IN_TEXT


@pytest.mark.parametrize(
    "event",
    [
        {"type": "keepalive", "sequence_number": 466},
        {"type": "ping"},
        {"type": "response.output_text.delta", "delta": ""},
        {"type": "response.something_new.delta", "delta": ""},
    ],
)
def test_heartbeats(event: object) -> None:
    assert read(opened(), event) is Kind.HEARTBEAT


@pytest.mark.parametrize(
    "kind",
    [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.output_item.done", "response.content_part.added", "response.content_part.done",
        "response.output_text.done", "response.function_call_arguments.done",
        "response.web_search_call.completed", "response.something_new",
    ],
)  # fmt: skip
def test_other_events_of_a_response_are_progress_and_no_end(kind: str) -> None:
    of = fresh()

    assert read(of, {"type": kind}) is Kind.STATE
    assert not of.facts.finished
    assert of.facts.phase is Phase.BEFORE_CONTENT


def test_that_it_goes_on_is_news_once() -> None:
    of = fresh()
    going = {"type": "response.in_progress", "response": RESPONSE}

    assert [read(of, going) for _ in range(3)] == [Kind.STATE, Kind.HEARTBEAT, Kind.HEARTBEAT]


def test_waiting_in_a_queue_is_news_once() -> None:
    of = fresh()
    queued = {"type": "response.queued", "response": RESPONSE | {"status": "queued"}}

    assert [read(of, queued) for _ in range(3)] == [Kind.STATE, Kind.HEARTBEAT, Kind.HEARTBEAT]
    assert of.facts.waiting


@pytest.mark.parametrize("event", [{"type": "new"}, {"a": 1}, b"words", [1]])
def test_what_is_not_understood_is_opaque(event: object) -> None:
    of = opened()

    assert read(of, event) is Kind.OPAQUE
    assert of.facts.error is None


def test_the_event_line_counts_where_there_is_no_type() -> None:
    of = fresh()

    assert read(of, {"response": RESPONSE}, "response.completed") is Kind.FINISH
    assert read(fresh(), {}, "keepalive") is Kind.HEARTBEAT


# Silence.


@pytest.mark.parametrize(
    ("events", "waiting"),
    [
        ([item("message")], False),
        ([item("reasoning")], True),
        ([item("reasoning"), item("reasoning", "done")], False),
        ([item("web_search_call")], True),
        ([item("mcp_list_tools")], True),
        ([item("function_call")], True),
        ([item("compaction")], True),
        ([{"type": "response.web_search_call.searching"}], True),
        ([{"type": "response.file_search_call.searching"}], True),
        ([{"type": "response.code_interpreter_call.interpreting"}], True),
        ([{"type": "response.image_generation_call.generating"}], True),
        ([{"type": "response.mcp_call.in_progress"}], True),
        ([{"type": "response.compaction.compacting"}], True),
        (
            [
                {"type": "response.mcp_call.in_progress"},
                {"type": "response.mcp_call.failed"},
            ],
            False,
        ),
        (
            [
                {"type": "response.web_search_call.searching"},
                {"type": "response.web_search_call.completed"},
            ],
            False,
        ),
        ([{"type": "response.created", "response": RESPONSE | {"status": "queued"}}], True),
        (
            [
                {"type": "response.queued"},
                {"type": "response.in_progress", "response": RESPONSE},
            ],
            False,
        ),
        (
            [
                item("reasoning"),
                {"type": "response.reasoning_summary_text.delta", "delta": "so"},
            ],
            False,
        ),
        (
            [
                item("reasoning"),
                {"type": "response.reasoning_summary_text.delta", "delta": "so"},
                {"type": "response.reasoning_summary_part.done"},
            ],
            True,
        ),
    ],
)
def test_when_silence_is_normal(events: list[Any], waiting: bool) -> None:
    of = opened()
    for event in events:
        read(of, event)

    assert of.facts.waiting == waiting


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        ("message", Phase.IN_TEXT),
        ("reasoning", Phase.IN_REASONING),
        ("function_call", Phase.IN_TOOL_CALL),
        ("web_search_call", Phase.IN_TOOL_CALL),
    ],
)
def test_a_new_item_sets_the_phase_once_there_was_content(kind: str, phase: Phase) -> None:
    before, after = fresh(), opened()
    for of in (before, after):
        read(of, item(kind))

    assert before.facts.phase is Phase.BEFORE_CONTENT
    assert after.facts.phase is phase


# Ends.


def test_completed_finishes() -> None:
    of = opened()

    assert read(of, ended("completed")) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.terminal, facts.abnormal) == (True, True, False)
    assert facts.finish_reason == "completed"
    assert facts.phase is Phase.AFTER_FINISH


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_output_tokens"}, "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"reason": "steered"}, "steered"),
        ({}, "incomplete"),
        (None, "incomplete"),
    ],
)
def test_incomplete_finishes_and_says_why(details: object, reason: str) -> None:
    of = opened()

    assert read(of, ended("incomplete", incomplete_details=details)) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.terminal, facts.abnormal) == (True, True, True)
    assert facts.finish_reason == reason


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("server_error", True), ("rate_limit_exceeded", True), ("vector_store_timeout", True),
        ("invalid_prompt", False), ("bio_policy", False), ("data_residency_mismatch", False),
        ("misalignment_policy_violation", False), ("invalid_image", False),
        ("image_too_large", False), ("insufficient_quota", False),
        ("context_length_exceeded", False), ("usage_not_included", False),
    ],
)  # fmt: skip
def test_failed_is_an_error(code: str, retryable: bool) -> None:
    of = opened()

    assert read(of, ended("failed", error={"code": code, "message": "m"})) is Kind.ERROR
    facts = of.facts
    assert (facts.finished, facts.terminal) == (False, True)
    assert facts.error is not None
    assert (facts.error.type, facts.error.code, facts.error.message) == (code, code, "m")
    assert facts.error.retryable == retryable


@pytest.mark.parametrize("error", [None, "broke", {}])
def test_failed_without_a_reason_is_an_error_all_the_same(error: object) -> None:
    of = opened()

    assert read(of, ended("failed", error=error)) is Kind.ERROR
    assert of.facts.error is not None


def test_an_error_without_a_code_is_judged_by_its_status() -> None:
    of = reader("openai_responses")
    read(of, {"type": "error", "status": 401, "error": {"type": "no_login", "message": "who?"}})
    assert of.facts.error is not None
    assert (of.facts.error.status, of.facts.error.retryable) == (401, False)


def test_cancelled_is_an_error_that_nobody_retries() -> None:
    of = opened()

    assert read(of, ended("cancelled")) is Kind.ERROR
    assert of.facts.terminal
    assert of.facts.error is not None
    assert (of.facts.error.type, of.facts.error.retryable) == ("cancelled", False)


@pytest.mark.parametrize("kind", ["completed", "incomplete"])
def test_a_last_event_is_taken_by_the_status_of_its_response(kind: str) -> None:
    incomplete, failed, cancelled = fresh(), fresh(), fresh()
    event = ended(kind)
    error = {"code": "rate_limit_exceeded", "message": "m"}
    details = {"reason": "max_output_tokens"}

    def saying(status: str, **changes: Any) -> dict[str, Any]:
        return event | {"response": RESPONSE | {"status": status, **changes}}

    assert read(incomplete, saying("incomplete", incomplete_details=details)) is Kind.FINISH
    assert read(failed, saying("failed", error=error)) is Kind.ERROR
    assert read(cancelled, saying("cancelled")) is Kind.ERROR

    assert (incomplete.facts.finish_reason, incomplete.facts.abnormal) == (
        "max_output_tokens",
        True,
    )
    assert not failed.facts.finished
    assert failed.facts.error is not None
    assert (failed.facts.error.code, failed.facts.error.retryable) == ("rate_limit_exceeded", True)
    assert cancelled.facts.error is not None
    assert not cancelled.facts.error.retryable
    assert failed.facts.terminal
    assert [name for name, _ in told(failed.complement(ending=True))] == [
        "error",
        "response.failed",
    ]


@pytest.mark.parametrize("status", ["completed", "in_progress", None, "new"])
def test_any_other_status_leaves_it_completed(status: str | None) -> None:
    of = fresh()

    assert read(of, ended("completed") | {"response": RESPONSE | {"status": status}}) is Kind.FINISH
    assert (of.facts.finish_reason, of.facts.abnormal) == ("completed", False)


def test_counts_and_model_come_with_the_response() -> None:
    of = opened()
    usage = {
        "input_tokens": 40,
        "input_tokens_details": {"cached_tokens": 32},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 8},
    }
    read(of, ended("completed", usage=usage, model="m-2"))
    counted = of.facts.usage

    assert of.facts.model == "m-2"
    assert (counted.input, counted.output, counted.cached, counted.reasoning) == (40, 12, 32, 8)


# The provider's errors and what is added to them.

NESTED = {
    "type": "error",
    "sequence_number": 4,
    "error": {"type": "server_error", "code": "boom", "message": "m", "param": "p"},
}
FLAT = {"type": "error", "sequence_number": 4, "code": "server_error", "message": "m"}


def test_nested_and_failed_together_lack_nothing() -> None:
    of = opened()
    read(of, NESTED, "error")
    assert of.complement(ending=False) == b""
    read(of, ended("failed", 5, error={"code": "server_error", "message": "m"}))

    assert of.complement(ending=False) == b""
    assert of.complement(ending=True) == b""
    assert of.facts.error is not None
    assert (of.facts.error.code, of.facts.error.param) == ("boom", "p")


def test_after_a_nested_error_the_failed_response_is_added_at_the_end() -> None:
    of = opened()
    read(of, NESTED, "error")

    assert of.complement(ending=False) == b""
    ((name, failed),) = told(of.complement(ending=True))
    assert name == failed["type"] == "response.failed"
    assert failed["sequence_number"] == 5
    assert failed["response"] == RESPONSE | {
        "status": "failed",
        "error": {"code": "server_error", "message": "m"},
    }
    assert of.complement(ending=True) == b""


def test_after_a_flat_error_the_nested_one_is_added_at_once() -> None:
    of = opened()
    assert read(of, FLAT, "error") is Kind.ERROR

    ((name, nested),) = told(of.complement(ending=False))
    assert name == nested["type"] == "error"
    assert nested["sequence_number"] == 5
    assert nested["error"] == {
        "type": "server_error",
        "code": "server_error",
        "message": "m",
        "param": None,
    }
    assert of.complement(ending=False) == b""
    ((name, failed),) = told(of.complement(ending=True))
    assert (name, failed["sequence_number"]) == ("response.failed", 6)


def test_after_a_failed_response_the_nested_error_is_added_at_once() -> None:
    of = opened()
    read(of, ended("failed", error={"code": "rate_limit_exceeded", "message": "m"}))

    ((name, nested),) = told(of.complement(ending=False))
    assert (name, nested["sequence_number"]) == ("error", 5)
    assert nested["error"]["code"] == "rate_limit_exceeded"
    assert of.complement(ending=True) == b""


@pytest.mark.parametrize(
    ("event", "name", "kind"),
    [
        ({"error": {"message": "m", "type": "InternalServerError", "code": 500}}, "unknown",
         "InternalServerError"),
        ({"error": {"message": "m", "type": "t_error"}}, "", "t_error"),
        ({"object": "error", "message": "m", "type": "BadGateway"}, "", "BadGateway"),
        ({"code": 500, "message": "m", "type": "server_error"}, "error", "server_error"),
        ({"error": "m"}, "", "error"),
        (b"m", "error", "error"),
    ],
)  # fmt: skip
def test_an_error_in_another_dialect_gets_both_parts(event: object, name: str, kind: str) -> None:
    of = opened()

    assert read(of, event, name) is Kind.ERROR
    assert of.facts.error is not None
    assert of.facts.error.type == kind
    events = told(of.complement(ending=False)) + told(of.complement(ending=True))
    assert [name for name, _ in events] == ["error", "response.failed"]
    assert events[0][1]["error"]["message"] == events[1][1]["response"]["error"]["message"] == "m"


@pytest.mark.parametrize(
    ("code", "told_code"),
    [
        ("server_error", "server_error"),
        ("rate_limit_exceeded", "rate_limit_exceeded"),
        ("server_is_overloaded", "server_error"),
        ("slow_down", "server_error"),
        ("500", "server_error"),
        ("insufficient_quota", "insufficient_quota"),
        ("context_length_exceeded", "context_length_exceeded"),
    ],
)
def test_the_added_code_never_makes_codex_give_up_on_what_can_be_retried(
    code: str, told_code: str
) -> None:
    of = opened()
    read(of, {"type": "error", "code": code, "message": "m"}, "error")
    of.complement(ending=False)

    ((_, failed),) = told(of.complement(ending=True))
    assert failed["response"]["error"]["code"] == told_code


def test_an_error_before_any_response_gets_one_of_its_own() -> None:
    of = fresh()
    read(of, FLAT, "error")
    of.complement(ending=False)

    ((_, failed),) = told(of.complement(ending=True))
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["message"] == "m"


# The gateway's own.


def test_a_fault_is_told_in_both_parts_with_running_numbers() -> None:
    events = told(opened().fault(Fault("upstream_stream_truncated", "Words.")))

    assert [name for name, _ in events] == ["error", "response.failed"]
    nested, failed = events[0][1], events[1][1]
    assert nested == {
        "type": "error",
        "sequence_number": 4,
        "error": {
            "type": "server_error",
            "code": "upstream_stream_truncated",
            "message": "Words.",
            "param": None,
        },
    }
    assert failed == {
        "type": "response.failed",
        "sequence_number": 5,
        "response": RESPONSE
        | {"status": "failed", "error": {"code": "server_error", "message": "Words."}},
    }


def test_keepalives_use_up_sequence_numbers() -> None:
    of = opened()
    read(of, {"type": "keepalive", "sequence_number": 9})

    ((_, nested), _) = told(of.fault(Fault("c", "m")))
    assert nested["sequence_number"] == 10


def test_a_fault_without_a_number_or_a_response_seen_is_whole() -> None:
    events = told(fresh().fault(Fault("c", "m")))

    assert [event["sequence_number"] for _, event in events] == [0, 1]
    assert events[1][1]["response"]["status"] == "failed"


def test_the_response_is_told_as_it_was_last_seen() -> None:
    of = opened()
    read(of, {"type": "response.in_progress", "response": RESPONSE | {"output": ["new"]}})

    (_, (_, failed)) = told(of.fault(Fault("c", "m")))
    assert failed["response"]["output"] == ["new"]


def test_a_response_in_json_that_strict_parsers_reject_can_be_told_again() -> None:
    of = fresh()
    read(of, b'{"type":"response.created","response":{"id":"\\ud800","temperature":NaN}}')

    (_, (_, failed)) = told(of.fault(Fault("c", "m")))
    assert failed["response"] == {
        "id": "?",
        "temperature": None,
        "status": "failed",
        "error": {"code": "server_error", "message": "m"},
    }


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.completed","response":{"usage":{"cost":NaN}}}',
        b'{"type":"response.completed","response":{"text":"\\udfff"}}',
        b'{"type":"response.completed","response":{"text":"\xff"}}',
        b'{"type":"response.completed","response":{"text":"a\tb"}}',
        b'{"type":"response.completed","sequence_number":"x","response":[]}',
        b'{"type":"response.completed","sequence_number":1.0,"response":{"usage":7,"model":1}}',
    ],
)
def test_a_finish_is_found_in_json_that_strict_parsers_reject(data: bytes) -> None:
    of = opened()

    assert read(of, data) is Kind.FINISH
    assert of.facts.finished


def test_a_tool_that_failed_is_no_failed_response() -> None:
    of = reader("openai_responses")
    told = {"type": "response.mcp_call.failed", "item_id": "mcp_1", "error": {"message": "no"}}
    assert read(of, told) is not Kind.ERROR
    assert of.facts.error is None
    assert read(of, {"type": "response.novel", "error": {"message": "no"}}) is Kind.ERROR


@pytest.mark.parametrize(
    ("kind", "worked"),
    [
        ("response.web_search_call.searching", True),
        ("response.code_interpreter_call.interpreting", True),
        ("response.in_progress", False),
    ],
)
def test_a_tool_at_work_is_work_whatever_was_said_before(kind: str, worked: bool) -> None:
    of = reader("openai_responses")
    read(of, {"type": kind, "item_id": "x"})
    assert of.facts.worked is worked


def test_tools_that_cannot_be_listed_fail_no_response() -> None:
    of = reader("openai_responses")
    read(of, {"type": "response.mcp_list_tools.failed", "error": {"message": "no"}})
    assert of.facts.error is None


@pytest.mark.parametrize(
    ("event", "acted"),
    [
        ({"type": "response.output_item.added", "item": {"type": "mcp_call"}}, True),
        ({"type": "response.mcp_call.in_progress", "item_id": "m"}, True),
        ({"type": "response.output_item.added", "item": {"type": "mcp_list_tools"}}, False),
        ({"type": "response.output_item.added", "item": {"type": "function_call"}}, False),
    ],
)
def test_a_call_of_another_servers_tool_is_an_act(event: dict[str, Any], acted: bool) -> None:
    of = reader("openai_responses")
    read(of, event)
    assert of.facts.acted is acted
