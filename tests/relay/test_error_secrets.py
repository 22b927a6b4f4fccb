"""Credentials in errors reach neither the client's message nor the log nor a metric."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from gateway.config.credentials import Secret
from tests.policy.error_bodies import SECRETS
from tests.relay.fake_upstream import LAST_CHUNK, SSE, FakeUpstream, chunk, head
from tests.relay.raw_client import ask, request
from tests.relay.streams import event

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

CHAT = "/up/v1/chat/completions"
OWN = "Clients0wn-Zyxwvutsrq"
GATEWAYS = "Gateways0wn-Ponmlkjih"
OTHERS = [secret for secret in SECRETS if not secret.startswith("own")]


def bodies(secret: str) -> list[bytes]:
    """An error in each shape, with the secret in each place that is shown or logged."""
    told = f"Bad key {secret} given"
    values: list[object] = [
        {"error": {"message": told, "code": secret, "type": secret, "param": secret}},
        {"error": {"message": "No", "metadata": {"raw": json.dumps({"error": told})}}},
        {"error": {"message": "No", "details": [{"reason": secret}], "headers": {"x": secret}}},
        {"detail": told},
        {"error": told, "code": secret},
        [told],
    ]
    page = f"<html><title>{told}</title><body>{secret}</body></html>"
    return [*(json.dumps(value).encode() for value in values), told.encode(), page.encode()]


def answer_with(body: bytes) -> bytes:
    return head("400 Bad Request", "Content-Type: x/y", f"Content-Length: {len(body)}") + body


@pytest.mark.parametrize("secret", OTHERS)
async def test_what_looks_like_a_key_is_not_shown_or_logged(
    start_gateway: StartGateway, secret: str
) -> None:
    scripts = [[answer_with(body)] for body in bodies(secret)]
    async with FakeUpstream(*scripts) as upstream:
        gateway = await start_gateway(upstream.port)
        for number in range(len(scripts)):
            answer = await ask(gateway.port)
            assert secret not in json.loads(answer.body)["error"]["message"]
            record = await gateway.record(number + 1)
            assert secret not in f"{record.error} {record.error_code} {record.error_type}"
        assert secret not in gateway.log.getvalue()


@pytest.mark.parametrize("secret", [OWN, GATEWAYS])
async def test_the_keys_of_the_request_are_nowhere(
    start_gateway: StartGateway, secret: str
) -> None:
    plain = bodies(secret)
    first_event = [SSE, chunk(event({"error": {"message": secret, "code": secret}})), LAST_CHUNK]
    scripts = [[answer_with(body)] for body in plain]
    async with FakeUpstream(*scripts, first_event) as upstream:
        gateway = await start_gateway(upstream.port, api_key=Secret("env:KEY", GATEWAYS))
        for number in range(len(scripts) + 1):
            raw = request(CHAT, b'{"model":"m","stream":true}', f"Authorization: Bearer {OWN}")
            answer = await ask(gateway.port, raw)
            assert secret.encode() not in answer.body
            assert b"[redacted]" in answer.body
            await gateway.record(number + 1)
        assert secret not in gateway.log.getvalue()
        assert upstream.requests[0].values("Authorization") == [f"Bearer {GATEWAYS}".encode()]


@pytest.mark.parametrize("path", [CHAT, "/up/v1/embeddings", "/up/v1/files"])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html; charset=x", b"<html><title>403 KEY</title>KEY</html>"),
        ("text/plain", b"bad key KEY"),
        ("application/json", b'{"detail" : "bad key KEY"}'),
        ("application/json", b'{"detail":"deep KEY","x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        ("application/json", b'["bad key KEY"]'),
        ("application/json", b'{"detail":"bad key KE'),
    ],
)
@pytest.mark.parametrize("fields", [(), ("x-gateway-error: upstream_stalled",)])
async def test_the_gateways_key_is_masked_in_what_else_passes_as_it_is(
    start_gateway: StartGateway, path: str, kind: str, body: bytes, fields: tuple[str, ...]
) -> None:
    said = gzip.compress(body.replace(b"KEY", GATEWAYS.encode()))
    script = head(
        "403 Forbidden",
        f"Content-Type: {kind}",
        f"Content-Length: {len(said)}",
        "Content-Encoding: gzip",
        "ETag: e",
        *fields,
    )
    async with FakeUpstream([script + said]) as upstream:
        gateway = await start_gateway(upstream.port, api_key=Secret("env:KEY", GATEWAYS))
        answer = await ask(gateway.port, request(path, b"{}"))
        assert (answer.status, answer.clean) == (403, True)
        if b"KEY" not in body:
            return
        assert GATEWAYS.encode() not in answer.body
        assert b"[redacted]" in answer.body
        assert answer.values("Content-Encoding") == []
        if "html" in kind or "embeddings" in path:
            assert answer.body == body.replace(b"KEY", b"[redacted]")
            assert answer.values("Content-Type") == [kind.encode()]


async def test_a_long_file_with_an_error_status_passes(start_gateway: StartGateway) -> None:
    body = bytes(range(256)) * 8000
    fields = ("Content-Type: application/octet-stream", f"Content-Length: {len(body)}")
    async with FakeUpstream([head("404 Not Found", *fields) + body]) as upstream:
        gateway = await start_gateway(upstream.port, api_key=Secret("env:KEY", GATEWAYS))
        answer = await ask(gateway.port, request("/up/v1/files/f/content", method="GET"))
        assert (answer.status, answer.clean, answer.body) == (404, True, body)


@pytest.mark.parametrize(
    ("kind", "shown", "encoding"),
    [
        ("text/html; charset=iso-8859-1", "text/html; charset=utf-8", "utf-8"),
        ("text/html", "text/html", "iso-8859-1"),
        ("text/html; charset=utf-8", "text/html; charset=utf-8", "iso-8859-1"),
    ],
)
async def test_a_page_that_is_masked_is_labelled_as_it_is_encoded(
    start_gateway: StartGateway, kind: str, shown: str, encoding: str
) -> None:
    page = "<html><title>Verboten für KEY</title></html>"
    body = page.replace("KEY", GATEWAYS).encode("iso-8859-1")
    script = head("403 Forbidden", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    async with FakeUpstream([script + body]) as upstream:
        gateway = await start_gateway(upstream.port, api_key=Secret("env:KEY", GATEWAYS))
        answer = await ask(gateway.port)
        assert answer.body == page.replace("KEY", "[redacted]").encode(encoding)
        assert answer.values("Content-Type") == [shown.encode()]


@pytest.mark.parametrize(
    ("body", "how"),
    [(b'{"error":{"message":"m","param":"p"}}', "grown"), (b"text", "wrapped"), (b"", "wrapped"),
     (b'{"error":{"message":"m"}}', None)],
)  # fmt: skip
async def test_what_was_done_to_a_body_is_counted(
    start_gateway: StartGateway, body: bytes, how: str | None
) -> None:
    async with FakeUpstream([answer_with(body)]) as upstream:
        gateway = await start_gateway(upstream.port)
        await ask(gateway.port)
        assert (await gateway.record()).enriched == how
        counted = gateway.metrics.snapshot().numbers.get("gateway_errors_enriched_total", {})
        assert dict(counted) == ({} if how is None else {("up", how): 1})
