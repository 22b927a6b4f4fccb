"""What an error says beside its message: all of it, once, readable, and nothing for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.error_detail import MAX_PIECES, contains, flat, pieces, sentence


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            {"code": "bad_tool_call", "param": "messages[3].tool_calls"},
            ["code: bad_tool_call", "param: messages[3].tool_calls"],
        ),
        (
            {
                "metadata": {
                    "raw": '{"error":{"message":"why","code":"c"}}',
                    "provider_name": "Acme",
                }
            },
            ["code: c", "why", "provider_name: Acme"],
        ),
        ({"metadata": {"raw": "only text"}}, ["only text"]),
        ({"metadata": {"raw": "<html><title>502 Oops</title>"}}, ["502 Oops"]),
        (
            {
                "innererror": {
                    "code": "Policy",
                    "content_filter_result": {"hate": {"filtered": True}},
                }
            },
            ["code: Policy", "content_filter_result.hate.filtered: true"],
        ),
        ({"details": [{"@type": "x.RetryInfo", "retryDelay": "34s"}]}, ["retryDelay: 34s"]),
        ({"errors": [{"message": "one"}, {"reason": "two"}, "three"]}, ["one", "two", "three"]),
        (
            {"detail": [{"loc": ["body", "a", 0], "msg": "odd", "input": "the prompt"}]},
            ["body.a.0: odd"],
        ),
        ({"violations": [{"field": "f", "description": "d"}]}, ["f: d"]),
        ({"errors": [{"path": ["x", 1], "message": "bad"}]}, ["x.1: bad"]),
        ({"field": "f"}, ["field: f"]),
        (
            {"limit": 10, "ratio": 0.5, "on": True, "off": False, "nil": None, "empty": ""},
            ["limit: 10", "ratio: 0.5", "on: true"],
        ),
        ({"type": "invalid_request_error", "status": "INVALID_ARGUMENT", "code": 400}, []),
        (
            {"type": "tokens", "status": "FAILED_PRECONDITION"},
            ["type: tokens", "status: FAILED_PRECONDITION"],
        ),
        ({"code": "same", "reason": "same"}, ["code: same"]),
        ({"line": "a\n\t b\0c"}, ["line: a b c"]),
    ],
)
def test_what_an_error_says_beside_its_message(error: dict[str, Any], said: list[str]) -> None:
    assert pieces({"error": {"message": "No", **error}}, "No", 400) == said


@pytest.mark.parametrize(
    "key",
    [
        "request_id",
        "id",
        "user_id",
        "trace_id",
        "responseId",
        "timestamp",
        "documentation_url",
        "stack",
        "headers",
        "@type",
        "object",
        "input",
        "ctx",
        "is_byok",
        "statusCode",
        "x_request_id",
    ],
)
def test_what_helps_nobody_is_left_out(key: str) -> None:
    assert pieces({"error": {"message": "No", key: "1b2c3d"}}, "No") == []


def test_what_the_message_says_is_not_said_again() -> None:
    error = {"code": "rate_limit", "param": "Temperature", "reason": "other"}
    message = "rate_limit: the temperature is off"
    assert pieces(error, message) == ["other"]
    assert pieces({"code": "rate"}, message) == ["code: rate"], "a part of a word is none"


def test_what_the_model_said_is_for_the_client_and_not_for_the_log() -> None:
    error = {"failed_generation": "<function=x>"}
    assert pieces(error, "") == ["failed_generation: <function=x>"]
    assert pieces(error, "", log=True) == []


def test_secrets_are_taken_out_before_anything_is_compared() -> None:
    said = pieces({"a": "key-1", "b": "key-2"}, "", clean=lambda text: text.replace("key-", "*"))
    assert said == ["a: *1", "b: *2"]


def test_depth_and_number_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = {"x": deep}
    assert pieces(deep, "") == []
    assert len(pieces([f"piece {number}" for number in range(1000)], "")) == MAX_PIECES
    assert pieces(["same"] * 100_000, "") == ["same"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("text", "text"),
        ({"message": "m", "detail": "d"}, "m"),
        ({"message": "", "detail": "d"}, "d"),
        ({"errors": "x"}, ""),
        ({"message": {"detail": "deep"}}, "deep"),
        ([{"msg": "a"}, {"nothing": 1}, "b"], "a; b"),
        ({"loc": ["body", "n"], "msg": "odd"}, "body.n: odd"),
        ('{"message":"inside"}', "inside"),
        ('{"code":"c","n":1}', "code: c; n: 1"),
        ("{not json}", "{not json}"),
        (None, ""),
        (5, ""),
    ],
)
def test_the_sentence_of_an_error(value: Any, words: str) -> None:
    assert sentence(value) == words


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("the Param x", "param", True),
        ("parameter", "param", False),
        ("a (b)", "(b)", True),
        ("", "", True),
        ("x", "y", False),
    ],
)
def test_whether_a_text_says_something_already(text: str, words: str, found: bool) -> None:
    assert contains(text, words) is found


def test_one_line_without_controls_and_without_markup() -> None:
    assert flat(" a\r\n\x00b\ud800c ") == "a b c"
    assert flat("<html><head><title>502 &amp; more</title><style>p{}</style>") == "502 & more"
    assert len(flat("x" * 1_000_000)) < 100_000


def test_no_more_is_looked_at_than_could_be_told() -> None:
    looked_at: list[str] = []

    def clean(text: str) -> str:
        looked_at.append(text)
        return text

    for value in ([f"{at} " + "x" * 3990 for at in range(250)], ["m"] * 50_000, list(range(9999))):
        looked_at.clear()
        pieces({"details": value}, "m", clean=clean)
        assert sum(map(len, looked_at)) < 80_000
        assert len(looked_at) <= 400
