"""A runner for each test, and the certainty that nothing of it is left."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.sidecar import kernel
from gateway.sidecar.runner import Runner
from tests.sidecar.site import Site, settings
from tests.sidecar.support import Bench, eventually

if sys.platform != "linux":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
async def runner() -> AsyncIterator[Runner]:
    """A runner that is stopped at the end, when none of its processes may be left."""
    before = {found.pid for found in kernel.descendants(os.getpid())}
    running = Runner()
    await running.start()
    yield running
    async with asyncio.timeout(10):
        await running.stop(1.0)
    assert await eventually(
        lambda: not {found.pid for found in kernel.descendants(os.getpid())} - before
    )


MakeSite = Callable[..., Awaitable[Site]]


@pytest.fixture
async def make_site(tmp_path: Path) -> AsyncIterator[MakeSite]:
    """Sidecars with other settings, stopped at the end, when nothing of them may be left."""
    before = {found.pid for found in kernel.descendants(os.getpid())}
    made: list[Site] = []

    async def make(environ: dict[str, str] | None = None, **changed: Any) -> Site:
        site = Site(tmp_path, settings(tmp_path, **changed), environ)
        made.append(site)
        await site.start()
        return site

    yield make
    async with asyncio.timeout(20):
        for site in made:
            await site.close()
    assert await eventually(
        lambda: not {found.pid for found in kernel.descendants(os.getpid())} - before
    )


@pytest.fixture
async def site(make_site: MakeSite) -> Site:
    """A sidecar as it is by default."""
    return await make_site()
