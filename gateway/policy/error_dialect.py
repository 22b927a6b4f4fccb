"""An error's body with all that the SDKs of a protocol look for.

Puts in what is lacking, beside all that a body has; takes nothing away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gateway.policy import json_edit
from gateway.policy.client_words import OVERFLOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.policy.error_body import Answer
    from gateway.policy.json_edit import Edit, Path
    from gateway.protocols.base import StreamProtocol

_FLAT_FIELDS: Final = ("code", "param")


def completion(
    source: str,
    root: Path,
    value: dict[str, Any],
    protocol: StreamProtocol,
    answer: Answer,
    message: str,
    *,
    full: bool,
) -> list[Edit]:
    """Put in what SDKs of the protocol look for and the body lacks, beside all that it has; of a
    code that the context is full only where clients know it anyway (``full``).
    """
    error = value.get("error")
    flat: dict[str, object] = {name: value[name] for name in _FLAT_FIELDS if name in value}
    if not full and flat.get("code") == OVERFLOW:
        del flat["code"]
    shape: dict[str, Any] = json.loads(shaped(protocol, answer, message, flat))
    inner: dict[str, Any] = shape.pop("error")
    edits: list[Edit] = []
    lacking: dict[str, Any] = {}
    for name, wanted in shape.items():
        if name not in value:
            lacking |= {name: wanted} if wanted is not None else {}
        elif value[name] != wanted and wanted is not None:
            edits += _exchange(source, (*root, name), wanted)
    if not isinstance(error, dict):
        if "error" in value:
            edits += _exchange(source, (*root, "error"), inner)
        else:
            lacking["error"] = inner
    else:
        wanted = inner if "message" not in error else protocol.error_fields
        added = {name: inner[name] for name in wanted if name not in error}
        edit = json_edit.into_object(source, (*root, "error"), added) if added else None
        edits += [] if edit is None else [edit]
    if lacking:
        edit = json_edit.into_object(source, root, lacking)
        edits += [] if edit is None else [edit]
    return edits


def _exchange(source: str, path: Path, value: object) -> list[Edit]:
    span = json_edit.find(source, path)
    return [] if span is None else [json_edit.Edit(span, json_edit.dump(value))]


def shaped(
    protocol: StreamProtocol, answer: Answer, message: str, flat: Mapping[str, object] | None = None
) -> bytes:
    """The dialect's body, with what a ``flat`` body has of its own: code and param."""
    shape: dict[str, Any] = json.loads(
        protocol.error_body(answer.status, answer.amazon_type or None, message)
    )
    error = shape["error"]
    for name, own in flat.items() if flat is not None and "param" in error else ():
        if isinstance(own, str | int) and not isinstance(own, bool):
            error[name] = own
    return json_edit.dump(shape).encode("utf-8", "replace")
