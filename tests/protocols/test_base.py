"""What readers share: lenient decoding, the table of errors, writing events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.protocols import ALL
from gateway.protocols.base import convert, decode, event, provider_error, text_of
from tests.protocols.reading import read as read_event
from tests.protocols.reading import reader


class Inner(msgspec.Struct):
    index: int = 0
    text: str | None = None


class Outer(msgspec.Struct, rename="camel"):
    some_items: list[Inner] | None = None
    count: int | None = None
    name: str | None = None
    anything: Any = None


decoder = msgspec.json.Decoder(Outer)


def read(data: bytes) -> Outer | None:
    return decode(data, decoder, Outer)


def test_a_plain_event_is_decoded() -> None:
    assert read(b'{"someItems":[{"index":1,"text":"a"}],"new":1}') == Outer([Inner(1, "a")])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"count":"5"}', Outer(count=5)),
        (b'{"count":5.0}', Outer(count=5)),
        (b'{"count":"five","name":"n"}', Outer(name="n")),
        (b'{"count":[],"name":{}}', Outer()),
        (b'{"someItems":7,"name":"n"}', Outer(name="n")),
        (b'{"someItems":[{"index":{},"text":"a"}]}', Outer([Inner(0, "a")])),
        (b'{"someItems":[{"text":"a"},9,{"text":"b"}]}', Outer([Inner(0, "a"), Inner(0, "b")])),
        (b'{"name":"\xff"}', Outer(name="\ufffd")),
        (b'{"name":"a\nb"}', Outer(name="a\nb")),
        (b'{"name":"\\ud800"}', Outer(name="?")),
        (b'{"name":"n","anything":NaN,"count":NaN}', Outer(name="n", anything=None)),
    ],
)
def test_a_field_that_does_not_fit_hides_nothing_else(data: bytes, expected: Outer) -> None:
    found = read(data)

    assert found is not None
    if found.anything != found.anything:  # not a number
        found.anything = None
    assert found == expected


@pytest.mark.parametrize("data", [b"", b"{", b"5", b"[]", b'"x"', b"null", b"not json"])
def test_what_is_no_object_is_none(data: bytes) -> None:
    assert read(data) is None


def test_a_value_with_too_many_faults_is_given_up() -> None:
    assert convert({"someItems": [0] * 40}, Outer) is None


def test_nesting_without_end_is_none() -> None:
    assert read(b'{"anything":' + b"[" * 200_000 + b"]" * 200_000 + b"}") is None


# Errors.


@pytest.mark.parametrize(
    ("kind", "code", "retryable", "status"),
    [
        ("server_error", None, True, 500),
        ("rate_limit_exceeded", None, True, 429),
        ("tokens", "rate_limit_exceeded", True, 429),
        ("insufficient_quota", "insufficient_quota", False, 429),
        ("invalid_request_error", "context_length_exceeded", False, 400),
        (None, "context_length_exceeded", False, 400),
        ("invalid_request_error", None, False, 400),
        ("authentication_error", None, False, 401),
        ("permission_error", None, False, 403),
        ("not_found_error", None, False, 404),
        ("request_too_large", None, False, 413),
        ("billing_error", None, False, 402),
        ("overloaded_error", None, True, 529),
        ("api_error", None, True, 500),
        ("timeout_error", None, True, 504),
        ("rate_limit_error", None, True, 429),
        ("rate_limit_error", "enforced_spend_limit_reached", False, 429),
        ("rate_limit_error", "ramp_limit_exceeded", True, 429),
        ("InternalServerError", 500, True, 500),
        ("BadRequestError", 400, False, 400),
        (None, 502, True, 502),
        (None, "429", True, 429),
        (None, 402, False, 402),
        (None, "1302", True, 502),
        (None, "1113", False, 502),
        ("SERVICE_UNAVAILABLE", 503, True, 503),
        ("exceeded_current_quota_error", None, False, 429),
        ("engine_overloaded_error", None, True, 529),
        ("exceed_context_size_error", 400, False, 400),
        ("something new", None, True, 502),
        (None, None, True, 502),
    ],
)
def test_what_an_error_means(kind: object, code: object, retryable: bool, status: int) -> None:
    error = provider_error(kind, "Words.", code)

    assert (error.retryable, error.status) == (retryable, status)
    assert error.message == "Words."


def test_an_error_is_named_by_type_then_code() -> None:
    assert provider_error("t", "m", "c").type == "t"
    assert provider_error("t", "m", "c").code == "c"
    assert provider_error(None, "m", "c").type == "c"
    assert provider_error("", "m", "").type == "error"
    assert provider_error("t", "m").code is None


def test_odd_values_become_text() -> None:
    error = provider_error({"a": 1}, ["x"], 5, 7)

    assert (error.type, error.message, error.code, error.param) == ('{"a":1}', '["x"]', "5", "7")
    assert text_of(None) == ""


# Events.


def test_an_event_is_written_whole() -> None:
    assert event({"a": "x\ny"}) == b'data: {"a":"x\\ny"}\n\n'
    assert event({}, "error") == b"event: error\ndata: {}\n\n"
    assert event({}, "e", b"\r\n") == b"event: e\r\ndata: {}\r\n\r\n"


FLAT: list[tuple[dict[str, Any], bool, int]] = [
    ({"code": "Client specified an invalid argument", "error": "Incorrect API key"}, False, 400),
    ({"code": "invalid-argument", "error": "No such model"}, False, 400),
    ({"code": "The caller does not have permission", "error": "No"}, False, 403),
    ({"code": "The service is currently unavailable", "error": "At capacity"}, True, 503),
    ({"status": 401, "error": "Unauthorized", "path": "/v1"}, False, 401),
    ({"status": "503", "error": "Service Unavailable"}, True, 503),
    ({"error": "Input too long", "error_type": "validation"}, False, 400),
    ({"error": "boom"}, True, 502),
    ({"error": {"message": "No", "status": 401}}, False, 401),
    ({"error": {"message": "No", "status": "UNAUTHENTICATED"}}, False, 401),
    ({"error": {"message": "No", "http_status_code": 403}}, False, 403),
    ({"error": {"message": "No", "status": True}}, True, 502),
]
"""Errors that are a text, or have a status, and whether another try can help (xAI, Spring, TGI)."""


@pytest.mark.parametrize("protocol", [each.name for each in ALL if each.known])
@pytest.mark.parametrize(("value", "retryable", "status"), FLAT)
@pytest.mark.parametrize("bare", [False, True])
def test_what_stands_beside_an_errors_text_says_what_it_is(
    protocol: str, value: dict[str, Any], retryable: bool, status: int, bare: bool
) -> None:
    of = reader(protocol)
    if bare:
        of.read_bare(msgspec.json.encode(value))
    else:
        read_event(of, value)
    error = of.facts.error
    assert error is not None
    assert (error.retryable, error.status) == (retryable, status)
    assert error.message in (value["error"], "No")


def test_a_reason_and_a_message_beside_it_are_both_told() -> None:
    of = reader("openai_chat")
    read_event(of, {"status": 400, "error": "Bad Request", "message": "model is unknown"})
    assert of.facts.error is not None
    assert of.facts.error.message == "Bad Request: model is unknown"
