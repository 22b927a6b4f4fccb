"""The settings in force, as text."""

import tomllib

import pytest

from gateway.config import Config, load, render

KEY = "sk-live-0123456789-0123456789-0123"
TOKEN = "t" * 32

FULL = """
[server]
listen = "0.0.0.0:9000"
max_body = 1500
[providers.mine]
base_url = "http://127.0.0.1:9"
api_key = "env:MY_KEY"
proxy = "http://me:hunter2@proxy:3128"
hold = "finish"
keepalive = 0.5
fallback = ["other"]
timeouts.gap = 20
[providers.other]
base_url = "https://other"
api_key = "env:MY_KEY"
model_map = { "a \\"b\\"" = "c\\u007f" }
[providers.azure]
base_url = "https://r.openai.azure.com"
[exec]
enabled = true
token = ["env:MY_KEY", "env:MY_TOKEN"]
allowed_roots = ["/repo"]
limits.memory = "1GiB"
"""


def loaded(text: str) -> Config:
    return load(text, {"MY_KEY": KEY, "MY_TOKEN": TOKEN}, str)


@pytest.mark.parametrize("text", ["", FULL.replace("me:hunter2@", "")], ids=["default", "full"])
def test_what_is_written_loads_again_and_means_the_same(text: str) -> None:
    once = render(loaded(text))
    again = loaded(once)
    assert render(again) == once
    for name, provider in loaded(text).providers.items():
        assert again.providers[name].timeouts == provider.timeouts
        assert again.providers[name].held_bytes("finish") == provider.held_bytes("finish")
        assert again.providers[name].model_map == provider.model_map
    assert again.server == loaded(text).server
    assert again.exec == loaded(text).exec


def test_no_key_and_no_password_is_shown() -> None:
    text = render(loaded(FULL))
    assert KEY not in text
    assert TOKEN not in text
    assert 'token = ["env:MY_KEY", "env:MY_TOKEN"]' in text
    assert "hunter2" not in text
    assert 'api_key = "env:MY_KEY"' in text
    assert 'proxy = "http://***@proxy:3128"' in text


def test_what_is_in_force_is_shown_and_not_only_what_was_set() -> None:
    text = render(loaded(FULL))
    assert '#hold_max_bytes = "16MiB"' in text
    assert 'max_output = "1GiB"' in text
    assert '[exec.limits]\nmemory = "1GiB"\n' in text
    assert "#hold_keepalive = 15" in text
    mine = tomllib.loads(text)["providers"]["mine"]
    assert mine["timeouts"]["gap_alive"] == 20
    assert mine["retry"]["max_retries"] == 3


def test_a_default_that_would_mean_more_once_set_is_shown_as_a_comment() -> None:
    text = render(loaded("providers.openai.timeouts.gap_alive = 400"))
    assert "#gap = 290" in text
    assert load(text, {}, str).providers["openai"].timeouts.gap_alive == 400


def test_only_providers_of_the_configuration_have_a_table() -> None:
    assert list(tomllib.loads(render(loaded(FULL)))["providers"]) == ["azure", "mine", "other"]
    assert "providers" not in tomllib.loads(render(loaded("")))


def test_the_built_in_providers_are_listed_with_the_base_urls_of_agents() -> None:
    text = render(loaded(FULL))
    assert "# openai " in text
    assert "https://api.openai.com" in text
    assert "http://127.0.0.1:9000/openai/v1" in text
    assert "https://r.openai.azure.com" in text
    assert "# azure: " not in text
    assert "# azure: set base_url" in render(loaded(""))


def test_on_a_unix_socket_the_address_is_left_open() -> None:
    assert "http://HOST:PORT/openai/v1" in render(loaded('server.listen = "unix:/run/g.sock"'))
