"""What SDKs of a protocol look for is in each error, and nothing that it had is lost."""

from __future__ import annotations

import json

import pytest

from tests.policy.client_oracle import reaction
from tests.policy.error_bodies import told
from tests.samples.http_errors_catalog import HTTP_ERRORS

BY_FILE = {error.file: error for error in HTTP_ERRORS}
TYPES = {
    400: ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "authentication_error", "UNAUTHENTICATED"),
    404: ("not_found_error", "not_found_error", "NOT_FOUND"),
    422: ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    502: ("server_error", "api_error", "UNAVAILABLE"),
    503: ("server_error", "api_error", "UNAVAILABLE"),
    524: ("server_error", "api_error", "UNAVAILABLE"),
}
"""By status, what a body that had no type is given: OpenAI's, Anthropic's, Google's."""


@pytest.mark.parametrize(
    "file",
    [
        error.file
        for error in HTTP_ERRORS
        if not error.body.lstrip(b"[").startswith(b'{"error":{')
        and not error.body.startswith(b'{"type"')
    ],
)
def test_the_type_of_what_had_none_follows_the_status(file: str) -> None:
    error = BY_FILE[file]
    openai, anthropic, gemini = TYPES[error.status]
    assert told(error.status, error.body)["error"]["type"] == openai
    assert told(error.status, error.body, "anthropic")["error"]["type"] == anthropic
    value = told(error.status, error.body, "gemini")["error"]
    assert (value["code"], value["status"]) == (error.status, gemini)


def test_a_flat_code_is_the_errors_but_for_one_on_which_clients_would_act() -> None:
    assert told(400, b'{"message":"too big","code":"x"}')["error"]["code"] == "x"
    hidden = told(400, b'{"message":"too big","code":"context_length_exceeded"}')
    assert hidden["error"]["code"] is None
    assert hidden["error"]["message"] == "too big"
    assert hidden["code"] == "context_length_exceeded"
    known = b'{"message":"prompt is too long","code":"context_length_exceeded"}'
    assert told(400, known)["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
def test_a_message_that_clients_do_not_see_and_would_act_on_stays_hidden(dialect: str) -> None:
    body = b'{"error":{"message":"prompt is too long"},"message":"x"}'
    after = json.dumps(told(400, body, dialect)).encode()
    assert reaction(400, after, dialect) == reaction(400, body, dialect)
    shown = b'{"error":{"message":"no"},"message":"x"}'
    assert told(400, shown, dialect).keys() | told(400, shown, dialect)["error"].keys() >= {
        "type" if dialect == "anthropic" else "status"
    }
