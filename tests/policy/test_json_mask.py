"""Credentials vanish from JSON texts, which stay JSON."""

import json

import pytest

from gateway.policy.json_mask import masked


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{ "a" : "x SECRET1 y", "n" : 1.50 }', '{ "a" : "x [redacted] y", "n" : 1.50 }'),
        ('{"a":"SEC\\u0052ET1","b":"SECRET1"}', '{"a":"[redacted]","b":"[redacted]"}'),
        ('{"a":"\\u0041","n":1e2}', '{"a":"\\u0041","n":1e2}'),
        ('{"a":["123456",123456]}', '{"a":["[redacted]",123456]}'),
        ('["no"]', '["no"]'),
        ('{"SEC\\u0052ET1":1,"a":"SEC\\u0052ET1"}', '{"[redacted]":1,"a":"[redacted]"}'),
    ],
)
def test_a_credential_is_masked_wherever_it_is_a_string(text: str, after: str) -> None:
    assert masked(text, json.loads(text), ("SECRET1", "123456")) == (after, json.loads(after))


def test_without_credentials_nothing_is_looked_at() -> None:
    assert masked('{"a":"\\u0041"}', None, ()) == ('{"a":"\\u0041"}', None)
