"""A gateway on loopback in front of one fake provider, with everything it records at hand."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from gateway import protocols
from gateway.config.model import Config, Provider, Retry, Server, Timeouts
from gateway.observe import logs
from gateway.observe.live import Live
from gateway.observe.metrics import Metrics
from gateway.relay.handler import Relay
from gateway.relay.server import RelayServer

if TYPE_CHECKING:
    from gateway.observe.records import RequestRecord


class KeptRecords(Metrics):
    """Metrics that also keep every record that has ended."""

    kept: list[RequestRecord]
    ended: asyncio.Event

    def observe(self, record: RequestRecord) -> None:
        super().observe(record)
        self.kept.append(record)
        self.ended.set()


@dataclass
class Gateway:
    """A running gateway. ``log`` is what it has written."""

    relay: Relay
    server: RelayServer
    port: int
    metrics: KeptRecords
    live: Live
    log: io.StringIO = field(repr=False)

    @property
    def records(self) -> list[RequestRecord]:
        """Records of requests that have ended."""
        return self.metrics.kept

    async def record(self, number: int = 1) -> RequestRecord:
        """The record of that request (from 1), when it has ended."""
        async with asyncio.timeout(5):
            while len(self.records) < number:
                self.metrics.ended.clear()
                await self.metrics.ended.wait()
        return self.records[number - 1]


StartGateway = Callable[..., Any]


@pytest.fixture
async def start_gateway() -> AsyncIterator[StartGateway]:
    """Starts a gateway in front of a port: ``await start_gateway(port, **provider_keys)``.

    It makes one try only, unless ``retry`` is given; ``others`` are further providers.
    """
    async with AsyncExitStack() as stack:

        async def start(
            upstream: int | None,
            *,
            server: Server | None = None,
            timeouts: Timeouts | None = None,
            unavailable: dict[str, str] | None = None,
            retry: Retry | None = None,
            others: dict[str, Provider] | None = None,
            pages: Any = None,
            **keys: Any,
        ) -> Gateway:
            log = io.StringIO()
            logs.configure("debug", "json", log)
            server = server or Server()
            keys = {"base_url": f"http://127.0.0.1:{upstream}", "proxy": "none"} | keys
            provider = Provider(
                name="up",
                timeouts=timeouts or Timeouts(),
                retry=retry or Retry(max_retries=0),
                **keys,
            )
            providers = {"up": provider} | (others or {})
            loop = asyncio.get_running_loop()
            live = Live()
            metrics = KeptRecords(
                live, providers=providers, protocols=protocols.NAMES, version="0", now=loop.time
            )
            metrics.kept, metrics.ended = [], asyncio.Event()
            config = Config(server=server, providers=providers, unavailable=unavailable or {})
            relay = Relay(config, metrics, pages=pages)
            factory = RelayServer(relay.handle, max_header=server.max_header)
            listener = await loop.create_server(factory, "127.0.0.1", 0)
            stack.push_async_callback(_stop, listener, factory, relay)
            port = listener.sockets[0].getsockname()[1]
            return Gateway(relay, factory, port, metrics, live, log)

        yield start


async def _stop(listener: asyncio.Server, factory: RelayServer, relay: Relay) -> None:
    listener.close()
    await factory.shutdown(0.01)
    await relay.close()
