"""What is no JSON is told in one sentence."""

from __future__ import annotations

import pytest

from tests.policy.error_bodies import told


@pytest.mark.parametrize(
    ("server", "body", "maker"),
    [
        (
            "awselb/2.0",
            b"<html><head><title>503 Service Temporarily Unavailable</title>",
            "an AWS load",
        ),
        ("envoy", b"<html><body>no healthy upstream</body>", "Envoy"),
        ("", b"<!DOCTYPE html><html><head><title>502</title><body>cloudflare</body>", "Cloudflare"),
        ("nginx/1.25", b"\n <HTML><HEAD><TITLE>502 Bad Gateway</TITLE><STYLE>p{}</STYLE>", "nginx"),
    ],
)
def test_a_page_gives_its_title_and_its_maker_and_no_markup(
    server: str, body: bytes, maker: str
) -> None:
    message = told(503, body, headers={"server": server})["error"]["message"]
    assert maker in message
    assert not set("<>{}") & set(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b'{"error":{"message":"m","code":"c","a":' + b"[" * 3000 + b"]" * 3000 + b"}}",
            "The provider answered with HTTP 400 (Bad Request) and JSON that is too large or too "
            "deep to be read: m (code: c)",
        ),
        (
            b'{"error":"m","code":"c",' + b'"a":0,' * 50_000 + b'"b":0}',
            "The provider answered with HTTP 400 (Bad Request) and JSON that is too large or too "
            "deep to be read: m (code: c; a: 0)",
        ),
        (
            b'{"error":{"message":"a \\"b\\"","code":"c"',
            'The provider answered with HTTP 400 (Bad Request) and broken JSON: a "b" (code: c)',
        ),
        (b'{"status":"x_y"}\nTraceback: out of memory', "status: x_y; Traceback: out of memory"),
        (b"[1,2] \n the real reason", "1; 2; the real reason"),
        (b'{"error":{"message":"A"}}\n{"error":{"message":"B"}}', "A (B)"),
    ],
)
def test_nothing_is_lost_of_json_that_is_not_one_whole_value(body: bytes, message: str) -> None:
    assert told(400, body)["error"]["message"] == message
