"""Tries that may have cost money although no content was read: tried again within bounds, and never
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Timeouts
from tests.relay.fake_upstream import FIN, HOLD, LAST_CHUNK, SSE, FakeUpstream, Step, chunk, head
from tests.relay.raw_client import ask
from tests.relay.streams import ROLE, event, text
from tests.relay.support import FAST, GOOD, JSON, with_backup

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

UNREAD = event({"novel": "y" * 3000})


@pytest.mark.parametrize(
    "script",
    [
        [SSE, chunk(ROLE + b'data: {"novel":1}\n\n'), LAST_CHUNK],
        [SSE, chunk(ROLE + UNREAD + event({"error": {"type": "overloaded_error"}})), LAST_CHUNK],
        [SSE, chunk(ROLE + UNREAD), HOLD],
    ],
    ids=["unknown", "error", "stall"],
)
async def test_what_could_not_be_read_counts_as_content(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=FAST,
            hold="finish",
            max_event=1024,
            timeouts=Timeouts(gap=0.2, gap_alive=0.2, silent_phase=0.2, first_event=1),
            **with_backup(second.port),
        )
        assert (await ask(gateway.port)).status >= 500
        assert (len(first.requests), len(second.requests)) == (2, 0)


IN_PIECES = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    "script",
    [
        [SSE, chunk(b": processing\n\n"), chunk(JSON), LAST_CHUNK],
        [SSE, chunk(ROLE + text("a")[:-9]), LAST_CHUNK],
        [SSE, chunk(ROLE + text("a")[:-9]), FIN],
        [SSE, chunk(ROLE + text("a")[:-9]), HOLD],
        [IN_PIECES + chunk(JSON[:-5]) + b"zz\r\n", HOLD],
        [head("200 OK", "Transfer-Encoding: chunked"), chunk(b"dat"), HOLD],
    ],
    ids=[
        "JSON behind a comment",
        "torn",
        "torn and reset",
        "torn and silent",
        "broken HTTP",
        "unknown",
    ],
)
async def test_a_part_of_an_event_or_of_broken_http_goes_nowhere_else(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        silence = Timeouts(gap=0.1, gap_alive=0.1, silent_phase=0.1, first_event=1)
        gateway = await start_gateway(
            first.port, retry=FAST, timeouts=silence, **with_backup(second.port)
        )
        assert (await ask(gateway.port)).status >= 500
        assert (len(first.requests), len(second.requests)) == (4, 0)
