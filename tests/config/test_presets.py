"""The built-in providers."""

import pytest

from gateway import protocols
from gateway.config import schema, values
from gateway.config.presets import PRESETS, Preset

ALL = list(PRESETS.values())


def by_name(preset: Preset) -> str:
    return preset.name


def test_the_built_in_providers_are_these() -> None:
    assert list(PRESETS) == [
        *("openai", "anthropic", "gemini", "openrouter", "azure", "mistral", "groq", "deepseek"),
        *("xai", "zai", "moonshot", "cohere", "vertex", "bedrock", "ollama", "vllm", "llamacpp"),
        *("litellm", "codex", "copilot", "sim"),
    ]


@pytest.mark.parametrize("preset", ALL, ids=by_name)
def test_a_base_url_is_one_that_a_user_could_have_set_or_its_lack_is_explained(
    preset: Preset,
) -> None:
    if preset.base_url:
        assert values.base_url(preset.base_url) == preset.base_url
    else:
        assert preset.missing or preset.builtin


@pytest.mark.parametrize("preset", ALL, ids=by_name)
def test_quirks_are_keys_that_a_user_could_have_set(preset: Preset) -> None:
    for key, value in preset.keys.items():
        assert schema.PROVIDER[key](value) == value


@pytest.mark.parametrize("preset", ALL, ids=by_name)
def test_agents_are_given_a_path_below_the_providers_name(preset: Preset) -> None:
    assert preset.agents
    for path in preset.agents.values():
        assert (path + "/").startswith(f"/{preset.name}/")
        assert not path.endswith("/")


@pytest.mark.parametrize("preset", ALL, ids=by_name)
def test_a_preset_speaks_protocols_that_exist(preset: Preset) -> None:
    assert preset.speaks
    assert set(preset.speaks) <= set(protocols.NAMES)


@pytest.mark.parametrize(
    ("name", "asked", "upstream"),
    [
        ("openai", "/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("anthropic", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("openrouter", "/responses", "https://openrouter.ai/api/v1/responses"),
        ("groq", "/chat/completions", "https://api.groq.com/openai/v1/chat/completions"),
        ("deepseek", "/chat/completions", "https://api.deepseek.com/chat/completions"),
        ("xai", "/responses", "https://api.x.ai/v1/responses"),
        ("zai", "/chat/completions", "https://api.z.ai/api/paas/v4/chat/completions"),
        ("moonshot", "/chat/completions", "https://api.moonshot.ai/v1/chat/completions"),
        ("mistral", "/chat/completions", "https://api.mistral.ai/v1/chat/completions"),
        ("cohere", "/v2/chat", "https://api.cohere.com/v2/chat"),
        ("codex", "/responses", "https://chatgpt.com/backend-api/codex/responses"),
        ("copilot", "/chat/completions", "https://api.githubcopilot.com/chat/completions"),
        ("ollama", "/chat/completions", "http://127.0.0.1:11434/v1/chat/completions"),
        (
            "gemini",
            "/v1beta/models/m:streamGenerateContent",
            "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent",
        ),
    ],
)
def test_what_a_client_appends_to_its_first_base_url_reaches_the_providers_own_address(
    name: str, asked: str, upstream: str
) -> None:
    preset = PRESETS[name]
    path = next(iter(preset.agents.values())) + asked
    assert preset.base_url + path.removeprefix(f"/{name}") == upstream
