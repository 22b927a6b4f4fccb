"""What the gateway writes into a stream, read by the official SDKs: each must raise with the words.

The bytes come out of the real stream object and go into the SDK over a transport without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from tests.samples.catalog import BY_FILE
from tests.streams import reference
from tests.streams.feeding import feed, open_stream

if TYPE_CHECKING:
    from gateway.streams.stream import Stream

Reading = Callable[[bytes], list[str]]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]


def http(body: bytes) -> httpx2.Client:
    """A client of a server that answers everything with that stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=body, request=request)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def openai_client(body: bytes) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url="http://mock/v1", http_client=http(body))


def anthropic_client(body: bytes) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url="http://mock", http_client=http(body))


# One function per way to read a stream: the pieces of text, or the SDK's exception.


def chat(body: bytes) -> list[str]:
    stream = openai_client(body).chat.completions.create(model="m", messages=MESSAGES, stream=True)
    return [c.choices[0].delta.content or "" for c in stream if c.choices]


def chat_helper(body: bytes) -> list[str]:
    with openai_client(body).chat.completions.stream(model="m", messages=MESSAGES) as stream:
        return [event.delta for event in stream if event.type == "content.delta"]


def completions(body: bytes) -> list[str]:
    stream = openai_client(body).completions.create(model="m", prompt="Hello", stream=True)
    return [chunk.choices[0].text for chunk in stream]


def responses(body: bytes) -> list[str]:
    stream = openai_client(body).responses.create(model="m", input="Hello", stream=True)
    return [event.delta for event in stream if event.type == "response.output_text.delta"]


def responses_helper(body: bytes) -> list[str]:
    with openai_client(body).responses.stream(model="m", input="Hello") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        stream.get_final_response()
        return pieces


def messages(body: bytes) -> list[str]:
    client = anthropic_client(body)
    stream = client.messages.create(model="m", max_tokens=9, messages=MESSAGES, stream=True)
    return [
        event.delta.text
        for event in stream
        if event.type == "content_block_delta" and event.delta.type == "text_delta"
    ]


def messages_helper(body: bytes) -> list[str]:
    client = anthropic_client(body)
    with client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
        return list(stream.text_stream)


def gemini(body: bytes) -> list[str]:
    options = genai_types.HttpOptions(base_url="http://mock", httpx_client=http(body))
    client = genai.Client(api_key="k", http_options=options)
    return [
        chunk.text or ""
        for chunk in client.models.generate_content_stream(model="m", contents="Hello")
    ]


READINGS: dict[str, tuple[Reading, str, type[Exception]]] = {
    "chat": (chat, "openai_chat/complete.sse", openai.APIError),
    "chat helper": (chat_helper, "openai_chat/complete.sse", openai.APIError),
    "completions": (completions, "openai_completions/complete.sse", openai.APIError),
    "responses": (responses, "openai_responses/complete.sse", openai.APIError),
    "responses helper": (responses_helper, "openai_responses/complete.sse", openai.APIError),
    "messages": (messages, "anthropic_messages/complete.sse", anthropic.APIStatusError),
    "messages helper": (
        messages_helper,
        "anthropic_messages/complete.sse",
        anthropic.APIStatusError,
    ),
    "gemini": (gemini, "gemini_sse/complete.sse", genai_errors.ServerError),
}
every_reading = pytest.mark.parametrize("reading", list(READINGS))


def opened(reading: str) -> tuple[Stream, bytes, list[bytes]]:
    """A stream after its first content, what was handed on, and the blocks that are to come."""
    sample = BY_FILE[READINGS[reading][1]]
    stream = open_stream(sample.protocol)
    blocks, _ = reference.split(sample.data)
    out = b""
    while not stream.content_events:
        out += stream.receive_data(blocks.pop(0), 1.0)
    return stream, out, blocks


def cut_after_content(stream: Stream, blocks: list[bytes]) -> bytes:
    return stream.receive_eof(2.0)


def cut_by_a_reset(stream: Stream, blocks: list[bytes]) -> bytes:
    return stream.receive_reset(2.0)


def cut_inside_an_event(stream: Stream, blocks: list[bytes]) -> bytes:
    return stream.receive_data(blocks[0][:30], 2.0) + stream.receive_eof(2.0)


def stalled(stream: Stream, blocks: list[bytes]) -> bytes:
    return stream.receive_data(blocks[0][:30], 2.0) + stream.expire(5000.0)


def ended_without_finish(stream: Stream, blocks: list[bytes]) -> bytes:
    return stream.receive_data(b"data: [DONE]\n\n", 2.0)


CUTS = [cut_after_content, cut_by_a_reset, cut_inside_an_event, stalled, ended_without_finish]


@every_reading
@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_raises_with_the_words_and_the_code(
    reading: str, cut: Callable[[Stream, list[bytes]], bytes]
) -> None:
    read, _, exception = READINGS[reading]
    stream, out, blocks = opened(reading)
    out += cut(stream, blocks)
    assert stream.cut

    with pytest.raises(exception) as caught:
        read(out)

    shown = f"{caught.value} {getattr(caught.value, 'body', '')}"
    assert "Upstream" in shown
    assert "retry your request" in shown.lower()
    assert ("upstream_stalled" if cut is stalled else "upstream_stream_truncated") in shown


@every_reading
def test_a_cut_of_the_same_stream_without_a_word_is_what_the_gateway_is_for(reading: str) -> None:
    """Held against the cuts above: these SDKs take a bare end for a whole answer, or lose why."""
    read, _, exception = READINGS[reading]
    _, out, _ = opened(reading)

    try:
        pieces = read(out)
    except (RuntimeError, AssertionError) as error:
        assert not isinstance(error, exception)  # noqa: PT017 - either ending is as expected
    else:
        assert pieces


@every_reading
def test_a_complete_stream_is_read_whole(reading: str) -> None:
    read, file, _ = READINGS[reading]
    sample = BY_FILE[file]

    out = feed(open_stream(sample.protocol), [sample.data])

    assert read(out) == read(sample.data)
    assert "".join(read(out))


KEEPALIVES = {
    "openai_chat": b":\n\n",
    "openai_completions": b":\n\n",
    "openai_responses": b":\n\n",
    "anthropic": b":\n\n",
    "gemini": b"\n",
}


@every_reading
def test_keepalives_between_all_events_change_nothing(reading: str) -> None:
    from gateway.protocols import BY_NAME

    read, file, _ = READINGS[reading]
    sample = BY_FILE[file]
    keepalive = BY_NAME[sample.protocol].keepalive

    blocks, _ = reference.split(sample.data)

    assert read(keepalive + keepalive.join(blocks) + keepalive) == read(sample.data)


# The provider's own errors, made to raise.


def failing_samples() -> Iterator[Any]:
    readings: dict[str, list[str]] = {
        "openai_chat": ["chat", "chat helper"],
        "openai_completions": ["completions"],
        "openai_responses": ["responses", "responses helper"],
        "anthropic": ["messages", "messages helper"],
        "gemini": ["gemini"],
    }
    for sample in BY_FILE.values():
        if sample.role == "error":
            for reading in readings.get(sample.protocol, ()):
                yield pytest.param(sample.file, reading, id=f"{sample.file}-{reading}")


@pytest.mark.parametrize(("file", "reading"), list(failing_samples()))
def test_every_error_of_a_provider_that_passes_raises_with_its_words(
    file: str, reading: str
) -> None:
    read, _, exception = READINGS[reading]
    sample = BY_FILE[file]
    stream = open_stream(sample.protocol)
    stream._hold.released = True  # as after a keepalive: what comes first is told in-band, too

    out = feed(stream, [sample.data])

    assert stream.error is not None
    with pytest.raises((exception, genai_errors.ClientError)) as caught:
        read(out)
    assert stream.error.message in f"{caught.value} {getattr(caught.value, 'body', '')}"
