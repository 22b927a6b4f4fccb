"""A target decides where a request goes, and what is sent on is what came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.routing import (
    RESERVED_NAMES,
    Greeting,
    NoProvider,
    OwnPage,
    ToProvider,
    nearest_name,
    route,
)

PROVIDERS = {"openai": 1, "anthropic": 2, "gemini": 3}


@pytest.mark.parametrize(
    ("target", "provider", "rest"),
    [
        ("/openai/v1/chat/completions", "openai", "/v1/chat/completions"),
        ("/openai", "openai", ""),
        ("/openai/", "openai", "/"),
        ("/openai?x=1", "openai", "?x=1"),
        ("/openai/v1?", "openai", "/v1?"),
        ("/openai//v1//x", "openai", "//v1//x"),
        ("/openai/../anthropic/./v1", "openai", "/../anthropic/./v1"),
        ("/open%61i/v1/%6Dodels", "openai", "/v1/%6Dodels"),
        ("/openai/v1?next=/anthropic/x&a=?", "openai", "/v1?next=/anthropic/x&a=?"),
        ("http://127.0.0.1:8484/gemini/v1beta/models?key=k", "gemini", "/v1beta/models?key=k"),
        ("https://gw/openai", "openai", ""),
        (
            "/openai/v1/models/org%2Fname%3Ax%28a%29?sig=a%2Bb+c&e=%e4%BD&empty=&flag",
            "openai",
            "/v1/models/org%2Fname%3Ax%28a%29?sig=a%2Bb+c&e=%e4%BD&empty=&flag",
        ),
    ],
)
def test_what_follows_the_provider_is_not_touched(target: str, provider: str, rest: str) -> None:
    assert route("POST", target, PROVIDERS) == ToProvider(provider, rest)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_any_rest_comes_out_byte_for_byte(rest: str) -> None:
    assert route("POST", f"/openai/{rest}", PROVIDERS) == ToProvider("openai", f"/{rest}")


@pytest.mark.parametrize(
    "target", ["/v1/chat/completions", "/v1beta/models/g:generateContent?key=k", "/v1/?", "/v1/"]
)
def test_bare_api_paths_go_to_the_default_provider_if_there_is_one(target: str) -> None:
    assert route("POST", target, PROVIDERS, "openai") == ToProvider("openai", target)
    assert route("HEAD", target, PROVIDERS, "openai") == ToProvider("openai", target)
    missing = route("POST", target, PROVIDERS)
    assert isinstance(missing, NoProvider)
    assert "server.default_provider" in missing.message


@pytest.mark.parametrize("target", ["/v2/x", "/v1", "/v1x/y", "/V1/x", "/", "/?a", "", "v1/x"])
def test_nothing_else_goes_to_the_default_provider(target: str) -> None:
    assert isinstance(route("POST", target, PROVIDERS, "openai"), NoProvider)


def test_a_forward_proxy_request_never_carries_its_key_to_the_default_provider() -> None:
    refused = route("POST", "http://api.anthropic.com/v1/messages", PROVIDERS, "openai")
    assert isinstance(refused, NoProvider)


@pytest.mark.parametrize("target", ["/metrics", "/healthz", "/readyz", "/-/streams", "/-/"])
def test_the_gateways_own_pages(target: str) -> None:
    assert route("GET", target, PROVIDERS) == OwnPage(target)
    assert route("GET", f"{target}?x=1", PROVIDERS) == OwnPage(target)


@pytest.mark.parametrize("target", ["/metricsx", "/metrics/", "//metrics", "/-", "/Metrics"])
def test_what_only_looks_like_a_page_is_none(target: str) -> None:
    assert isinstance(route("GET", target, PROVIDERS), NoProvider)


def test_every_first_segment_with_a_meaning_of_its_own_is_reserved() -> None:
    for name in RESERVED_NAMES:
        assert route("GET", f"/{name}/x", {"openai": 1}, "openai") != ToProvider(name, "/x")
    assert {"metrics", "healthz", "readyz", "-", "v1", "v1beta"} == RESERVED_NAMES


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("HEAD", "/"),
        ("HEAD", "/?x"),
        ("HEAD", "/openai"),
        ("HEAD", "/openai/"),
        ("HEAD", "/openai?x"),
        ("HEAD", "http://gw"),
        ("OPTIONS", "*"),
    ],
)
def test_a_client_that_asks_whether_anybody_is_there_is_answered_at_once(
    method: str, target: str
) -> None:
    assert route(method, target, PROVIDERS) == Greeting()


def test_head_of_a_real_path_goes_to_the_provider() -> None:
    assert route("HEAD", "/openai/v1/models", PROVIDERS) == ToProvider("openai", "/v1/models")


@pytest.mark.parametrize(
    ("target", "name", "nearest"),
    [
        ("/opnai/v1/x", "opnai", "openai"),
        ("/OpenAI/v1/x", "OpenAI", "openai"),
        ("/antropic", "antropic", "anthropic"),
        ("//openai/v1", "openai", "openai"),
        ("/zzz/v1", "zzz", None),
        ("/.././x", "..", None),
        ("/", "", None),
        ("/%2e%2e/x", "..", None),
    ],
)
def test_a_mistyped_name_is_refused_and_the_nearest_one_named(
    target: str, name: str, nearest: str | None
) -> None:
    refused = route("POST", target, PROVIDERS)
    assert isinstance(refused, NoProvider)
    assert (refused.name, refused.nearest) == (name, nearest)
    if nearest:
        assert f'"{nearest}"' in refused.message
    else:
        assert "openai" in refused.message or "anthropic" in refused.message


def test_a_refusal_is_one_bounded_line_that_repeats_no_key() -> None:
    refused = route("GET", "/sk-abcdefghijklmnopqrstuvwxyz%0d%0aX:%20y/v1", PROVIDERS)
    assert isinstance(refused, NoProvider)
    assert "abcdefgh" not in refused.message
    assert "\n" not in refused.message
    long = route("GET", "/" + "x" * 100_000, PROVIDERS)
    assert isinstance(long, NoProvider)
    assert len(long.message) < 300


def test_a_config_without_providers_is_said_to_have_none() -> None:
    refused = route("GET", "/x/y", {})
    assert isinstance(refused, NoProvider)
    assert "no provider" in refused.message


def test_many_providers_are_not_all_listed() -> None:
    refused = route("GET", "/zzz/y", {f"name{number}": 1 for number in range(100)})
    assert isinstance(refused, NoProvider)
    assert refused.message.count("name") < 20


def test_nearest_name_needs_a_likeness() -> None:
    assert nearest_name("gemni", PROVIDERS) == "gemini"
    assert nearest_name("x", PROVIDERS) is None
    assert nearest_name("x", ()) is None
