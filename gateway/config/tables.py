"""One table of the document and the faults found in it; knows no key's name and no meaning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gateway.policy.routing import nearest_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gateway.config.values import Reader

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def quoted(key: str) -> str:
    """``key`` as it is written in TOML."""
    if _BARE.fullmatch(key):
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else "?" for c in escaped) + '"'


class Table:
    """A table, its path in the document, and the list of faults that all tables share.

    No method raises for what the user wrote: it adds a sentence and leaves the key out.
    """

    def __init__(self, path: str, raw: dict[str, Any], faults: list[str]) -> None:
        self.path = path
        self.raw = raw
        self.faults = faults

    def name(self, key: str) -> str:
        """The path of ``key``."""
        return f"{self.path}.{quoted(key)}" if self.path else quoted(key)

    def fault(self, key: str, rest: str) -> None:
        """Add the sentence that begins with the path of ``key`` and goes on with ``rest``."""
        end = "" if rest.endswith("?") else "."
        self.faults.append(f"{self.name(key)} {rest}{end}")

    def table(self, key: str) -> Table:
        """The table below ``key``; an empty one where there is none."""
        value = self.raw.get(key, {})
        if not isinstance(value, dict):
            self.fault(key, f"must be a table: write [{self.name(key)}] and its keys below it")
            value = {}
        return Table(self.name(key), value, self.faults)

    def refuse_unknown(self, known: Collection[str], homes: Mapping[str, str]) -> None:
        """Add a fault for each key that is not ``known``.

        ``homes`` maps keys to the table they belong to, for those that stand in the wrong one.
        """
        for key in self.raw:
            if key in known:
                continue
            guess = nearest_name(key, known)
            if key in homes:
                hint = f"it belongs into [{homes[key]}]"
            elif guess:
                hint = f"did you mean {guess}?"
            else:
                hint = f"the keys here are {', '.join(known)}"
            self.fault(key, f"is not a known key: {hint}")

    def read(self, readers: Mapping[str, Reader]) -> dict[str, Any]:
        """The values of all keys that have a reader and are right."""
        values: dict[str, Any] = {}
        for key, reader in readers.items():
            if key not in self.raw:
                continue
            try:
                values[key] = reader(self.raw[key])
            except ValueError as error:
                self.fault(key, str(error))
        return values
