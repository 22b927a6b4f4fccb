"""Secrets are masked wherever they stand; the rest stays readable; hostile text costs little."""

from __future__ import annotations

import base64
import json
import re
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.redact import (
    MARKER,
    MASK,
    SLICE,
    bounded,
    is_secret_name,
    redact,
    redact_path,
    scrub,
    secrets_of,
    summary,
)

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
HEX = "0123456789abcdef"


def _random(alphabet: str, length: int, longest: int | None = None) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=length, max_size=longest or length)


def _form(
    prefix: str, alphabet: str, length: int, longest: int | None = None
) -> st.SearchStrategy[str]:
    return _random(alphabet, length, longest).map(lambda body: prefix + body)


MARKED = {
    "openai": _form("sk-", ALNUM, 20, 60),
    "openai project": _form("sk-proj-", URLSAFE, 40, 160),
    "anthropic": _form("sk-ant-api03-", URLSAFE, 40, 100),
    "anthropic login": _form("sk-ant-oat01-", URLSAFE, 40, 100),
    "openrouter": _form("sk-or-v1-", HEX, 64),
    "groq": _form("gsk_", ALNUM, 52),
    "google": _form("AIza", URLSAFE, 35),
    "google login": _form("ya29.", URLSAFE + ".", 40, 200),
    "xai": _form("xai-", ALNUM, 80),
    "aws id": _form("AKIA", string.ascii_uppercase + string.digits, 16),
    "aws session id": _form("ASIA", string.ascii_uppercase + string.digits, 16),
    "bedrock": _form("ABSK", ALNUM + "+/", 80, 120),
    "github": st.one_of(*(_form(prefix, ALNUM, 36) for prefix in ("ghu_", "gho_", "ghp_"))),
    "copilot": _random(HEX, 32).map(lambda mac: f"tid={mac};exp=1700000000;sku=x;8kp=1:{mac}"),
    "hugging face": _form("hf_", ALNUM, 34),
    "jwt": st.tuples(*(_random(URLSAFE, 20, 60) for _ in range(3))).map(
        lambda parts: "eyJ" + ".".join(parts)
    ),
    "mistral": _random(ALNUM, 29).map(lambda body: f"aA1{body}"),
    "cohere": _random(ALNUM, 37).map(lambda body: f"Zz9{body}"),
    "azure": _random(ALNUM, 81).map(lambda body: f"{body}aA1"),
    "zai": st.tuples(_random(HEX, 32), _random(ALNUM, 16)).map(".".join),
}
NAMED_ONLY = {
    "azure classic": _random(HEX, 32),
    # No plain words: what stands after a name may be a sentence.
    "litellm": _random(URLSAFE, 12, 40).filter(
        lambda key: not re.fullmatch(r"[A-Z]?[a-z]+(?:[-_][a-z]+)*|[A-Z]+", key)
    ),
}

NAMED_PLACES = {
    "bearer": "Authorization: Bearer {}",
    "scheme alone": "the provider got Bearer {} and refused it",
    "scheme in a url": "?header=Bearer%20{}&x=1",
    "basic": "sent basic {}",
    "x-api-key": "x-api-key: {}",
    "api-key": "api-key: {}\r\nhost: h",
    "x-goog-api-key": "POST / HTTP/1.1\r\nX-Goog-Api-Key:{}\r\n\r\n",
    "cookie": "cookie: theme=dark; session={}; a=b",
    "query": "GET /v1beta/models/g:generateContent?alt=sse&key={}&z=1 HTTP/1.1",
    "query first": "http://127.0.0.1:80/v1?api_key={}",
    "access token": "/cb?access_token={}#x",
    "signature": "https://s3/x?X-Amz-Signature={}&y",
    "token": "?token={}",
    "sas": "?sv=1&sig={}",
    "url login": "https://user:{}@proxy.example:3128/path",
    "json": '{{"api_key":"{}","model":"m"}}',
    "json spaced": '{{ "apiKey" : "{}" }}',
    "json in json": '{{"raw":"{{\\"api_key\\":\\"{}\\"}}"}}',
    "python repr": "{{'x-api-key': '{}', 'a': 1}}",
    "python bytes": "((b'authorization', b'Bearer {}'), (b'a', b'b'))",
    "prose": "Incorrect API key provided: {}. You can find it in your account.",
    "quoted prose": "invalid api key: '{}'",
    "password": "password={}",
    "aws": "AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature={}",
}
FREE_PLACES = {
    "alone": "{}",
    "sentence": "the value {} was refused",
    "json": '{{"error":{{"message":"not known: {}"}}}}',
    "end of a sentence": "the value was {}.",
    "path": "/v1/files/{}?alt=sse",
    "after an escape": "line one\\n{}\\nline three",
    "in brackets": "refused ({})",
    "odd parameter": "?q={}&r=1",
}


def leaks(secret: str, text: str, around: str = "") -> list[str]:
    """Every run of a secret, as long as may not be shown, that is in the text.

    A run that the words ``around`` the secret have too is no leak.
    """
    runs = {secret[at : at + SLICE] for at in range(max(1, len(secret) - SLICE + 1))}
    return sorted(run for run in runs if run in text and run not in around + MASK)


@pytest.mark.parametrize("place", NAMED_PLACES.values(), ids=NAMED_PLACES.keys())
@settings(max_examples=30)
@given(st.data())
def test_no_part_of_a_key_survives_where_a_name_says_what_it_is(
    place: str, data: st.DataObject
) -> None:
    key = data.draw(st.one_of(*MARKED.values(), *NAMED_ONLY.values()))
    assert leaks(key, redact(place.format(key)), place) == []


@pytest.mark.parametrize("form", MARKED.values(), ids=MARKED.keys())
@settings(max_examples=30)
@given(st.data())
def test_no_part_of_a_key_of_known_form_survives_anywhere(
    form: st.SearchStrategy[str], data: st.DataObject
) -> None:
    key = data.draw(form)
    place = data.draw(st.sampled_from(sorted(FREE_PLACES.values())))
    assert leaks(key, redact(place.format(key)), place) == []


def test_a_key_with_another_keys_beginning_inside_is_masked_whole() -> None:
    assert redact("the key aB3" + "x" * 30 + "eyJ" + "y" * 48 + " is wrong") == (
        "the key [redacted] is wrong"
    )


@given(st.text(max_size=40), st.one_of(*MARKED.values()), st.text(max_size=40))
def test_redacting_twice_changes_nothing_more(before: str, key: str, after: str) -> None:
    once = redact(f"{before} api_key={key} {after}")
    assert redact(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "Upstream connection lost: the provider ended the stream without a finish event.",
        "req_0123456789abcdef0123456789abcdef",
        "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012345",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "9f1c2d3e-0000-4abc-8def-0123456789ab",
        "POST /openai/v1/chat/completions",
        "task-force-one, risk-based, desk-bound",
        "This model's maximum context length is 8192 tokens; max_tokens: 500",
        "token limit exceeded",
        "missing required key: messages",
        "Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
        "API key not valid. Please pass a valid API key.",
        "bearer token is invalid",
        "Basic authentication failed",
        "enter your password, then try again",
        "You can find your API key at https://platform.example.com/account/api-keys.",
        "claude-sonnet-4-5-20250929",
        "messages.1.content.0.thinking.signature: Field required",
        "header.authorization: Field required",
        "header.x-api-key: Field required; header.cookie: Field required",
        "input_schema: secret: Input should be a valid dictionary",
        "Invalid API key: keys start with sk-",
        "Authorization: missing.",
        "api_key: Feld fehlt. password: Ungültig. token secret: 缺少字段",
        "provide your API key in an Authorization header (i.e. Authorization: Bearer YOUR_KEY), or",
        "use Bearer $OPENAI_API_KEY, or Authorization: Bearer <token>",
        "",
    ],
)
def test_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_what_stands_around_a_secret_stays_readable() -> None:
    assert redact("GET /v1?alt=sse&key=AIzaSECRET1&z=1") == f"GET /v1?alt=sse&key={MASK}&z=1"
    assert redact("Authorization: Bearer abc.def, next") == f"Authorization: {MASK}, next"
    assert redact("https://me:pass@host/x") == f"https://{MASK}@host/x"
    assert redact('{"api_key":"abc","m":1}') == f'{{"api_key":"{MASK}","m":1}}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("password: hunter2 is wrong", f"password: {MASK} is wrong"),
        ("password: correcthorsebattery", f"password: {MASK}"),
        ("secret: aBcDeF", f"secret: {MASK}"),
        ("password=hunter", f"password={MASK}"),
        ("password = hunter", f"password = {MASK}"),
        ("api_key: 'hunter'", f"api_key: '{MASK}'"),
        ("x-api-key:hunter", f"x-api-key:{MASK}"),
        ("Authorization: Bearer hunter", f"Authorization: {MASK}"),
        ("Authorization: Basic aHVudGVy", f"Authorization: {MASK}"),
        ("Authorization: Token hunter2", f"Authorization: {MASK}"),
        ("Authorization: hunter2", f"Authorization: {MASK}"),
        ("secret: api_key: hunter2", f"secret: api_key: {MASK}"),
        ("Bearer MONKEY7TOKEN", f"Bearer {MASK}"),
    ],
)
def test_after_a_name_in_prose_only_plain_words_are_left(text: str, told: str) -> None:
    assert redact(text) == told


def test_a_password_with_spaces_and_escaped_quotes_is_masked_to_its_closing_quote() -> None:
    text = json.dumps({"password": 'correct "horse" battery staple', "user": "me"})
    assert redact(text) == f'{{"password": "{MASK}", "user": "me"}}'


def test_a_key_that_the_provider_has_half_masked_is_masked_whole() -> None:
    text = "Incorrect API key provided: sk-proj-********************************wxyz."
    assert "wxyz" not in redact(text)


@pytest.mark.parametrize(
    "piece",
    [
        "key=", "a", "sk-", "x://a@", "Bearer ", "api key ", "@", 'cookie:"\\', "authorization: ",
        "eyJ", "%2", "\\n", "\"'\\", "aA1", "api_key provided a b ", "'key' : ", "key    ", HEX * 2,
        "tid=00000000", "key token auth sk- @ :// ", "password\\\\\\\"", "sig=\"\\",
        "api-key: a-", "cookie: a ", "secret: A", "authorization: b ", "api-key: ABC_",
    ],
)  # fmt: skip
def test_a_hostile_megabyte_takes_time_in_proportion_to_its_length(piece: str) -> None:
    text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    started = time.perf_counter()
    redact(text)
    # Measured: at most 0.5 s. A quadratic pattern would take hours.
    assert time.perf_counter() - started < 10


def test_a_target_keeps_its_path_and_harmless_parameters() -> None:
    target = "/v1/models/org%2Fx%28a%29?alt=sse&key=AIzaSECRET1&empty=&flag&k%65y=other&page=2"
    assert redact_path(target) == (
        f"/v1/models/org%2Fx%28a%29?alt=sse&key={MASK}&empty=&flag&k%65y={MASK}&page=2"
    )
    assert redact_path("/v1/messages?") == "/v1/messages?"


@pytest.mark.parametrize(
    "name",
    [
        "key", "API_KEY", "access_token", "token", "sig", "X-Amz-Signature", "X-Amz-Credential",
        "code", "client_secret", "Authorization", "x-goog-api-key", "Set-Cookie", "password",
    ],
)  # fmt: skip
def test_parameters_that_carry_credentials_are_known_by_name(name: str) -> None:
    assert is_secret_name(name)
    assert redact_path(f"/x?{name}=hunter2") == f"/x?{name}={MASK}"


def test_a_key_in_the_path_itself_is_masked() -> None:
    assert redact_path("/v1/keys/sk-abcdefghijklmnop/usage") == f"/v1/keys/{MASK}"


HEADERS = [
    ("Authorization", "Bearer plain-secret-no-one"),
    ("x-api-key", "plain-secret-no-two"),
    ("api-key", "0123456789abcdef0123456789abcdef"),
    ("X-Goog-Api-Key", "plain-secret-no-three"),
    ("Cookie", "theme=dark; session=plain-secret-no-four"),
    ("x-gateway-token", "plain-secret-no-five"),
    ("Content-Type", "application/json"),
]


def test_the_credentials_of_a_request_are_found_wherever_they_travel() -> None:
    secrets = secrets_of(HEADERS, "alt=sse&key=plain%2Dsecret%2Dno%2Dsix")
    for word in ("one", "two", "three", "four", "five", "six"):
        assert f"plain-secret-no-{word}" in secrets
    assert "plain%2Dsecret%2Dno%2Dsix" in secrets
    assert "application/json" not in secrets
    assert "Bearer" not in secrets


def test_a_basic_login_is_found_decoded_too() -> None:
    login = base64.b64encode(b"me:open-sesame").decode()
    secrets = secrets_of([("Authorization", f"Basic {login}")])
    assert {login, "me:open-sesame", "open-sesame"} <= set(secrets)


def test_an_aws_signature_is_found_without_its_scheme() -> None:
    value = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/d, SignedHeaders=host, Signature=feedfacefeed"
    assert "feedfacefeed" in secrets_of([("Authorization", value)])


@pytest.mark.parametrize(
    "field",
    [
        ("Authorization", "Bearer none"),
        ("x-api-key", "EMPTY"),
        ("Authorization", "Bearer ollama"),
        ("Authorization", "Bearer api-key"),
        ("x-api-key", "message"),
        ("Cookie", "theme=default; lang=english"),
        ("Idempotency-Key", "chat-completion-42"),
    ],
)
def test_placeholders_are_no_secrets(field: tuple[str, str]) -> None:
    assert secrets_of([field]) == ()
    assert secrets_of([], "key=api-key") == ()


def test_words_with_digits_or_of_some_length_are_secrets() -> None:
    for secret in ("hunter2", "letmein-1", "Password", "correcthorsebattery", "a-b-c-d-e-f-g-h-i"):
        assert secret in secrets_of([("Authorization", f"Bearer {secret}")])
        assert secret in secrets_of([("Cookie", f"theme=dark; sid={secret}")])


def test_of_a_signed_request_the_key_and_the_signature_are_secrets() -> None:
    scope = "AKIAIOSFODNN7EXAMPLE/20260101/us-east-1/bedrock/aws4_request"
    value = (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=content-type;host, Signature=fe5f80f7"
    )
    assert set(secrets_of([("Authorization", value)])) == {"AKIAIOSFODNN7EXAMPLE", "fe5f80f7"}
    query = f"X-Amz-Credential={scope.replace('/', '%2F')}&X-Amz-Signature=fe5f80f7"
    assert set(secrets_of([], query)) == {"AKIAIOSFODNN7EXAMPLE", "fe5f80f7"}


def test_of_many_cookies_some_are_sought_and_of_other_credentials_all() -> None:
    cookies = "; ".join(f"k{at}=value-{at:06}" for at in range(3000))
    secrets = secrets_of([("Cookie", cookies), ("Authorization", "Bearer own-Secret-1234")])
    assert "own-Secret-1234" in secrets
    assert len(secrets) < 100


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=60).filter(
        lambda secret: not re.fullmatch("[a-z_-]{1,16}", secret)
    ),
    st.data(),
)
def test_no_part_of_what_a_request_carried_survives_scrubbing(
    secret: str, data: st.DataObject
) -> None:
    secrets = secrets_of([("x-api-key", secret)])
    start = data.draw(st.integers(0, len(secret) - 1))
    echo = secret[start:]
    for text in (f"bad key {secret}!", f"key {echo} of {secret[:start]}", f"{secret}{secret}"):
        assert leaks(secret, scrub(text, secrets), "bad key ") == []


def test_scrubbing_masks_one_run_once_and_keeps_the_rest() -> None:
    secrets = secrets_of(HEADERS)
    assert scrub("no plain-secret-no-two here, SECRET", secrets) == f"no {MASK} here, SECRET"
    assert scrub("plain-secret-no-two, plain-secret-no-five", secrets) == f"{MASK}, {MASK}"
    assert scrub("short: SECRET3!", ("SECRET3",)) == f"short: {MASK}!"
    assert scrub("nothing", ()) == "nothing"


def test_a_slash_that_json_escapes_does_not_hide_a_secret() -> None:
    secrets = secrets_of([("api-key", "abc/def/ghi/jkl")])
    assert scrub(r'{"m":"abc\/def\/ghi\/jkl"}', secrets) == f'{{"m":"{MASK}"}}'


def test_a_bounded_text_is_one_line_without_controls() -> None:
    assert bounded(" one\r\ntwo\t\x1b[31mred\x00 ") == r"one\r\ntwo\t\x1b[31mred\x00"
    assert bounded("left\u202eright\u2028x\udce9") == r"left\u202eright\u2028x\xe9"


@given(st.text(), st.integers(2, 50))
def test_a_bounded_text_never_exceeds_its_limit_and_can_be_encoded(text: str, limit: int) -> None:
    line = bounded(text, limit)
    assert len(line) <= limit
    line.encode()
    assert line.isprintable() or not text.isprintable()


def test_a_text_that_was_cut_says_so() -> None:
    assert bounded("x" * 300) == "x" * 300
    assert bounded("x" * 301) == "x" * 299 + MARKER
    assert bounded("😀" * 5, 3) == "😀😀" + MARKER


def test_a_summary_cuts_after_masking_and_never_through_a_secret() -> None:
    secret = "unmarked-secret-of-the-client"
    text = "x" * 290 + " " + secret
    assert "unmarked" not in summary(text, (secret,))
    assert summary(f"refused: {secret}", (secret,)) == f"refused: {MASK}"
    # The cut of an over-long text goes through a secret, and masking shortens what stands before
    # it.
    long = "sk-" + "y" * 16_300 + " " + "Ab1" * 40
    assert "Ab1" not in summary(long)
