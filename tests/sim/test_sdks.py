"""The official clients read what the simulator sends: whole streams, tool calls, errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types

from tests.sim.support import TOOL_SCHEMA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from openai.types.chat import ChatCompletionToolParam

    from gateway.sim.server import SimServer

pytestmark = pytest.mark.filterwarnings(
    # google-genai's own doing.
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

PROMPT = "Tell me about the tides"
WHOLE = [
    "sim-ok",
    "sim-keepalive",
    "sim-crlf",
    "sim-gzip",
    "sim-ok,words=20,chunk=40",
    "sim-no-done",
]
OPENING = f"You said “{PROMPT}”."
CHAT_TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "bash", "parameters": dict(TOOL_SCHEMA)},
}


# Plain HTTP to the loopback: loading certificates for each client would take longer than its test.


@pytest.fixture
async def openai_client(sim: SimServer) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{sim.url}/v1"
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="sk-test", max_retries=0, http_client=plain
    ) as client:
        yield client


@pytest.fixture
async def anthropic_client(sim: SimServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        base_url=sim.url, api_key="sk-ant-test", max_retries=0, http_client=plain
    ) as client:
        yield client


@pytest.fixture
async def google_client(sim: SimServer) -> AsyncIterator[genai.Client]:
    options = types.HttpOptions(base_url=sim.url, client_args={"verify": False})
    client = genai.Client(api_key="test", http_options=options)
    yield client
    await client.aio.aclose()
    client.close()


@pytest.mark.parametrize("model", WHOLE)
async def test_openai_reads_chat_streams(openai_client: openai.AsyncOpenAI, model: str) -> None:
    stream = await openai_client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": PROMPT}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith(OPENING)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


@pytest.mark.parametrize("model", WHOLE)
async def test_openais_chat_helper_gathers_several_choices(
    openai_client: openai.AsyncOpenAI, model: str
) -> None:
    async with openai_client.chat.completions.stream(
        model=model, messages=[{"role": "user", "content": PROMPT}], n=2
    ) as stream:
        async for _event in stream:
            pass
        completion = await stream.get_final_completion()
    assert len(completion.choices) == 2
    assert (completion.choices[0].message.content or "").startswith(OPENING)


async def test_openais_chat_helper_gathers_tool_calls(openai_client: openai.AsyncOpenAI) -> None:
    async with openai_client.chat.completions.stream(
        model="sim-tool", messages=[{"role": "user", "content": PROMPT}], tools=[CHAT_TOOL]
    ) as stream:
        completion = await stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls
    assert calls
    assert json.loads(calls[0].function.arguments) == {"command": "echo hello from the simulator"}
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_openai_reads_answers_that_are_not_streamed(
    openai_client: openai.AsyncOpenAI,
) -> None:
    completion = await openai_client.chat.completions.create(
        model="sim-ok", messages=[{"role": "user", "content": PROMPT}]
    )
    assert (completion.choices[0].message.content or "").startswith(OPENING)
    legacy = await openai_client.completions.create(model="sim-ok", prompt=PROMPT)
    assert legacy.choices[0].text.startswith(OPENING)
    response = await openai_client.responses.create(model="sim-reasoning", input=PROMPT)
    assert response.output_text.startswith(OPENING)
    assert response.usage is not None


async def test_openai_reads_legacy_streams(openai_client: openai.AsyncOpenAI) -> None:
    stream = await openai_client.completions.create(model="sim-ok", prompt=PROMPT, stream=True)
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text.startswith(OPENING)


@pytest.mark.parametrize("model", [*WHOLE, "sim-reasoning"])
async def test_openai_reads_responses_streams(
    openai_client: openai.AsyncOpenAI, model: str
) -> None:
    stream = await openai_client.responses.create(model=model, input=PROMPT, stream=True)
    events = [event async for event in stream]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas).startswith(OPENING)
    assert events[-1].type == "response.completed"


@pytest.mark.parametrize("model", [*WHOLE, "sim-reasoning"])
async def test_openais_responses_helper_gathers_the_answer(
    openai_client: openai.AsyncOpenAI, model: str
) -> None:
    async with openai_client.responses.stream(model=model, input=PROMPT) as stream:
        async for _event in stream:
            pass
        response = await stream.get_final_response()
    assert response.output_text.startswith(OPENING)
    assert response.usage is not None
    assert response.usage.output_tokens > 0


async def test_openais_responses_helper_gathers_tool_calls(
    openai_client: openai.AsyncOpenAI,
) -> None:
    tool: Any = {"type": "function", "name": "bash", "parameters": TOOL_SCHEMA, "strict": False}
    async with openai_client.responses.stream(
        model="sim-tool", input=PROMPT, tools=[tool]
    ) as stream:
        response = await stream.get_final_response()
    call = response.output[0]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"command": "echo hello from the simulator"}


async def test_openai_raises_the_errors_of_a_stream(openai_client: openai.AsyncOpenAI) -> None:
    for model, code in (("sim-error-event", "server_error"), ("sim-error-half", "500")):
        stream = await openai_client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": PROMPT}], stream=True
        )
        with pytest.raises(openai.APIError, match="server had an error") as caught:
            _ = [chunk async for chunk in stream]
        assert caught.value.code == code
    with pytest.raises(openai.APIError, match="server had an error"):
        async with openai_client.responses.stream(model="sim-error-event", input=PROMPT) as events:
            _ = [event async for event in events]


async def test_openai_raises_http_errors_by_their_kind(openai_client: openai.AsyncOpenAI) -> None:
    kinds: list[tuple[int, type[openai.APIStatusError]]] = [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ]
    for status, kind in kinds:
        with pytest.raises(kind) as caught:
            await openai_client.responses.create(model=f"sim-status-{status}", input=PROMPT)
        assert (caught.value.request_id or "").startswith("req_sim")


async def test_openai_lists_the_models(openai_client: openai.AsyncOpenAI) -> None:
    models = [model.id async for model in openai_client.models.list()]
    assert "sim-bare-eof" in models


async def test_openai_notices_broken_transport(openai_client: openai.AsyncOpenAI) -> None:
    for model in ("sim-cut", "sim-short-chunk", "sim-bad-chunk", "sim-reset"):
        stream = await openai_client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": PROMPT}], stream=True
        )
        with pytest.raises(Exception, match=r".") as caught:
            _ = [chunk async for chunk in stream]
        assert "Error" in type(caught.value).__name__


@pytest.mark.parametrize("model", [*WHOLE, "sim-reasoning"])
async def test_anthropic_reads_streams(
    anthropic_client: anthropic.AsyncAnthropic, model: str
) -> None:
    stream = await anthropic_client.messages.create(
        model=model,
        max_tokens=100,
        messages=[{"role": "user", "content": PROMPT}],
        stream=True,
    )
    kinds = [event.type async for event in stream]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


@pytest.mark.parametrize("model", [*WHOLE, "sim-reasoning"])
async def test_anthropics_helper_gathers_the_answer(
    anthropic_client: anthropic.AsyncAnthropic, model: str
) -> None:
    async with anthropic_client.messages.stream(
        model=model, max_tokens=100, messages=[{"role": "user", "content": PROMPT}]
    ) as stream:
        text = await stream.get_final_text()
        message = await stream.get_final_message()
    assert text.startswith(OPENING)
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens >= 20


async def test_anthropics_helper_gathers_tool_calls(
    anthropic_client: anthropic.AsyncAnthropic,
) -> None:
    async with anthropic_client.messages.stream(
        model="sim-tool",
        max_tokens=100,
        messages=[{"role": "user", "content": PROMPT}],
        tools=[{"name": "bash", "input_schema": dict(TOOL_SCHEMA)}],
    ) as stream:
        message = await stream.get_final_message()
    block = message.content[0]
    assert block.type == "tool_use"
    assert block.input == {"command": "echo hello from the simulator"}
    assert message.stop_reason == "tool_use"


async def test_anthropic_reads_the_rest(anthropic_client: anthropic.AsyncAnthropic) -> None:
    message = await anthropic_client.messages.create(
        model="sim-ok", max_tokens=100, messages=[{"role": "user", "content": PROMPT}]
    )
    block = message.content[0]
    assert block.type == "text"
    assert block.text.startswith(OPENING)
    counted = await anthropic_client.messages.count_tokens(
        model="sim-ok", messages=[{"role": "user", "content": PROMPT}]
    )
    assert counted.input_tokens > 0
    models = await anthropic_client.models.list()
    assert models.data[0].id == "sim-ok"


async def test_anthropic_raises_the_errors_of_a_stream_and_of_http(
    anthropic_client: anthropic.AsyncAnthropic,
) -> None:
    with pytest.raises(anthropic.APIStatusError, match="overloaded"):
        async with anthropic_client.messages.stream(
            model="sim-error-event,type=overloaded_error",
            max_tokens=100,
            messages=[{"role": "user", "content": PROMPT}],
        ) as stream:
            await stream.get_final_message()
    with pytest.raises(anthropic.RateLimitError):
        await anthropic_client.messages.create(
            model="sim-status-429", max_tokens=1, messages=[{"role": "user", "content": PROMPT}]
        )


@pytest.mark.parametrize("model", [*WHOLE, "sim-reasoning", "sim-big-event,after=all,size=300k"])
async def test_google_reads_streams(google_client: genai.Client, model: str) -> None:
    stream = await google_client.aio.models.generate_content_stream(model=model, contents=PROMPT)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.text or "" for chunk in chunks).startswith(OPENING)
    last = chunks[-1]
    assert last.candidates
    assert last.candidates[0].finish_reason is types.FinishReason.STOP
    assert last.usage_metadata is not None
    assert last.usage_metadata.total_token_count


async def test_google_reads_function_calls_and_whole_answers(google_client: genai.Client) -> None:
    declared = types.FunctionDeclaration(name="bash", parameters_json_schema=dict(TOOL_SCHEMA))
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    stream = await google_client.aio.models.generate_content_stream(
        model="sim-tool", contents=PROMPT, config=config
    )
    calls = [call async for chunk in stream for call in chunk.function_calls or []]
    assert calls[0].args == {"command": "echo hello from the simulator"}
    answer = await google_client.aio.models.generate_content(model="sim-ok", contents=PROMPT)
    assert (answer.text or "").startswith(OPENING)
    counted = await google_client.aio.models.count_tokens(model="sim-ok", contents=PROMPT)
    assert counted.total_tokens


async def test_google_raises_the_errors_of_a_stream_and_of_http(
    google_client: genai.Client,
) -> None:
    for model in ("sim-error-event,type=overloaded", "sim-error-flat,type=overloaded"):
        stream = await google_client.aio.models.generate_content_stream(
            model=model, contents=PROMPT
        )
        with pytest.raises(google_errors.ServerError, match="overloaded"):
            _ = [chunk async for chunk in stream]
    with pytest.raises(google_errors.ClientError, match="RESOURCE_EXHAUSTED"):
        await google_client.aio.models.generate_content(
            model="sim-status-429,retry_after=3", contents=PROMPT
        )


async def test_parameters_survive_googles_urls(google_client: genai.Client, sim: SimServer) -> None:
    model = "sim-bare-eof,after=2,times=1"
    for expected in (2, None):
        stream = await google_client.aio.models.generate_content_stream(
            model=model, contents=PROMPT
        )
        chunks = [chunk async for chunk in stream]
        assert expected is None or len(chunks) == expected
    assert [(seen.model, seen.faulted) for seen in sim.seen] == [(model, True), (model, False)]
