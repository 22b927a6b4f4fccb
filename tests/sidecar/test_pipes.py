"""What a pipe says of itself, without a byte being taken from it."""

import os

from gateway.sidecar.pipes import has_no_writer, unread


def test_a_pipe_tells_what_is_in_it_and_whether_more_can_come() -> None:
    read, write = os.pipe()
    other = os.dup(write)
    assert (unread(read), has_no_writer(read)) == (0, False)
    os.write(write, b"12345")
    os.close(write)
    assert (unread(read), has_no_writer(read)) == (5, False)
    os.close(other)
    assert (unread(read), has_no_writer(read)) == (5, True)
    assert os.read(read, 9) == b"12345"
    os.close(read)
