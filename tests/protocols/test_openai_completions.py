"""Legacy Completions and llama.cpp's own route."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.streams.events import Kind, Phase
from tests.protocols.reading import read, reader, told


def choice(text: str, reason: Any = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"text": text, "index": index, "logprobs": None, "finish_reason": reason}]}


def test_text_is_content_from_the_first_chunk_on() -> None:
    of = reader("openai_completions")
    for _ in range(3):
        assert read(of, choice("a")) is Kind.CONTENT
        assert of.facts.phase is Phase.IN_TEXT
    assert read(of, choice("")) is Kind.HEARTBEAT


@pytest.mark.parametrize(
    ("reason", "abnormal"),
    [("stop", False), ("new", False), ("length", True), ("content_filter", True)],
)
def test_a_finish_reason_finishes(reason: str, abnormal: bool) -> None:
    of = reader("openai_completions")
    read(of, choice("a"))

    assert read(of, choice("", reason)) is Kind.FINISH
    assert (of.facts.finished, of.facts.finish_reason) == (True, reason)
    assert of.facts.abnormal == abnormal


def test_the_whole_answer_in_one_chunk_is_content_and_finish() -> None:
    of = reader("openai_completions")

    assert read(of, choice("all of it", "stop")) is Kind.CONTENT
    assert of.facts.finished


@pytest.mark.parametrize("asked_for", [1, 2])
def test_every_prompt_of_a_batch_must_finish(asked_for: int) -> None:
    of = reader("openai_completions", choices=asked_for)
    read(of, choice("a", index=0))
    read(of, choice("b", index=1))
    read(of, choice("c", "stop", index=0))
    assert not of.facts.finished

    assert read(of, choice("more", index=1)) is Kind.CONTENT
    read(of, choice("", "stop", index=1))

    assert of.facts.finished


def test_an_error_after_text_is_one() -> None:
    of = reader("openai_completions")
    read(of, choice("a"))

    assert read(of, {"error": {"message": "m", "type": "server_error"}}) is Kind.ERROR
    assert told(of.complement(ending=True)) == []


def test_counts_beside_the_last_text_are_taken() -> None:
    of = reader("openai_completions")
    read(of, choice("a"))
    read(of, choice("b") | {"usage": {"prompt_tokens": 4, "completion_tokens": 2}})

    assert (of.facts.usage.input, of.facts.usage.output) == (4, 2)


def test_llama_cpps_finish_ends_the_wait_for_choices() -> None:
    of = reader("openai_completions")
    read(of, {"choices": []})
    read(of, {"content": "", "stop": True})
    assert (of.facts.finished, of.facts.awaited) == (True, False)


@pytest.mark.parametrize(
    ("stop_type", "reason", "abnormal"),
    [
        ("eos", "eos", False),
        ("word", "word", False),
        ("limit", "limit", True),
        (None, "stop", False),
    ],
)
def test_llama_cpp_finishes_with_stop(stop_type: object, reason: str, abnormal: bool) -> None:
    of = reader("openai_completions")
    assert read(of, {"content": "ok", "stop": False}) is Kind.CONTENT
    assert read(of, {"content": "", "stop": False}) is Kind.HEARTBEAT

    assert read(of, {"content": "", "stop": True, "stop_type": stop_type}) is Kind.FINISH
    assert (of.facts.finish_reason, of.facts.abnormal) == (reason, abnormal)
    assert of.facts.finished
