"""What all protocols share: encoding, numbering, reading text."""

from __future__ import annotations

import json

import pytest

from gateway.sim.routes import SHAPES
from gateway.sim.shape import HeadersFor, dicts, encode, renumber, sse, texts
from tests.sim.support import PROTOCOLS, whole_stream


def test_json_is_compact_and_keeps_letters_beyond_ascii() -> None:
    assert encode({"a": ["ü", 1]}) == '{"a":["ü",1]}'


def test_half_a_surrogate_pair_does_not_break_the_encoding() -> None:
    assert encode("a\ud800") == '"a?"'


def test_an_event_has_a_name_if_given_and_a_blank_line() -> None:
    assert sse({"a": 1}) == b'data: {"a":1}\n\n'
    assert sse({"a": 1}, "x") == b'event: x\ndata: {"a":1}\n\n'


def test_renumbering_raises_the_first_sequence_number_only() -> None:
    event = b'data: {"sequence_number":9,"text":"\\"sequence_number\\":1"}\n\n'
    assert renumber(event, 2) == event.replace(b":9,", b":11,")
    assert renumber(event, 0) == event
    assert renumber(b"data: {}\n\n", 5) == b"data: {}\n\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}, 7], "a b"),
        (None, ""),
        (7, ""),
    ],
)
def test_text_is_found_in_strings_and_parts(content: object, text: str) -> None:
    assert texts(content) == text


def test_what_is_no_list_of_objects_holds_none() -> None:
    assert dicts([1, {"a": 1}, None]) == [{"a": 1}]
    assert dicts({"a": 1}) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(5))
def test_every_event_is_one_whole_valid_frame(protocol: str, seed: int) -> None:
    for event in whole_stream(protocol, f"sim-ok,seed={seed},words=150"):
        *fields, last, blank = event.data.decode().replace("\r\n", "\n").split("\n")
        assert (last, blank) == ("", "")
        data = fields[-1].removeprefix("data: ")
        assert data == "[DONE]" or json.loads(data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bodies_with_wrong_types_are_read_without_failing(protocol: str) -> None:
    nonsense: list[object] = [
        None,
        7,
        "text",
        [],
        [None, 7],
        {},
        [{}],
        [{"role": "user", "content": 7}],
    ]
    keys = "model messages input prompt contents tools stream n stream_options generationConfig"
    for value in nonsense:
        ask = SHAPES[protocol].read(dict.fromkeys(keys.split(), value), 10)
        assert ask.choices >= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_successes_carry_the_headers_of_the_provider(protocol: str) -> None:
    names = {name for name, _ in SHAPES[protocol].headers(HeadersFor("1", 0.0))}
    expected = {"anthropic": "request-id", "gemini": "server-timing"}.get(protocol, "x-request-id")
    assert expected in names
