"""What says that nothing is left, and what says when to come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.policy.error_body import ErrorBody, Words
from gateway.policy.quota import is_exhausted, is_spent, wait_in_words

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"


def words(message: str = "", code: str | None = None, kind: str | None = None) -> Words:
    return Words(ErrorBody.JSON, code, message, kind)


def of_the_page() -> list[str]:
    """The messages that the page gives as examples."""
    section = PAGE.read_text(encoding="utf-8").partition("## How a used up quota is told")[2]
    return re.findall("^- `([^`]+)`", section.partition("\n## ")[0], re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert len(of_the_page()) > 8


@pytest.mark.parametrize("message", of_the_page())
def test_the_pages_examples_are_final_and_pass_when_told_to_wait(message: str) -> None:
    assert is_spent(words(message), told_to_wait=False)
    assert not is_spent(words(message), told_to_wait=True)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Too many requests",
        "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 1, Used 1. See https://x/billing-limits",
        "Concurrency limit exceeded",
        "Allocated quota exceeded, please increase your quota limit.",
        "The engine is currently overloaded",
        "Requests per second limit exceeded - too many requests sent.",
    ],
)
def test_a_limit_that_passes_is_no_empty_account(message: str) -> None:
    assert not is_spent(words(message), told_to_wait=False)


@pytest.mark.parametrize(
    ("code", "kind", "told", "spent"),
    [
        ("insufficient_quota", None, True, True),
        (None, "billing_error", False, True),
        (None, "billing_error", True, False),
        ("token_quota_exceeded", "too_many_tokens_error", False, False),
        ("request_quota_exceeded", "too_many_requests_error", False, False),
        ("SetLimitExceeded", None, False, True),
        ("user_weekly_rate_limited", None, False, True),
        ("Arrearage", None, False, True),
        ("402", None, False, True),
    ],
)
def test_names_of_errors_tell_it_too(
    code: str | None, kind: str | None, told: bool, spent: bool
) -> None:
    assert is_spent(words("m", code, kind), told_to_wait=told) is spent


def test_a_day_is_longer_than_the_wait_that_google_tells_with_it() -> None:
    details = [{"violations": [{"quotaId": "RequestsPerDayPerProject"}]}, {"retryDelay": "2s"}]
    assert is_spent(words("m"), details, told_to_wait=True)
    assert not is_spent(words("m"), details[1:], told_to_wait=True)


def test_the_address_of_a_page_on_billing_says_nothing() -> None:
    assert not is_exhausted(None, "Slow down: https://x.y/billing_limits")
    assert is_exhausted(None, "billing_limits")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 35.883s. Visit", 35.883),
        ("Please try again in 7m12s.", 432.0),
        ("try again in 1h2m3.5s", 3723.5),
        ("Please try again in 120ms.", 0.12),
        ("Please retry after 26 seconds.", 26.0),
        ("Please retry in 34.07s.", 34.07),
        ("Try again in 5 minutes", 300.0),
        ("Retry your request after 2 hours 1 minute", 7260.0),
        ("Please wait 52000 seconds before retrying.", 52000.0),
        ("try again in 2 days", 172800.0),
        ("try again in 1d2h", 93600.0),
        ("try again in 0s", None),
        ("try again in 5 moments", None),
        ("Retry after 2026-01-01", None),
        ("try again later", None),
        ("in 5s", None),
        ("", None),
    ],
)
def test_a_wait_in_words_is_read(text: str, seconds: float | None) -> None:
    assert wait_in_words(text) == (None if seconds is None else pytest.approx(seconds))
