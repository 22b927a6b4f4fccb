"""What SDKs of a protocol look for is in each error, and nothing that it had is lost."""

from __future__ import annotations

import pytest

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
