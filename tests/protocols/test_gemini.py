"""Gemini: candidates that finish and may go on, failures in three forms, and counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.protocols import gemini
from gateway.streams.events import Fault, Kind, Phase, Reader, Verdict
from tests.protocols.reading import read, reader, told
from tests.streams.feeding import feed, open_stream


def fresh() -> Reader:
    return reader("gemini")


def chunk(*parts: dict[str, Any], reason: Any = None, index: int | None = 0) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if index is not None:
        candidate["index"] = index
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate]}


TEXT = {"text": "a"}


def test_a_second_candidate_that_was_asked_for_is_awaited() -> None:
    of = reader("gemini", 2)
    read(of, chunk(TEXT, reason="STOP"))
    assert (of.facts.finished, of.facts.awaited) == (True, True)
    read(of, chunk(TEXT, reason="STOP", index=1))
    assert (of.facts.finished, of.facts.awaited) == (True, False)


# Content.


@pytest.mark.parametrize(
    ("part", "phase"),
    [
        ({"text": "a"}, Phase.IN_TEXT),
        ({"text": "a", "thoughtSignature": "c2ln"}, Phase.IN_TEXT),
        ({"text": "hm", "thought": True}, Phase.IN_REASONING),
        ({"functionCall": {"name": "f", "args": {}}}, Phase.IN_TOOL_CALL),
        ({"functionCall": {"name": "f"}, "thoughtSignature": "c2ln"}, Phase.IN_TOOL_CALL),
        ({"executableCode": {"code": "1"}}, Phase.IN_TOOL_CALL),
        ({"toolCall": {"id": "1"}}, Phase.IN_TOOL_CALL),
        ({"codeExecutionResult": {"output": "1"}}, Phase.IN_TEXT),
        ({"inlineData": {"data": "AA=="}}, Phase.IN_TEXT),
        ({"somethingNew": {"x": 1}}, Phase.IN_TEXT),
    ],
)
def test_what_is_content_and_of_which_phase(part: dict[str, Any], phase: Phase) -> None:
    for before in ([], [chunk(TEXT)]):
        of = fresh()
        for event in before:
            read(of, event)

        assert read(of, chunk(part)) is Kind.CONTENT
        assert of.facts.phase is phase
        assert of.facts.waiting == (phase is Phase.IN_TOOL_CALL)


def test_the_last_part_that_says_something_sets_the_phase() -> None:
    of = fresh()

    read(of, chunk({"text": "hm", "thought": True}, TEXT, {"text": ""}))

    assert of.facts.phase is Phase.IN_TEXT


@pytest.mark.parametrize(
    "event",
    [
        b"{}",
        chunk({"text": ""}),
        chunk(),
        {"candidates": [{"index": 0}]},
        {"responseId": "r"},
        {"usageMetadata": {}},
    ],
)
def test_what_brings_nothing_is_a_heartbeat(event: object) -> None:
    of = fresh()
    read(of, chunk(TEXT))

    assert read(of, event) is Kind.HEARTBEAT


def test_counts_and_model_are_progress_only_while_they_are_news() -> None:
    of = fresh()
    event = {"usageMetadata": {"thoughtsTokenCount": 5}, "modelVersion": "g-1"}

    assert read(of, event) is Kind.STATE
    assert read(of, event) is Kind.HEARTBEAT
    assert read(of, {"usageMetadata": {"thoughtsTokenCount": 9}}) is Kind.STATE
    assert (
        read(of, chunk({"text": ""}) | {"usageMetadata": {"thoughtsTokenCount": 10}}) is Kind.STATE
    )
    assert of.facts.usage.reasoning == 10


@pytest.mark.parametrize(
    "event",
    [
        chunk({"text": "", "thoughtSignature": "c2ln"}),
        chunk({"thoughtSignature": "c2ln"}),
        {"promptFeedback": {"safetyRatings": []}},
    ],
)
def test_other_news_is_progress(event: object) -> None:
    assert read(fresh(), event) is Kind.STATE


@pytest.mark.parametrize("event", [{"new": 1}, b"words", [1], [{"a": 1}]])
def test_what_is_not_understood_is_opaque(event: object) -> None:
    of = fresh()

    assert read(of, event) is Kind.OPAQUE
    assert of.facts.error is None


# Finish.

ABNORMAL = [
    "MAX_TOKENS", "SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT",
    "SPII", "MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY", "NO_IMAGE", "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE", "MODEL_ARMOR",
]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "abnormal"),
    [("STOP", False), ("SOMETHING_NEW", False), *((reason, True) for reason in ABNORMAL)],
)
@pytest.mark.parametrize("index", [0, None])
def test_a_finish_reason_finishes(reason: str, abnormal: bool, index: int | None) -> None:
    of = fresh()
    read(of, chunk(TEXT, index=index))

    assert read(of, {"candidates": [{"finishReason": reason}]}) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.finish_reason, facts.abnormal) == (True, reason, abnormal)
    assert facts.phase is Phase.AFTER_FINISH


@pytest.mark.parametrize("reason", [None, "", "FINISH_REASON_UNSPECIFIED"])
def test_no_reason_is_no_finish(reason: object) -> None:
    of = fresh()

    assert read(of, chunk(TEXT, reason=reason)) is Kind.CONTENT
    assert not of.facts.finished


def test_a_finish_may_bring_the_content() -> None:
    of = fresh()

    assert read(of, chunk({"functionCall": {"name": "f"}}, reason="STOP")) is Kind.CONTENT
    assert of.facts.finished
    assert not of.facts.waiting


def test_no_finish_ends_the_answer_before_the_stream_ends() -> None:
    of = fresh()
    read(of, chunk(TEXT, reason="STOP"))

    assert not of.may_close()
    assert not of.facts.terminal


def test_content_without_a_finish_takes_the_finish_back() -> None:
    of = fresh()
    for event, finished in [
        (chunk(TEXT, reason="STOP"), True),
        (chunk(TEXT, reason="STOP"), True),
        (chunk(TEXT), False),
        (chunk(TEXT), False),
        (chunk(TEXT, reason="MAX_TOKENS"), True),
    ]:
        assert read(of, event) is Kind.CONTENT
        assert of.facts.finished == finished

    assert of.facts.finish_reason == "MAX_TOKENS"
    assert of.facts.abnormal


def test_a_stream_that_goes_on_after_a_finish_and_then_ends_is_cut() -> None:
    def event(value: object) -> bytes:
        return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"

    whole, cut = open_stream("gemini"), open_stream("gemini")
    stops = [event(chunk(TEXT, reason="STOP")) for _ in range(3)]

    feed(whole, stops)
    feed(cut, [*stops, event(chunk(TEXT))])

    assert whole.verdict is Verdict.COMPLETE
    assert cut.verdict is Verdict.BARE_EOF


def test_a_chunk_without_content_takes_nothing_back() -> None:
    of = fresh()
    read(of, chunk(TEXT, reason="STOP"))

    read(of, {"candidates": [{"index": 0}], "usageMetadata": {"promptTokenCount": 4}})

    assert of.facts.finished


def test_all_candidates_seen_must_finish() -> None:
    of = fresh()
    read(of, chunk(TEXT, index=0))
    read(of, chunk(TEXT, index=1))
    read(of, chunk(reason="STOP", index=0))
    assert not of.facts.finished

    read(of, chunk(reason="SAFETY", index=1))

    assert of.facts.finished
    assert (of.facts.finish_reason, of.facts.abnormal) == ("SAFETY", True)


@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "PROHIBITED_CONTENT", "SOMETHING_NEW"])
def test_a_blocked_prompt_is_an_answer(reason: str) -> None:
    of = fresh()

    assert read(of, {"promptFeedback": {"blockReason": reason}}) is Kind.FINISH
    facts = of.facts
    assert (facts.finished, facts.abnormal, facts.finish_reason) == (True, True, reason)


@pytest.mark.parametrize("reason", [None, "", "BLOCKED_REASON_UNSPECIFIED"])
def test_a_prompt_that_is_not_blocked_ends_nothing(reason: object) -> None:
    of = fresh()

    assert read(of, {"promptFeedback": {"blockReason": reason}}) is Kind.STATE
    assert not of.facts.finished


def test_feedback_on_the_prompt_does_not_end_an_answer_that_has_begun() -> None:
    of = fresh()
    read(of, chunk(TEXT))

    read(of, {"promptFeedback": {"blockReason": "SAFETY"}})

    assert not of.facts.finished


# Errors.


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("UNAVAILABLE", 503, True), ("INTERNAL", 500, True), ("DEADLINE_EXCEEDED", 504, True),
        ("RESOURCE_EXHAUSTED", 429, True), ("ABORTED", 409, True), ("CANCELLED", 499, True),
        ("INVALID_ARGUMENT", 400, False), ("FAILED_PRECONDITION", 400, False),
        ("UNAUTHENTICATED", 401, False), ("PERMISSION_DENIED", 403, False),
        ("NOT_FOUND", 404, False), ("SOMETHING_NEW", 503, True), ("SOMETHING_NEW", 400, False),
    ],
)  # fmt: skip
def test_what_an_error_means(status: str, code: int, retryable: bool) -> None:
    of = fresh()
    error = {"error": {"code": code, "message": "m", "status": status}}

    assert read(of, error) is Kind.ERROR
    assert of.facts.error is not None
    assert (of.facts.error.type, of.facts.error.code) == (status, str(code))
    assert (of.facts.error.retryable, of.facts.error.status) == (retryable, code)
    assert of.complement(ending=False) == of.complement(ending=True) == b""


def test_a_daily_quota_does_not_come_back_within_a_retry() -> None:
    of = fresh()
    violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
    error = {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}
    read(of, {"error": error | {"details": [{"violations": [violation]}]}})

    assert of.facts.error is not None
    assert not of.facts.error.retryable


RAW = b'{\n  "error": {\n    "code": 429,\n    "message": "m",\n    "status": "ABORTED"\n  }\n}\n'


def test_bare_json_is_read_as_clients_read_it() -> None:
    error, text = fresh(), fresh()

    assert error.read_bare(RAW) is Kind.ERROR
    assert error.facts.error is not None
    assert error.facts.error.type == "ABORTED"
    assert error.complement(ending=True) == b""
    assert text.read_bare(json.dumps(chunk(TEXT)).encode() + b"\n") is Kind.CONTENT


@pytest.mark.parametrize("block", [b"event: x", b"retry: 3000\n", b"id: {", b"\n"])
def test_other_lines_without_data_are_heartbeats(block: bytes) -> None:
    assert fresh().read_bare(block) is Kind.HEARTBEAT


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_bare_json_in_a_stream_is_an_error_in_any_pieces(line_end: bytes) -> None:
    body = b"data: " + json.dumps(chunk(TEXT)).encode() + b"\n\n" + RAW
    body = body.replace(b"\n", line_end)
    for cut in range(1, len(body)):
        stream = open_stream("gemini")
        feed(stream, [body[:cut], body[cut:]])
        assert stream.verdict is Verdict.PROVIDER_ERROR


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"error": "m"}, "m"),
        ({"error": {"message": "m", "status": "UNAVAILABLE"}}, "m"),
        ({"error": {"message": "m", "code": "503"}}, "m"),
        ([{"error": {"message": "m", "code": 503, "status": "UNAVAILABLE"}}], "m"),
    ],
)
def test_an_error_that_the_sdk_does_not_know_is_told_again_once(
    event: object, message: str
) -> None:
    of = fresh()

    assert read(of, event) is Kind.ERROR
    ((_, added),) = told(of.complement(ending=False))
    assert added["error"]["message"] == message
    assert isinstance(added["error"]["code"], int)
    assert of.complement(ending=False) == of.complement(ending=True) == b""


def test_a_fault_is_an_error_chunk_with_the_gateways_code_in_its_details() -> None:
    frames = fresh().fault(Fault("upstream_stalled", "Words."))

    assert frames is not None
    assert frames.endswith(b"\r\n\r\n")
    assert told(frames) == [
        (
            "",
            {
                "error": {
                    "code": 503,
                    "message": "Words.",
                    "status": "UNAVAILABLE",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                            "reason": "upstream_stalled",
                            "domain": "gateway",
                        }
                    ],
                }
            },
        )
    ]


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (404, "NOT_FOUND"),
        (413, "INVALID_ARGUMENT"), (429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"),
        (501, "UNIMPLEMENTED"), (502, "UNAVAILABLE"), (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)  # fmt: skip
def test_an_error_body_has_googles_shape(status: int, name: str) -> None:
    error = json.loads(gemini.error_body(status, "some_code", "Words."))["error"]

    assert (error["code"], error["status"], error["message"]) == (status, name, "Words.")
    assert error["details"][0]["reason"] == "some_code"


# Counts.


def test_the_last_counts_win() -> None:
    of = fresh()
    read(of, chunk(TEXT) | {"usageMetadata": {"promptTokenCount": 12}, "modelVersion": "g-1"})
    read(of, chunk(TEXT) | {"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 1}})
    read(
        of,
        chunk(TEXT, reason="STOP")
        | {
            "usageMetadata": {
                "promptTokenCount": 12,
                "candidatesTokenCount": 6,
                "thoughtsTokenCount": 30,
                "cachedContentTokenCount": 8,
            }
        },
    )
    usage = of.facts.usage

    assert of.facts.model == "g-1"
    assert (usage.input, usage.output, usage.cached, usage.reasoning) == (12, 6, 8, 30)


# Leniency.


@pytest.mark.parametrize(
    "data",
    [
        b'{"candidates":[{"finishReason":"STOP","avgLogprobs":NaN}]}',
        b'{"candidates":[{"content":{"parts":[{"text":"\\ud800"}]},"finishReason":"STOP"}]}',
        b'{"candidates":[{"content":{"parts":[{"text":"\xff"}]},"finishReason":"STOP"}]}',
        b'{"candidates":[{"content":{"parts":[{"text":"a\nb"}]},"finishReason":"STOP"}]}',
        b'{"candidates":[{"index":0.0,"finishReason":"STOP"}],"usageMetadata":7}',
        b'{"candidates":[{"index":"x","content":5,"finishReason":"STOP"}],"modelVersion":[]}',
    ],
)
def test_a_finish_is_found_in_json_that_strict_parsers_reject(data: bytes) -> None:
    of = fresh()
    read(of, chunk(TEXT))

    assert read(of, data) in (Kind.FINISH, Kind.CONTENT)
    assert of.facts.finished


@pytest.mark.parametrize(
    ("chunk", "worked"),
    [
        ({"usageMetadata": {"promptTokenCount": 5, "toolUsePromptTokenCount": 90}}, True),
        ({"candidates": [{"groundingMetadata": {"webSearchQueries": ["q"]}}]}, True),
        ({"usageMetadata": {"promptTokenCount": 5}}, False),
        ({"candidates": [{"content": {"parts": []}}]}, False),
    ],
)
def test_a_search_that_shows_nothing_is_work(chunk: dict[str, Any], worked: bool) -> None:
    of = reader("gemini")
    read(of, chunk)
    assert of.facts.worked is worked


def test_of_a_model_that_says_stop_with_each_piece_no_stop_is_sure() -> None:
    of = reader("gemini")
    piece = {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}
    read(of, piece)
    assert (of.facts.finished, of.facts.doubtful, of.facts.resumed) == (True, False, False)
    read(of, piece)
    assert (of.facts.finished, of.facts.doubtful, of.facts.resumed) == (True, True, True)
