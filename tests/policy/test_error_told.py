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
