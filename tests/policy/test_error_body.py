"""Errors in every shape are read for their code and message."""

import pytest

from gateway.policy.error_body import ErrorBody, details_of, read_error


@pytest.mark.parametrize(
    ("body", "kind", "code", "message"),
    [
        (b'{"error":{"message":"No","code":"c"}}', ErrorBody.JSON, "c", "No"),
        (b'{"error":{"message":"No","type":"t"}}', ErrorBody.JSON, "t", "No"),
        (b'{"error":"just text"}', ErrorBody.JSON, None, "just text"),
        (b'{"detail":"gone"}', ErrorBody.JSON, None, "gone"),
        (b'[{"error":{"code":429,"status":"X","message":"m"}}]', ErrorBody.JSON, "429", "m"),
        (b'{"a":1}', ErrorBody.JSON, None, ""),
        (b'{"error":{"code":{"a":1},"message":["x"]}}', ErrorBody.JSON, None, "x"),
        (
            b'{"detail":[{"loc":["body","n"],"msg":"not a number","input":"the prompt"}]}',
            ErrorBody.JSON,
            None,
            "body.n: not a number",
        ),
        (b'{"error":{"message":"cut', ErrorBody.JSON, None, "cut"),
        (b'{"error":{"mess', ErrorBody.JSON, None, '{"error":{"mess'),
        (b'"just a string"', ErrorBody.TEXT, None, "just a string"),
        (b'data: {"error":{"message":"m","code":"c"}}\n\n', ErrorBody.JSON, "c", "m"),
        (b'{"message":"first"}\n{"message":"second"}', ErrorBody.JSON, None, "first"),
        (b'\xef\xbb\xbf{"message":"marked"}', ErrorBody.JSON, None, "marked"),
        (b"\0\0\0", ErrorBody.EMPTY, None, ""),
        (b" <html><head><title>502 Bad\n Gateway</title>", ErrorBody.HTML, None, "502 Bad Gateway"),
        (b"<!DOCTYPE html><p>x", ErrorBody.HTML, None, "an HTML page"),
        (b"upstream connect error", ErrorBody.TEXT, None, "upstream connect error"),
        (b" \r\n", ErrorBody.EMPTY, None, ""),
    ],
)
def test_an_error_body_is_read(
    body: bytes, kind: ErrorBody, code: str | None, message: str
) -> None:
    assert read_error(body)[:3] == (kind, code, message)


def test_the_type_is_told_apart_from_the_code() -> None:
    body = b'{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}'
    assert read_error(body).type == "tokens"


def test_the_details_of_a_google_error() -> None:
    assert details_of(b'[{"error":{"details":[{"retryDelay":"3s"}]}}]') == [{"retryDelay": "3s"}]
    assert details_of(b'{"error":"x"}') is None
    assert details_of(b"<html>") is None
