"""What the audit log may say of a command."""

import hashlib

import pytest

from gateway.observe.exec_log import SHOWN, asked


@pytest.mark.parametrize(
    "secret",
    [
        "curl -H 'Authorization: Bearer abcdef123456789' x",
        "export OPENAI_API_KEY=abcdef123456789",
        "git clone https://me:abcdef123456789@example.com/x",
        "psql --password=abcdef123456789",
    ],
)
def test_a_secret_in_a_command_is_masked_and_its_digest_is_of_the_whole(secret: str) -> None:
    told = asked("x", "peer", "client", secret, None, "/")
    assert "abcdef123456789" not in repr(told)
    assert told.sha256 == hashlib.sha256(secret.encode()).hexdigest()


def test_a_secret_at_the_edge_of_what_is_shown_is_not_cut_into_view() -> None:
    for size in range(SHOWN - 60, SHOWN + 10):
        key = "sk-proj-abcdefghijklmnop1234567890"
        told = asked("x", "peer", "client", "y" * size + f" {key}", None, "/")
        assert "abcdef" not in told.command
        assert len(told.command) <= SHOWN


def test_an_argv_is_told_as_a_shell_would_read_it() -> None:
    assert asked("x", "p", "c", None, ("ls", "a b"), "/").command == "ls 'a b'"
