"""A provider that sits behind an nginx of its own: HTTP/1.0 towards it, buffering and gzip on."""

from __future__ import annotations

import gzip
import http.client
import json
from typing import TYPE_CHECKING

import pytest

from bench.rig import free_port
from tests.system.support import CHAT, Server, ask, chat, nginx
from tests.system.support import gateway as start_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = """
    gzip on;
    gzip_min_length 0;
    gzip_http_version 1.0;
    gzip_proxied any;
    gzip_types application/json text/event-stream;
    client_max_body_size 50m;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass {provider}; }}
    }}
"""


@pytest.fixture(scope="module")
def behind(sim: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The gateway, whose provider ``up`` is nginx before the simulated provider."""
    directory = tmp_path_factory.mktemp("behind")
    port = free_port()
    retry = "\n[providers.up.retry]\nmax_retries = 0\n"
    with (
        nginx(directory, BLOCK.format(port=port, provider=sim.url), port) as upstream,
        start_gateway(directory, {"up": upstream.url}, retry) as server,
    ):
        yield server


@pytest.mark.parametrize("encoding", [None, "gzip, deflate, br"])
def test_a_whole_stream_passes_unchanged(behind: Server, sim: Server, encoding: str | None) -> None:
    headers = {"Accept-Encoding": encoding} if encoding else {}
    answer = ask(behind, f"/up{CHAT}", chat("sim-ok"), headers)
    assert answer.status == 200
    assert answer.broken is None
    assert "content-encoding" not in answer.headers
    assert answer.text() == ask(sim, CHAT, chat("sim-ok")).text() != ""
    assert answer.errors() == []
    assert answer.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("script", ["sim-bare-eof", "sim-cut", "sim-reset", "sim-torn"])
def test_a_cut_is_told_whatever_nginx_makes_of_it(behind: Server, script: str) -> None:
    answer = ask(behind, f"/up{CHAT}", chat(f"{script},after=5"))
    assert answer.broken is None
    # After a reset nginx may have thrown the first events away: then it is an HTTP error still.
    told = answer.errors() if answer.status == 200 else [answer.json()["error"]]
    assert answer.status in (200, 502)
    assert [error["code"] for error in told] == ["upstream_stream_truncated"]


def test_an_answer_that_the_client_wants_compressed_stays_compressed(
    behind: Server, sim: Server
) -> None:
    request = chat("sim-ok", stream=False)
    answer = ask(behind, f"/up{CHAT}", request, {"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    plain = json.loads(gzip.decompress(answer.body))
    assert plain["choices"] == ask(sim, CHAT, request).json()["choices"]


def test_a_client_that_names_no_encoding_is_sent_none(behind: Server) -> None:
    answer = ask(behind, f"/up{CHAT}", chat("sim-ok", stream=False))
    assert "content-encoding" not in answer.headers
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_nginx_own_error_page_reaches_the_client_as_an_error(
    behind: Server,
) -> None:
    """A path that nginx refuses itself is answered with its HTML page."""
    connection = http.client.HTTPConnection("127.0.0.1", behind.port, timeout=10)
    connection.request("POST", f"/up{CHAT}", json.dumps(chat("sim-no-answer")))
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 502
    assert b"Bad Gateway" in body or b"error" in body
