"""A night with 13,312 requests, 24 of them broken, without the gateway and with it.

    python -m bench.incident [--requests N]

The simulated provider ends 23 streams cleanly without a finish frame, 7 in text and 16 in a tool
call, several of them at once, and leaves one half open behind keepalives. A raw client judges every
stream as SDKs do: what ends without an error is an answer. The official SDKs of OpenAI and of
Anthropic each run the broken 24 and 500 others. Time is scaled: limits are a second where they are
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anthropic
import openai

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

REQUESTS = 13_312
IN_TEXT, IN_TOOL_CALL = 7, 16
SDK_OTHERS = 500
AT_ONCE = 64
PATIENCE = 6.0
"""Seconds after which a client's person would say that it hangs; the gateway's limits are below."""

KEY = "sk-incident"
WORDS = 12
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
MESSAGES_TOOL = {"name": "bash", "input_schema": {"type": "object"}}
SDKS = ("OpenAI", "Anthropic")
LIMITS = "{ gap = 1, gap_alive = 1, silent_phase = 2, first_event = 3 }"
HOLDS = (None, "first_content", "finish")
OUTCOMES = ("complete", "complete, though cut", "hung", "failed loudly")
CONFIG = """
[server]
listen = "127.0.0.1:0"
[log]
format = "json"
[providers.p]
base_url = "http://127.0.0.1:{port}"
hold = "{hold}"
timeouts = {limits}
retry = {{ backoff_initial = 0.05 }}
"""
Bodies = dict[str, bytes]
_OWN = re.compile(rb'"id":"chatcmpl-sim\d+"|"created":\d+|"id":"call_\w+"')


@dataclass
class Tally:
    """What became of the requests of one run."""

    title: str
    seconds: float = 0.0
    raw: Counter[str] = field(default_factory=Counter)
    sdks: dict[str, Counter[str]] = field(default_factory=lambda: {sdk: Counter() for sdk in SDKS})
    changed: int = 0
    rescued: int = 0


def plan(requests: int) -> list[str]:
    """The model of each request: what it is to be answered with. A burst falls into one moment."""
    models = [f"sim-ok,words={WORDS},seed={number % 50}" for number in range(requests)]
    kinds = ["text"] * IN_TEXT + ["tool"] * IN_TOOL_CALL
    # Spread over the night, but for five of them that follow one another.
    places = [requests // 2 + step for step in range(5)]
    places += [(number * requests) // 19 + 3 for number in range(len(kinds) - 5)]
    for number, (place, kind) in enumerate(zip(places, kinds, strict=True)):
        models[place] = f"sim-bare-eof,after=2,times=1,answer={kind},seed={1000 + number}"
    models[requests // 3 + 1] = "sim-stall-keepalive,after=2,times=1,beat=0.05,for=60,seed=999"
    return models


def body_of(model: str, run: str) -> dict[str, object]:
    """A request; ``run`` keeps the runs' counts of ``times`` apart."""
    messages = [{"role": "user", "content": "status?"}]
    return {"model": f"{run}/{model}", "stream": True, "messages": messages, "tools": [TOOL]}


def normal(body: bytes, run: str) -> bytes:
    """A body without what the provider makes anew for each answer."""
    return _OWN.sub(b"", body).replace(f"{run}/".encode(), b"")


async def ask(port: int, path: str, model: str, run: str) -> tuple[str, bytes]:
    """One request on a socket of its own; what a client makes of its answer, and the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = json.dumps(body_of(model, run)).encode()
        writer.write(
            b"POST %b/v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
        )
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            got = await read_chunks(reader) if b"chunked" in head.lower() else await reader.read()
    except TimeoutError:
        return "hung", b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return "failed loudly", b""
    finally:
        writer.close()
    return judge(head, got), got


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    got = bytearray()
    while size := int(await reader.readline(), 16):
        got += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return bytes(got)


def judge(head: bytes, got: bytes) -> str:
    """What most SDKs make of an answer that ended in good order."""
    if not head.startswith(b"HTTP/1.1 200") or b'data: {"error"' in got:
        return "failed loudly"
    return "complete" if b'"finish_reason":"' in got else "complete, though cut"


async def ask_openai(client: openai.AsyncOpenAI, model: str) -> bool:
    """The same with the official SDK; whether the answer has its finish frame."""
    finish = None
    stream = await client.chat.completions.create(**body_of(model, "openai"))  # type: ignore[call-overload]
    async for chunk in stream:
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
    return finish is not None


async def ask_anthropic(client: anthropic.AsyncAnthropic, model: str) -> bool:
    """The same with the other one, which speaks another protocol."""
    body = body_of(model, "anthropic") | {"max_tokens": 1000, "tools": [MESSAGES_TOOL]}
    stream = await client.messages.create(**body)  # type: ignore[call-overload]
    return "message_stop" in [event.type async for event in stream]


async def judge_sdk(answer: Awaitable[bool]) -> str:
    """What an SDK made of an answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            finished = await answer
    except TimeoutError:
        return "hung"
    except (openai.APIError, anthropic.APIError):
        return "failed loudly"
    return "complete" if finished else "complete, though cut"


async def run_all(port: int, path: str, tally: Tally, models: list[str]) -> dict[str, bytes]:
    """Every request of the night; the bodies of the good ones by model."""
    gate = asyncio.Semaphore(AT_ONCE)
    bodies: dict[str, bytes] = {}

    async def one(model: str) -> None:
        async with gate:
            verdict, got = await ask(port, path, model, "raw")
        tally.raw[verdict] += 1
        if model.startswith("sim-ok"):
            plain = normal(got, "raw")
            tally.changed += bodies.setdefault(model, plain) != plain

    started = time.monotonic()
    await asyncio.gather(*map(one, models))
    tally.seconds = time.monotonic() - started
    await run_sdks(port, path, tally, models)
    return bodies


async def run_sdks(port: int, path: str, tally: Tally, models: list[str]) -> None:
    """The broken ones, and others beside them, with the official SDKs."""
    others = min(SDK_OTHERS, len(models) // 20)
    broken = [model for model in models if not model.startswith("sim-ok")]
    asked = broken + [model for model in models if model.startswith("sim-ok")][:others]
    gate = asyncio.Semaphore(16)
    base = f"http://127.0.0.1:{port}{path}"

    async def all_with(sdk: str, ask: Callable[[str], Awaitable[bool]]) -> None:
        async def one(model: str) -> None:
            async with gate:
                tally.sdks[sdk][await judge_sdk(ask(model))] += 1

        await asyncio.gather(*map(one, asked))

    async with (
        openai.AsyncOpenAI(
            base_url=f"{base}/v1",
            api_key=KEY,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=False),
        ) as chat,
        anthropic.AsyncAnthropic(
            base_url=base,
            api_key=KEY,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
        ) as messages,
    ):
        await all_with("OpenAI", lambda model: ask_openai(chat, model))
        await all_with("Anthropic", lambda model: ask_anthropic(messages, model))


class Process:
    """One process of the program, stopped at the end; ``async with`` gives its port."""

    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        self._arguments = arguments

    async def __aenter__(self) -> int:
        with self.log.open("wb") as sink:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", *self._arguments, stderr=sink, stdout=sink
            )
        for _ in range(400):
            for fields in self.lines():
                if fields["event"] == "listening":
                    return int(str(fields["address"]).rpartition(":")[2])
            await asyncio.sleep(0.05)
        raise RuntimeError(f"it did not start: {self.log.read_text(encoding='utf-8')}")

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        await self._process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        text = self.log.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


async def night(hold: str | None, models: list[str], directory: Path) -> tuple[Tally, Bodies]:
    """One run: without a gateway, or with one that holds as ``hold`` says."""
    tally = Tally("without" if hold is None else f"hold = {hold}")
    provider = Process(directory / f"{hold}-sim.log", "sim", "--listen", "127.0.0.1:0")
    async with provider as sim_port:
        if hold is None:
            return tally, await run_all(sim_port, "", tally, models)
        config = directory / f"{hold}.toml"
        config.write_text(CONFIG.format(hold=hold, port=sim_port, limits=LIMITS), encoding="utf-8")
        gateway = Process(directory / f"{hold}.log", "serve", "--config", str(config))
        async with gateway as port:
            bodies = await run_all(port, "/p", tally, models)
        requests = [line for line in gateway.lines() if line["event"] == "request"]
        tally.rescued = sum(bool(line["rescued"]) for line in requests)
    return tally, bodies


async def three_nights(requests: int) -> list[Tally]:
    """Without the gateway, and with it in two ways; what was good must be the same in all."""
    models = plan(requests)
    tallies, first = [], None
    with tempfile.TemporaryDirectory(prefix="incident-") as directory:
        for hold in HOLDS:
            tally, bodies = await night(hold, models, Path(directory))
            if first is None:
                first = bodies
            tally.changed += sum(bodies[model] != first[model] for model in first)
            tallies.append(tally)
    return tallies


def report(tallies: list[Tally], requests: int) -> str:
    """The runs side by side."""
    rows: list[tuple[str, list[str]]] = [
        ("", [tally.title for tally in tallies]),
        (f"of {requests} requests, judged by a raw client", [""] * len(tallies)),
    ]
    rows += _outcomes([tally.raw for tally in tallies])
    for sdk in SDKS:
        asked = tallies[0].sdks[sdk].total()
        rows.append((f"of {asked} requests, judged by the {sdk} SDK", [""] * len(tallies)))
        rows += _outcomes([tally.sdks[sdk] for tally in tallies])
    rows += [
        ("saved by another try (all three clients)", [str(tally.rescued) for tally in tallies]),
        ("good answers that were changed", [str(tally.changed) for tally in tallies]),
        ("seconds (raw client)", [f"{tally.seconds:.0f}" for tally in tallies]),
    ]
    return "".join(
        f"{name:<46}" + "".join(f"{cell:>22}" for cell in cells) + "\n" for name, cells in rows
    )


def _outcomes(counts: list[Counter[str]]) -> list[tuple[str, list[str]]]:
    return [(f"  {outcome}", [str(count[outcome]) for count in counts]) for outcome in OUTCOMES]


def faults(tallies: list[Tally]) -> list[str]:
    """What must not have happened."""
    without, content, finish = tallies
    found = []
    if without.raw["complete, though cut"] != IN_TEXT + IN_TOOL_CALL:
        found.append("without the gateway the 23 cuts should have been taken for answers")
    for tally in (content, finish):
        told = sum(tally.sdks.values(), tally.raw)
        if told["complete, though cut"] or told["hung"]:
            found.append(f"{tally.title}: a cut was taken for an answer, or a stream hung")
        if tally.changed:
            found.append(f"{tally.title}: good answers were changed")
    if sum(finish.sdks.values(), finish.raw)["failed loudly"]:
        found.append("with hold = finish every broken stream should have been saved")
    if finish.rescued != 3 * 24:
        found.append(
            f"with hold = finish 24 should have been saved for each client: {finish.rescued}"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=REQUESTS, help="how long the night is")
    requests = parser.parse_args().requests
    tallies = asyncio.run(three_nights(requests))
    print(report(tallies, requests))
    found = faults(tallies)
    for fault in found:
        print(f"NOT AS PROMISED: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
