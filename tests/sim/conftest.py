"""A running simulated provider for the tests of ``gateway.sim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.sim.server import SimServer, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def sim() -> AsyncIterator[SimServer]:
    """A provider on a free port, stopped at the end."""
    server = await start()
    yield server
    await server.stop()
