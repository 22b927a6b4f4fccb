"""Marks everything here as a system test and starts the two servers that most of it shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sidecar.conftest import bench, make_site, runner
from tests.system import support

__all__ = ["bench", "make_site", "runner"]
"""Fixtures that the tests of the sidecar have as well."""

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands in this folder needs other programs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[support.Server]:
    """The simulated provider, by itself."""
    with support.simulator(tmp_path_factory.mktemp("sim")) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(
    sim: support.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[support.Server]:
    """The gateway, with the simulated provider behind it as ``up``."""
    directory = tmp_path_factory.mktemp("gateway")
    retry = "\n[providers.up.retry]\nmax_retries = 0\n"
    with support.gateway(directory, {"up": sim.url}, retry) as server:
        yield server
