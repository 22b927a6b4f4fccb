"""Asks for a model under another provider's name for it. Changes nothing else of a request."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from gateway.policy import json_edit

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_IN_PATH = re.compile(r"(/models/)([^/?]+?)(:|%3[Aa])(?=[A-Za-z]++(?![^/?]))")


def rename_model(path: str, body: bytes, model: str) -> tuple[str, bytes] | None:
    """Path and body that ask for ``model``; None where no model can be found in them.

    The body is JSON whose top-level ``model`` is a string; every other value keeps its bytes. Where
    the path names the model (Gemini: ``/models/NAME:generateContent``), it is renamed there.
    """
    renamed, count = _IN_PATH.subn(
        lambda found: found[1] + quote(model, safe="") + found[3], path, count=1
    )
    if count:
        return renamed, body
    try:
        fields = _object.decode(body)
    except (msgspec.DecodeError, RecursionError):
        renamed_body = _rename_leniently(body, model)
        return None if renamed_body is None else (path, renamed_body)
    if bytes(fields.get("model", b""))[:1] != b'"':
        return None
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return path, msgspec.json.encode(fields)


def _rename_leniently(body: bytes, model: str) -> bytes | None:
    """In a body that only forgiving parsers read: agents cut prompts in the middle of an emoji."""
    text = body.decode("utf-8", "surrogateescape")
    try:
        span = json_edit.find(text, ("model",))
    except (ValueError, RecursionError, IndexError):
        return None
    if span is None or text[span.start] != '"':
        return None
    edited = json_edit.apply(text, [json_edit.Edit(span, json_edit.dump(model))])
    return edited.encode("utf-8", "surrogateescape")
