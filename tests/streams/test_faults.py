"""What clients are told: one sentence or two, in words on which those that can retry do."""

from __future__ import annotations

import re

import pytest

from gateway.errors import Code
from gateway.streams import faults
from gateway.streams.events import CUT_VERDICTS, Fault, Verdict

RETRIED = re.compile(
    r"connection (?:error|refused|lost)|response (?:timeout|timed out)|retry your request", re.I
)
"""Of the patterns by which a coding agent decides to try again (clients match them anywhere)."""

MISREAD = re.compile(r"too many tokens|exceeds the limit|too large|invalid|quota|context", re.I)
"""Words that make clients compact, give up or ask for money."""


@pytest.mark.parametrize("fault", [*(faults.cut(v) for v in CUT_VERDICTS), faults.stalled(290.0)])
def test_the_words_make_clients_try_again(fault: Fault) -> None:
    assert RETRIED.search(fault.message)
    assert not MISREAD.search(fault.message)
    assert fault.message.rstrip(".").lower().endswith("retry your request")


@pytest.mark.parametrize("verdict", sorted(CUT_VERDICTS))
def test_each_cut_has_words_of_its_own(verdict: Verdict) -> None:
    others = {faults.cut(other).message for other in CUT_VERDICTS - {verdict}}

    assert faults.cut(verdict).code == Code.STREAM_TRUNCATED
    assert faults.cut(verdict).message not in others


def test_a_stall_says_how_long_it_was() -> None:
    fault = faults.stalled(290.04)

    assert fault.code == Code.STALLED
    assert "for 290 s" in fault.message


@pytest.mark.parametrize("verdict", sorted(CUT_VERDICTS))
def test_of_an_answer_that_has_not_begun_no_part_is_spoken_of(verdict: Verdict) -> None:
    for fault in (faults.cut(verdict, begun=False), faults.stalled(1.0, begun=False)):
        assert "partial" not in fault.message
        assert fault.message.endswith(". Retry your request.")
        assert RETRIED.search(fault.message)
    assert "partial" in faults.stalled(1.0).message
