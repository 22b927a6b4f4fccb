"""Which protocol a path belongs to."""

from __future__ import annotations

import pytest

from gateway.sim.routes import Task, find


@pytest.mark.parametrize(
    ("target", "protocol"),
    [
        ("/v1/chat/completions", "chat"),
        ("/chat/completions", "chat"),
        ("/api/coding/paas/v4/chat/completions?x=1", "chat"),
        ("/openai/deployments/sim-ok/chat/completions?api-version=2024", "chat"),
        ("/v1/completions", "completions"),
        ("/openai/v1/responses", "responses"),
        ("/backend-api/codex/responses/", "responses"),
        ("/anthropic/v1/messages?beta=true", "anthropic"),
    ],
)
def test_any_prefix_is_accepted(target: str, protocol: str) -> None:
    route = find("POST", target)
    assert (route.task, route.shape.name, route.stream) == (Task.ANSWER, protocol, None)


def test_gemini_names_model_and_streaming_in_the_path() -> None:
    route = find("POST", "/v1beta/models/sim-ok:streamGenerateContent?alt=sse&key=k")
    assert (route.shape.name, route.model, route.stream, route.sse) == (
        "gemini",
        "sim-ok",
        True,
        True,
    )
    route = find(
        "POST", "/v1/projects/p/locations/l/publishers/google/models/sim-ok:generateContent"
    )
    assert (route.model, route.stream) == ("sim-ok", False)


def test_gemini_without_alt_sse_is_an_array() -> None:
    assert not find("POST", "/v1beta/models/sim-ok:streamGenerateContent").sse


def test_models_in_paths_are_percent_decoded() -> None:
    path = "/v1beta/models/sim-cut%2Cafter%3D3%2Ctimes%3D1%3AstreamGenerateContent?alt=sse"
    assert find("POST", path).model == "sim-cut,after=3,times=1"


def test_a_deployment_names_the_model() -> None:
    assert find("POST", "/openai/deployments/sim-cut/chat/completions").model == "sim-cut"


@pytest.mark.parametrize(
    ("method", "target", "task", "protocol"),
    [
        ("POST", "/v1/messages/count_tokens", Task.COUNT, "anthropic"),
        ("POST", "/v1beta/models/sim-ok:countTokens", Task.COUNT, "gemini"),
        ("GET", "/v1/models", Task.MODELS, "chat"),
        ("GET", "/v1beta/models?pageSize=5", Task.MODELS, "gemini"),
        ("GET", "/v1/models/sim-ok", Task.MODEL, "chat"),
        ("GET", "/_sim/requests", Task.SEEN, "chat"),
        ("GET", "/", Task.HELP, "chat"),
        ("HEAD", "/", Task.HELP, "chat"),
        ("GET", "/v1/responses", Task.WEBSOCKET, "responses"),
        ("POST", "/v1/embeddings", Task.UNKNOWN, "chat"),
        ("POST", "/v1/messages/batches", Task.UNKNOWN, "anthropic"),
        ("POST", "/v1beta/models/sim-ok:embedContent", Task.UNKNOWN, "gemini"),
        ("DELETE", "/v1/models", Task.UNKNOWN, "chat"),
        ("GET", "/v1/files", Task.UNKNOWN, "chat"),
    ],
)
def test_other_requests_have_their_tasks(
    method: str, target: str, task: Task, protocol: str
) -> None:
    route = find(method, target)
    assert (route.task, route.shape.name) == (task, protocol)
