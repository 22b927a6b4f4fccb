"""Lines to a gateway that reads late, or not any more."""

import select
import socket

from gateway.sidecar.control import Control


def test_what_is_not_read_waits_and_holds_nobody_up() -> None:
    ours, theirs = socket.socketpair()
    poll = select.poll()
    with ours:
        control = Control(theirs, poll)
        for _ in range(64):
            control.put({"a": "x" * 65_536})
        assert control.busy
        ours.settimeout(5)
        heard = 0
        while control.busy:
            heard += len(ours.recv(1 << 20))
            control.flush()
        ours.setblocking(False)
        while heard < 64 * 65_546:
            heard += len(ours.recv(1 << 20))
        assert heard == 64 * 65_546
    assert control.hear() is None


def test_lines_may_come_in_pieces_and_end_with_the_gateway() -> None:
    ours, theirs = socket.socketpair()
    poll = select.poll()
    control = Control(theirs, poll)
    assert control.hear() == []
    with ours:
        ours.sendall(b'{"a": 1}\n{"b"')
        assert control.hear() == [{"a": 1}]
        ours.sendall(b": 2}\n")
        assert control.is_at(poll.poll(0)[0][0])
        assert control.hear() == [{"b": 2}]
    assert control.hear() is None
    assert not control.open
    assert poll.poll(0) == []
    control.put({"a": 1})
    assert not control.busy
