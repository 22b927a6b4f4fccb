"""Everything that one process serves, put together and taken apart again. Decides nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from pathlib import Path
from time import monotonic
from types import MappingProxyType

import msgspec
from aiohttp import web
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from gateway import __version__, protocols
from gateway.app.pages import Pages
from gateway.config import Address, Config, parse_address
from gateway.config.credentials import FILE
from gateway.observe import logs
from gateway.observe.exec_metrics import EXEC_FAMILIES, ExecMetrics
from gateway.observe.export import SnapshotCollector
from gateway.observe.live import Live
from gateway.observe.metrics import Metrics
from gateway.relay.handler import Relay
from gateway.relay.server import RelayServer
from gateway.sidecar.server import Sidecar, SidecarError
from gateway.sim.server import SimServer, start

SIM_PACE = 0.02
"""Seconds between the simulated provider's events, so that a rehearsal looks like a model."""

_LOOK = 0.05
"""Seconds between looks at what is still open while draining."""

_LAST_BYTES = 0.5
"""Seconds that interrupted requests get to write their last bytes."""

_CLOSING = 0.2
"""Seconds that connections get to close in good order, in the end."""


class StartError(Exception):
    """The gateway cannot start; the message is one sentence for the person who tried."""


class Gateway:
    """A gateway from start to stop. Make and use it inside one running event loop."""

    def __init__(self, config: Config, *, sim_pace: float = SIM_PACE) -> None:
        """``sim_pace`` is the simulated provider's, in seconds between events."""
        self._config = config
        self._sim_pace = sim_pace
        self._live = Live()
        self.registry = CollectorRegistry(auto_describe=False)
        self.metrics = Metrics(
            self._live,
            providers=config.providers,
            protocols=protocols.NAMES,
            version=__version__,
            now=monotonic,
        )
        self.registry.register(SnapshotCollector(self.metrics.snapshot))
        self._pages = Pages(
            self.registry, self._live, now=monotonic, ready=lambda: not self.draining
        )
        self.address = parse_address(config.server.listen)
        self.sim_url = ""
        self._sim: SimServer | None = None
        self._relay: Relay | None = None
        self.sidecar = self._make_sidecar(config) if config.exec.enabled else None
        self._runner: web.ServerRunner | None = None
        self._listening = False

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the gateway is about to end."""
        return self._relay is not None and self._relay.draining

    @property
    def url(self) -> str:
        """How a client on this machine reaches the gateway; empty on a unix socket."""
        return self.address.url

    def metrics_text(self) -> str:
        """The metrics as Prometheus would scrape them now."""
        return generate_latest(self.registry).decode()

    async def start(self) -> None:
        """Listen. Raises StartError, or ConfigError for what the sidecar cannot have here; with
        everything undone.
        """
        try:
            # The first, so that what runs commands is there before anything else is.
            await self._start_sidecar()
            config = await self._with_sim()
            self._relay = Relay(config, self.metrics, pages=self._answer_page)
            server = RelayServer(self._relay.handle, max_header=config.server.max_header)
            self._runner = web.ServerRunner(server, shutdown_timeout=_CLOSING)
            await self._runner.setup()
            self.address = await _listen(self._runner, self.address)
            self._listening = True
        except BaseException:
            await self.stop()
            raise

    def reload(self, config: Config) -> list[str]:
        """Take over new providers and limits; the listener and what is running stay as they are.

        Returns the changed keys that need a restart.
        """
        relay = self._relay
        if relay is None:
            return []
        old, new = self._config.server, config.server
        fixed = ("listen", "max_header", "buffer_total")
        changed = [f"server.{key}" for key in fixed if getattr(old, key) != getattr(new, key)]
        self.metrics.configure(config.providers)
        relay.configure(self._pointed_at_sim(config))
        if config.exec != self._config.exec:
            changed.append("exec")
        if self.sidecar is not None:
            self.sidecar.hide(_secret_files(config))
        self._config = config
        return changed

    async def drain(self) -> None:
        """Refuse new requests, let the running ones finish, and tell the rest the truth.

        Commands are ended meanwhile, and their clients told so.
        """
        relay = self._relay
        if relay is None:
            return
        relay.draining = True
        await asyncio.gather(
            self._drain_requests(), *([self.sidecar.drain()] if self.sidecar else [])
        )

    async def _drain_requests(self) -> None:
        logs.logger().info(
            "draining",
            open_requests=len(self._live),
            at_most_seconds=self._config.server.drain_timeout,
            hint="a second signal ends them now",
        )
        if not await self.idle(self._config.server.drain_timeout):
            logs.logger().warning("drain_timeout", open_requests=len(self._live))
            await self.interrupt()

    async def interrupt(self) -> None:
        """End every open request now, telling each client the truth."""
        if self._relay is not None:
            self._relay.interrupt()
            await self.idle(_LAST_BYTES)

    async def stop(self) -> None:
        """Close everything; what is still open is broken off."""
        if self.sidecar is not None:
            await self.sidecar.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._relay is not None:
            await self._relay.close()
        if self._sim is not None:
            await self._sim.stop()
        if self.address.path and self._listening:
            _remove(self.address.path)

    async def idle(self, seconds: float) -> bool:
        """Wait until no request is open, at most so many seconds; whether it came to that."""
        until = monotonic() + seconds
        while len(self._live):
            if monotonic() >= until:
                return False
            await asyncio.sleep(_LOOK)
        return True

    def _make_sidecar(self, config: Config) -> Sidecar:
        metrics = ExecMetrics()
        self.registry.register(SnapshotCollector(metrics.snapshot, EXEC_FAMILIES))
        return Sidecar(config.exec, metrics, secret_files=_secret_files(config))

    async def _start_sidecar(self) -> None:
        if self.sidecar is None:
            return
        try:
            await self.sidecar.start()
        except SidecarError as error:
            raise StartError(str(error)) from None

    async def _answer_page(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        answer = self._pages.answer(request.method, path)
        if request.body_exists:
            answer.force_close()  # its body has not been read
        return answer

    async def _with_sim(self) -> Config:
        """Start the simulated provider if one is configured, and say where it is."""
        if any(provider.builtin == "sim" for provider in self._config.providers.values()):
            self._sim = await start(every=self._sim_pace)
            self.sim_url = self._sim.url
        return self._pointed_at_sim(self._config)

    def _pointed_at_sim(self, config: Config) -> Config:
        providers = {
            name: msgspec.structs.replace(provider, base_url=self.sim_url)
            if provider.builtin == "sim"
            else provider
            for name, provider in config.providers.items()
        }
        return msgspec.structs.replace(config, providers=MappingProxyType(providers))


def _secret_files(config: Config) -> list[str]:
    """The files that the configuration names for keys and tokens."""
    secrets = [provider.api_key for provider in config.providers.values()]
    references = [secret.reference for secret in (*secrets, *config.exec.tokens) if secret]
    return [each.removeprefix(FILE) for each in references if each.startswith(FILE)]


async def _listen(runner: web.ServerRunner, address: Address) -> Address:
    """Bind; return the address with the port that it got."""
    site: web.BaseSite
    if address.path:
        await _clear_socket(address.path)
        site = web.UnixSite(runner, address.path)
    else:
        site = web.TCPSite(runner, address.host, address.port, backlog=1024)
    try:
        await site.start()
    except UnicodeError:
        raise StartError(f"{address} names no host: choose another --listen.") from None
    except OSError as error:
        raise StartError(_why_not(address, error)) from None
    if address.path:
        return address
    return msgspec.structs.replace(address, port=runner.addresses[0][1])


async def _clear_socket(path: str) -> None:
    """Remove a socket that a dead process left; raises StartError if somebody is listening."""
    if not _exists(path):
        return
    if not _is_socket(path):
        raise StartError(f"{path} exists and is no socket: choose another --listen.")
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except ConnectionRefusedError:
        _remove(path)
    except OSError:
        return  # binding says what is wrong
    else:
        writer.close()
        raise StartError(f"unix:{path} is in use by another program: choose another --listen.")


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _is_socket(path: str) -> bool:
    return stat.S_ISSOCK(os.lstat(path).st_mode)


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _why_not(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use by another program: stop it, or choose another address with "
            "--listen (or server.listen in the config)."
        )
    if error.errno == errno.EACCES:
        return f"Listening on {address} is not permitted: choose a port above 1023 with --listen."
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"Listening on {address} is not possible ({reason}): choose another --listen."
