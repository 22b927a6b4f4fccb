"""The bodies of requests, all that are read at once within one bound. Parses none.

A request is refused before its body is read wherever that can be known; what has been read is
counted until it has been parsed.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.policy.exec_request import MAX_BODY
from gateway.sidecar import refusal, replies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

TOGETHER = 4 * MAX_BODY
"""Bytes of all large bodies."""

SMALL = 64 * 1024
"""Bytes of a body that is always let in: who sends large ones slowly keeps no others out."""


class Bodies:
    """Reads bodies. The event loop's alone."""

    def __init__(self, together: int = TOGETHER) -> None:
        self._together = together
        self._held = 0

    @asynccontextmanager
    async def body(self, request: web.BaseRequest, most: int = MAX_BODY) -> AsyncIterator[bytes]:
        """The body, as long as it is needed. Raises ExecError: 413, or 429 for too many at once."""
        taken = 0

        def take(size: int) -> None:
            """Room for a body of that size in all, so far."""
            nonlocal taken
            more = size - taken
            if more <= 0:
                return
            if size > SMALL and self._held + more > self._together:
                raise refusal.busy(
                    f"The bodies of all requests together are more than {self._together} bytes, "
                    "which is as much as is read at once: send this one again later."
                )
            self._held, taken = self._held + more, size

        try:
            yield await replies.body_of(request, most, take)
        finally:
            self._held -= taken
