"""config.example.toml against the model: every key, its default, and that it loads."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config import load, schema
from gateway.config.model import Circuit, Exec, Limits, Log, Provider, Retry, Server, Timeouts
from gateway.config.presets import PRESETS

EXAMPLE = (Path(__file__).parents[2] / "config.example.toml").read_text(encoding="utf-8")
ALL_SET = re.sub(r"^#(?=[a-z_]+ = )", "", EXAMPLE, flags=re.MULTILINE)

EXAMPLES_ONLY = {
    "default_provider",
    "api_key",
    "ca_file",
    "fallback",
    "token",
    "allowed_roots",
    "run_as",
    "cpu",
    "processes",
}
"""Keys whose default is to be absent: what the file shows is an example."""

OPENAI = Provider(name="openai", base_url=PRESETS["openai"].base_url)


def read_file(path: str) -> str:
    return "-----BEGIN CERTIFICATE-----" if path.endswith(".pem") else "key"


def at(path: str) -> dict[str, Any]:
    table = tomllib.loads(ALL_SET)
    for step in path.split("."):
        table = table[step]
    return table


def test_a_copy_of_the_file_changes_nothing_but_names_a_provider() -> None:
    copied, default = load(EXAMPLE, {}, read_file), load("", {}, read_file)
    assert copied.server == default.server
    assert {name: provider for name, provider in copied.providers.items() if name != "backup"} == {
        name: copied.providers[name] if name == "openai" else provider
        for name, provider in default.providers.items()
    }
    assert copied.providers["openai"].timeouts == Timeouts()
    assert copied.providers["backup"].base_url == "https://llm.example.com"


def test_the_file_loads_with_every_key_in_it_set() -> None:
    config = load(ALL_SET, {"OPENAI_API_KEY": "key"}, read_file)
    assert config.providers["openai"].fallback == ("backup",)


@pytest.mark.parametrize(
    ("path", "keys", "default"),
    [
        ("server", schema.SERVER, Server()),
        ("log", schema.LOG, Log()),
        ("providers.openai.timeouts", schema.TIMEOUTS, Timeouts()),
        ("providers.openai.retry", schema.RETRY, Retry()),
        ("providers.openai.circuit", schema.CIRCUIT, Circuit()),
        ("exec", schema.EXEC, Exec()),
        ("exec.limits", schema.LIMITS, Limits()),
        ("providers.openai", schema.PROVIDER, OPENAI),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_key_stands_there_with_its_default(
    path: str, keys: schema.Readers, default: msgspec.Struct
) -> None:
    shown = at(path)
    elsewhere = {"model_map"} if path == "providers.openai" else set()
    tables = {*schema.PROVIDER_TABLES, *schema.EXEC_TABLES}
    assert set(shown) - tables == set(keys) - elsewhere
    for key in set(shown) & set(keys) - EXAMPLES_ONLY:
        assert keys[key](shown[key]) == getattr(default, key), key


def test_every_key_has_a_comment_above_it_or_above_its_group() -> None:
    lines = EXAMPLE.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"#[a-z_]+ = ", line):
            above = lines[:number][::-1]
            first = next(text for text in above if not re.match(r"#?[a-z_]+ = |\[", text))
            assert first.startswith("# "), line
