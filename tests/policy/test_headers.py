"""What crosses the gateway in header fields: everything end-to-end, nothing hop-by-hop, no key."""

from __future__ import annotations

import pytest

from gateway.policy.clients import SESSION_HEADERS
from gateway.policy.headers import (
    AuthForm,
    Body,
    own_fields,
    to_client,
    to_upstream,
    without_query_credentials,
)

OWN = [
    ("x-gateway-request-id", "r1"),
    ("x-gateway-attempts", "1"),
    ("x-gateway-provider", "openai"),
]


def answer(
    fields: list[tuple[str, str]], body: Body = Body.UNCHANGED, *, stream: bool = False
) -> list[tuple[str, str]]:
    """The client's fields without the gateway's own three."""
    out = to_client(
        fields, body=body, request_id="r1", provider="openai", attempts=1, stream=stream
    )
    assert out[-3:] == OWN
    return out[:-3]


def test_hop_by_hop_fields_do_not_go_upstream_and_neither_do_those_that_connection_names() -> None:
    fields = [
        ("Host", "gw.example.internal:8080"),
        ("Connection", "keep-alive, X-Hop"),
        ("connection", "x-other"),
        ("X-Hop", "1"),
        ("X-Other", "1"),
        ("TE", "trailers"),
        ("Trailer", "X-T"),
        ("Proxy-Authorization", "Basic eA=="),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "3"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "x"),
        ("Expect", "100-continue"),
        ("X-Gateway-Hold", "finish"),
        ("x-gateway-token", "t"),
        ("x-request-id", "abc"),
        ("X-Plain", "1"),
    ]
    assert to_upstream(fields) == [("x-request-id", "abc"), ("X-Plain", "1")]


def test_order_case_and_repeats_are_kept() -> None:
    fields = [
        ("anthropic-beta", "context-1m-2025-08-07"),
        ("X-Stainless-Lang", "python"),
        ("Anthropic-Beta", "interleaved-thinking-2025-05-14"),
        ("Authorization", "Bearer k"),
        ("Accept-Encoding", "gzip"),
        ("Accept-Encoding", "br"),
        ("Via", "1.1 other"),
    ]
    assert to_upstream(fields) == fields


def test_a_readable_stream_asks_for_identity_once_where_the_client_named_a_coding() -> None:
    fields = [("A", "1"), ("Accept-Encoding", "gzip"), ("accept-encoding", "br"), ("B", "2")]
    assert to_upstream(fields, identity=True) == [
        ("A", "1"),
        ("Accept-Encoding", "identity"),
        ("B", "2"),
    ]


def test_no_accept_encoding_is_invented() -> None:
    assert to_upstream([("A", "1")], identity=True) == [("A", "1")]


@pytest.mark.parametrize(
    ("form", "field"),
    [
        (AuthForm.BEARER, ("Authorization", "Bearer own")),
        (AuthForm.X_API_KEY, ("x-api-key", "own")),
        (AuthForm.X_GOOG_API_KEY, ("x-goog-api-key", "own")),
        (AuthForm.API_KEY, ("api-key", "own")),
    ],
)
def test_the_gateways_key_takes_the_place_of_every_key_of_the_client(
    form: AuthForm, field: tuple[str, str]
) -> None:
    fields = [
        ("A", "1"),
        ("authorization", "Bearer theirs"),
        ("X-Api-Key", "theirs"),
        ("B", "2"),
        ("x-goog-api-key", "theirs"),
        ("Api-Key", "theirs"),
    ]
    credential = form.field("own")
    assert to_upstream(fields, credential=credential) == [("A", "1"), field, ("B", "2")]
    assert to_upstream([("A", "1")], credential=credential) == [("A", "1"), field]


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        *((name, False) for name in SESSION_HEADERS),
        ("vscode-sessionid", False),
        ("X-Codex-Turn-Metadata", False),
        ("x-codex-window-id", False),
        ("x-openai-account", False),
        ("x-user-id", False),
        ("x-tenant-id", False),
        ("x-subscription-id", False),
        ("User-Agent", True),
        ("x-stainless-lang", True),
        ("anthropic-beta", True),
        ("x-initiator", True),
    ],
)
def test_no_name_of_a_session_or_an_account_goes_elsewhere(name: str, goes: bool) -> None:
    fields = [(name, "v")]
    assert (to_upstream(fields, elsewhere=True) == fields) is goes
    assert to_upstream(fields) == fields


def test_what_is_for_the_provider_that_was_asked_does_not_go_elsewhere() -> None:
    fields = [
        ("anthropic-beta", "b"),
        ("Cookie", "session=secret"),
        ("ChatGPT-Account-Id", "acc"),
        ("OpenAI-Organization", "org"),
        ("X-Auth-Token", "t"),
        ("Ocp-Apim-Subscription-Key", "k"),
        ("cf-aig-authorization", "Bearer c"),
        ("User-Agent", "agent"),
        ("Authorization", "Bearer client"),
    ]
    own = ("Authorization", "Bearer own")
    kept = [("anthropic-beta", "b"), ("User-Agent", "agent"), own]
    assert to_upstream(fields, credential=own, elsewhere=True) == kept
    assert len(to_upstream(fields, credential=own)) == len(fields)


def test_a_key_in_the_query_gives_way_to_the_gateways_and_nothing_else_changes() -> None:
    assert without_query_credentials("/v1beta/m:g?alt=sse&key=AIza&x=%2f+") == (
        "/v1beta/m:g?alt=sse&x=%2f+"
    )
    assert without_query_credentials("/m?KEY=a") == "/m"
    for target in ("/m", "/m?", "/m?monkey=1&flag", "/m?a=key=b"):
        assert without_query_credentials(target) == target


def test_for_another_provider_no_secret_of_any_name_stays_in_the_query() -> None:
    query = "/m?Subscription-Key=a&sig=b&%74oken=c&client_secret=d&max_results=5&alt=sse"
    assert without_query_credentials(query) == query
    assert without_query_credentials(query, elsewhere=True) == "/m?max_results=5&alt=sse"


def test_every_end_to_end_field_of_an_answer_passes_and_repeats_stay_separate() -> None:
    fields = [
        ("Set-Cookie", "a=1; Path=/"),
        ("Set-Cookie", "b=2; Path=/"),
        ("request-id", "req_1"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.5"),
        ("Retry-After", "7"),
        ("x-new-thing", "1"),
        ("Server", "cloudflare"),
        ("Date", "Mon, 30 Nov 2026 00:00:00 GMT"),
        ("Content-Encoding", "gzip"),
        ("Content-Length", "1234"),
    ]
    assert answer(fields) == fields


def test_hop_by_hop_fields_of_an_answer_stay_with_its_connection() -> None:
    fields = [
        ("Connection", "close, X-Up-Hop"),
        ("X-Up-Hop", "1"),
        ("Keep-Alive", "timeout=1"),
        ("Proxy-Authenticate", "Basic"),
        ("Trailer", "x"),
        ("A", "1"),
    ]
    assert answer(fields) == [("A", "1")]


def test_a_length_is_promised_only_for_a_body_that_passes_unchanged() -> None:
    length = ("Content-Length", "10")
    assert answer([length]) == [length]
    assert answer([length], Body.STREAMED) == []
    assert answer([length, ("Transfer-Encoding", "chunked")]) == []


def test_what_describes_a_body_goes_when_the_body_is_replaced() -> None:
    fields = [
        ("Content-Type", "text/html"),
        ("Content-Encoding", "gzip"),
        ("ETag", '"x"'),
        ("Digest", "x"),
        ("Retry-After", "7"),
    ]
    assert answer(fields, Body.REPLACED) == [("Retry-After", "7")]
    assert answer(fields, Body.STREAMED) == fields


def test_a_stream_tells_nginx_once_not_to_collect_it() -> None:
    fields = [("X-Accel-Buffering", "yes"), ("A", "1")]
    assert answer(fields, Body.STREAMED, stream=True) == [("A", "1"), ("x-accel-buffering", "no")]
    assert answer(fields) == fields


def test_the_gateways_own_fields_are_its_own_even_behind_another_gateway() -> None:
    fields = [
        ("X-Gateway-Request-Id", "inner"),
        ("x-gateway-attempts", "3"),
        ("x-gateway-error", "upstream_stalled"),
    ]
    assert answer(fields) == [("x-gateway-error", "upstream_stalled")]
    assert own_fields("r1", None, 0) == [
        ("x-gateway-request-id", "r1"),
        ("x-gateway-attempts", "0"),
    ]


def test_no_byte_of_a_value_is_changed_whatever_its_encoding() -> None:
    raw = bytes(range(0x20, 0x100)) + "café 東京".encode()
    fields = [("X-Name", raw.decode("latin-1"))]
    for crossed in (to_upstream(fields), answer(fields)):
        assert [value.encode("latin-1") for _, value in crossed] == [raw]


def test_long_values_pass_whole() -> None:
    fields = [("X-Token", "t" * 12_000)]
    assert to_upstream(fields) == fields
    assert answer(fields) == fields
