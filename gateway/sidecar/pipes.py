"""Questions to the kernel about a pipe; takes nothing out of it.

A pipe that has been closed, which is -1, is empty and has no writer.
"""

from __future__ import annotations

import fcntl
import select
import struct
import termios


def capacity(pipe: int) -> int:
    """Bytes that a pipe holds; a guess where the system does not say."""
    try:
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError):
        return 65536


def unread(pipe: int) -> int:
    """Bytes in a pipe; all that has been written by who has ended is among them."""
    if pipe < 0:
        return 0
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


def has_no_writer(pipe: int) -> bool:
    """Nobody can write to it any more: what is in it is the last of it."""
    if pipe < 0:
        return True
    poll = select.poll()
    poll.register(pipe, 0)
    return any(told & select.POLLHUP for _, told in poll.poll(0))
