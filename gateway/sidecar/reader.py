"""Hands a command's output to one client, as fast as that one reads. Slows nothing else.

The command writes its file whether anybody reads or not; who is slow or comes late finds it there.
Files are read in threads, a piece at a time.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sidecar.folder import read_at
from gateway.sidecar.frames import KEEPALIVE, Frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.sidecar.folder import Folder
    from gateway.sidecar.store import Entry

PIECE = 256 * 1024
"""Bytes that are read at once."""

FRAME = 64 * 1024
"""Bytes of output in one event."""

KEEPALIVE_SECONDS = 15.0


@asynccontextmanager
async def opened(folder: Folder, id_: str) -> AsyncIterator[int]:
    """A descriptor of an output, as long as it is read. Raises OSError."""
    descriptor = await asyncio.to_thread(folder.open_output, id_)
    try:
        yield descriptor
    finally:
        # Where this is cancelled a thread may still read from it, or from what gets the number
        # next: nobody takes what it has read.
        os.close(descriptor)


async def send_part(
    descriptor: int, start: int, stop: int, write: Callable[[bytes], Awaitable[None]]
) -> int:
    """Write these bytes; where it came to, which is less only where the file is shorter."""
    while start < stop:
        data = await asyncio.to_thread(read_at, descriptor, start, min(PIECE, stop - start))
        if not data:
            break
        await write(data)
        start += len(data)
    return start


async def follow(
    entry: Entry, folder: Folder, start: int, write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Write the output from ``start`` on, up to its very end, as it comes. Raises EOFError where
    that is not all of what the command wrote, and it was not over when this began."""
    most, known = 0, entry.now().final
    async with opened(folder, entry.id) as descriptor:
        while True:
            status = entry.now()
            stop = status.output.spill.bytes
            most = max(most, stop)
            start = await send_part(descriptor, start, most, write)
            if start < most:
                raise EOFError("the output is shorter than it was")
            if status.final:
                if stop < most:
                    raise EOFError("the output has been removed")
                if not (known or status.output.complete):
                    raise EOFError("the output is not complete")
                return
            if entry.now() == status:
                await entry.changed()


async def send_events(
    entry: Entry, folder: Folder, start: int, write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Write the output from ``start`` on as events, up to the answer.

    What a file lacks is not sent: the answer, which comes after it, says that it is not complete.
    """
    if not await _some(entry, start, write):
        return
    try:
        await _send_frames(entry, folder, Frames(start), write)
    except FileNotFoundError:
        # The command, or somebody else, has removed it. The answer is still to come.
        while not entry.answered:
            await _news(entry, write)


async def _send_frames(
    entry: Entry, folder: Folder, frames: Frames, write: Callable[[bytes], Awaitable[None]]
) -> None:
    async with opened(folder, entry.id) as descriptor:
        while True:
            answered, stop = entry.answered, entry.now().output.spill.bytes
            while frames.next < stop:
                size = min(FRAME, stop - frames.next)
                data = await asyncio.to_thread(read_at, descriptor, frames.next, size)
                if not data:
                    break
                if frame := frames.feed(data):
                    await write(frame)
            if answered:
                if frame := frames.feed(b"", last=True):
                    await write(frame)
                return
            if not entry.answered and entry.now().output.spill.bytes <= stop:
                await _news(entry, write)


async def _some(entry: Entry, start: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
    """Wait for the first byte to send: a command that failed to start has no file at all."""
    while entry.now().output.spill.bytes <= start:
        if entry.answered:
            return False
        await _news(entry, write)
    return True


async def _news(entry: Entry, write: Callable[[bytes], Awaitable[None]]) -> None:
    if not await entry.changed(KEEPALIVE_SECONDS):
        await write(KEEPALIVE)
