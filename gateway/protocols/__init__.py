"""One file per provider protocol. To add one: its file, one line in ``ALL``, and a folder of
samples.

Every module offers ``PROTOCOL``, a :class:`gateway.protocols.base.StreamProtocol`. ``for_path``
finds the one that claims a request; what none claims is ``generic``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.protocols import (
    anthropic,
    gemini,
    generic,
    openai_chat,
    openai_completions,
    openai_responses,
)

if TYPE_CHECKING:
    from gateway.protocols.base import StreamProtocol

ALL: tuple[StreamProtocol, ...] = (
    openai_chat.PROTOCOL,
    openai_completions.PROTOCOL,
    openai_responses.PROTOCOL,
    anthropic.PROTOCOL,
    gemini.PROTOCOL,
    generic.PROTOCOL,
)

BY_NAME: dict[str, StreamProtocol] = {protocol.name: protocol for protocol in ALL}
NAMES: tuple[str, ...] = tuple(BY_NAME)


def for_path(method: str, path: str) -> StreamProtocol | None:
    """The protocol whose inference request this is, by method and path (without query); None if no
    protocol's."""
    for protocol in ALL:
        if protocol.claims(method, path):
            return protocol
    return None
