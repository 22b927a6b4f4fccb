"""How much of requests is held in memory, and when that is too much."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from aiohttp import web

from gateway.policy import exec_request
from gateway.policy.exec_request import ExecError
from gateway.sidecar.bodies import SMALL, Bodies
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import Site, token


class Sent:
    """A request whose body comes in pieces; ``read`` are those that were asked for."""

    def __init__(self, pieces: list[bytes], *, announced: bool) -> None:
        self._pieces = pieces
        self.content_length = sum(map(len, pieces)) if announced else None
        self.headers: dict[str, str] = {}
        self.transport = None
        self.content = self
        self.read = 0

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.read += 1
            yield piece


def sent(size: int, *, announced: bool = True) -> tuple[Sent, web.BaseRequest]:
    pieces = [b"x" * min(1000, size - at) for at in range(0, size, 1000)]
    made = Sent(pieces, announced=announced)
    return made, cast("web.BaseRequest", made)


@pytest.mark.parametrize("announced", [True, False])
async def test_all_bodies_together_are_bounded(announced: bool) -> None:
    bodies = Bodies(3 * SMALL)
    async with AsyncExitStack() as held:
        for _ in range(2):
            body = await held.enter_async_context(bodies.body(sent(SMALL, announced=announced)[1]))
            assert body == b"x" * SMALL
        too_much, request = sent(2 * SMALL, announced=announced)
        with pytest.raises(ExecError) as refused:
            await held.enter_async_context(bodies.body(request))
        assert refused.value.status == 429
        assert too_much.read < len(too_much._pieces)
        assert (too_much.read == 0) == announced
        # What is small is let in, whatever the others hold.
        for _ in range(3):
            await held.enter_async_context(bodies.body(sent(SMALL, announced=announced)[1]))
    async with bodies.body(sent(2 * SMALL, announced=announced)[1]) as body:
        assert len(body) == 2 * SMALL
    assert bodies._held == 0


@pytest.mark.parametrize("announced", [True, False])
async def test_one_that_is_too_large_is_413_and_holds_nothing(announced: bool) -> None:
    bodies = Bodies()
    with pytest.raises(ExecError) as refused:
        async with bodies.body(sent(5000, announced=announced)[1], 4999):
            pass
    assert (refused.value.status, bodies._held) == (413, 0)


async def test_what_finds_no_place_is_refused_before_its_body_is_read(make_site: MakeSite) -> None:
    site = await make_site(max_running=1, max_queued=0)
    os.mkfifo(site.repo / "gate")
    key = {"Idempotency-Key": "k"}
    first = await site.run(f"read x <{site.repo}/gate", background=True, headers=key)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.sidecar.address.port)
    head = (
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token()}\r\nContent-Length: 9000000\r\n\r\n"
    )
    writer.write(head.encode())
    status = await asyncio.wait_for(reader.readline(), 5)
    assert b" 429 " in status
    writer.close()
    again = await site.run(f"read x <{site.repo}/gate", background=True, headers=key)
    assert (again.status, again.id) == (202, first.id)
    (site.repo / "gate").write_text("go\n")


@pytest.mark.parametrize(("size", "apart"), [(100, False), (SMALL + 1, True)])
async def test_a_large_body_is_parsed_in_a_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch, size: int, apart: bool
) -> None:
    where: list[bool] = []

    def parse(body: bytes, most: int) -> Any:
        where.append(threading.current_thread() is not threading.main_thread())
        return exec_request.parse(body, most)

    monkeypatch.setattr("gateway.sidecar.endpoint.parse", parse)
    body = json.dumps({"command": "wc -c", "stdin": "x" * size})
    headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    got = [await site.ask("POST", data=body, headers=headers) for _ in range(2)]
    assert (got[0].text, got[1].id) == (f"{size}\n", got[0].id)
    assert where == [apart, apart]
