"""``gateway try``: one broken stream, direct and through the gateway. Never needs a key.

The simulated provider breaks the stream in the middle of its text with a clean end of the
connection, which is what providers do now and then. A client that reads it directly cannot tell it
from a finished answer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MODEL = "sim-bare-eof,after=40,every=0.04"
QUESTION = {
    "model": MODEL,
    "stream": True,
    "messages": [{"role": "user", "content": "Why do rivers bend?"}],
}


@dataclass(slots=True)
class Seen:
    """What one client saw of a stream: text, finish reason, error, how the connection ended."""

    title: str
    text: str = ""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    broken: str | None = None

    @property
    def ending(self) -> str:
        """One sentence for a person."""
        if self.error is not None:
            return f"ERROR {self.error.get('code')}: {self.error.get('message')}"
        if self.broken is not None:
            return f"The connection broke: {self.broken}"
        if self.finish_reason is None:
            return (
                "The stream just ended: no finish reason, no error. "
                "SDKs hand this on as a finished answer."
            )
        return f"Finished: {self.finish_reason}."


async def watch(seen: Seen, base_url: str) -> AsyncIterator[None]:
    """Ask the question as a client would, noting what comes; yields after each event."""
    url = f"{base_url}/v1/chat/completions"
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,  # noqa: TID251 - a client of the gateway
        session.post(url, json=QUESTION) as response,
    ):
        try:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    _note(seen, json.loads(line[6:]))
                    yield
        except aiohttp.ClientError as error:
            seen.broken = str(error)


def _note(seen: Seen, chunk: dict[str, Any]) -> None:
    seen.error = chunk.get("error") or seen.error
    for choice in chunk.get("choices") or ():
        seen.text += choice.get("delta", {}).get("content") or ""
        seen.finish_reason = choice.get("finish_reason") or seen.finish_reason


async def rehearse(direct_url: str, gateway_url: str, out: TextIO) -> tuple[Seen, Seen]:
    """Run both clients at once and print what they see; return it."""
    direct = Seen("DIRECT FROM THE PROVIDER")
    through = Seen("THROUGH THE GATEWAY")
    out.write(f"\nThe simulated provider will break this stream: model {MODEL!r}\n\n")
    live = out.isatty()

    async def follow(seen: Seen, url: str) -> None:
        async for _ in watch(seen, url):
            if live:
                out.write(f"\r  events are arriving … {len(direct.text)} | {len(through.text)} ")
                out.flush()

    await asyncio.gather(follow(direct, direct_url), follow(through, gateway_url))
    if live:
        out.write("\r" + " " * 60 + "\r")
    out.write(side_by_side(direct, through, shutil.get_terminal_size((100, 24)).columns))
    return direct, through


def as_the_operator_sees_it(log: str, metrics: str) -> str:
    """The log line of the broken stream and the metric that counts it, from all there are."""
    wanted = (
        "request_id",
        "provider",
        "verdict",
        "phase",
        "events",
        "bytes",
        "seconds_since_event",
    )
    told = []
    for line in log.splitlines():
        fields = json.loads(line)
        if fields.get("event") == "stream_cut":
            shown = ", ".join(f"{name}={fields[name]}" for name in wanted)
            told += ["IN THE LOG", f"  stream_cut: {shown}"]
    told.append("IN THE METRICS")
    told += [
        f"  {line}"
        for line in metrics.splitlines()
        if line.startswith("gateway_stream_ends_total{")
    ]
    return "\n" + "\n".join(told) + "\n"


def side_by_side(left: Seen, right: Seen, width: int) -> str:
    """Both clients' views in two columns of a terminal ``width`` characters wide."""
    column = max(24, (min(width, 120) - 3) // 2)
    columns = [_column(seen, column) for seen in (left, right)]
    height = max(map(len, columns))
    rows = []
    for index in range(height):
        cells = [lines[index] if index < len(lines) else "" for lines in columns]
        rows.append(f"{cells[0]:<{column}} | {cells[1]}".rstrip())
    return "\n".join(rows) + "\n"


def _column(seen: Seen, width: int) -> list[str]:
    lines = [seen.title, "-" * width]
    lines += textwrap.wrap(seen.text, width) or ["(no text)"]
    lines += ["", "HOW IT ENDED", *textwrap.wrap(seen.ending, width)]
    return lines
