"""Each sample error in each dialect, and what bodies that mean harm become."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gateway import protocols
from gateway.policy.enrich import Enriched, enrich
from gateway.policy.error_body import Answer
from gateway.policy.error_growth import MAX_ADDED, MAX_MESSAGE
from gateway.policy.redact import secrets_of
from tests.policy.client_oracle import reaction
from tests.policy.error_bodies import message_of, told
from tests.samples.http_errors_catalog import HTTP_ERRORS, HttpError, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

DIALECTS = ("openai_chat", "openai_completions", "openai_responses", "anthropic", "gemini")
MESSAGES = {
    "anthropic_400.json": "prompt is too long (error_code: x)",
    "anthropic_529.json": "Overloaded",
    "azure_429.json": "Requests have exceeded token rate limit. Please retry after 6 seconds.",
    "azure_apim_401.json": "Access denied due to invalid subscription key.",
    "bedrock_429.json": "Too many requests, please wait before trying again. (ThrottlingException)",
    "cloudflare_524.html": "The provider answered with HTTP 524 and a web page of Cloudflare "
    'instead of an API error: "api.example | 524: A timeout occurred".',
    "cohere_429.json": "You are past the per minute request limit",
    "deepseek_400_octet.json": "No tool output found for tool call call-a.",
    "empty_503.txt": "The provider answered with HTTP 503 (Service Unavailable) and gave no "
    "reason.",
    "envoy_503.txt": "upstream connect error or disconnect/reset before headers. reset reason: "
    "connection termination",
    "fastapi_401.json": "Unauthorized",
    "fastapi_422.json": "body.model: Field required",
    "gemini_429.json": "You exceeded your current quota (retryDelay: 34s)",
    "gemini_503_array.json": "overloaded",
    "mistral_429.json": "Requests rate limit exceeded (code: 1300; type: rate_limited)",
    "nginx_502.html": "The provider answered with HTTP 502 (Bad Gateway) and a web page of nginx "
    'instead of an API error: "502 Bad Gateway".',
    "ollama_404.json": "model 'x' not found",
    "openai_400.json": "Invalid value for 'temperature'.",
    "openai_429.json": "Rate limit reached for gpt-test-1. Please try again in 1.2s. "
    "(code: rate_limit_exceeded; type: tokens)",
    "openai_429_quota.json": "You exceeded your current quota. (code: insufficient_quota)",
    "openrouter_402.json": "Insufficient credits",
    "openrouter_429.json": "Provider returned error (slow down; provider_name: Acme)",
    "sglang_400_flat.json": "bad",
    "xai_400.json": "The model expects one text element. "
    "(code: Client specified an invalid argument)",
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("error", HTTP_ERRORS, ids=name_of)
def test_each_sample_is_told_in_the_clients_dialect(error: HttpError, dialect: str) -> None:
    value = told(error.status, error.body, dialect, error.fields)
    message = value["error"]["message"]
    assert message == MESSAGES[error.file]
    assert all(words in message for words in error.detail)
    if dialect == "anthropic":
        assert value["type"] == "error"
        assert value["error"]["type"]
    if dialect == "gemini":
        assert "code" in value["error"]
        assert value["error"]["status"].isupper()


@pytest.mark.parametrize("error", HTTP_ERRORS, ids=name_of)
def test_no_client_does_something_else_about_a_sample(error: HttpError) -> None:
    for dialect in ("openai_chat", "anthropic", "gemini"):
        enriched = enrich(
            Answer(error.status, error.fields, error.body), protocols.BY_NAME[dialect]
        )
        if enriched is not None:
            before = reaction(error.status, error.body, dialect)
            assert reaction(error.status, enriched.body, dialect) == before


@pytest.mark.parametrize("error", HTTP_ERRORS, ids=name_of)
def test_what_a_sample_had_it_keeps(error: HttpError) -> None:
    if error.file.endswith(".json"):
        had = json.loads(error.body)
        had = had[0] if isinstance(had, list) else had
        has = told(error.status, error.body)
        own, new = had.pop("error", {}), has.pop("error")
        assert had == has
        if isinstance(own, dict) and own:
            assert {**own, "message": ""} == {**new, "message": ""}


@pytest.mark.parametrize("status", [401, 403])
def test_a_page_of_a_login_is_left_to_the_client(status: int) -> None:
    page = b"<html><title>Sign in</title></html>"
    assert enrich(Answer(status, {}, page), protocols.BY_NAME["openai_chat"]) is None


def test_without_a_dialect_json_grows_and_nothing_is_wrapped() -> None:
    grown = enrich(Answer(400, {}, b'{"error":{"message":"No","code":"c"}}'), None)
    assert grown is not None
    assert grown.body == b'{"error":{"message":"No (code: c)","code":"c"}}'
    for body in (b'{"detail":"x"}', b"text", b"", b"<html>", b"[1]"):
        assert enrich(Answer(400, {}, body), None) is None


def test_what_another_gateway_has_told_is_told() -> None:
    body = b'{"error":{"message":"No","code":"c"}}'
    answer = Answer(502, {"x-gateway-error": "upstream_stalled"}, body)
    assert enrich(answer, protocols.BY_NAME["openai_chat"]) is None


def test_spelling_stays() -> None:
    body = (
        b'{ "a" : 1.50e+3,\n"error":'
        b'{"message":"N\\u006f \\/","n":12345678901234567890123,"param":"p" } }\n'
    )
    enriched = enrich(Answer(400, {}, body), protocols.BY_NAME["openai_chat"])
    assert enriched is not None
    grown = '(param: p; n: 12345678901234567890123)"'
    assert enriched.body == body.replace(b'\\/"', b"\\/ " + grown.encode()).strip()


# Bodies that mean harm.


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "gemini"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"error":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"error":{"message":"deep","details":' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
        b'{"error":{"message":"wide","details":[' + b'{"a":"b"},' * 30_000 + b"1]}}",
        b'{"error":{"message":"inside","raw":"' + b"[" * 50_000 + b'"}}',
        b'{"error":{"message":"' + b"x" * 900_000 + b'"}}',
        b'{"error":{"message":"\xff\xfe\x00","code":"\xc3"}}',
        b'{"error":{"message":"\\ud800 lone","code":"\\udfff"}}',
        b'{"error":{"message":"m","n":' + b"9" * 5000 + b"}}",
        b'{"error":{"message":"m","n":NaN,"o":1e999}}',
        b'{"error":{"message":"twice","message":"counts","code":"a","code":"b"}}',
        b"\0" * 1000,
        b"\xff" * 1000,
        b"<" * 100_000,
        b"<html><title>" + b"x" * 100_000,
        b'"' * 1000,
        b"data: " * 1000,
    ],
)
def test_a_body_that_means_harm_is_told_in_bounds(body: bytes, dialect: str) -> None:
    message = message_of(502, body, dialect)
    assert message.strip()
    assert len(message) <= MAX_MESSAGE + MAX_ADDED


_HOSTILE = {
    "words": json.dumps({"error": {"message": "input length exceeds " * 48_000}}),
    "faults": json.dumps(
        {"detail": [{"loc": [at], "msg": "input length exceeds " * 180} for at in range(250)]}
    ),
    "members": '{"error":{"message":"m"},' + '"":0,' * 200_000 + '"a":0}',
    "inside": '{"error":{"code":"c",' + '"":0,' * 200_000 + '"a":0}}',
    "alike": json.dumps({"error": {"message": "-" * 65_000, "details": ["-" * 999 + "a"] * 900}}),
    "names": json.dumps({"error": {"details": ["api_key provided a b " * 180] * 250}}),
    "values": "{}" * 500_000,
    "events": 'data: {"a":1}\n\n' * 60_000,
    "page": "<html>" + "<title" * 160_000,
    "string": '{"error":{"message":"' + '\\"' * 500_000,
    "report": json.dumps({"detail": [{"loc": ["a"], "msg": "x" * 10}] * 20_000}),
}


@pytest.mark.parametrize("body", _HOSTILE.values(), ids=_HOSTILE.keys())
@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic"])
def test_a_hostile_megabyte_holds_nobody_up(body: str, dialect: str) -> None:
    plain = body.encode()[:1_000_000]
    began = time.process_time()
    enrich(Answer(422, {}, plain), protocols.BY_NAME[dialect], ("own-Zyxwvut-Qponmlk",))
    # Measured: at most 0.1 s. What is quadratic takes minutes.
    assert time.process_time() - began < 1.5


# Secrets.


def test_the_requests_own_credentials_are_shown_nowhere() -> None:
    own = "Own+Secret/98=abcdefgh"
    body = (
        b'{"error":{"message":"key Own+Secret/98=abcdefgh",'
        b'"param":"Own+Secret\\/98\\u003dabcdefgh"}}'
    )
    value = told(401, body, secrets=(own, own.replace("/", r"\/")))
    assert "abcdefgh" not in json.dumps(value)
    assert value["error"]["message"].startswith("key [redacted]")


def test_what_is_masked_in_the_message_is_not_said_by_another_field() -> None:
    body = b'{"error":{"message":"wrong password: hunter22","param":"hunter22","reason":"r"}}'
    assert message_of(401, body) == "wrong password: [redacted] (r)"


def test_a_credential_that_looks_like_anything_else_breaks_no_body() -> None:
    body = b'{"error":{"message":"m 123456","n":123456,"param":"p"}}'
    assert told(400, body, secrets=("123456",))["error"] == {
        "message": "m [redacted] (param: p)",
        "n": 123456,
        "param": "p",
    }
    assert told(400, body, secrets=("message", "string"))["error"]["message"]


@pytest.mark.parametrize("size", [40, 16_384])
def test_long_credentials_cost_little(size: int) -> None:
    said = [f"sk-ant-{number}-abcdefghijklmnop" for number in range(7000)]
    body = json.dumps({"error": {"message": "m", "details": said}}).encode()
    secret = "".join(chr(97 + number * number % 26) + str(number) for number in range(size))[:size]
    began = time.process_time()
    assert told(400, body, secrets=(secret,))["error"]["message"] == "m ([redacted])"
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-AbCdEfGh12345678",
        "gsk_AbCdEf1234567890AbCdEf",
        "AIzaSyA1234567890abcdefg",
        "Bearer AbCdEf1234567890",
        "https://x.example/a?sig=AbCdEf1234567890&x=1",
        "Cookie: session=AbCdEf1234567890",
        "X-Amz-Signature=AbCdEf1234567890",
    ],
)
@pytest.mark.parametrize("form", ["message", "param", "text", "page", "detail"])
def test_secrets_of_any_form_are_not_shown(secret: str, form: str) -> None:
    body = {
        "message": json.dumps({"error": {"message": f"bad {secret}"}}),
        "param": json.dumps({"error": {"message": "bad", "param": secret}}),
        "text": f"bad {secret}",
        "page": f"<html><title>bad {secret}</title>",
        "detail": json.dumps({"detail": f"bad {secret}"}),
    }[form]
    message = message_of(400, body.encode())
    assert "bad" in message
    assert "1234567890" not in message
    assert "12345678" not in message


@pytest.mark.parametrize(
    "body",
    [b'{"detail" : "KEY"}', b'["KEY"]', b"a KEY", b"<html>KEY</html>", b'{"a":"KEY', b"\xff KEY"],
)
def test_what_stays_as_it_is_loses_the_requests_credentials_alone(body: bytes) -> None:
    came = body.replace(b"KEY", b"own-secret-98")
    left = enrich(Answer(403, {}, came), None, ("own-secret-98",))
    assert left == Enriched(body.replace(b"KEY", b"[redacted]"), "masked")
    assert enrich(Answer(403, {}, body), None, ("own-secret-98",)) is None
    again = Answer(403, {"x-gateway-error": "x"}, came)
    assert enrich(again, protocols.BY_NAME["anthropic"], ("own-secret-98",)) == left


@pytest.mark.parametrize(
    "key", ['pa"ss\\word-Zz9q!x', "p/a\\/s'w-Zz9q!", 'grün-Zz9q!x"', "ab\\\\c9\\"]
)
@pytest.mark.parametrize("encode", [json.dumps, partial(json.dumps, ensure_ascii=False)])
def test_a_key_is_masked_however_json_spells_it(key: str, encode: Callable[[Any], str]) -> None:
    inside = encode({"x": f"Basic {key}"})
    value = {"error": {"message": f"No {key}", "header": f"key {key}", "raw": inside}, key: [key]}
    enriched = enrich(
        Answer(401, {}, encode(value).encode()),
        protocols.BY_NAME["openai_chat"],
        secrets_of([("x-api-key", key)]),
    )
    assert enriched is not None
    shown = json.loads(enriched.body)
    strings = [shown["error"]["message"], shown["error"]["header"], *shown["[redacted]"]]
    strings.append(json.loads(shown["error"]["raw"])["x"])
    assert not [text for text in strings if key in text or "[redacted]" not in text]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("depth", [100, 490, 900, 990, 5000])
@pytest.mark.parametrize(
    ("opening", "closing"), [("[", "]"), ('{"message":', "}"), ('{"detail":', "}"), ('{"a":', "}")]
)
def test_no_depth_makes_telling_fail(opening: str, closing: str, depth: int, dialect: str) -> None:
    for leaf in ("NaN", '"x own-Secret-1234"', "1"):
        deep = f"{opening * depth}{leaf}{closing * depth}"
        for source in (f'{{"error":{deep}}}', f'{{"error":{{"message":"No","x":{deep}}}}}', deep):
            enriched = enrich(
                Answer(400, {}, source.encode()), protocols.BY_NAME[dialect], ("own-Secret-1234",)
            )
            assert b"own-Secret-1234" not in (b"" if enriched is None else enriched.body)
