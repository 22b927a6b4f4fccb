"""What is no JSON is told in one sentence."""

from __future__ import annotations

import time

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
            b'<?xml version="1.0"?>\n<Error><Code>NoSuchBucket</Code><Message>It does not exist'
            b"</Message><RequestId>4442587F</RequestId><HostId>abc</HostId></Error>",
            "It does not exist (code: NoSuchBucket)",
        ),
        (b"<Error><message><![CDATA[a &lt; b]]></message></Error>", "a < b"),
        (b"<?xml version='1.0'?><f><why>too big</why></f>", "too big"),
        (b"<foo> is no tag", "<foo> is no tag"),
        (
            b"<h1>Model gpt-9 does not exist</h1>",
            "The provider answered with HTTP 400 (Bad Request) and a web page instead of an API "
            'error: "Model gpt-9 does not exist".',
        ),
        (
            b"<html><body><h1>400 Bad request</h1>\nYour browser sent <b>an invalid</b> request.\n"
            b"</body></html>",
            "The provider answered with HTTP 400 (Bad Request) and a web page instead of an API "
            'error: "400 Bad request Your browser sent an invalid request.".',
        ),
        (
            b"<html><script>if (a < b) c()</script><style>p{}</style>no &amp; upstream</html>",
            "The provider answered with HTTP 400 (Bad Request) and a web page instead of an API "
            'error: "no & upstream".',
        ),
    ],
)
def test_the_words_of_markup_are_told(body: bytes, message: str) -> None:
    assert told(400, body)["error"]["message"] == message


@pytest.mark.parametrize("sign", ["<h1", "<!--", "<script", "<message", "<title", "<", "<a "])
def test_markup_that_means_harm_costs_little(sign: str) -> None:
    began = time.process_time()
    for start in ("<html>", "<Error>"):
        told(400, start.encode() + sign.encode() * (1_000_000 // len(sign)))
    assert time.process_time() - began < 0.5


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
