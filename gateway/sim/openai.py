"""What OpenAI's protocols share: headers, error bodies, tools and prompts; builds no stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.sim.content import Tool
from gateway.sim.shape import Headers, HeadersFor, Json, dicts, texts

if TYPE_CHECKING:
    from gateway.sim.problem import Problem


def headers(about: HeadersFor) -> Headers:
    """The id, the time taken and the rate limits, as api.openai.com sends them."""
    remaining = "9999" if about.success else "0"
    return [
        ("x-request-id", f"req_{about.request_id}"),
        ("openai-organization", "org-simulated"),
        ("openai-processing-ms", "412"),
        ("openai-version", "2020-10-01"),
        ("x-ratelimit-limit-requests", "10000"),
        ("x-ratelimit-limit-tokens", "2000000"),
        ("x-ratelimit-remaining-requests", remaining),
        ("x-ratelimit-remaining-tokens", "1999000"),
        ("x-ratelimit-reset-requests", "6ms" if about.success else "1.2s"),
        ("x-ratelimit-reset-tokens", "30ms"),
    ]


def error(problem: Problem) -> Json:
    """The error object that sits under ``error``."""
    return {
        "message": problem.message,
        "type": problem.openai_type,
        "param": problem.param,
        "code": problem.code,
    }


def error_body(problem: Problem) -> Json:
    """The body of an HTTP error."""
    return {"error": error(problem)}


def flat_body(problem: Problem) -> Json:
    """The flat variant that some compatible servers send."""
    return {"object": "error", **error(problem)}


def tools(body: Json) -> tuple[Tool, ...]:
    """The functions that a request offers, nested (Chat Completions) or flat (Responses)."""
    found = []
    for item in dicts(body.get("tools")):
        function = item.get("function") if isinstance(item.get("function"), dict) else item
        if isinstance(function, dict) and isinstance(name := function.get("name"), str):
            found.append(Tool(name, function.get("parameters") or {}))
    return tuple(found)


def last_user_text(messages: list[Json]) -> str:
    """The text of the last message that a user wrote."""
    for message in reversed(messages):
        if message.get("role") == "user" and (text := texts(message.get("content"))):
            return text
    return ""


def choice_count(body: Json) -> int:
    """``n``, or 1."""
    count = body.get("n")
    return count if isinstance(count, int) and count > 0 else 1


def wants_usage(body: Json) -> bool:
    """Whether the stream shall end with its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
