"""The samples as typed values: recorded shapes of streams with the verdict each must get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gateway.streams.events import CUT_VERDICTS, Verdict

HERE = Path(__file__).parent
WHOLE = frozenset({Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL, Verdict.DONE_WITHOUT_FINISH})


@dataclass(frozen=True)
class Sample:
    """One file and what is to be known of it.

    ``completes_at``, ``fails_at`` and ``done_at`` are counts of bytes: up to and including the last
    byte of the JSON with which the stream finishes, of the first error, and of a ``[DONE]`` that is
    all the end there is. ``keepalive`` files hold nothing but heartbeats.
    """

    file: str
    protocol: str
    verdict: Verdict
    reset: bool = False
    keepalive: bool = False
    completes_at: int | None = None
    fails_at: int | None = None
    done_at: int | None = None
    finish_reason: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    retryable: bool | None = None
    usage: dict[str, int] | None = None
    model: str | None = None
    note: str = ""

    @cached_property
    def data(self) -> bytes:
        return (HERE / self.file).read_bytes()

    @property
    def role(self) -> str:
        """What it is to its protocol: ``complete``, ``cut``, ``error``, ``keepalive`` or none."""
        if self.keepalive:
            return "keepalive"
        if self.verdict is Verdict.PROVIDER_ERROR:
            return "error"
        if self.verdict in WHOLE:
            return "complete"
        return "cut" if self.verdict in CUT_VERDICTS else ""


def _sample(row: dict[str, Any]) -> Sample:
    return Sample(**{**row, "verdict": Verdict(row["verdict"])})


SAMPLES = [_sample(row) for row in json.loads((HERE / "index.json").read_text(encoding="utf-8"))]
BY_FILE = {sample.file: sample for sample in SAMPLES}
COMPLETE = {sample.protocol: sample for sample in reversed(SAMPLES) if sample.role == "complete"}
"""By protocol, the first sample of a whole answer."""
SHORT = [sample for sample in SAMPLES if len(sample.data) < 1 << 16]
LONG = [sample for sample in SAMPLES if len(sample.data) >= 1 << 16]


def name_of(sample: Sample) -> str:
    """For test ids."""
    return sample.file
