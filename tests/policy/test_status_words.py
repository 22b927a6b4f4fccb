"""Statuses in words."""

import pytest

from gateway.policy.status_words import named, nothing_said, only_says


def test_a_status_has_its_name_if_it_has_one() -> None:
    assert named(404) == "404 (Not Found)"
    assert named(524) == "524"
    assert "HTTP 524 and gave no reason" in nothing_said(524)


@pytest.mark.parametrize(
    ("status", "message", "only"),
    [
        (400, "Bad Request", True),
        (400, "400 bad request.", True),
        (400, "400", True),
        (400, " \n", True),
        (400, "Bad Gateway", False),
        (400, "429", False),
        (400, ";", False),
        (524, "524", True),
        (524, ";", False),
        (404, "Not Found: model", False),
    ],
)
def test_what_says_no_more_than_the_status(status: int, message: str, only: bool) -> None:
    assert only_says(status, message) is only
