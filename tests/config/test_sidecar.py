"""Whether the sidecar may start: what its keys must not be together."""

from typing import Any

import msgspec
import pytest

from gateway.config.address import parse_address
from gateway.config.model import Exec
from gateway.config.sidecar import collide, faults, tokens

RELAY = "127.0.0.1:8484"
GOOD = Exec(enabled=True, token=("file:/t",), allowed_roots=("/repo",))


def told(broken: tuple[str, ...] = (), **changed: Any) -> list[str]:
    return list(faults(msgspec.structs.replace(GOOD, **changed), RELAY, broken))


def test_a_sidecar_that_is_set_up_has_no_faults() -> None:
    assert told() == []
    assert told(isolation="uid", run_as="agent") == []
    assert told(listen="127.0.0.1:8081") == told(listen="[::1]:8081") == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"token": ()}, "exec.token is not set: "),
        ({"allowed_roots": ()}, "exec.allowed_roots is empty: "),
        ({"isolation": "uid"}, 'exec.run_as is not set: exec.isolation = "uid" needs '),
        ({"listen": "0.0.0.0:8081"}, "exec.listen is 0.0.0.0:8081, which other machines can "),
        ({"listen": "10.0.0.5:8081"}, "exec.listen is 10.0.0.5:8081, which other machines "),
        ({"listen": "example.com:1"}, "exec.listen is example.com:1, which other machines "),
        (
            {"listen": "0.0.0.0:8081", "allow_remote": True},
            "exec.hosts names only this machine, ",
        ),
        ({"listen": RELAY}, "exec.listen (127.0.0.1:8484) is the address of the relay, "),
    ],
)
def test_each_fault_is_one_sentence_and_a_switched_off_sidecar_has_none(
    changed: dict[str, Any], fault: str
) -> None:
    [sentence] = told(**changed)
    assert sentence.startswith(fault)
    assert sentence.endswith(".")
    assert told(enabled=False, **changed) == []
    assert told(broken=(*changed, "run_as"), **changed) == []


def test_a_remote_listener_needs_the_flag_and_the_name_of_its_host() -> None:
    assert told(listen="0.0.0.0:8081", allow_remote=True, hosts=("build.example.com",)) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("localhost:1", "127.0.0.1:1", True),
        ("localhost:1", "[::1]:1", True),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("10.0.0.1:1", "[::]:1", True),
        ("10.0.0.1:1", "10.0.0.2:1", False),
        ("unix:/run/a", "unix:/run//b/../a", True),
        ("unix:/run/a", "unix:/run/b", False),
        ("unix:/run/a", "127.0.0.1:1", False),
    ],
)
def test_two_listeners_collide_where_one_port_would_be_both(
    one: str, other: str, same: bool
) -> None:
    assert collide(parse_address(one), parse_address(other)) == same
    assert collide(parse_address(other), parse_address(one)) == same


def read_file(path: str) -> str:
    return {"/short": "x" * 31, "/one": "x" * 32, "/again": "x" * 32 + "\n"}[path]


def test_a_token_has_32_bytes_or_more_and_is_not_shown() -> None:
    [token] = tokens(["file:/one"], {}, read_file)
    assert (token.reveal(), token.reference) == ("x" * 32, "file:/one")
    with pytest.raises(ValueError, match="names in file:/short a token of 31 bytes") as refused:
        tokens(["file:/one", "file:/short"], {}, read_file)
    assert "xxx" not in str(refused.value)


def test_two_clients_cannot_have_the_same_token() -> None:
    with pytest.raises(ValueError, match="the same token in file:/one and file:/again: each"):
        tokens(["file:/one", "file:/again"], {}, read_file)
