"""The gateway's own answers in the shapes of the protocols."""

from __future__ import annotations

import json

import pytest

from gateway import protocols
from gateway.protocols.base import provider_error
from gateway.relay.error_answers import provider_error_body
from gateway.streams.events import ProviderError

BUSY = provider_error("overloaded_error", "Too busy", "busy", "model")


@pytest.mark.parametrize(
    ("protocol", "error", "body"),
    [
        (
            "openai_chat",
            BUSY,
            {
                "error": {
                    "message": "Too busy",
                    "type": "overloaded_error",
                    "param": "model",
                    "code": "busy",
                }
            },
        ),
        (
            "gemini",
            provider_error("RESOURCE_EXHAUSTED", "Slow down", 429),
            {"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}},
        ),
    ],
)
def test_a_providers_error_keeps_its_words_in_the_clients_shape(
    protocol: str, error: ProviderError, body: dict[str, object]
) -> None:
    made = json.loads(provider_error_body(protocols.BY_NAME[protocol], error))
    made["error"].pop("details", None)
    assert made == body


@pytest.mark.parametrize("protocol", protocols.NAMES)
def test_every_protocol_can_tell_a_providers_error(protocol: str) -> None:
    error = ProviderError("", "", None, None)
    assert json.loads(provider_error_body(protocols.BY_NAME[protocol], error))["error"]
    inner = json.loads(provider_error_body(protocols.BY_NAME[protocol], BUSY))["error"]
    assert inner["message"] == "Too busy"


def test_an_anthropic_error_keeps_its_type() -> None:
    made = json.loads(provider_error_body(protocols.BY_NAME["anthropic"], BUSY))
    assert made["type"] == "error"
    assert made["error"]["type"] == "overloaded_error"
