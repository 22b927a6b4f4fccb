"""Reads events with a protocol's reader and nothing else; asserts nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gateway.protocols import BY_NAME
from gateway.streams.events import Kind
from tests.samples.catalog import COMPLETE
from tests.streams import reference

if TYPE_CHECKING:
    from gateway.streams.events import Reader


def reader(protocol: str, choices: int = 1) -> Reader:
    """A fresh reader."""
    return BY_NAME[protocol].reader(choices)


def read(of: Reader, value: Any, name: str = "") -> Kind:
    """One event whose data is that JSON, or those bytes."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return of.read(name.encode(), data)


def first_content(protocol: str) -> bytes:
    """The first piece of an answer (of no known protocol: the first event) in that protocol's first
    whole sample, as one event."""
    of = reader(protocol)
    for block in reference.split(COMPLETE[protocol].data)[0]:
        for found in reference.read(block)[0]:
            if found.data and of.read(found.name, found.data) in (Kind.CONTENT, Kind.OPAQUE):
                return block
    raise AssertionError(f"the sample {COMPLETE[protocol].file} has no content")


def told(out: bytes | None) -> list[tuple[str, Any]]:
    """The events that the gateway wrote: names and JSON. Each must be a whole one."""
    if not out:
        return []
    events, boundaries = reference.read(out)
    assert boundaries[-1] == len(out)
    return [(event.name.decode(), json.loads(event.data or b"")) for event in events]
