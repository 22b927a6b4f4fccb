"""A runner for each test, and the certainty that nothing of it is left."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.sidecar import kernel
from gateway.sidecar.runner import Runner
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
