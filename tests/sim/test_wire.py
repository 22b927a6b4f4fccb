"""Every script in every protocol, as it comes out of the socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gateway.sim.script import SCRIPTS
from tests.sim.support import PROTOCOLS, ask, contents, errors, events, finishes

if TYPE_CHECKING:
    from gateway.sim.server import SimServer

SHORT = {
    "sim-slow": ",first=0.02,every=0.001",
    "sim-linger": ",for=0.02",
    "sim-stall": ",for=0.02",
    "sim-stall-keepalive": ",for=0.03,beat=0.01",
    "sim-drip": ",for=0.03,beat=0.01",
    "sim-no-headers": ",for=0.02",
    "sim-big-event": ",size=200k",
}

# script → (status, how the transport ends, finish frames, errors)
STREAMS: dict[str, tuple[int | None, str, int, int]] = {
    "sim-ok": (200, "clean", 1, 0),
    "sim-tool": (200, "clean", 1, 0),
    "sim-reasoning": (200, "clean", 1, 0),
    "sim-keepalive": (200, "clean", 1, 0),
    "sim-slow": (200, "clean", 1, 0),
    "sim-crlf": (200, "clean", 1, 0),
    "sim-big-event": (200, "clean", 1, 0),
    "sim-length": (200, "clean", 1, 0),
    "sim-weird-finish": (200, "clean", 1, 0),
    "sim-finish-error": (200, "clean", 1, 0),
    "sim-no-done": (200, "clean", 1, 0),
    "sim-no-blank": (200, "clean", 0, 0),
    "sim-linger": (200, "clean", 1, 0),
    "sim-bare-eof": (200, "clean", 0, 0),
    "sim-cut": (200, "fin", 0, 0),
    "sim-short-chunk": (200, "short", 0, 0),
    "sim-bad-chunk": (200, "bad", 0, 0),
    "sim-reset": (200, "reset", 0, 0),
    "sim-torn": (200, "clean", 0, 0),
    "sim-half-finish": (200, "clean", 0, 0),
    "sim-done-only": (200, "clean", 0, 0),
    "sim-empty": (200, "clean", 0, 0),
    "sim-stall": (200, "clean", 1, 0),
    "sim-stall-keepalive": (200, "clean", 1, 0),
    "sim-drip": (200, "clean", 1, 0),
    "sim-no-headers": (200, "clean", 1, 0),
    "sim-error-event": (200, "clean", 0, 1),
    "sim-error-flat": (200, "clean", 0, 1),
    "sim-error-half": (200, "clean", 0, 1),
    "sim-error-done": (200, "clean", 0, 1),
    "sim-html-200": (200, "clean", 0, 0),
    "sim-json-error-200": (200, "clean", 0, 0),
    "sim-status-NNN": (503, "clean", 0, 0),
    "sim-truncated-json": (200, "fin", 0, 0),
    "sim-no-answer": (None, "fin", 0, 0),
    "sim-garbage": (None, "fin", 0, 0),
}


def named(script: str) -> str:
    return script.replace("NNN", "503") + SHORT.get(script, "")


def expected(script: str, protocol: str) -> tuple[int | None, str, int, int]:
    """The row of a script, with what is different about a protocol."""
    status, end, finished, failed = STREAMS[script]
    match script, protocol:
        case "sim-error-event", "responses":
            finished = 1
        case "sim-error-done", "responses" | "anthropic":
            finished = 1
        case "sim-error-half", "chat" | "completions":
            finished = 1
        case "sim-error-flat", "gemini":
            failed = 0
        case "sim-error-half", "gemini":
            failed = 0
        case _:
            pass
    return status, end, finished, failed


def test_every_script_is_expected_to_do_something() -> None:
    assert set(STREAMS) | {"sim-gzip"} == set(SCRIPTS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("script", STREAMS)
async def test_a_stream_ends_as_its_script_says(sim: SimServer, script: str, protocol: str) -> None:
    reply = await ask(sim.port, protocol, named(script))
    status, end, finished, failed = expected(script, protocol)
    assert (reply.status, reply.end) == (status, end)
    assert finishes(protocol, reply.body) == finished
    assert errors(reply.body) == failed


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("script", STREAMS)
async def test_an_answer_without_streaming_ends_as_its_script_says(
    sim: SimServer, script: str, protocol: str
) -> None:
    reply = await ask(sim.port, protocol, named(script), stream=False)
    broken = STREAMS[script][1]
    if script.startswith("sim-error"):
        assert (reply.status, reply.end) == (500, "clean")
        assert "The server had an error" in reply.body.decode()
        return
    assert (reply.status, reply.end) == (STREAMS[script][0], broken)
    cut = broken not in ("clean",) or script in (
        "sim-bare-eof",
        "sim-torn",
        "sim-empty",
        "sim-html-200",
    )
    if cut:
        with pytest.raises(json.JSONDecodeError):
            json.loads(reply.body)
    else:
        assert json.loads(reply.body)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_all_whole_streams_say_the_same(sim: SimServer, protocol: str) -> None:
    plain = "".join(contents(protocol, (await ask(sim.port, protocol, "sim-ok")).body))
    assert plain.startswith("You said “Tell me about the tides”.")
    for script in (
        "sim-keepalive",
        "sim-crlf",
        "sim-no-done",
        "sim-length",
        "sim-stall",
        "sim-drip",
    ):
        reply = await ask(sim.port, protocol, named(script))
        assert "".join(contents(protocol, reply.body)) == plain, script


async def test_the_bytes_of_a_cut_arrive_before_its_end(sim: SimServer) -> None:
    for script in ("sim-bare-eof", "sim-cut", "sim-short-chunk", "sim-bad-chunk", "sim-reset"):
        reply = await ask(sim.port, "chat", f"{script},after=2")
        assert len(contents("chat", reply.body)) == 2, script


async def test_a_reset_may_come_after_everything(sim: SimServer) -> None:
    reply = await ask(sim.port, "chat", "sim-reset,after=end")
    assert (reply.end, finishes("chat", reply.body)) == ("reset", 1)
    assert events(reply.body)[-1][1] == "[DONE]"


async def test_a_connection_may_be_reset_without_an_answer(sim: SimServer) -> None:
    reply = await ask(sim.port, "chat", "sim-no-answer,end=reset")
    assert (reply.raw, reply.end) == (b"", "reset")


async def test_garbage_is_no_http(sim: SimServer) -> None:
    assert (await ask(sim.port, "anthropic", "sim-garbage")).raw == b"SSH-2.0-OpenSSH_9.9\r\n"


async def test_a_short_body_promises_twice_what_comes(sim: SimServer) -> None:
    for stream in (True, False):
        reply = await ask(sim.port, "chat", "sim-truncated-json", stream=stream)
        assert int(reply.headers["content-length"]) // 2 == len(reply.body)


async def test_small_pieces_are_chunks_of_their_own_and_change_nothing(sim: SimServer) -> None:
    whole = await ask(sim.port, "chat", "sim-ok,words=9,chunk=99999")
    small = await ask(sim.port, "chat", "sim-ok,words=9,chunk=00007")
    assert small.raw.count(b"\r\n7\r\n") > 100
    assert "".join(contents("chat", small.body)) == "".join(contents("chat", whole.body))
