"""Whatever an error says and in whatever form: no client does something else for what was added."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import protocols
from gateway.policy.enrich import MAX_ADDED, Answer, enrich
from gateway.policy.redact import redact
from tests.policy import error_bodies
from tests.policy.client_oracle import reaction, status_text
from tests.policy.error_bodies import OWN_SECRET, SECRETS

DIALECTS = ("openai_chat", "anthropic", "gemini")
dialects = st.sampled_from(DIALECTS)


def told(status: int, body: bytes, dialect: str | None) -> bytes:
    """What the client gets."""
    protocol = None if dialect is None else protocols.BY_NAME[dialect]
    headers = {"content-type": "application/json"}
    enriched = enrich(Answer(status, headers, body), protocol, (OWN_SECRET,))
    return body if enriched is None else enriched.body


def spelled(body: bytes) -> Any:
    """JSON with its numbers as they are spelled."""
    value = json.loads(body, parse_int=lambda text: f"#{text}", parse_float=lambda text: f"#{text}")
    return value[0] if isinstance(value, list) and len(value) == 1 else value


@given(error_bodies.statuses, error_bodies.bodies(), dialects)
def test_no_client_does_something_else(status: int, body: bytes, dialect: str) -> None:
    after = told(status, body, dialect)
    assert reaction(status, after, dialect) == reaction(status, body, dialect)


@given(error_bodies.statuses, error_bodies.bodies() | st.binary(max_size=60), dialects | st.none())
def test_twice_is_once(status: int, body: bytes, dialect: str | None) -> None:
    once = told(status, body, dialect)
    assert told(status, once, dialect) == once
