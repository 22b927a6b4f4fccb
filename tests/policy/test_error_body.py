"""Errors in every shape are read for their code and message."""

import pytest

from gateway.policy.error_body import ErrorBody, as_utf8, details_of, read_document, read_error


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
        (b"<!DOCTYPE html><p>", ErrorBody.HTML, None, "an HTML page"),
        (b"<Error><HostId>x</HostId>", ErrorBody.TEXT, None, "x"),
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


ERROR = b'{"error":{"message":"m","code":"c"}}'


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (b'{"status":"error"}\nTraceback: CUDA out of memory', " (Traceback: CUDA out of memory)"),
        (b"{}\nInternal failure: disk is full", " (Internal failure: disk is full)"),
        (b'{\n "a": "b"\n}\n\nthe cause', " (a: b; the cause)"),
        (b'{"error":{"message":"A"}}\n{"error":{"message":"B"}}', "A (B)"),
        (b'{"choices":[]}\n' + ERROR, "m (code: c)"),
        (b'data: {"choices":[]}\n\ndata: ' + ERROR + b"\n\ndata: [DONE]\n\n", "m (code: c)"),
        (b"event: error\ndata: " + ERROR, "m (code: c)"),
        (b"event: error\ndata: no JSON", "no JSON"),
        (ERROR[:-1], "m (code: c)"),
        (ERROR[:-3], "m (code: c)"),
        (ERROR[:-8], "m"),
        (b'{"error":{"message":"say \\"no\\" \\u00fcber', 'say "no" über'),
        (b'{"error":{"type":"t_x","param":"p","message":"m', "m (type: t_x; param: p)"),
        (b"{'error': 'python'}", "{'error': 'python'}"),
        (b'{"a":' * 5000, '{"a":' * 5000),
        (b'{"error":{"message":"m","n":' + b"9" * 5000 + b',"code":"c"}}', None),
    ],
)
def test_what_is_said_in_several_values_or_before_a_fault_is_found(
    plain: bytes, words: str | None
) -> None:
    read = read_error(plain)
    assert read.kind is ErrorBody.JSON or words == "no JSON"
    if words is not None:
        assert read.all == words
    else:
        assert read.all.startswith("m (code: c; n: 999")


def test_what_only_repeats_the_status_is_not_said() -> None:
    plain = b'{"error":{"message":"No","code":400,"param":"p"}}'
    assert read_error(plain, 400).all == "No (param: p)"
    assert read_error(plain).all == "No (code: 400; param: p)"


def test_only_depth_is_no_fault() -> None:
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    for plain, is_deep in ((deep, True), (deep[:-1], True), (b'{"a"}', False)):
        document = read_document(plain)
        assert (document.readable, document.deep) == (False, is_deep)


@pytest.mark.parametrize(
    ("plain", "content_type", "text"),
    [
        ("ü".encode("latin-1"), "text/plain; charset=ISO-8859-1", "ü"),
        ("ü".encode("latin-1"), 'text/plain; charset="latin1"', "ü"),
        ("ü".encode("utf-16"), "", "ü"),
        ("ü".encode(), "text/plain; charset=iso-8859-1", "ü"),
        ("ü".encode("cp1252"), "text/plain; charset=windows-1252", "ü"),
    ],
)
def test_a_body_is_read_in_its_own_encoding(plain: bytes, content_type: str, text: str) -> None:
    assert as_utf8(plain, content_type).decode() == text


def test_an_encoding_that_is_not_known_changes_nothing() -> None:
    for content_type in ("", "text/plain; charset=zip", "text/plain; charset=punycode"):
        assert as_utf8(b"\xfc", content_type) == b"\xfc"


def nested(opening: str, leaf: str, closing: str, depth: int) -> bytes:
    """An error whose value is that deep."""
    return f'{{"error":{opening * depth}{leaf}{closing * depth}}}'.encode()


@pytest.mark.parametrize("depth", [100, 490, 900, 990, 5000])
@pytest.mark.parametrize("leaf", ["NaN", '"x"', "1"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"message":', "}"), ('{"a":', "}")])
def test_no_depth_makes_reading_fail(opening: str, closing: str, leaf: str, depth: int) -> None:
    body = nested(opening, leaf, closing, depth)
    assert read_document(body).kind is ErrorBody.JSON
    assert read_error(body).kind is ErrorBody.JSON
    assert details_of(body) is None
