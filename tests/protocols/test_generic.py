"""Streams of no known protocol: an error is an error, all else is opaque."""

from __future__ import annotations

import json

import pytest

from gateway.protocols.generic import PROTOCOL, Reader, error_body
from gateway.streams.events import Fault, Kind, Phase


@pytest.mark.parametrize("data", [b'{"token":"a"}', b"plain words", b'{"finish_reason":"stop"}'])
def test_an_event_is_opaque(data: bytes) -> None:
    reader = Reader()

    assert reader.read(b"", data) is Kind.OPAQUE
    assert reader.facts.phase is Phase.IN_TEXT
    assert not reader.facts.finished


@pytest.mark.parametrize(
    ("name", "data", "kind", "message"),
    [
        (b"error", b'{"message":"boom"}', "error", "boom"),
        (b"error", b"words only", "error", "words only"),
        (b"error", b'{"error":{"type":"overloaded_error","message":"m"}}', "overloaded_error", "m"),
        (b"", b'{"error":{"status":"UNAVAILABLE","message":"m","code":503}}', "UNAVAILABLE", "m"),
        (b"", b'{"error":"boom"}', "error", "boom"),
        (b"new", b'{"a":1,"error":{"message":"m"}}', "error", "m"),
    ],
)
def test_an_error_in_any_form_is_one(name: bytes, data: bytes, kind: str, message: str) -> None:
    reader = Reader()

    assert reader.read(name, data) is Kind.ERROR
    assert reader.facts.error is not None
    assert (reader.facts.error.type, reader.facts.error.message) == (kind, message)


def test_an_error_that_is_not_the_last_event_is_news() -> None:
    reader = Reader()
    reader.read(b"error", b'{"message":"boom"}')

    assert reader.read(b"", b'{"token":"a"}') is Kind.OPAQUE
    assert reader.facts.error is None
    assert reader.read(b"error", b'{"message":"later"}') is Kind.ERROR
    assert reader.facts.error is not None
    assert reader.facts.error.message == "later"


@pytest.mark.parametrize("data", [b'{"error":null}', b'{"error":""}', b'{"text":"an \\"error\\""}'])
def test_no_error_is_none(data: bytes) -> None:
    reader = Reader()

    assert reader.read(b"", data) is Kind.OPAQUE
    assert reader.facts.error is None


def test_it_claims_nothing_and_has_no_form_of_its_own() -> None:
    assert not PROTOCOL.claims("POST", "/anything")
    assert not PROTOCOL.known
    assert Reader().fault(Fault("code", "words")) is None


def test_its_error_body_is_of_the_shape_that_most_clients_read() -> None:
    assert json.loads(error_body(502, "upstream_unreachable", "No."))["error"] == {
        "message": "No.",
        "type": "gateway_error",
        "param": None,
        "code": "upstream_unreachable",
    }
