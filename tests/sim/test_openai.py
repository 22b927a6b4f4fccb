"""What OpenAI's protocols share."""

from __future__ import annotations

from typing import Any

from gateway.sim import openai
from gateway.sim.content import Tool
from gateway.sim.problem import PROBLEMS
from gateway.sim.shape import HeadersFor


def test_tools_are_found_nested_and_flat_and_others_are_left_out() -> None:
    body = {
        "tools": [
            {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
            {"type": "function", "name": "b"},
            {"type": "web_search"},
            "nonsense",
        ]
    }
    assert openai.tools(body) == (Tool("a", {"type": "object"}), Tool("b", {}))


def test_the_last_text_of_a_user_is_found_behind_other_messages() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "second"}]},
        {"role": "tool", "content": "result"},
    ]
    assert openai.last_user_text(messages) == "second"
    assert openai.last_user_text([]) == ""


def test_the_count_of_choices_is_at_least_one() -> None:
    counts = [openai.choice_count({"n": n}) for n in (3, 0, -1, "2", None)]
    assert counts == [3, 1, 1, 1, 1]


def test_an_exhausted_limit_shows_in_the_headers() -> None:
    headers = dict(openai.headers(HeadersFor("1", 0.0, success=False)))
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-request-id"] == "req_1"


def test_flat_errors_say_what_they_are() -> None:
    assert openai.flat_body(PROBLEMS["timeout"])["object"] == "error"
