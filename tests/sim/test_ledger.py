"""What the provider remembers of a request."""

from __future__ import annotations

import hashlib
import json

import pytest

from gateway.sim.ledger import KEPT, SHOWN, Ledger, digest

SECRET = "sk-live-0123456789abcdef"


@pytest.mark.parametrize(
    "header",
    [
        ("Authorization", f"Bearer {SECRET}"),
        ("x-api-key", SECRET),
        ("X-Goog-Api-Key", SECRET),
        ("api-key", SECRET),
        ("Cookie", f"a={SECRET}"),
        ("x-gateway-token", SECRET),
        ("x-unheard-of", SECRET),
    ],
)
def test_secrets_in_headers_are_replaced_by_a_digest(header: tuple[str, str]) -> None:
    ledger = Ledger()
    seen = ledger.open("now", "POST", "/v1/messages", [header])
    assert seen.headers == ((header[0], digest(header[1])),)
    assert SECRET not in json.dumps(ledger.as_json())


def test_secrets_in_the_query_are_replaced_and_the_rest_is_kept() -> None:
    seen = Ledger().open("now", "POST", f"/m:gen?alt=sse&key={SECRET}&b=2", [])
    assert seen.path == f"/m:gen?alt=sse&key={digest(SECRET)}&b=2"


def test_other_headers_are_kept_in_order_with_their_repeats() -> None:
    headers = [("Host", "sim"), ("x-a", "1"), ("x-a", "2"), ("Accept", "*/*")]
    assert list(Ledger().open("now", "GET", "/", headers).headers) == headers


def test_a_digest_tells_secrets_apart_and_does_not_show_them() -> None:
    assert digest("a") != digest("b")
    assert digest("a") == "sha256:" + hashlib.sha256(b"a").hexdigest()[:12]


def test_a_body_is_remembered_by_size_and_digest() -> None:
    seen = Ledger().open("now", "POST", "/", [])
    seen.take_body(b"abc")
    assert (seen.body_bytes, seen.body_sha256) == (3, hashlib.sha256(b"abc").hexdigest())


def test_the_last_records_are_kept_and_fewer_shown() -> None:
    ledger = Ledger()
    for number in range(KEPT + 5):
        ledger.open("now", "GET", f"/{number}", [])
    assert len(ledger.records()) == KEPT
    shown = ledger.as_json()["requests"]
    assert [shown[0]["path"], shown[-1]["path"]] == [f"/{KEPT + 5 - SHOWN}", f"/{KEPT + 4}"]
