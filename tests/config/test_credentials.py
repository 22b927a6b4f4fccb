"""Keys that stand elsewhere: found, and never shown."""

import pytest

from gateway.config.credentials import (
    Secret,
    check_reference,
    check_references,
    read_text,
    resolve,
)

KEY = "sk-live-0123456789"


def unread(path: str) -> str:
    raise AssertionError(path)


def one_file(path: str) -> str:
    if path == "/etc/key":
        return f"\n{KEY}\n"
    raise FileNotFoundError(2, "No such file or directory", path)


def test_a_variable_is_resolved() -> None:
    assert resolve("env:MY_KEY", {"MY_KEY": KEY}, unread).reveal() == KEY


def test_a_file_is_resolved_without_the_line_end_that_editors_leave() -> None:
    assert resolve("file:/etc/key", {}, one_file).reveal() == KEY


def test_a_secret_shows_where_it_came_from_and_not_itself() -> None:
    secret = resolve("env:MY_KEY", {"MY_KEY": KEY}, unread)
    assert KEY not in f"{secret} {secret!r} {[secret]}"
    assert "env:MY_KEY" in repr(secret)


def test_secrets_are_equal_if_both_the_place_and_the_key_are() -> None:
    assert Secret("env:A", "1") == Secret("env:A", "1")
    assert len({Secret("env:A", "1"), Secret("env:A", "2"), Secret("env:B", "1")}) == 3
    assert Secret("env:A", "1") != "1"


@pytest.mark.parametrize("reference", ["env:MY_KEY", "env:_k1", "file:/etc/key"])
def test_a_reference_is_accepted(reference: str) -> None:
    assert check_reference(reference) == reference


@pytest.mark.parametrize(
    "value", [KEY, f"env:{KEY}", f"file:{KEY}", f"${KEY}", f"ENV:{KEY}", "", "env:", 7, [KEY]]
)
def test_a_key_in_place_of_a_reference_is_refused_and_not_shown(value: object) -> None:
    with pytest.raises(ValueError, match='must be "env:NAME" or "file:/path"') as refused:
        check_reference(value)
    assert KEY not in str(refused.value)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ValueError, match="variable MY_KEY, which is not set"):
        resolve("env:MY_KEY", {}, unread)


def test_a_variable_whose_name_may_be_a_key_is_not_named() -> None:
    with pytest.raises(ValueError, match="an environment variable, which is not set") as refused:
        resolve("env:gsk_0123456789abc", {}, unread)
    assert "gsk_" not in str(refused.value)


@pytest.mark.parametrize("found", ["", "  \n", "two words", "line\nline", "schlüssel", "nul\0"])
def test_what_no_header_can_carry_is_refused_and_not_shown(found: str) -> None:
    with pytest.raises(ValueError, match="names the environment variable MY_KEY, which") as refused:
        resolve("env:MY_KEY", {"MY_KEY": found}, unread)
    assert not found.strip() or found not in str(refused.value)


def test_a_file_that_is_not_there_is_named_with_the_reason() -> None:
    with pytest.raises(ValueError, match="/etc/none, which cannot be read: No such file"):
        resolve("file:/etc/none", {}, one_file)


def test_a_file_that_is_not_text_is_named() -> None:
    def binary(path: str) -> str:
        return b"\xff".decode()

    with pytest.raises(ValueError, match="/etc/key, which is not text"):
        read_text("/etc/key", binary)


def test_an_error_without_words_is_named_by_its_kind() -> None:
    def broken(path: str) -> str:
        raise PermissionError

    with pytest.raises(ValueError, match="cannot be read: PermissionError"):
        read_text("/etc/key", broken)


def test_references_are_one_or_a_list_each_once() -> None:
    assert check_references("env:A") == ("env:A",)
    assert check_references(["env:A", "file:/b"]) == ("env:A", "file:/b")
    with pytest.raises(ValueError, match="names a token twice"):
        check_references(["env:A", "env:A"])
    with pytest.raises(ValueError, match="not the key itself") as refused:
        check_references(["env:A", "sk-123"])
    assert "sk-123" not in str(refused.value)
