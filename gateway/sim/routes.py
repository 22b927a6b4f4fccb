"""Which protocol and task a path belongs to, whatever its prefix; answers nothing itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from gateway.sim import anthropic, chat, completions, gemini, responses

if TYPE_CHECKING:
    from gateway.sim.shape import Shape

SHAPES: Final = {
    shape.name: shape
    for shape in (chat.SHAPE, completions.SHAPE, responses.SHAPE, anthropic.SHAPE, gemini.SHAPE)
}


class Task(StrEnum):
    """What a request wants."""

    ANSWER = "answer"
    COUNT = "count"
    MODELS = "models"
    MODEL = "model"
    SEEN = "seen"
    HELP = "help"
    WEBSOCKET = "websocket"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes. ``model`` is named in the path; ``stream`` None: the body says it."""

    task: Task
    shape: Shape
    model: str = ""
    stream: bool | None = None
    sse: bool = True


_ENDINGS: Final = (
    ("/chat/completions", Task.ANSWER, chat.SHAPE),
    ("/completions", Task.ANSWER, completions.SHAPE),
    ("/responses", Task.ANSWER, responses.SHAPE),
    ("/messages", Task.ANSWER, anthropic.SHAPE),
    ("/messages/count_tokens", Task.COUNT, anthropic.SHAPE),
)
_VERBS: Final = {
    "streamGenerateContent": (Task.ANSWER, True),
    "generateContent": (Task.ANSWER, False),
    "countTokens": (Task.COUNT, False),
}


def find(method: str, target: str) -> Route:
    """The route of a request target as it stands in the request line, query included."""
    raw_path, _, query = target.partition("?")
    path = unquote(raw_path).rstrip("/")
    google = "v1beta" in path or ":" in path.rpartition("/")[2]
    shape = gemini.SHAPE if google else chat.SHAPE
    if method in ("GET", "HEAD"):
        return _read_only(path, shape)
    if method != "POST":
        return Route(Task.UNKNOWN, shape)
    if match := re.search(r"/models/(.+):(\w+)$", path):
        task, stream = _VERBS.get(match[2], (Task.UNKNOWN, False))
        sse = parse_qs(query).get("alt") == ["sse"]
        return Route(task, gemini.SHAPE, match[1], stream, sse)
    deployment = re.search(r"/deployments/([^/]+)/", path)
    for ending, task, ending_shape in _ENDINGS:
        if path.endswith(ending):
            return Route(task, ending_shape, deployment[1] if deployment else "")
    return Route(Task.UNKNOWN, anthropic.SHAPE if "/messages" in path else shape)


def _read_only(path: str, shape: Shape) -> Route:
    if not path:
        return Route(Task.HELP, shape)
    if path.endswith("/_sim/requests"):
        return Route(Task.SEEN, shape)
    if path.endswith("/models"):
        return Route(Task.MODELS, shape)
    if match := re.search(r"/models/(.+)$", path):
        return Route(Task.MODEL, shape, match[1])
    if path.endswith("/responses"):
        return Route(Task.WEBSOCKET, responses.SHAPE)
    return Route(Task.UNKNOWN, shape)
