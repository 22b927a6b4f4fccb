"""A raw HTTP client and an independent reader of streams, for the simulator's tests."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.sim.content import compose
from gateway.sim.replies import Exchange
from gateway.sim.routes import SHAPES
from gateway.sim.script import parse_model
from gateway.sim.stage import stage

if TYPE_CHECKING:
    from gateway.sim.plan import Plan
    from gateway.sim.shape import Event

PROTOCOLS: Final = ("chat", "completions", "responses", "anthropic", "gemini")

MODEL: Final = "model-under-test"
"""What answers say that they come from, so that the answers of two scripts can be compared."""

TOOL_SCHEMA: Final = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "note": {"type": "string"}},
    "required": ["command"],
}


def body(protocol: str, model: str, *, stream: bool, **more: Any) -> dict[str, Any]:
    """A small request of a protocol."""
    message = {"role": "user", "content": "Tell me about the tides"}
    base: dict[str, Any] = {"model": model, "stream": stream}
    match protocol:
        case "chat":
            base["messages"] = [message]
        case "completions":
            base["prompt"] = message["content"]
        case "responses":
            base["input"] = [message]
        case "anthropic":
            base |= {"messages": [message], "max_tokens": 1000}
        case _:
            base = {"contents": [{"role": "user", "parts": [{"text": message["content"]}]}]}
    return {**base, **more}


def target(protocol: str, model: str, *, stream: bool) -> str:
    """The path that a protocol's clients use."""
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return {
        "chat": "/v1/chat/completions",
        "completions": "/v1/completions",
        "responses": "/openai/v1/responses",
        "anthropic": "/v1/messages?beta=true",
        "gemini": f"/v1beta/models/{model}:{verb}",
    }[protocol]


@dataclass
class Reply:
    """What came back: ``end`` is clean, fin, reset or bad; ``body`` is without its chunking."""

    raw: bytes = b""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    end: str = "fin"


async def exchange(
    port: int,
    path: str,
    payload: Any,
    *,
    method: str = "POST",
    version: str = "1.1",
    head: str = "",
) -> Reply:
    """One request on a connection of its own, read until that is closed."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start = f"{method} {path} HTTP/{version}\r\nhost: sim\r\nconnection: close\r\n{head}"
    writer.write(f"{start}content-length: {len(data)}\r\n\r\n".encode() + data)
    raw, end = b"", "fin"
    try:
        async with asyncio.timeout(5):
            while chunk := await reader.read(65536):
                raw += chunk
    except ConnectionResetError:
        end = "reset"
    finally:
        writer.close()
    return parse(raw, end)


def parse(raw: bytes, end: str) -> Reply:
    """Splits an answer as it came from the socket."""
    match = re.match(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n(.*?)\r\n\r\n", raw, re.S)
    if match is None:
        return Reply(raw=raw, end=end)
    pairs = [line.split(": ", 1) for line in match[2].decode("latin-1").split("\r\n")]
    headers = {name.lower(): value for name, value in pairs}
    rest = raw[match.end() :]
    if headers.get("transfer-encoding") == "chunked":
        rest, ended = dechunk(rest)
        end = ended if end == "fin" else end
    elif "content-length" in headers and len(rest) == int(headers["content-length"]):
        end = "clean"
    return Reply(raw=raw, status=int(match[1]), headers=headers, body=rest, end=end)


def dechunk(data: bytes) -> tuple[bytes, str]:
    """The body, and how it ended: clean, fin, short (inside a chunk) or bad."""
    text = b""
    while data:
        line, newline, data = data.partition(b"\r\n")
        if not newline or not re.fullmatch(rb"[0-9a-f]+", line):
            return text, "bad"
        size = int(line, 16)
        if size == 0:
            return text, "clean" if data == b"\r\n" else "bad"
        text += data[:size]
        if len(data) < size + 2:
            return text, "short"
        data = data[size + 2 :]
    return text, "fin"


def events(stream: bytes) -> list[tuple[str, Any]]:
    """The dispatched events as (name, payload); ``[DONE]`` and other text stay text."""
    found: list[tuple[str, Any]] = []
    for block in re.split(rb"\r\n\r\n|\n\n|\r\r", stream)[:-1]:
        lines = re.split(rb"\r\n|\n|\r", block)
        fields = [line.split(b": ", 1) for line in lines if b": " in line[1:]]
        name = b"".join(value for key, value in fields if key == b"event").decode()
        data = b"\n".join(value for key, value in fields if key == b"data").decode()
        if data:
            found.append((name, json.loads(data) if data.startswith(("{", "[{")) else data))
    return found


def finishes(protocol: str, stream: bytes) -> int:
    """How many finish frames a stream has."""
    count = 0
    for name, payload in events(stream):
        if not isinstance(payload, dict):
            continue
        match protocol:
            case "chat" | "completions":
                choices = payload.get("choices", [])
                count += sum(bool(choice["finish_reason"]) for choice in choices)
            case "responses":
                terminal = ("response.completed", "response.incomplete", "response.failed")
                count += payload["type"] in terminal
            case "anthropic":
                count += name == "message_stop"
            case _:
                candidates = payload.get("candidates", [])
                count += sum(bool(item.get("finishReason")) for item in candidates)
    return count


def contents(protocol: str, stream: bytes) -> list[str]:
    """The content deltas of a stream, one entry per event that carries some."""
    found: list[str] = []
    for _name, payload in events(stream):
        if not isinstance(payload, dict):
            continue
        match protocol:
            case "chat":
                deltas = [choice["delta"] for choice in payload.get("choices", [])]
                found += [delta["content"] for delta in deltas if delta.get("content")]
            case "completions":
                choices = payload.get("choices", [])
                found += [choice["text"] for choice in choices if choice["text"]]
            case "responses":
                if payload["type"] == "response.output_text.delta":
                    found.append(payload["delta"])
            case "anthropic":
                if payload["type"] == "content_block_delta":
                    found.append(payload["delta"]["text"])
            case _:
                for candidate in payload.get("candidates", []):
                    found += [
                        part["text"] for part in candidate["content"]["parts"] if part["text"]
                    ]
    return found


def errors(stream: bytes) -> int:
    """How many events carry an error in any of the known forms."""
    found = [payload for _name, payload in events(stream) if isinstance(payload, dict)]
    return sum(
        bool(payload.get("error")) or payload.get("type") == "error" or "message" in payload
        for payload in found
        if payload.get("type") != "message_start"
    )


async def ask(port: int, protocol: str, model: str, *, stream: bool = True, **more: Any) -> Reply:
    """A small request, sent as the protocol's clients would."""
    path = target(protocol, model, stream=stream)
    return await exchange(port, path, body(protocol, model, stream=stream, **more))


def whole_stream(protocol: str, model: str, **more: Any) -> list[Event]:
    """The events that a protocol makes of an answer, without any server."""
    shape = SHAPES[protocol]
    ask_ = shape.read(body(protocol, model, stream=True, **more), 400)
    ask_ = replace(ask_, model=MODEL, stream=True)
    answer = compose(ask_, parse_model(model), number=7, created=1_790_000_000)
    return shape.events(answer, ask_)


def joined(made: list[Event]) -> bytes:
    """The bytes of a stream."""
    return b"".join(event.data for event in made)


def planned(protocol: str, model: str, *, stream: bool = True, **more: Any) -> Plan:
    """The plan of a faulted request, without any server."""
    shape, script = SHAPES[protocol], parse_model(model)
    sse = more.pop("sse", True)
    ask_ = shape.read(body(protocol, model, stream=stream, **more), 400)
    ask_ = replace(ask_, model=MODEL, stream=stream, sse=sse)
    answer = compose(ask_, script, number=7, created=1_790_000_000)
    return stage(
        script,
        Exchange(shape=shape, ask=ask_, answer=answer, request_id="sim7", now=1_790_000_000.0),
    )
