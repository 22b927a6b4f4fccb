"""The gateway's own pages, without a server."""

import json

from prometheus_client.registry import CollectorRegistry

from gateway.app.pages import INDEX, Pages
from gateway.observe.live import Live


def pages(*, ready: bool = True) -> Pages:
    return Pages(CollectorRegistry(), Live(), now=lambda: 1.0, ready=lambda: ready)


def test_readiness_follows_draining_and_health_does_not() -> None:
    assert pages().answer("GET", "/readyz").status == 200
    assert pages(ready=False).answer("GET", "/readyz").status == 503
    assert pages(ready=False).answer("GET", "/healthz").status == 200


def test_the_index_names_pages_that_exist() -> None:
    for path in INDEX:
        assert pages().answer("GET", path).status == 200, path


def test_an_unknown_page_names_the_known_ones() -> None:
    answer = pages().answer("GET", "/-/stream")
    assert answer.status == 404
    assert isinstance(answer.body, bytes)
    assert "/-/streams" in json.loads(answer.body)["error"]["message"]


def test_only_get_and_head() -> None:
    answer = pages().answer("POST", "/metrics")
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
