"""Messages grow by what the body says elsewhere, in bounds, and never by what clients act on."""

from __future__ import annotations

import json

import pytest

from gateway import protocols
from gateway.policy.enrich import enrich
from gateway.policy.error_body import Answer
from gateway.policy.error_growth import MARKER, MAX_ADDED
from tests.policy.client_oracle import reaction
from tests.policy.error_bodies import message_of, told


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {
                "error": {
                    "message": "Invalid request.",
                    "code": "bad_tool_call",
                    "param": "messages[3].tool_calls",
                }
            },
            "Invalid request. (code: bad_tool_call; param: messages[3].tool_calls)",
        ),
        (
            {
                "error": {
                    "message": "No",
                    "metadata": {"raw": '{"error":{"message":"tools[3].name is too long"}}'},
                }
            },
            "No (tools[3].name is too long)",
        ),
        (
            {"error": {"message": "No", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            "No (code: ResponsibleAIPolicyViolation)",
        ),
        (
            {"error": {"message": "No", "failed_generation": "<function=x>"}},
            "No (failed_generation: <function=x>)",
        ),
        (
            {"error": {"message": "No", "errors": [{"message": "first"}, {"message": "second"}]}},
            "No (first; second)",
        ),
        (
            {
                "error": {
                    "message": "No",
                    "details": [{"fieldViolations": [{"field": "a.b", "description": "odd"}]}],
                }
            },
            "No (a.b: odd)",
        ),
        ({"error": {"message": "No", "field": "a.b"}}, "No (field: a.b)"),
        ({"error": {"message": "No", "type": "invalid_request_error", "code": 400}}, "No"),
        (
            {"error": {"message": "See the code a_b.", "code": "a_b", "param": None}},
            "See the code a_b.",
        ),
        ({"error": {"message": "Bad Request", "param": "n"}}, "param: n"),
        ({"error": {"message": "400 Bad Request", "param": "n"}}, "param: n"),
        ({"error": {"message": "", "detail": "the cause"}}, "the cause"),
        (
            {"error": {"message": ""}},
            "The provider answered with HTTP 400 (Bad Request) and gave no reason.",
        ),
        ({"error": {"message": "1234", "param": "n"}}, "1234 (param: n)"),
        ({"error": {"message": None, "code": "x"}}, "code: x"),
        ({"error": {}}, "The provider answered with HTTP 400 (Bad Request) and gave no reason."),
        (
            {
                "detail": [
                    {"loc": ["body", "n"], "msg": "odd"},
                    {"loc": ["body", "m"], "msg": "even"},
                ]
            },
            "body.n: odd; body.m: even",
        ),
        ({"errors": ["first", "second"]}, "first; second"),
        ([{"loc": ["a"], "msg": "one"}, {"msg": "two"}], "a: one; two"),
        ('{"message":"twice wrapped"}', "twice wrapped"),
        ("only text", "only text"),
        ({"error": {"message": "No", "type": "None", "param": "None", "code": "null"}}, "No"),
        (
            {"error": {"message": "A <title>page</title>", "code": "c", "param": "a page"}},
            "A <title>page</title> (code: c; param: a page)",
        ),
    ],
)
def test_what_a_body_says_anywhere_is_in_its_message(body: object, message: str) -> None:
    assert message_of(400, json.dumps(body).encode()) == message


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "No", "code": "rate_limit_exceeded"}},
        {"error": {"message": "exhausted", "param": "try again later"}},
        {"error": {"message": "ratelimit", "param": "too many requests"}},
        {"error": {"message": "prompt too long", "param": "prompt is too long"}},
        {"error": {"message": "maximum context", "param": "maximum context length is 9 tokens"}},
        {"error": {"message": "bad request!", "param": "request entity too large"}},
        {"error": {"message": "too", "code": "n", "param": "many tokens"}},
        {"detail": "rate\nlimit"},
        {"message": "GoUsageLimitError"},
        {"error": '{"message": 0, "path": 429}'},
        '{"message": "{}", "code": "request_too_large"}',
        [429],
    ],
)
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "gemini"])
def test_words_on_which_clients_act_are_not_put_into_a_message(body: object, dialect: str) -> None:
    source = json.dumps(body).encode()
    enriched = enrich(Answer(400, {}, source), protocols.BY_NAME[dialect])
    after = source if enriched is None else enriched.body
    assert reaction(400, after, dialect) == reaction(400, source, dialect)


def test_the_phrase_that_counts_is_the_one_that_came() -> None:
    """A client shows more than a message only where that is the answer's own phrase."""
    body = b'{"error":{"message":"Bad Request","param":"request entity too large"}}'
    for reason, appended in (("", True), ("Nope", False)):
        answer = Answer(400, {}, body, reason=reason)
        enriched = enrich(answer, protocols.BY_NAME["openai_chat"])
        after = body if enriched is None else enriched.body
        assert ("too large" in json.loads(after)["error"]["message"]) is appended


def test_what_cannot_be_the_message_is_told_piece_by_piece() -> None:
    """A validation report whose place, before its words, would be taken for a full context."""
    body = b'{"field":"prompt is too long","message":"Invalid value","detail":0}'
    enriched = enrich(Answer(400, {}, body), protocols.BY_NAME["openai_chat"])
    assert enriched is not None
    assert json.loads(enriched.body)["error"]["message"].endswith("(Invalid value; 0)")
    assert enrich(Answer(400, {}, enriched.body), protocols.BY_NAME["openai_chat"]) is None


def test_what_is_appended_is_bounded_marked_and_whole_characters() -> None:
    body = json.dumps({"error": {"message": "No", "failed_generation": "😀" * 5000}}).encode()
    message = message_of(400, body)
    assert message.startswith("No (failed_generation: 😀")
    assert message.endswith(f"😀{MARKER})")
    assert len(message) - len("No") == MAX_ADDED


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "gemini"])
@pytest.mark.parametrize("form", ["text", "detail", "list", "input"])
def test_of_what_was_taken_for_a_full_context_only_that_is_told(form: str, dialect: str) -> None:
    secret = "own-Zyxwvut-Qponmlk"
    words = f"input length password=hunter22 {secret} exceeds the context length"
    values: dict[str, object] = {
        "detail": {"detail": f"rate limit {words}"},
        "list": [{"loc": ["a"], "msg": "bad", "input": words}],
        "input": {"detail": [{"loc": ["a"], "msg": "bad", "input": words}]},
    }
    body = json.dumps(values[form]).encode() if form in values else words.encode()
    message = told(422, body, dialect, secrets=(secret,))["error"]["message"]
    assert "hunter22" not in message
    assert secret not in message
    after = enrich(Answer(422, {}, body), protocols.BY_NAME[dialect], (secret,))
    assert after is not None
    assert reaction(422, after.body, dialect) == reaction(422, body, dialect)
    assert enrich(Answer(422, {}, after.body), protocols.BY_NAME[dialect], (secret,)) is None


def test_a_page_inside_a_message_hides_nothing_of_it() -> None:
    body = b'{"error":{"message":"APIError: <html><title>No</title></html>","code":"blocked"}}'
    once = enrich(Answer(400, {}, body), protocols.BY_NAME["openai_chat"])
    assert once is not None
    assert json.loads(once.body)["error"]["message"].endswith("</html> (code: blocked)")
    assert enrich(Answer(400, {}, once.body), protocols.BY_NAME["openai_chat"]) is None


def test_a_message_that_was_cut_grows_once_and_still_says_that_the_context_is_full() -> None:
    long = json.dumps(
        {"error": "No", "details": ["x" * 3000, "reduce the length of the messages"], "code": 1}
    ).encode()
    cut = f'{{"message":"x {MARKER}","param":"reduce the length of the messages"}}'.encode()
    said = []
    for status, body in ((499, long), (499, cut), (400, cut)):
        once = enrich(Answer(status, {}, body), protocols.BY_NAME["openai_chat"])
        assert once is not None
        assert enrich(Answer(status, {}, once.body), protocols.BY_NAME["openai_chat"]) is None
        said.append(json.loads(once.body)["error"]["message"])
    # Without a reason phrase clients show all of the body.
    assert said[1:] == [f"x {MARKER} (context_length_exceeded)", f"x {MARKER}"]


@pytest.mark.parametrize("after", ["", ")", ".", " of 30 characters that follow.", " y" * 30])
@pytest.mark.parametrize("words", ["prompt is too long", "try again later", "none"])
@pytest.mark.parametrize("code", ["context_length_exceeded", "c"])
def test_a_message_with_a_mark_anywhere_grows_once(after: str, words: str, code: str) -> None:
    error = {"message": f"m {MARKER}{after}", "type": words, "code": code, "param": "p"}
    body = json.dumps({"error": error, "x": words}).encode()
    for dialect in ("openai_chat", "anthropic", "gemini"):
        protocol = protocols.BY_NAME[dialect]
        once = enrich(Answer(400, {}, body), protocol)
        if once is not None:
            assert enrich(Answer(400, {}, once.body), protocol) is None
