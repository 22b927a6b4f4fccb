"""What the provider saw: the last thousand requests, without secrets; writes nothing."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT: Final = 1000
SHOWN: Final = 100

_SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|session|signature|password", re.I)
_SECRET_VALUE: Final = re.compile(r"\b(sk-|Bearer |Basic |AIza|eyJ)", re.I)
_SECRET_QUERY: Final = re.compile(r"([?&][^=&]*(?:key|token|secret|sig|auth)[^=&]*=)([^&]+)", re.I)


@dataclass(slots=True)
class Seen:
    """One request. ``when`` is ISO 8601; ``body_sha256`` is of the bytes as they came.

    ``closed_early``: the client left before the answer had ended. ``number`` counts the requests
    with this exact ``model``; it is 0 for requests that no script answers.
    """

    when: str
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    model: str = ""
    script: str = ""
    number: int = 0
    faulted: bool = False
    status: int | None = None
    body_bytes: int = 0
    body_sha256: str = ""
    open: bool = True
    closed_early: bool = False

    def take_body(self, raw: bytes) -> None:
        """Notes size and digest of a body."""
        self.body_bytes, self.body_sha256 = len(raw), hashlib.sha256(raw).hexdigest()


class Ledger:
    """The records, oldest first."""

    def __init__(self) -> None:
        self._records: deque[Seen] = deque(maxlen=KEPT)

    def open(self, when: str, method: str, target: str, headers: Iterable[tuple[str, str]]) -> Seen:
        """A new record; secrets are replaced by their digests before they are kept."""
        hidden = tuple((name, _hide(name, value)) for name, value in headers)
        path = _SECRET_QUERY.sub(lambda match: match[1] + digest(match[2]), target)
        seen = Seen(when, method, path, hidden)
        self._records.append(seen)
        return seen

    def records(self) -> list[Seen]:
        """All that are kept."""
        return list(self._records)

    def as_json(self) -> dict[str, Any]:
        """The last hundred, as ``GET /_sim/requests`` shows them."""
        return {"requests": [asdict(seen) for seen in list(self._records)[-SHOWN:]]}


def digest(secret: str) -> str:
    """What stands for a secret: enough to tell two apart, too little to use."""
    return "sha256:" + hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _hide(name: str, value: str) -> str:
    secret = _SECRET_NAME.search(name) or _SECRET_VALUE.search(value)
    return digest(value) if secret else value
