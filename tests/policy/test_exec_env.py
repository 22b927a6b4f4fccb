"""What a command gets to see of the gateway's environment, and what it does not."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.exec_env import DEFAULT_PATH, User, build

ME = User(name="me", home="/home/me", tmpdir="/scratch")
SECRET = "sk-LEAK9"


def test_without_anything_a_command_gets_what_it_needs_and_no_more() -> None:
    built = build(ME, {"CI": "1", "OPENAI_API_KEY": SECRET, "EDITOR": "vi"}, (), {})
    assert built.variables == {
        "PATH": DEFAULT_PATH,
        "HOME": "/home/me",
        "USER": "me",
        "LOGNAME": "me",
        "SHELL": "/bin/bash",
        "TMPDIR": "/scratch",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
    }
    assert built.warnings == ()


def test_what_the_operator_allows_is_inherited_if_it_is_set() -> None:
    built = build(ME, {"PATH": "/opt/bin", "LANG": "de_DE.UTF-8"}, ("PATH", "LANG", "HOME"), {})
    assert built.variables["PATH"] == "/opt/bin"
    assert built.variables["LANG"] == "de_DE.UTF-8"
    assert built.variables["HOME"] == "/home/me"
    assert built.warnings == ()


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "gh_token",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "LD_PRELOAD",
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
        "BASH_FUNC_ls%%",
    ],
)
def test_a_credential_or_a_loader_is_withheld_even_where_it_is_allowed(name: str) -> None:
    built = build(ME, {name: SECRET}, (name,), {})
    assert name not in built.variables
    [warning] = built.warnings
    assert warning.startswith(f"{name} of exec.env_allow was not passed on: ")
    assert SECRET not in warning


@pytest.mark.parametrize("name", ["ENVIRONMENT", "GOLD_MINE", "VIRTUAL_ENV", "PYTHONUTF8"])
def test_a_name_that_only_resembles_one_is_not_withheld(name: str) -> None:
    assert build(ME, {name: "1"}, (name,), {}).variables[name] == "1"


def test_what_is_not_set_is_not_worth_a_warning() -> None:
    assert build(ME, {}, ("OPENAI_API_KEY",), {}).warnings == ()


def test_another_user_does_not_get_the_gateways_home() -> None:
    other = msgspec.structs.replace(ME, is_gateway=False)
    inherited = {"HOME": "/root", "USER": "root", "PATH": "/opt/bin"}
    variables = build(other, inherited, tuple(inherited), {}).variables
    assert (variables["HOME"], variables["USER"]) == ("/home/me", "me")
    assert variables["PATH"] == "/opt/bin"


@given(
    st.dictionaries(st.sampled_from(["PATH", "CI", "X_TOKEN", "LD_PRELOAD", "A"]), st.text()),
    st.dictionaries(st.sampled_from(["PATH", "X_TOKEN", "A"]), st.text(min_size=1)),
)
def test_the_variables_of_a_request_are_taken_as_given(
    requested: dict[str, str], inherited: dict[str, str]
) -> None:
    built = build(ME, inherited, tuple(inherited), requested)
    assert built.variables.items() >= requested.items()
    assert ("CI" in built.variables) == ("CI" in requested)
    assert bool(built.warnings) == ("X_TOKEN" in inherited and "X_TOKEN" not in requested)
