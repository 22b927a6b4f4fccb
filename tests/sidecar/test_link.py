"""What comes from a shim, in whatever pieces, and what is made of a connection that breaks."""

import asyncio
import json
import socket

import pytest

from gateway.sidecar.command import Command
from gateway.sidecar.link import connect
from gateway.sidecar.status import State
from tests.sidecar.support import Bench, within


class Shim:
    """The other end of a command's socket."""

    def __init__(self, command: Command, sock: socket.socket) -> None:
        self.command = command
        self.sock = sock
        self.lost: list[Command] = []

    def say(self, **message: object) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")


@pytest.fixture
async def shim(bench: Bench) -> Shim:
    ours, theirs = socket.socketpair()
    made = Shim(Command(bench.spec("true")), theirs)
    await connect(made.command, ours, made.lost.append)
    return made


async def test_messages_may_come_in_any_pieces(shim: Shim) -> None:
    final = {"event": "final", "status": {"id": "x", "state": "exited", "exit_code": 0}}
    lines = b'{"event":"accepted"}\n{"event":"progress","bytes":7,"spilled":5}\n'
    lines += json.dumps(final | {"head": "aGk=", "tail": ""}).encode() + b"\n"
    news = asyncio.ensure_future(shim.command.ended())
    for byte in lines:
        shim.sock.send(bytes([byte]))
        await asyncio.sleep(0)
    status = await within(5, news)
    assert (status.exit_code, shim.command.head) == (0, b"hi")
    shim.sock.close()
    await within(5, shim.command.closed())
    assert shim.lost == [shim.command]
    assert shim.command.status.state is State.EXITED


async def test_a_last_word_that_is_cut_is_none(shim: Shim) -> None:
    shim.say(event="accepted")
    shim.say(event="progress", bytes=7, spilled=5)
    shim.sock.sendall(b'{"event":"final","status":{"id":"x","state":"exi')
    shim.sock.close()
    status = await within(5, shim.command.ended())
    assert (status.state, status.exit_code) == (State.INTERRUPTED, None)
    assert (status.output.bytes, status.output.spill.bytes) == (7, 5)
    assert not status.output.complete


async def test_what_cannot_be_understood_interrupts(shim: Shim) -> None:
    shim.say(event="accepted")
    shim.say(event="final", status={"id": "x", "state": "splendid"})
    status = await within(5, shim.command.ended())
    assert status.state is State.INTERRUPTED
    assert shim.sock.recv(1) == b""
    shim.sock.close()


async def test_a_shim_that_was_never_there_is_not_an_interruption(shim: Shim) -> None:
    shim.sock.close()
    await within(5, shim.command.closed())
    assert not shim.command.accepted
    assert not shim.command.status.final


async def test_a_kill_that_finds_no_shim_any_more_does_not_lose_its_last_word(shim: Shim) -> None:
    shim.say(event="accepted")
    shim.say(event="final", status={"id": "x", "state": "exited", "exit_code": 0})
    shim.sock.close()
    shim.command.kill()
    status = await within(5, shim.command.closed())
    assert (status.state, status.exit_code) == (State.EXITED, 0)


async def test_no_news_is_missed_between_a_look_and_the_wait(shim: Shim) -> None:
    news = shim.command.changed()
    shim.say(event="progress", bytes=1, spilled=1)
    await asyncio.sleep(0.05)
    await within(1, news)
    assert shim.command.bytes_seen == 1
    shim.sock.close()
    await within(5, shim.command.closed())
    assert shim.command.changed().done()
