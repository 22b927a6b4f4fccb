"""What a process needs around a gateway: loop, signals, limits, exit codes. Serves nothing."""

from __future__ import annotations

import asyncio
import io
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

from gateway import __version__
from gateway.app.gateway import Gateway, StartError
from gateway.app.rehearsal import as_the_operator_sees_it
from gateway.app.rehearsal import rehearse as show
from gateway.config import Config, ConfigError, load
from gateway.observe import logs
from gateway.sidecar.server import harden
from gateway.sim.server import start

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

FINE = 0
FAILED = 1

_TRY_CONFIG = """
[server]
listen = "127.0.0.1:0"
"""


def serve(config: Config, again: Callable[[], Config]) -> int:
    """Run the gateway until it is told to stop; the exit code.

    ``again`` reads the configuration anew, for SIGHUP; it raises ConfigError, as this does for what
    the sidecar cannot have here.
    """
    logs.configure(config.log.level, config.log.format)
    if config.exec.enabled:
        harden()
    return _run(lambda: _serve(config, again))


def simulate(listen: str) -> int:
    """Run the simulated provider alone until it is told to stop; the exit code."""
    logs.configure()
    return _run(lambda: _simulate(listen))


def rehearse() -> int:
    """Show one broken stream, direct and through a gateway; the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a quotation mark must not end the show.
        sys.stdout.reconfigure(errors="replace")
    log = io.StringIO()
    logs.configure("info", "json", log)
    return _run(lambda: _rehearse(log))


def _run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main())
    except StartError as error:
        sys.stderr.write(f"gateway: {error}\n")
        return FAILED


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed; it is an optional extra."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _raise_file_limit() -> None:
    """Every stream needs two sockets; the usual soft limit of 1,024 is soon reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: Config, again: Callable[[], Config]) -> int:
    gateway = Gateway(config)
    told = _Told()
    await gateway.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, gateway, again)
    try:
        log = logs.logger()
        log.info("listening", address=str(gateway.address), version=__version__)
        if gateway.sidecar is not None:
            log.info("exec_listening", address=str(gateway.sidecar.address))
        if config.log.format != "json" and sys.stderr.isatty() and gateway.url:
            sys.stderr.write(_welcome(gateway.url))
        await told.to_stop()
        drained = asyncio.ensure_future(gateway.drain())
        insisted = asyncio.ensure_future(told.again())
        await asyncio.wait({drained, insisted}, return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, insisted):
            task.cancel()
        await asyncio.gather(drained, insisted, return_exceptions=True)
        await gateway.interrupt()
        log.info("stopped")
    finally:
        await gateway.stop()
    return FINE


def _reload(gateway: Gateway, again: Callable[[], Config]) -> None:
    """A configuration that has faults is refused, and the one in force stays."""
    log = logs.logger()
    try:
        config = again()
    except ConfigError as error:
        log.error("reload_refused", faults=list(error.faults))
        return
    changed = gateway.reload(config)
    logs.configure(config.log.level, config.log.format)
    log.info("reloaded", restart_needed_for=changed)


def _welcome(url: str) -> str:
    return (
        f"\ngateway {__version__} on {url}: the simulated provider is at {url}/sim/v1, "
        f"what is open at {url}/-/streams\n"
        "See a stream break, and be told so:\n\n"
        f"  curl -N {url}/sim/v1/chat/completions -H 'content-type: application/json' \\\n"
        '    -d \'{"model":"sim-bare-eof","stream":true,'
        '"messages":[{"role":"user","content":"hi"}]}\'\n\n'
    )


async def _simulate(listen: str) -> int:
    told = _Told()
    try:
        server = await start(listen, every=0.02)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartError(
            f"The simulated provider cannot listen on {listen} ({reason}): choose another --listen."
        ) from None
    try:
        logs.logger().info("listening", address=server.url, provider="simulated")
        await told.to_stop()
    finally:
        await server.stop()
    return FINE


async def _rehearse(log: io.StringIO) -> int:
    gateway = Gateway(load(_TRY_CONFIG, {}, _no_file))
    await gateway.start()
    try:
        direct, through = await show(gateway.sim_url, f"{gateway.url}/sim", sys.stdout)
        await gateway.idle(1.0)
        sys.stdout.write(as_the_operator_sees_it(log.getvalue(), gateway.metrics_text()))
    finally:
        await gateway.stop()
    return FINE if direct.error is None and through.error is not None else FAILED


def _no_file(path: str) -> str:
    raise FileNotFoundError(path)


class _Told:
    """SIGTERM and SIGINT, counted: the first asks to drain, the second to end at once."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self._second if self._first.is_set() else self._first).set()

    async def to_stop(self) -> None:
        """Wait for the first signal."""
        await self._first.wait()

    async def again(self) -> None:
        """Wait for the second."""
        await self._second.wait()
