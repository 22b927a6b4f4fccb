"""The gateway's idea of what clients do is that of the clients."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.client_words import OVERFLOW, Reading, asks_to_retry, read, shown
from tests.policy import client_oracle, error_bodies
from tests.policy.client_oracle import status_text


def overflows(text: str) -> bool:
    return read(400, text, body=False).overflow


@error_bodies.unhurried
@given(error_bodies.texts())
def test_the_words_are_those_of_the_clients(text: str) -> None:
    retry = read(400, text, body=False).retry
    assert retry == client_oracle.finds(client_oracle.RETRY, text)
    assert overflows(text) == client_oracle.finds(client_oracle.OVERFLOW, text)


@pytest.mark.parametrize("pattern", client_oracle.RETRY)
@settings(error_bodies.unhurried, max_examples=10)
@given(data=st.data())
def test_each_word_for_another_try_is_known(pattern: str, data: st.DataObject) -> None:
    assert asks_to_retry(data.draw(st.from_regex(re.compile(pattern, re.ASCII))))


@pytest.mark.parametrize("pattern", client_oracle.OVERFLOW)
@settings(error_bodies.unhurried, max_examples=10)
@given(data=st.data())
def test_each_word_for_a_full_context_is_known(pattern: str, data: st.DataObject) -> None:
    assert overflows(data.draw(st.from_regex(re.compile(pattern, re.ASCII))))


_objects = st.one_of(
    error_bodies.native().map(lambda body: body.decode("utf-8", "surrogatepass")),
    error_bodies.objects(),
    error_bodies.objects({"message": '"top"'}),
    error_bodies.objects({"error": '"only text"'}),
)


@error_bodies.unhurried
@given(error_bodies.statuses, _objects, st.sampled_from(client_oracle.DIALECTS))
def test_what_is_shown_is_what_clients_show(status: int, text: str, dialect: str) -> None:
    phrase = status_text(status)
    assert shown(json.loads(text), text, phrase, dialect) == client_oracle.shown(
        status, text, dialect
    )


@pytest.mark.parametrize(
    ("status", "message", "body", "code", "reading"),
    [
        (400, "No", False, None, Reading(False, False, False)),
        (400, "No", True, None, Reading(True, True, False)),
        (400, "exhausted", False, None, Reading(False, True, False)),
        (409, "No", False, None, Reading(True, True, False)),
        (500, "No", False, None, Reading(True, True, False)),
        (413, "No", False, None, Reading(False, False, True)),
        (400, "No", False, "context_length_exceeded", Reading(False, False, True)),
        (400, "Prompt is too long", False, None, Reading(False, False, True)),
        (400, "Try again later", False, None, Reading(True, True, False)),
    ],
)
def test_what_counts_for_a_client(
    status: int, message: str, body: bool, code: str | None, reading: Reading
) -> None:
    assert read(status, message, body=body, code=code) == reading


def test_without_a_reason_phrase_all_of_a_body_is_shown() -> None:
    for text in ('{"message":"m","code":"c"}', '{"error":"m"}', '{"error":{"message":1}}'):
        assert shown(json.loads(text), text, "", "openai_chat") == text
    whole = '{"error":{"message":"m"}}'
    assert shown(json.loads(whole), whole, "", "openai_chat") == "m"


def test_what_one_reading_adds_to_another() -> None:
    none, both = Reading(False, False, False), Reading(True, True, True)
    assert both.adds_to(none)
    assert not none.adds_to(both)
    assert Reading(False, False, True).adds_to(Reading(True, True, False))
    assert not both.adds_to(both)


def test_the_words_for_a_full_context_say_only_that() -> None:
    assert read(400, OVERFLOW, body=False) == Reading(False, False, True)


def test_words_in_a_row_stand_in_one_line() -> None:
    assert overflows("Input length 9 really exceeds" + " the" * 1000 + " context length")
    for text in ("input length\nexceeds context length", "exceeds input length context length"):
        assert not overflows(text)


@pytest.mark.parametrize(
    "words", ["input token count ", "input length exceeds ", "4", "exceeds the ", "prompt has 1"]
)
def test_a_long_text_is_read_in_no_time(words: str) -> None:
    text = words * (1_000_000 // len(words))
    began = time.process_time()
    assert not overflows(text)
    # Measured: 0.03 s. Two gaps of any length, tried from everywhere, took 14 s for a hundredth.
    assert time.process_time() - began < 2
