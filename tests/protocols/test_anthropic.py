"""Messages: blocks, stop reasons, failures and counts, and when silence is normal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.protocols import anthropic
from gateway.streams.events import Fault, Kind, Phase, Reader
from tests.protocols.reading import read, reader, told

START = {
    "type": "message_start",
    "message": {
        "model": "claude-test",
        "usage": {"input_tokens": 30, "cache_read_input_tokens": 24, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}
PING = {"type": "ping"}
BLOCK_STOP = {"type": "content_block_stop", "index": 0}


def fresh() -> Reader:
    return reader("anthropic")


def say(of: Reader, event: dict[str, Any]) -> Kind:
    """With its event line, as the provider sends it."""
    return read(of, event, event["type"])


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **fields}}


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


def stopped(reason: str | None, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


# Content.


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (delta("text_delta", text="a"), Phase.IN_TEXT),
        (delta("citations_delta", citation={"url": "x"}), Phase.IN_TEXT),
        (delta("compaction_delta", content="summary"), Phase.IN_TEXT),
        (delta("thinking_delta", thinking="hm"), Phase.IN_REASONING),
        (delta("input_json_delta", partial_json="{"), Phase.IN_TOOL_CALL),
        (block("tool_use", name="f", input={}), Phase.IN_TOOL_CALL),
        (block("server_tool_use", name="web_search", input={}), Phase.IN_TOOL_CALL),
        (block("mcp_tool_use", name="f", input={}), Phase.IN_TOOL_CALL),
        (block("text", text="all at once"), Phase.IN_TEXT),
        (block("thinking", thinking="all at once"), Phase.IN_REASONING),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_what_is_content_and_of_which_phase(
    event: dict[str, Any], phase: Phase, named: bool
) -> None:
    of = fresh()

    assert (say(of, event) if named else read(of, event)) is Kind.CONTENT
    assert of.facts.phase is phase


@pytest.mark.parametrize(
    "event",
    [
        PING,
        delta("text_delta", text=""),
        delta("thinking_delta", thinking=""),
        delta("input_json_delta", partial_json=""),
    ],
)
def test_heartbeats(event: dict[str, Any]) -> None:
    assert say(fresh(), event) is Kind.HEARTBEAT
    assert read(fresh(), event) is Kind.HEARTBEAT


def test_the_event_line_counts_where_there_is_no_type() -> None:
    assert read(fresh(), {}, "ping") is Kind.HEARTBEAT
    assert read(fresh(), {}, "message_stop") is Kind.FINISH


def test_reasoning_that_is_sealed_is_content() -> None:
    of = fresh()
    assert say(of, block("redacted_thinking", data="c2VhbGVk")) is Kind.CONTENT
    assert of.facts.phase is Phase.IN_REASONING


@pytest.mark.parametrize(
    "event",
    [
        START,
        block("text", text=""),
        block("thinking", thinking="", signature=""),
        block("redacted_thinking", data=""),
        block("web_search_tool_result", content=[]),
        block("fallback"),
        delta("signature_delta", signature="c2ln"),
        BLOCK_STOP,
        stopped("end_turn", output_tokens=11),
    ],
)
def test_other_events_are_progress_and_no_content(event: dict[str, Any]) -> None:
    of = fresh()

    assert say(of, event) is Kind.STATE
    assert of.facts.phase is Phase.BEFORE_CONTENT
    assert not of.facts.finished


@pytest.mark.parametrize(
    "event", [{"type": "brand_new"}, delta("brand_new_delta", x=1), {"a": 1}, b"words", [1]]
)
def test_what_is_not_understood_is_opaque(event: object) -> None:
    of = fresh()

    assert read(of, event) is Kind.OPAQUE
    assert of.facts.error is None


def test_a_new_block_sets_the_phase_once_there_was_content() -> None:
    of = fresh()
    say(of, block("text", text=""))
    say(of, delta("text_delta", text="a"))
    say(of, BLOCK_STOP)
    say(of, block("thinking", thinking=""))

    assert of.facts.phase is Phase.IN_REASONING


# Silence.

SERVER_TOOL = block("server_tool_use", name="web_search")
RESULT = block("web_search_tool_result", content=[])


@pytest.mark.parametrize(
    ("events", "waiting"),
    [
        ([block("text", text="")], False),
        ([block("thinking", thinking="")], True),
        ([block("thinking", thinking=""), delta("thinking_delta", thinking="x")], True),
        ([block("thinking", thinking=""), PING], True),
        ([block("thinking", thinking=""), BLOCK_STOP], False),
        ([block("compaction")], True),
        ([block("tool_use", name="f")], True),
        ([block("tool_use", name="f"), delta("input_json_delta", partial_json="{")], True),
        ([block("tool_use", name="f"), BLOCK_STOP], False),
        ([SERVER_TOOL], True),
        ([SERVER_TOOL, BLOCK_STOP], True),
        ([SERVER_TOOL, BLOCK_STOP, RESULT], False),
        ([SERVER_TOOL, BLOCK_STOP, RESULT, BLOCK_STOP], False),
        ([block("mcp_tool_use", name="f"), BLOCK_STOP], True),
        ([block("mcp_tool_use", name="f"), BLOCK_STOP, block("mcp_tool_result")], False),
        # Two at once: the second result is still to come.
        ([SERVER_TOOL, BLOCK_STOP, SERVER_TOOL, BLOCK_STOP, RESULT, BLOCK_STOP], True),
        # Text without a result: nothing is running any more.
        ([SERVER_TOOL, BLOCK_STOP, block("text", text=""), BLOCK_STOP], False),
        ([SERVER_TOOL, BLOCK_STOP, stopped("pause_turn")], False),
    ],
)
def test_when_silence_is_normal(events: list[dict[str, Any]], waiting: bool) -> None:
    of = fresh()
    for event in events:
        say(of, event)

    assert of.facts.waiting == waiting


# Ends.


@pytest.mark.parametrize(
    ("reason", "abnormal"),
    [
        ("end_turn", False), ("tool_use", False), ("stop_sequence", False), ("pause_turn", False),
        ("something_new", False), ("max_tokens", True), ("refusal", True),
        ("model_context_window_exceeded", True), ("compaction", True),
    ],
)  # fmt: skip
def test_message_stop_finishes_and_nothing_before_it(reason: str, abnormal: bool) -> None:
    of = fresh()
    say(of, START)
    say(of, stopped(reason))
    assert not of.facts.finished

    assert say(of, STOP) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.terminal, facts.abnormal) == (True, True, abnormal)
    assert facts.finish_reason == reason
    assert facts.phase is Phase.AFTER_FINISH


def test_a_message_without_a_stop_reason_is_complete() -> None:
    of = fresh()
    say(of, stopped(None))
    say(of, STOP)

    assert of.facts.finished
    assert of.facts.finish_reason is None


# Errors.


@pytest.mark.parametrize(
    ("kind", "details", "retryable", "status"),
    [
        ("overloaded_error", None, True, 529),
        ("api_error", None, True, 500),
        ("timeout_error", None, True, 504),
        ("rate_limit_error", None, True, 429),
        ("rate_limit_error", {"error_code": "ramp_limit_exceeded"}, True, 429),
        ("rate_limit_error", {"error_code": "enforced_spend_limit_reached"}, False, 429),
        ("rate_limit_error", {"error_code": "contract_spend_limit_reached"}, False, 429),
        ("invalid_request_error", None, False, 400),
        ("authentication_error", None, False, 401),
        ("permission_error", None, False, 403),
        ("not_found_error", None, False, 404),
        ("billing_error", None, False, 402),
        ("request_too_large", None, False, 413),
    ],
)
def test_what_an_error_means(
    kind: str, details: dict[str, str] | None, retryable: bool, status: int
) -> None:
    of = fresh()
    error = {"details": details, "type": kind, "message": "m"}

    assert say(of, {"type": "error", "error": error, "request_id": "req_1"}) is Kind.ERROR
    assert of.facts.error is not None
    assert (of.facts.error.type, of.facts.error.message) == (kind, "m")
    assert (of.facts.error.retryable, of.facts.error.status) == (retryable, status)
    assert of.facts.error.code == (details or {}).get("error_code")
    assert of.complement(ending=False) == of.complement(ending=True) == b""


@pytest.mark.parametrize(
    ("event", "name", "kind"),
    [
        ({"code": 500, "message": "m", "type": "server_error"}, "error", "server_error"),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, "", "api_error"),
        ({"error": {"type": "api_error", "message": "m"}}, "", "api_error"),
        ({"error": {"type": "api_error", "message": "m"}}, "error", "api_error"),
        ({"type": "error", "message": "m"}, "error", "error"),
        ({"type": "error", "error": "m"}, "error", "error"),
        (b"m", "error", "error"),
    ],
)
def test_an_error_that_some_client_misses_is_told_again_once(
    event: object, name: str, kind: str
) -> None:
    of = fresh()

    assert read(of, event, name) is Kind.ERROR
    assert of.facts.error is not None
    assert of.facts.error.type == kind
    ((added_name, added),) = told(of.complement(ending=False))
    assert added_name == added["type"] == "error"
    assert (added["error"]["type"], added["error"]["message"]) == (kind, "m")
    assert of.complement(ending=False) == of.complement(ending=True) == b""


def test_an_error_stays_when_a_finish_follows_it() -> None:
    of = fresh()
    say(of, {"type": "error", "error": {"type": "api_error", "message": "m"}})

    assert say(of, STOP) is Kind.FINISH
    assert of.facts.error is not None


def test_a_fault_is_told_in_the_form_that_every_client_raises_on() -> None:
    assert told(fresh().fault(Fault("upstream_stalled", "Words."))) == [
        (
            "error",
            {
                "type": "error",
                "error": {"type": "api_error", "message": "Words.", "code": "upstream_stalled"},
            },
        )
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "not_found_error"), (413, "request_too_large"), (429, "rate_limit_error"),
        (431, "invalid_request_error"), (500, "api_error"), (502, "api_error"),
        (503, "api_error"), (504, "timeout_error"),
    ],
)  # fmt: skip
def test_an_error_body_has_anthropics_shape(status: int, kind: str) -> None:
    assert json.loads(anthropic.error_body(status, "some_code", "Words.")) == {
        "type": "error",
        "error": {"type": kind, "message": "Words.", "code": "some_code"},
        "request_id": None,
    }


# Counts.


def test_counts_come_at_the_start_and_grow_to_the_end() -> None:
    of = fresh()
    say(of, START)
    usage = of.facts.usage
    assert of.facts.model == "claude-test"
    assert (usage.input, usage.output, usage.cached) == (30, 1, 24)

    end = stopped("end_turn", output_tokens=11)
    end["usage"]["output_tokens_details"] = {"thinking_tokens": 5}
    say(of, end)

    assert (usage.input, usage.output, usage.cached, usage.reasoning) == (30, 11, 24, 5)


# Leniency.


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"message_stop","score":NaN}',
        b'{"type":"message_stop","x":"\\ud800"}',
        b'{"type":"message_stop","x":"\xff"}',
        b'{"type":"message_stop","x":"a\nb"}',
        b'{"type":"message_stop","delta":5,"usage":[],"content_block":"x","error":null}',
        b'{"type":"message_stop"        }',
    ],
)
def test_a_finish_is_found_in_json_that_strict_parsers_reject(data: bytes) -> None:
    of = fresh()

    assert read(of, data, "message_stop") is Kind.FINISH
    assert of.facts.finished


def test_content_of_the_wrong_type_is_no_content() -> None:
    of = fresh()

    assert say(of, delta("text_delta", text=None)) is Kind.HEARTBEAT
    assert say(of, {"type": "content_block_start", "content_block": 5}) is Kind.STATE
    assert say(of, {"type": "message_start", "message": [1]}) is Kind.STATE
    assert of.facts.model is None


@pytest.mark.parametrize(("kind", "acted"), [("mcp_tool_use", True), ("server_tool_use", False)])
def test_a_call_of_another_servers_tool_is_an_act(kind: str, acted: bool) -> None:
    of = reader("anthropic")
    block = {"type": kind, "id": "t", "name": "send_mail", "input": {}}
    read(of, {"type": "content_block_start", "index": 0, "content_block": block})
    assert of.facts.acted is acted


def test_the_result_of_a_servers_tool_is_work() -> None:
    of = reader("anthropic")
    block = {"type": "web_search_tool_result", "tool_use_id": "x", "content": []}
    read(of, {"type": "content_block_start", "index": 0, "content_block": block})
    assert of.facts.worked
