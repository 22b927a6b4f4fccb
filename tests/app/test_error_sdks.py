"""The official SDKs get every sample error through a whole gateway: what their exception says to a
person has the provider's detail in it. Read directly, most of them lose it.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anthropic
import openai
import pytest
from aiohttp import web
from google import genai
from google.genai import errors as google_errors
from google.genai import types

from tests.samples.http_errors_catalog import HTTP_ERRORS, HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.app.gateway import Gateway

    Start = Callable[..., Awaitable[Gateway]]
    Ask = Callable[[str], Awaitable[object]]

pytestmark = pytest.mark.filterwarnings(
    # google-genai's own doing.
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

PROMPT = "Tell me about the tides"
CONFIG = """
[providers.errors]
base_url = "http://127.0.0.1:{port}"
proxy = "none"
retry = {{ max_retries = 0 }}
"""
WHICH = "x-sample"
BY_FILE = {error.file: error for error in HTTP_ERRORS}


@pytest.fixture
async def url(start: Start) -> AsyncIterator[str]:
    """A gateway's address for a provider that answers with the sample that a request names."""

    async def fail(request: web.Request) -> web.Response:
        error = BY_FILE[request.headers[WHICH]]
        fields = {"Content-Type": error.content_type, **error.headers}
        return web.Response(
            status=error.status, reason=error.phrase, body=error.body, headers=fields
        )

    application = web.Application()
    application.router.add_post("/{path:.*}", fail)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    gateway = await start(CONFIG.format(port=runner.addresses[0][1]))
    yield f"{gateway.url}/errors"
    await runner.cleanup()


@asynccontextmanager
async def openai_client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=plain
    ) as client:
        yield client


async def chat(client: openai.AsyncOpenAI, file: str, *, stream: bool) -> object:
    return await client.chat.completions.create(
        model="m",
        stream=stream,
        messages=[{"role": "user", "content": PROMPT}],
        extra_headers={WHICH: file},
    )


async def respond(client: openai.AsyncOpenAI, file: str) -> object:
    return await client.responses.create(model="m", input=PROMPT, extra_headers={WHICH: file})


@asynccontextmanager
async def chat_asker(url: str) -> AsyncIterator[Ask]:
    async with openai_client(url) as client:
        yield partial(chat, client, stream=False)


@asynccontextmanager
async def stream_asker(url: str) -> AsyncIterator[Ask]:
    async with openai_client(url) as client:
        yield partial(chat, client, stream=True)


@asynccontextmanager
async def responses_asker(url: str) -> AsyncIterator[Ask]:
    async with openai_client(url) as client:
        yield partial(respond, client)


@asynccontextmanager
async def messages_asker(url: str) -> AsyncIterator[Ask]:
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="sk-ant-test", max_retries=0, http_client=plain
    ) as client:

        async def ask(file: str) -> object:
            return await client.messages.create(
                model="m",
                max_tokens=10,
                messages=[{"role": "user", "content": PROMPT}],
                extra_headers={WHICH: file},
            )

        yield ask


@asynccontextmanager
async def gemini_asker(url: str) -> AsyncIterator[Ask]:
    options = types.HttpOptions(base_url=url, client_args={"verify": False})
    client = genai.Client(api_key="AIza-test", http_options=options)

    async def ask(file: str) -> object:
        named = types.GenerateContentConfig(http_options=types.HttpOptions(headers={WHICH: file}))
        return await client.aio.models.generate_content(model="m", contents=PROMPT, config=named)

    try:
        yield ask
    finally:
        await client.aio.aclose()
        client.close()


ASKERS = {
    "openai chat": (chat_asker, openai.APIStatusError),
    "openai chat, streaming": (stream_asker, openai.APIStatusError),
    "openai responses": (responses_asker, openai.APIStatusError),
    "anthropic": (messages_asker, anthropic.APIStatusError),
    "google-genai": (gemini_asker, google_errors.APIError),
}


@pytest.mark.parametrize("sdk", ASKERS)
async def test_what_an_sdk_raises_says_what_the_provider_said(url: str, sdk: str) -> None:
    asker, exception = ASKERS[sdk]
    async with asker(url) as ask:
        for error in HTTP_ERRORS:
            with pytest.raises(exception) as raised:
                await ask(error.file)
            shown = str(raised.value)
            missing = [words for words in error.detail if not _says(shown, words)]
            assert not missing, f"{error.file}: {shown}"
            assert "<" not in shown
            assert _status(raised.value) == error.status


@pytest.mark.parametrize("sdk", ["openai chat", "openai responses", "anthropic"])
async def test_what_an_sdk_keeps_of_the_body_is_an_error_of_its_dialect(url: str, sdk: str) -> None:
    asker, exception = ASKERS[sdk]
    async with asker(url) as ask:
        for error in HTTP_ERRORS:
            with pytest.raises(exception) as raised:
                await ask(error.file)
            body = vars(raised.value)["body"]
            assert isinstance(body, dict), error.file
            inner = body["error"] if sdk == "anthropic" else body
            assert isinstance(inner["message"], str)
            assert inner["message"] in str(raised.value) or sdk == "anthropic"
            if sdk == "anthropic":
                assert (body["type"], bool(inner["type"])) == ("error", True)


def _says(shown: str, words: str) -> bool:
    """Some SDKs show the repr of the body."""
    return words in shown or repr(words)[1:-1] in shown or json.dumps(words)[1:-1] in shown


def _status(error: BaseException) -> int:
    status = error.code if isinstance(error, google_errors.APIError) else vars(error)["status_code"]
    assert isinstance(status, int)
    return status


def test_the_samples_are_of_every_kind() -> None:
    kinds = {_kind(error) for error in HTTP_ERRORS}
    assert kinds == {"json", "array", "html", "text", "empty"}


def _kind(error: HttpError) -> str:
    if not error.body:
        return "empty"
    return {b"{": "json", b"[": "array", b"<": "html"}.get(error.body[:1], "text")
