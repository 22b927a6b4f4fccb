"""What is wrong with a configuration, in sentences; never holds a value that may be a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConfigError(Exception):
    """A configuration that cannot be used.

    ``faults`` holds one sentence per fault, all of them and not only the first. Each names the
    key with the path of its table and says the mend.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))
