"""Whatever an error says and in whatever form: no client does something else for what was added."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway import protocols
from gateway.policy.enrich import enrich
from gateway.policy.error_body import Answer
from gateway.policy.error_growth import MAX_ADDED
from gateway.policy.redact import redact
from tests.policy import error_bodies
from tests.policy.client_oracle import DIALECTS, reaction, status_text
from tests.policy.error_bodies import OWN_SECRET, SECRETS

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


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.bodies(), dialects)
def test_no_client_does_something_else(status: int, body: bytes, dialect: str) -> None:
    after = told(status, body, dialect)
    assert reaction(status, after, dialect) == reaction(status, body, dialect)


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.bodies() | st.binary(max_size=60), dialects | st.none())
def test_twice_is_once(status: int, body: bytes, dialect: str | None) -> None:
    once = told(status, body, dialect)
    assert told(status, once, dialect) == once


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.native(), st.sampled_from((*DIALECTS, None)))
def test_a_message_only_grows_and_all_else_stays(
    status: int, body: bytes, dialect: str | None
) -> None:
    after = told(status, body, dialect)
    had, has = spelled(body), spelled(after)
    own, shown = had["error"].pop("message"), has["error"].pop("message")
    if redact(own) == own and OWN_SECRET not in own and _has_words_of_its_own(status, own):
        status_first = shown.startswith(str(status)) and f": {own}" in shown
        assert shown.startswith(own) or status_first
        assert len(shown) - len(own) <= MAX_ADDED
    assert shown.strip()
    assert has["error"] | _without_own_secret(had["error"]) == has["error"]
    del had["error"], has["error"]
    if dialect == "anthropic":
        had["type"] = "error"
    assert has == _without_own_secret(had)


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.native())
def test_of_a_body_in_the_dialect_every_character_stays(status: int, body: bytes) -> None:
    if OWN_SECRET.encode() in body:
        return
    after, own = told(status, body, "openai_chat"), json.loads(body)["error"]["message"]
    if json.loads(after)["error"]["message"].startswith(own):
        pairs = zip(after, body, strict=False)
        start = next((at for at, (new, old) in enumerate(pairs) if new != old), len(body))
        assert after.endswith(body[start:]), "something was put in, and nothing taken away"


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.bodies() | st.binary(max_size=200), dialects)
def test_what_is_sent_is_the_dialects_or_the_providers_own(
    status: int, body: bytes, dialect: str
) -> None:
    enriched = enrich(Answer(status, {}, body), protocols.BY_NAME[dialect])
    if enriched is None:
        return
    value: Any = json.loads(enriched.body)
    value = value[0] if isinstance(value, list) else value
    assert value["error"]["message"].strip()
    if dialect == "anthropic":
        assert value["type"] == "error"
    wanted = {"anthropic": {"type"}, "gemini": {"code", "status"}, "openai_chat": set[str]()}
    assert value["error"].keys() >= wanted[dialect]


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.bodies(), dialects)
def test_no_secret_is_shown(status: int, body: bytes, dialect: str) -> None:
    after = told(status, body, dialect)
    assert OWN_SECRET not in after.decode("utf-8", "replace")
    if after.startswith(b"<") and status in (401, 403):
        return  # a page that is left to the client
    value: Any = json.loads(after)
    message = (value[0] if isinstance(value, list) else value)["error"]["message"]
    assert not [secret for secret in SECRETS if secret in message]


@error_bodies.unhurried
@given(error_bodies.statuses, error_bodies.bodies())
def test_the_requests_secret_is_not_shown_where_nothing_is_told(status: int, body: bytes) -> None:
    assert OWN_SECRET not in told(status, body, None).decode("utf-8", "replace")


def _has_words_of_its_own(status: int, message: str) -> bool:
    letters = "".join(filter(str.isalpha, message)).lower()
    phrase = "".join(filter(str.isalpha, status_text(status))).lower()
    return letters not in ("", phrase)


def _without_own_secret(value: Any) -> Any:
    return json.loads(json.dumps(value).replace(OWN_SECRET, "[redacted]"))
