"""The sample HTTP errors as typed values: bodies in the shapes of providers, proxies, frameworks.

``http_errors/index.json`` has a line for each file: status, content type, the header fields that
matter, and the words of the body that its client must see.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path

FOLDER = Path(__file__).parent / "http_errors"


@dataclass(frozen=True)
class HttpError:
    """One error as a provider sends it. ``detail`` is what of it must reach a person."""

    file: str
    status: int
    content_type: str
    detail: list[str]
    headers: dict[str, str] = field(default_factory=dict)

    @cached_property
    def body(self) -> bytes:
        return (FOLDER / self.file).read_bytes()

    @property
    def fields(self) -> dict[str, str]:
        """All header fields, their names in lower case."""
        return {"content-type": self.content_type, **self.headers}

    @property
    def phrase(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "Error"


HTTP_ERRORS = [
    HttpError(**row) for row in json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
]


def name_of(error: HttpError) -> str:
    """For test ids."""
    return error.file
