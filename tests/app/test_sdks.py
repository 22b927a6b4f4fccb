"""The official SDKs through the whole gateway: whole answers are equal to direct ones, cuts raise.

This is the main job on real clients: none of them raises on most of these cuts when it reads from
the provider directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.app.gateway import Gateway

    Start = Callable[..., Awaitable[Gateway]]
    Ask = Callable[[str, str], Awaitable[list[str]]]

pytestmark = pytest.mark.filterwarnings(
    # google-genai's own doing.
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

PROMPT = "Tell me about the tides"
WHOLE = ["sim-ok", "sim-ok,chunk=7", "sim-keepalive", "sim-crlf", "sim-no-blank", "sim-length"]
CUTS = [
    "sim-bare-eof",
    "sim-cut,answer=tool,after=2",
    "sim-cut",
    "sim-short-chunk",
    "sim-reset",
    "sim-torn",
    "sim-half-finish",
]
STALLS = "[providers.sim]\ntimeouts = { gap = 0.3, silent_phase = 0.3, first_event = 0.3 }\n"


async def ask_chat(url: str, model: str) -> list[str]:
    """Chat Completions, the deltas."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain
    ) as client:
        stream = await client.chat.completions.create(
            model=model, stream=True, messages=[{"role": "user", "content": PROMPT}]
        )
        return [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]


async def ask_completions(url: str, model: str) -> list[str]:
    """Legacy Completions, the pieces of text."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain
    ) as client:
        stream = await client.completions.create(model=model, stream=True, prompt=PROMPT)
        return [choice.text async for chunk in stream for choice in chunk.choices]


async def ask_responses(url: str, model: str) -> list[str]:
    """Responses, the types and texts of the events."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain
    ) as client:
        stream = await client.responses.create(model=model, stream=True, input=PROMPT)
        return [
            event.delta if event.type == "response.output_text.delta" else event.type
            async for event in stream
        ]


async def ask_messages(url: str, model: str) -> list[str]:
    """Messages, the texts of the raw events."""
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="sk-ant-test", max_retries=0, http_client=plain
    ) as client:
        stream = await client.messages.create(
            model=model,
            max_tokens=500,
            stream=True,
            messages=[{"role": "user", "content": PROMPT}],
        )
        return [
            event.delta.text
            if event.type == "content_block_delta" and event.delta.type == "text_delta"
            else event.type
            async for event in stream
        ]


async def ask_gemini(url: str, model: str) -> list[str]:
    """Gemini, the texts of the chunks."""
    options = types.HttpOptions(base_url=url, client_args={"verify": False})
    client = genai.Client(api_key="AIza-test", http_options=options)
    try:
        stream = await client.aio.models.generate_content_stream(model=model, contents=PROMPT)
        return [chunk.text or "" async for chunk in stream]
    finally:
        await client.aio.aclose()
        client.close()


PROTOCOLS: dict[str, tuple[Ask, type[Exception]]] = {
    "openai_chat": (ask_chat, openai.APIError),
    "openai_completions": (ask_completions, openai.APIError),
    "openai_responses": (ask_responses, openai.APIError),
    "anthropic": (ask_messages, anthropic.APIStatusError),
    "gemini": (ask_gemini, google_errors.ServerError),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_whole_answer_is_the_same_as_without_the_gateway(
    start: Start, protocol: str
) -> None:
    gateway = await start()
    ask, _ = PROTOCOLS[protocol]
    for model in WHOLE:
        if protocol == "gemini" and model == "sim-keepalive":
            continue  # google-genai breaks on comments, with and without a gateway
        direct = await ask(gateway.sim_url, model)
        through = await ask(f"{gateway.url}/sim", model)
        if model != "sim-no-blank":
            assert through == direct, model
        else:
            # Without the gateway the SDK loses the last event.
            assert through[: len(direct)] == direct, model
        assert len("".join(through)) > 100, model


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_cut_raises_with_the_reason(start: Start, protocol: str) -> None:
    gateway = await start()
    ask, error = PROTOCOLS[protocol]
    for model in CUTS:
        with pytest.raises(error, match="Upstream connection lost"):
            await ask(f"{gateway.url}/sim", model)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_stall_behind_keepalives_raises_with_the_reason(
    start: Start, protocol: str
) -> None:
    gateway = await start(STALLS)
    ask, error = PROTOCOLS[protocol]
    for model in ("sim-stall", "sim-stall-keepalive,beat=0.05", "sim-drip,beat=0.05"):
        if protocol == "gemini" and "keepalive" in model:
            continue  # google-genai breaks on the comments before the stall shows
        with pytest.raises(error, match="Upstream response timed out"):
            await ask(f"{gateway.url}/sim", model)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_answer_that_never_begins_is_an_http_error(start: Start, protocol: str) -> None:
    gateway = await start()
    ask, _ = PROTOCOLS[protocol]
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError, google_errors.APIError)):
        await ask(f"{gateway.url}/sim", "sim-empty")
