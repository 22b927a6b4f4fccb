"""A command at one moment, with the first and last bytes of its output. Composes no text.

Head and tail are read from the file wherever it has them: many records, each with its own in
memory, would be much.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.policy.preview import Bounds
from gateway.sidecar import account
from gateway.sidecar.answer import View, url_of

if TYPE_CHECKING:
    from gateway.config.model import Exec
    from gateway.sidecar.status import Status
    from gateway.sidecar.store import Entry, Store


async def looked_at(entry: Entry, store: Store) -> Status:
    """The status, held against the file: one that has been cut short is not what was written.

    Raises OSError where it cannot be read.
    """
    status = entry.now()
    if status.output.spill.bytes:
        size = await asyncio.to_thread(store.folder.output_size, entry.id)
        if size < status.output.spill.bytes:
            # Told of it from now on: in the list, too, and by the next entity tag.
            shorter = account.altered(status, size)
            if status is entry.status:
                entry.status, entry.pieces = shorter, None
            status = shorter
    return status


async def view_of(entry: Entry, store: Store, exec_: Exec) -> View:
    """The command as it stands."""
    head, tail, status = await _pieces(entry, store)
    shown = exec_.path_in_answers and status.output.spill.path is not None
    return View(
        status=status,
        head=head,
        tail=tail,
        look=entry.meta.look,
        bounds=Bounds(lines=exec_.text_lines, bytes=exec_.text_bytes),
        path=store.folder.spill(entry.id) if shown else None,
        url=url_of(entry.id),
        expires_at=store.expires_at(entry),
        warnings=entry.meta.warnings,
    )


async def _pieces(entry: Entry, store: Store) -> tuple[bytes, bytes, Status]:
    """Head and tail of what the status tells of; it is another one where they are lost."""
    status, pieces = entry.now(), entry.pieces
    if status is entry.status and pieces is not None:
        return *pieces, status
    try:
        status = await looked_at(entry, store)
        output, meta = status.output, entry.meta
        if not output.spill.bytes:
            return b"", b"", status
        # The last bytes of a file that lacks some are not the last of the output.
        tail = meta.tail_bytes if output.spill.bytes == output.bytes else 0
        head, end = await asyncio.to_thread(
            store.folder.pieces, entry.id, output.spill.bytes, meta.head_bytes, tail
        )
    except OSError as error:
        return b"", b"", account.unreadable(status, error)
    return head, end, status
