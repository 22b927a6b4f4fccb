"""Who may run commands, and where."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.exec_access import Client, Guard, Refusal, host_name, working_directory

ONE, OTHER = "a" * 32, "b" * 40
GUARD = Guard({"file:/one": ONE, "env:OTHER": OTHER}, ("localhost", "127.0.0.1", "::1"))
GOOD = {
    "Host": "localhost:8081",
    "Authorization": f"Bearer {ONE}",
    "Content-Type": "application/json",
}


def admit(method: str = "POST", guard: Guard = GUARD, **changed: str | None) -> Client | Refusal:
    fields = GOOD | {name.replace("_", "-"): value for name, value in changed.items()}
    return guard.admit(method, [(k, v) for k, v in fields.items() if v is not None])


def refused(answer: object) -> tuple[int, str]:
    assert isinstance(answer, Refusal), answer
    assert answer.message.endswith(".")
    assert "\n" not in answer.message
    return answer.status, answer.message


def test_each_token_names_its_client() -> None:
    assert admit() == Client(name="file:/one")
    assert admit(Authorization=f"bearer {OTHER}") == Client(name="env:OTHER")


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        ONE,
        f"Basic {ONE}",
        "Bearer",
        "Bearer ",
        f"Bearer {ONE[:-1]}",
        f"Bearer {ONE}a",
        f"Bearer {ONE} {ONE}",
        "Bearer é\udcff",
    ],
)
def test_who_has_no_token_is_refused_and_its_word_is_not_repeated(
    authorization: str | None,
) -> None:
    status, message = refused(admit(Authorization=authorization))
    assert status == 401
    assert ONE[:-1] not in message


def test_two_tokens_at_once_are_none() -> None:
    fields = [*GOOD.items(), ("authorization", f"Bearer {ONE}")]
    assert refused(GUARD.admit("POST", fields))[0] == 401


def test_without_tokens_nobody_is_admitted() -> None:
    assert refused(admit(guard=Guard({}, None)))[0] == 401


@pytest.mark.parametrize("origin", ["http://localhost:8081", "null", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_web_page_is_refused_even_with_a_token(method: str, origin: str) -> None:
    status, message = refused(admit(method, Origin=origin))
    assert status == 403
    assert "web page" in message


@pytest.mark.parametrize(
    "host", [None, "", "attacker.example", "localhost.attacker.example", "127.0.0.2", "[::2]:1"]
)
def test_a_host_that_is_not_allowed_is_refused(host: str | None) -> None:
    status, message = refused(admit(Host=host))
    assert status == 403
    assert "exec.hosts" in message


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:9", "[::1]:9"]
)
def test_a_host_is_compared_without_its_port(host: str) -> None:
    assert admit(Host=host) == Client(name="file:/one")


def test_two_hosts_are_refused() -> None:
    fields = [*GOOD.items(), ("host", "localhost")]
    assert refused(GUARD.admit("POST", fields))[0] == 403


def test_on_a_unix_socket_any_host_and_none_will_do() -> None:
    guard = Guard({"file:/one": ONE}, None)
    for host in (None, "whatever", "localhost"):
        assert admit(guard=guard, Host=host) == Client(name="file:/one")


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        (None, False),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("text/plain; application/json", False),
    ],
)
def test_only_json_may_be_posted(kind: str | None, passes: bool) -> None:
    answer = admit(Content_Type=kind)
    assert (answer == Client(name="file:/one")) == passes
    if not passes:
        assert refused(answer)[0] == 415
    assert admit("GET", Content_Type=kind) == Client(name="file:/one")


def test_the_host_of_a_header() -> None:
    assert host_name("[FE80::1]:80") == "fe80::1"
    assert host_name(" Example.com.:1 ") == "example.com"


@pytest.mark.parametrize(
    ("cwd", "result"),
    [
        (None, "/repo"),
        ("/repo", "/repo"),
        ("/repo/", "/repo"),
        ("//repo//a/./b", "/repo/a/b"),
        ("/data/x y", "/data/x y"),
        ("/repo/...", "/repo/..."),
        ("/repository", 403),
        ("/rep", 403),
        ("/", 403),
        ("/data", "/data"),
        ("/etc", 403),
        ("/repo/../etc", 400),
        ("/repo/a/../b", 400),
        ("repo", 400),
        ("", 400),
        ("/repo\0/x", 400),
    ],
)
def test_a_command_runs_within_the_roots_only(cwd: str | None, result: str | int) -> None:
    found = working_directory(cwd, ("/repo", "/data/"))
    assert (found.status if isinstance(found, Refusal) else found) == result


def test_the_whole_file_system_may_be_allowed_and_nothing_may() -> None:
    assert working_directory("/etc", ("/",)) == "/etc"
    assert working_directory("/", ("/",)) == "/"
    assert refused(working_directory("/etc", ()))[0] == 403
    assert refused(working_directory(None, ()))[0] == 400


@given(st.lists(st.sampled_from(["repo", "x", ".", "..", "", "/", "repo2"])).map("/".join))
def test_no_text_leads_out_of_the_roots(path: str) -> None:
    found = working_directory("/" + path, ("/repo",))
    if isinstance(found, str):
        assert found == "/" + posixpath.normpath("/" + path).lstrip("/")
        assert posixpath.commonpath([found, "/repo"]) == "/repo"
