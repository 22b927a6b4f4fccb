"""What can be wrong, in the words of each provider."""

from __future__ import annotations

import pytest

from gateway.sim.params import ALIASES, ERROR_TYPES
from gateway.sim.problem import PROBLEMS, for_status, refusal


def test_every_type_that_can_be_asked_for_is_known() -> None:
    assert set(PROBLEMS) == set(ERROR_TYPES)
    assert set(ALIASES.values()) <= set(ERROR_TYPES)


def test_every_name_can_be_asked_for_as_its_provider_writes_it() -> None:
    for problem in PROBLEMS.values():
        for written in (problem.anthropic_type, problem.gemini_status.lower()):
            assert ALIASES.get(written, written) in ERROR_TYPES


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request"),
        (418, "invalid_request"),
        (429, "rate_limit"),
        (507, "server_error"),
    ],
)
def test_a_status_means_what_providers_mean_by_it(status: int, kind: str) -> None:
    assert for_status(status) is PROBLEMS[kind]


def test_a_refusal_says_its_own_words_with_the_providers_type() -> None:
    problem = refusal("no such thing", code="unknown_script", status=404)
    assert (problem.message, problem.code) == ("no such thing", "unknown_script")
    assert problem.anthropic_type == "not_found_error"
