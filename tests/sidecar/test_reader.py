"""Outputs over HTTP: parts, what grows, and events that can be taken up again; byte for byte."""

import asyncio
import base64
import os
import random
from typing import Any

import aiohttp
import pytest

from gateway.sidecar import reader
from gateway.sidecar.folder import read_at
from tests.sidecar.site import TOKENS, Event, Site, events, token
from tests.sidecar.support import eventually, running, unique_sleep

SSE = {"Accept": "text/event-stream"}
AUTH = {"Authorization": f"Bearer {token()}"}


def bytes_of(received: list[Event], start: int = 0) -> bytes:
    """What the events stand for, which must be without a gap and as long as they say."""
    whole = b""
    for event in received:
        if event.name == "output":
            data = event.data
            piece = base64.b64decode(data["b64"]) if "b64" in data else data["text"].encode()
            assert data["offset"] == start + len(whole)
            assert data["len"] == len(piece)
            whole += piece
            assert event.id == str(start + len(whole))
    return whole


# --- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        (None, 200, b"0123456789", None),
        ("bytes=0-", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
async def test_parts_of_a_final_output(
    asked: str | None, status: int, body: bytes | None, content_range: str | None, site: Site
) -> None:
    got = await site.run("printf 0123456789")
    headers = {} if asked is None else {"Range": asked}
    part = await site.output(got.id, **headers)
    assert (part.status, part.headers.get("Content-Range")) == (status, content_range)
    if body is None:
        assert part.json["error"]["code"] == "range_not_satisfiable"
        return
    assert part.body == body
    assert part.headers["Content-Type"] == "application/octet-stream"
    assert part.headers["X-Content-Type-Options"] == "nosniff"
    assert part.headers["x-gateway-complete"] == "true"
    head = await site.ask("HEAD", f"/{got.id}/output", headers=headers)
    assert (head.status, head.body) == (status, b"")
    assert head.headers["Content-Length"] == str(len(body))
    assert site.number("gateway_exec_range_requests_total") == (0 if asked is None else 2)


async def test_an_entity_tag_only_when_nothing_changes_any_more(site: Site) -> None:
    got = await site.run("echo begun; sleep 0.6; echo done", wait_ms=300)
    assert got.status == 202
    growing = await site.output(got.id, Range="bytes=0-2")
    assert (growing.status, growing.body) == (206, b"beg")
    assert growing.headers["Content-Range"] == "bytes 0-2/*"
    assert "ETag" not in growing.headers
    assert growing.headers["x-gateway-complete"] == "false"
    await site.final(got.id)
    final = await site.output(got.id)
    assert final.body == b"begun\ndone\n"
    tag = final.headers["ETag"]
    assert tag.startswith('"')
    assert (await site.output(got.id, If_None_Match=tag)).status == 304
    same = await site.output(got.id, Range="bytes=0-1", If_Range=tag)
    assert (same.status, same.body) == (206, b"be")
    other = await site.output(got.id, Range="bytes=0-1", If_Range='"other"')
    assert (other.status, other.body) == (200, b"begun\ndone\n")


async def test_following_ends_with_the_output_and_not_with_the_answer(site: Site) -> None:
    got = await site.run("(sleep 0.5; echo late) & echo started", output_grace_ms=0)
    assert got.json["output_open"]
    followed = await site.ask("GET", f"/{got.id}/output?follow=1")
    assert followed.body == b"started\nlate\n"
    rest = await site.ask("GET", f"/{got.id}/output?follow=1&offset=8")
    assert rest.body == b"late\n"


# --- events --------------------------------------------------------------------------------------


async def test_a_stream_has_one_start_one_end_and_every_byte(site: Site) -> None:
    got = await site.run("seq 1 50000; printf '\\377\\000'; sleep 0.2; echo €", headers=SSE)
    received = list(events(got.body))
    assert got.headers["Content-Type"].startswith("text/event-stream")
    assert got.headers["X-Should-Retry"] == "false"
    assert [event.name for event in received if event.name != "output"] == ["start", "end"]
    assert (received[0].name, received[-1].name) == ("start", "end")
    answer = received[-1].data
    assert answer["id"] == received[0].data["id"]
    assert bytes_of(received) == site.spill(answer["id"]).read_bytes()
    assert (await site.ask("GET", f"/{answer['id']}")).json == answer


async def test_a_character_that_comes_in_two_pieces_is_one(site: Site) -> None:
    script = "printf 'a\\342\\202'; sleep 0.15; printf '\\254b'; sleep 0.15; printf '\\342\\202'"
    received = list(events((await site.run(script, headers=SSE)).body))
    texts = [event.data.get("text") for event in received if event.name == "output"]
    assert "".join(text or "" for text in texts) == "a€b"
    assert bytes_of(received) == b"a\xe2\x82\xacb\xe2\x82"


async def test_a_stream_goes_on_at_any_byte_that_was_told(site: Site) -> None:
    got = await site.run("for i in $(seq 1 3000); do printf 'é漢🌍%d\\n' $i; done")
    spill = site.spill(got.id).read_bytes()
    offsets = [0, 1, 2, len(spill) - 1, len(spill), *random.sample(range(len(spill)), 5)]
    for offset in offsets:
        again = await site.ask("GET", f"/{got.id}/events", headers={"Last-Event-ID": str(offset)})
        received = list(events(again.body))
        assert bytes_of(received, offset) == spill[offset:]
        assert received[-1].data == got.json
    for wrong in ("x", "-1", str(len(spill) + 1)):
        refused = await site.ask("GET", f"/{got.id}/events", headers={"Last-Event-ID": wrong})
        assert refused.status == 400


async def test_a_reader_that_leaves_and_comes_back_misses_nothing(site: Site) -> None:
    body = {
        "command": "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done",
        "on_disconnect": "continue",
    }
    first = b""
    async with site.session.post(f"{site.url}/v1/exec", json=body, headers=AUTH | SSE) as response:
        while first.count(b"\n\n") < 3:
            first += await response.content.readany()
    received = list(events(first[: first.rindex(b"\n\n") + 2]))
    id_, last = received[0].data["id"], received[-1].id
    assert last is not None
    again = await site.ask("GET", f"/{id_}/events", headers={"Last-Event-ID": last})
    rest = list(events(again.body))
    assert rest[-1].name == "end"
    assert bytes_of(received) + bytes_of(rest, int(last)) == site.spill(id_).read_bytes()
    assert rest[-1].data["complete"] is True


async def test_a_slow_reader_never_slows_the_command(site: Site) -> None:
    # More than what the sockets and the library hold together.
    body = {"command": f"seq 1 3000000; touch {site.repo}/done", "on_disconnect": "continue"}
    async with site.session.post(f"{site.url}/v1/exec", json=body, headers=AUTH | SSE) as response:
        await response.content.read(100)
        assert await eventually((site.repo / "done").exists, 15)
        received = list(events(await _rest(response)))
    answer = received[-1]
    assert (answer.name, answer.data["complete"]) == ("end", True)
    assert answer.data["spill"]["bytes"] == 22_888_896


async def _rest(response: aiohttp.ClientResponse) -> bytes:
    data = await response.read()
    # The first event was begun before: only whole ones count.
    return data[data.index(b"\n\n") + 2 :]


async def test_silence_is_kept_alive(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "KEEPALIVE_SECONDS", 0.05)
    got = await site.run("sleep 0.4; echo x", headers=SSE)
    assert got.body.count(b": keepalive\n\n") >= 3
    assert bytes_of(list(events(got.body))) == b"x\n"


@pytest.mark.parametrize("headers", [{}, SSE])
@pytest.mark.parametrize("policy", ["kill", "continue"])
async def test_a_client_that_leaves(policy: str, headers: dict[str, str], site: Site) -> None:
    nap = unique_sleep()
    body: dict[str, Any] = {
        "command": f"echo go; {nap} & wait",
        "on_disconnect": policy,
        "kill_grace_ms": 200,
    }
    asked = asyncio.ensure_future(site.ask("POST", json=body, headers=headers))
    assert await eventually(lambda: bool(running(nap)))
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    id_ = (await site.ask("GET")).json["commands"][0]["id"]
    if policy == "kill":
        got = await site.final(id_)
        assert got.detail["reason"] == "client_gone"
        assert not running(nap)
        assert site.number("gateway_exec_requests_total", "client_gone") == 1
    else:
        await asyncio.sleep(0.3)
        assert running(nap)
        await site.ask("DELETE", f"/{id_}")
        assert not running(nap)


async def test_one_of_two_that_wait_may_leave(site: Site) -> None:
    """The same key twice: the command is ended when nobody waits for it any more."""
    body = {"command": "sleep 0.5; echo done"}
    first, second = (
        asyncio.ensure_future(site.ask("POST", json=body, headers={"Idempotency-Key": "k"}))
        for _ in range(2)
    )
    assert await eventually(lambda: [e.attached for e in site.service.store.entries] == [2])
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    got = await second
    assert (got.text, got.detail["reason"]) == ("done\n", "exit")


@pytest.mark.parametrize("policy", ["kill", "continue"])
async def test_the_last_reader_that_leaves_ends_what_its_client_has_left(
    policy: str, site: Site
) -> None:
    nap = unique_sleep()
    body = {"command": f"echo go; {nap}", "on_disconnect": policy, "kill_grace_ms": 200}
    asked = asyncio.ensure_future(site.ask("POST", json=body))
    assert await eventually(lambda: bool(running(nap)))
    [entry] = site.service.store.entries
    reading = [
        asyncio.ensure_future(site.ask("GET", f"/{entry.id}{path}"))
        for path in ("/events", "/output?follow=1")
    ]
    assert await eventually(lambda: entry.attached == 3)
    for number, leaving in enumerate((asked, *reading)):
        assert running(nap), number
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert await eventually(lambda left=2 - number: entry.attached == left)  # type: ignore[misc]
    if policy == "kill":
        assert (await site.final(entry.id)).detail["reason"] == "client_gone"
    else:
        await asyncio.sleep(0.3)
        assert running(nap)
        await site.ask("DELETE", f"/{entry.id}")
    assert not running(nap)


async def test_a_command_that_was_promised_outlives_who_leaves(site: Site) -> None:
    """Its client was told with 202 to come back for it; the same key's second one is no reason."""
    body = {"command": "sleep 0.6; echo done", "wait_ms": 100}
    first = await site.ask("POST", json=body, headers={"Idempotency-Key": "k"})
    assert first.status == 202
    leaving = asyncio.ensure_future(
        site.ask("POST", json=body, headers={"Idempotency-Key": "k"} | SSE)
    )
    [entry] = site.service.store.entries
    assert await eventually(lambda: entry.attached == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await site.final(first.id)).text == "done\n"


async def test_an_output_that_goes_away_is_never_told_as_complete(site: Site) -> None:
    got = await site.run("seq 1 300000")
    site.spill(got.id).unlink()
    [start, end] = events((await site.ask("GET", f"/{got.id}/events")).body)
    assert (start.name, end.name, end.data["complete"]) == ("start", "end", False)
    assert (await site.ask("GET", f"/{got.id}/output?follow=1")).status == 410
    assert (await site.output(got.id)).status == 410
    told = await site.ask("GET", f"/{got.id}")
    assert (told.status, told.json["complete"]) == (200, False)


@pytest.mark.parametrize("path", ["", "/events", "/output?follow=1", "/output"])
async def test_an_output_that_has_shrunk_is_never_told_as_complete(site: Site, path: str) -> None:
    got = await site.run("seq 1 300000")
    assert got.json["complete"]
    site.spill(got.id).write_bytes(b"short")
    told = await site.ask("GET", f"/{got.id}{path}")
    assert told.status == 200
    if path.startswith("/output"):
        assert (told.body, told.headers["x-gateway-complete"]) == (b"short", "false")
    else:
        answer = told.json if not path else list(events(told.body))[-1].data
        assert (answer["complete"], answer["spill"]["bytes"]) == (False, 5)
        assert "not complete" in answer["text"]
    [listed] = (await site.ask("GET")).json["commands"]
    assert listed["complete"] is False


async def test_an_output_that_shrinks_while_it_is_sent_breaks_the_connection(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = await site.run("seq 1 300000")
    read = read_at

    def shrinking(file: int, start: int, size: int) -> bytes:
        site.spill(got.id).write_bytes(b"short")
        return read(file, start, size)

    for path in ("/output", "/output?follow=1"):
        site.spill(got.id).write_bytes(b"x" * got.json["spill"]["bytes"])
        monkeypatch.setattr("gateway.sidecar.reader.read_at", shrinking)
        with pytest.raises(aiohttp.ClientPayloadError):
            await site.ask("GET", f"/{got.id}{path}")
        monkeypatch.undo()


async def test_following_breaks_where_the_output_was_removed(site: Site) -> None:
    script = f"seq 1 3000; sleep 0.3; rm -rf {site.exec_.spill_dir}/x_*; echo over"
    got = await site.run(script, background=True)
    with pytest.raises(aiohttp.ClientPayloadError):
        await site.ask("GET", f"/{got.id}/output?follow=1")


async def test_following_breaks_where_that_is_not_all(site: Site) -> None:
    """The head of the answer was sent before anybody knew."""
    gate = site.repo / "gate"
    os.mkfifo(gate)
    script = f"read x <{gate}; seq 1 50000"
    got = await site.run(script, background=True, max_output_bytes=4096)
    following = asyncio.ensure_future(site.ask("GET", f"/{got.id}/output?follow=1"))
    entry = site.service.store.find(got.id, TOKENS[0])
    assert await eventually(lambda: entry.attached > 0)
    await asyncio.to_thread(gate.write_text, "go\n")
    with pytest.raises(aiohttp.ClientPayloadError):
        await following


@pytest.mark.parametrize("first", ["", "seq 1 5000; sleep 0.3; "])
async def test_a_command_that_removes_its_output_is_told_that_it_is_not_there(
    site: Site, first: str
) -> None:
    script = f"{first}rm -rf {site.exec_.spill_dir}/x_*; seq 1 3000"
    for headers in ({}, SSE):
        got = await site.run(script, headers=headers)
        answer = list(events(got.body))[-1].data if headers else got.json
        output = answer["detail"]["output"]
        assert (answer["complete"], answer["exit_code"]) == (False, 0)
        assert (output["spill"]["bytes"], output["spill"]["error"]) == (0, "ENOENT")
        assert output["tail"].endswith("3000\n") or output["head"].endswith("3000\n")
    label = ("gateway_exec_incomplete_total", "write_error")
    assert await eventually(lambda: site.number(*label) == 2)
