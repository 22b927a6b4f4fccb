"""How the text of parameters is read."""

from __future__ import annotations

import pytest

from gateway.sim.params import COMMON, ERROR_TYPES, PARAMS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("times", "3", 3),
        ("after", "12", 12),
        ("after", "none", "none"),
        ("for", "0.25", 0.25),
        ("for", "1e2", 100.0),
        ("size", "2k", 2048),
        ("tool", "mcp__files.read", "mcp__files.read"),
        ("eol", "cr", "cr"),
    ],
)
def test_a_right_value_is_read(name: str, text: str, value: object) -> None:
    assert PARAMS[name].read(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("times", "³"),
        ("times", "1" * 13),
        ("after", "-0"),
        ("for", "inf"),
        ("for", "86401"),
        ("size", "0"),
        ("tool", "a b"),
        ("tool", ""),
        ("coding", "lzma"),
        ("type", "nothing"),
    ],
)
def test_a_wrong_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        PARAMS[name].read(text)


def test_the_common_parameters_exist_and_every_one_is_described() -> None:
    assert set(COMMON) <= set(PARAMS)
    assert all(param.summary for param in PARAMS.values())
    assert all(name in PARAMS["type"].summary for name in ERROR_TYPES)
