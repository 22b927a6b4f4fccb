"""Quick retries, good answers and fallbacks, for tests of whole requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gateway.config.credentials import Secret
from gateway.config.model import Provider, Retry
from tests.relay.fake_upstream import LAST_CHUNK, SSE, Step, chunk, json_answer
from tests.relay.raw_client import request
from tests.relay.streams import WHOLE

if TYPE_CHECKING:
    from tests.relay.conftest import Gateway

FAST = Retry(max_retries=3, backoff_initial=0.001, backoff_max=0.002, budget=100.0)
GOOD: list[Step] = [SSE, chunk(WHOLE), LAST_CHUNK]
CHAT = "/up/v1/chat/completions"
JSON = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
PLAIN = request(CHAT, b'{"model":"m"}')


def counted(gateway: Gateway, metric: str) -> dict[tuple[str, ...], float]:
    return dict(gateway.metrics.snapshot().numbers.get(metric, {}))


BUSY: list[Step] = [json_answer(b'{"error":{"message":"busy"}}', status="503 Busy")]
"""An answer that another try may make good."""


def after(seconds: float) -> asyncio.Event:
    """A step that takes so long from now."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, event.set)
    return event


def backup(port: int, **keys: object) -> Provider:
    return Provider(
        name="backup",
        base_url=f"http://127.0.0.1:{port}",
        proxy="none",
        api_key=Secret("env:BACKUP", "sk-backup"),
        **({"retry": Retry(max_retries=0)} | keys),  # type: ignore[arg-type]
    )


def with_backup(port: int, **keys: object) -> dict[str, Any]:
    """The settings of a provider whose fallback listens on a port."""
    return {"fallback": ("backup",), "others": {"backup": backup(port, **keys)}}
