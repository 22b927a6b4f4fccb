"""What the simulated model says."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.sim.content import Answer, Ask, Tool, compose, sample, split
from gateway.sim.script import parse_model


def answer(model: str, **asked: Any) -> Answer:
    return compose(Ask(model=model, **asked), parse_model(model), number=7, created=1_790_000_000)


def test_the_answer_echoes_a_few_words_of_the_prompt() -> None:
    text = answer("sim-ok", prompt="please explain to me how the tides work").text
    assert text.startswith("You said “to me how the tides work”.")


def test_the_answer_has_as_many_words_as_asked() -> None:
    assert len(answer("sim-ok,words=300", prompt="x").text.split()) == 300
    assert answer("sim-ok,words=1").text == "Here"


def test_the_pieces_make_the_text_and_hold_letters_beyond_ascii() -> None:
    made = answer("sim-ok,words=200")
    assert "".join(made.choices[0]) == made.text
    assert len(made.choices[0]) > 200
    assert not made.text.isascii()


def test_split_loses_nothing() -> None:
    text = "A  lighthouse\n of extraordinarily uncommonplace brightness"
    assert "".join(split(text)) == text


def test_the_same_request_gives_the_same_text_and_another_seed_another() -> None:
    first, second = answer("sim-ok,seed=1", prompt="a"), answer("sim-ok,seed=2", prompt="a")
    assert first.text == answer("sim-ok,seed=1", prompt="a").text
    assert first.text != second.text


def test_every_choice_has_its_own_text() -> None:
    made = answer("sim-ok", choices=3)
    assert len(set(made.choices)) == 3


def test_a_reasoning_answer_reasons_first_and_counts_it() -> None:
    made = answer("sim-reasoning")
    assert made.reasoning_tokens == len(made.reasoning) > 10
    assert made.completion_tokens == made.text_tokens + made.reasoning_tokens


def test_a_tool_answer_calls_the_first_tool_with_valid_arguments_in_pieces() -> None:
    schema = {"properties": {"command": {"type": "string"}}, "required": ["command"]}
    made = answer("sim-tool", tools=(Tool("bash", {"type": "object", **schema}), Tool("b", {})))
    assert made.call is not None
    assert made.call.name == "bash"
    assert made.call.arguments == '{"command": "echo hello from the simulator"}'
    assert len(made.call.pieces) == 4
    assert made.text == ""


def test_another_tool_can_be_asked_for_by_name() -> None:
    tools = (Tool("a", {}), Tool("Bash", {}))
    made = answer("sim-tool,tool=bash", tools=tools).call
    assert made is not None
    assert made.name == "Bash"
    assert answer("sim-tool,tool=c", tools=tools).call is None


def test_without_tools_or_after_a_tools_result_a_tool_answer_is_text() -> None:
    assert answer("sim-tool").call is None
    assert answer("sim-tool", tools=(Tool("a", {}),), answers_tool=True).text


def test_a_big_event_stands_after_the_pieces_asked_for() -> None:
    pieces = answer("sim-big-event,size=50k,after=2").choices[0]
    assert [len(piece) == 51200 for piece in pieces[:4]] == [False, False, True, False]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, {}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "sim"}),
        (
            {"properties": {"city": {"type": ["string", "null"]}}, "required": ["city"]},
            {"city": "Paris"},
        ),
        ({"type": "array", "items": {"type": "integer"}}, [7]),
        ({"type": "NUMBER", "minimum": 2}, 2),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"enum": ["x", "y"]}, "x"),
        ({"const": 4}, 4),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("nonsense", "sim"),
    ],
)
def test_a_sample_fits_its_schema(schema: Any, value: Any) -> None:
    assert sample(schema) == value


def test_a_schema_that_never_ends_is_not_followed_for_ever() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    assert sample(schema)
