"""Records and streams as the relay makes them: real stream objects, fed at chosen moments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from gateway.observe.live import Live
from gateway.observe.metrics import Metrics
from gateway.observe.records import RequestRecord
from gateway.policy.clients import ClientApp
from gateway.protocols.openai_chat import PROTOCOL
from gateway.streams.events import Hold
from gateway.streams.settings import Settings
from gateway.streams.stream import Stream
from tests.clock import Clock

MakeRecord = Callable[..., RequestRecord]
MakeStream = Callable[..., Stream]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live() -> Live:
    return Live()


@pytest.fixture
def metrics(live: Live, clock: Clock) -> Metrics:
    return Metrics(
        live,
        providers=["openai", "sim"],
        protocols=["openai_chat", "generic"],
        version="1.2.3",
        now=clock,
    )


def _text(word: str) -> bytes:
    return (
        b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}],"model":"m1"}\n\n' % word.encode()
    )


ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TOOL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":'
    b'{"name":"f","arguments":"{"}}]}}]}\n\n'
)
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":9,'
    b'"prompt_tokens_details":{"cached_tokens":16},'
    b'"completion_tokens_details":{"reasoning_tokens":4}}}\n\n'
)
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def make_stream() -> MakeStream:
    """A chat stream: the words of an answer one second apart, and what it does then."""

    def make(
        *words: str, end: str | None = None, start: float = 1000.0, gap: float = 1.0
    ) -> Stream:
        settings = Settings(hold=Hold.FIRST_EVENT)
        stream = Stream("openai_chat", PROTOCOL.reader(1), settings, start)
        now = start + 0.5
        stream.receive_data(ROLE, now)
        for word in words:
            now += gap
            stream.receive_data(TOOL if word == "tool" else _text(word), now)
        if end in ("complete", "no usage"):
            stream.receive_data(FINISH + (USAGE if end == "complete" else b"") + DONE, now + 1)
            stream.receive_eof(now + 1)
        elif end == "bare_eof":
            stream.receive_eof(now + 1)
        elif end == "stalled":
            stream.receive_data(b": keep-alive\n\n", now + 1)
            assert stream.deadline is not None
            stream.expire(stream.deadline)
        return stream

    return make


@pytest.fixture
def make_record() -> MakeRecord:
    """A record of a request to ``openai`` that came at 1000.0, with any attribute replaced."""
    numbers = count(1)

    def make(**attributes: object) -> RequestRecord:
        record = RequestRecord(
            request_id=f"r{next(numbers)}",
            method="POST",
            path="/openai/v1/chat/completions",
            started=1000.0,
            started_at=1_800_000_000.0,
            provider="openai",
            protocol="openai_chat",
            client_app=ClientApp.OPENCODE,
            attempts=1,
        )
        for name, value in attributes.items():
            setattr(record, name, value)
        return record

    return make
