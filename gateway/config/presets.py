"""The built-in providers, as data; asks none of them anything.

A request to ``/NAME/path`` goes to ``{base_url}/path``. So ``base_url`` is what stands before the
part that clients append: an OpenAI SDK with the base URL ``http://127.0.0.1:8484/openai/v1`` asks
for ``/openai/v1/chat/completions``, which becomes ``https://api.openai.com/v1/chat/completions``.
Each preset says in ``agents`` which base URLs agents are given. Its quirks are ordinary keys of
the provider, set as a user would set them, and a user's key replaces them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

OPENAI = ("openai_chat", "openai_completions", "openai_responses")
LOCAL = MappingProxyType({"proxy": "none"})
"""Quirks of servers that run beside the agent: a proxy of the company does not reach them."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """One built-in provider.

    ``agents`` maps who is to be configured to the path that follows the gateway's own address.
    ``speaks`` are the protocols that it answers in. ``missing`` is set where there is no base URL
    that suits everybody, and says what to do. ``builtin`` names the part of this program that is
    the provider.
    """

    name: str
    base_url: str
    agents: Mapping[str, str]
    speaks: tuple[str, ...]
    note: str = ""
    missing: str = ""
    builtin: str | None = None
    keys: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))


_ALL = (
    Preset(
        name="openai",
        base_url="https://api.openai.com",
        agents={"OpenAI SDKs": "/openai/v1"},
        speaks=OPENAI,
    ),
    Preset(
        name="anthropic",
        base_url="https://api.anthropic.com",
        agents={"Anthropic SDKs, Claude Code": "/anthropic", "AI SDK": "/anthropic/v1"},
        speaks=("anthropic", "openai_chat"),
    ),
    Preset(
        name="gemini",
        base_url="https://generativelanguage.googleapis.com",
        agents={"Google SDKs": "/gemini", "OpenAI SDKs": "/gemini/v1beta/openai"},
        speaks=("gemini", "openai_chat"),
    ),
    Preset(
        name="openrouter",
        base_url="https://openrouter.ai/api",
        agents={"OpenAI SDKs": "/openrouter/v1", "Anthropic SDKs": "/openrouter"},
        speaks=(*OPENAI, "anthropic"),
    ),
    Preset(
        name="azure",
        base_url="",
        agents={"OpenAI SDKs": "/azure/openai/v1", "Azure SDKs": "/azure"},
        speaks=OPENAI,
        missing='set base_url = "https://RESOURCE.openai.azure.com" in [providers.azure]',
    ),
    Preset(
        name="mistral",
        base_url="https://api.mistral.ai",
        agents={"OpenAI SDKs": "/mistral/v1", "Mistral SDKs": "/mistral"},
        speaks=("openai_chat", "openai_completions"),
    ),
    Preset(
        name="groq",
        base_url="https://api.groq.com/openai",
        agents={"OpenAI SDKs": "/groq/v1"},
        speaks=OPENAI,
    ),
    Preset(
        name="deepseek",
        base_url="https://api.deepseek.com",
        agents={"OpenAI SDKs": "/deepseek", "Anthropic SDKs": "/deepseek/anthropic"},
        speaks=(*OPENAI, "anthropic"),
    ),
    Preset(
        name="xai",
        base_url="https://api.x.ai",
        agents={"OpenAI SDKs": "/xai/v1"},
        speaks=OPENAI,
    ),
    Preset(
        name="zai",
        base_url="https://api.z.ai/api",
        agents={
            "OpenAI SDKs": "/zai/paas/v4",
            "coding plan": "/zai/coding/paas/v4",
            "Anthropic SDKs": "/zai/anthropic",
        },
        speaks=("openai_chat", "anthropic"),
    ),
    Preset(
        name="moonshot",
        base_url="https://api.moonshot.ai",
        agents={"OpenAI SDKs": "/moonshot/v1", "Anthropic SDKs": "/moonshot/anthropic"},
        speaks=("openai_chat", "anthropic"),
    ),
    Preset(
        name="cohere",
        base_url="https://api.cohere.com",
        agents={"Cohere SDKs": "/cohere", "OpenAI SDKs": "/cohere/compatibility/v1"},
        speaks=("generic", "openai_chat"),
    ),
    Preset(
        name="vertex",
        base_url="https://aiplatform.googleapis.com",
        agents={"Google SDKs": "/vertex", "Anthropic SDKs": "/vertex/v1"},
        speaks=("gemini", "anthropic", "openai_chat"),
        note="global endpoint; for a region: https://REGION-aiplatform.googleapis.com",
    ),
    Preset(
        name="bedrock",
        base_url="https://bedrock-runtime.us-east-1.amazonaws.com",
        agents={"AWS SDKs": "/bedrock", "OpenAI SDKs": "/bedrock/openai/v1"},
        speaks=("generic", "openai_chat"),
        note="us-east-1; needs a Bedrock API key: an AWS signature is bound to the host it names",
    ),
    Preset(
        name="ollama",
        base_url="http://127.0.0.1:11434",
        agents={"OpenAI SDKs": "/ollama/v1", "Anthropic SDKs, Ollama SDKs": "/ollama"},
        speaks=(*OPENAI, "anthropic", "generic"),
        keys=LOCAL,
    ),
    Preset(
        name="vllm",
        base_url="http://127.0.0.1:8000",
        agents={"OpenAI SDKs": "/vllm/v1", "Anthropic SDKs": "/vllm"},
        speaks=(*OPENAI, "anthropic"),
        keys=LOCAL,
    ),
    Preset(
        name="llamacpp",
        base_url="http://127.0.0.1:8080",
        agents={"OpenAI SDKs": "/llamacpp/v1", "Anthropic SDKs": "/llamacpp"},
        speaks=(*OPENAI, "anthropic"),
        keys=LOCAL,
    ),
    Preset(
        name="litellm",
        base_url="http://127.0.0.1:4000",
        agents={"OpenAI SDKs": "/litellm/v1", "Anthropic SDKs": "/litellm"},
        speaks=(*OPENAI, "anthropic", "gemini"),
        keys=LOCAL,
    ),
    Preset(
        name="codex",
        base_url="https://chatgpt.com/backend-api/codex",
        agents={"Codex with a ChatGPT login": "/codex"},
        speaks=("openai_responses",),
    ),
    Preset(
        name="copilot",
        base_url="https://api.githubcopilot.com",
        agents={"agents with a Copilot login": "/copilot"},
        speaks=(*OPENAI, "anthropic"),
    ),
    Preset(
        name="sim",
        base_url="",
        agents={"OpenAI SDKs": "/sim/v1", "Anthropic and Google SDKs": "/sim"},
        speaks=(*OPENAI, "anthropic", "gemini"),
        note="the simulated provider of this program; needs no key",
        builtin="sim",
        keys=LOCAL,
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
"""The built-in providers by name, in the order in which they are listed."""
