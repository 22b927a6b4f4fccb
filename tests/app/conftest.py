"""A whole gateway on a free port, with the simulated provider behind it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from gateway.app.gateway import Gateway
from tests.app.support import configured


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Gateway]]]:
    """Start gateways with a config text each; all are stopped at the end."""
    running: list[Gateway] = []

    async def begin(text: str = "") -> Gateway:
        gateway = configured("127.0.0.1:0", text)
        running.append(gateway)
        await gateway.start()
        return gateway

    yield begin
    for gateway in running:
        await gateway.stop()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session
