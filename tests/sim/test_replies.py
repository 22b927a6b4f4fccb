"""HTTP errors in every form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sim.support import PROTOCOLS, planned


def error(protocol: str, model: str) -> Any:
    return json.loads(planned(protocol, model).body())["error"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 429, 500, 502, 503, 529, 599])
def test_an_error_has_its_status_and_the_providers_shape(protocol: str, status: int) -> None:
    plan = planned(protocol, f"sim-status-{status}")
    assert plan.status == status
    assert plan.length == len(plan.body())
    found = json.loads(plan.body())["error"]
    assert found["message"]
    assert found["status" if protocol == "gemini" else "type"]


def test_the_types_are_those_of_the_provider() -> None:
    assert error("chat", "sim-status-429")["code"] == "rate_limit_exceeded"
    assert error("anthropic", "sim-status-529")["type"] == "overloaded_error"
    assert error("anthropic", "sim-status-404")["type"] == "not_found_error"
    assert error("gemini", "sim-status-401")["status"] == "UNAUTHENTICATED"
    assert error("gemini", "sim-status-401")["code"] == 401


def test_status_and_type_can_differ() -> None:
    assert error("responses", "sim-status-429,type=quota")["type"] == "insufficient_quota"


def test_a_bad_request_hides_its_detail_beside_the_message() -> None:
    found = error("chat", "sim-status-400")
    assert found["message"] == "Invalid request."
    assert (found["code"], found["param"]) == ("bad_tool_call", "messages[3].tool_calls")


@pytest.mark.parametrize("protocol", ["chat", "completions", "responses"])
def test_the_wait_is_told_in_seconds_and_milliseconds_where_openai_does(protocol: str) -> None:
    headers = dict(planned(protocol, "sim-status-429,retry_after=1.2").headers)
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1200")


def test_anthropic_tells_the_wait_in_seconds_only() -> None:
    headers = dict(planned("anthropic", "sim-status-429,retry_after=7").headers)
    assert headers["retry-after"] == "7"
    assert "retry-after-ms" not in headers


def test_without_the_parameter_no_wait_is_told() -> None:
    headers = dict(planned("chat", "sim-status-429").headers)
    assert "retry-after" not in headers
    assert headers["x-ratelimit-remaining-requests"] == "0"


def test_a_redirect_names_another_place() -> None:
    assert ("location", "/elsewhere") in planned("chat", "sim-status-307").headers


@pytest.mark.parametrize(
    ("form", "kind", "part"),
    [
        ("html", "text/html", "<title>502 Bad Gateway</title>"),
        ("text", "text/plain", "upstream connect error"),
        ("flat", "application/json", '{"object":"error"'),
        ("detail", "application/json", '{"detail":"'),
        ("array", "application/json", '[{"error":{'),
        ("json", "application/json", '{"error":{'),
    ],
)
def test_the_body_may_have_other_forms(form: str, kind: str, part: str) -> None:
    plan = planned("chat", f"sim-status-502,body={form}")
    assert dict(plan.headers)["content-type"] == kind
    assert part in plan.body().decode()


def test_a_body_may_be_empty_and_then_has_no_type() -> None:
    plan = planned("chat", "sim-status-503,body=empty")
    assert plan.body() == b""
    assert "content-type" not in dict(plan.headers)


def test_a_page_names_a_status_that_http_does_not_know() -> None:
    assert "<h1>529 Error</h1>" in planned("chat", "sim-status-529,body=html").body().decode()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_and_pages_can_come_with_status_200(protocol: str) -> None:
    failed = planned(protocol, "sim-json-error-200,type=overloaded")
    assert failed.status == 200
    assert json.loads(failed.body())["error"]
    page = planned(protocol, "sim-html-200")
    assert (page.status, dict(page.headers)["content-type"]) == (200, "text/html")
