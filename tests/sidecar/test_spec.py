"""A spec that contradicts itself is refused before anything is started."""

import json
import os
from typing import Any

import pytest

from gateway.sidecar import spec
from gateway.sidecar.spec import Spec

GOOD: dict[str, Any] = {"id": "x", "directory": "/d", "cwd": "/", "env": {}, "command": "true"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"command": None}, "exactly one"),
        ({"argv": ("true",)}, "exactly one"),
        ({"command": None, "argv": ()}, "argv must not be empty"),
        ({"cwd": "here"}, "absolute"),
        ({"directory": "here"}, "absolute"),
        ({"stdin": bytes((8 << 20) + 1)}, "stdin"),
        ({"head_bytes": -1}, "negative"),
        ({"tail_bytes": 256 << 10}, "together"),
        ({"limits": {"files": 3}}, "no limit named 'files'"),
    ],
)
def test_a_contradiction_is_named(changed: dict[str, Any], words: str) -> None:
    Spec(**GOOD)
    with pytest.raises(ValueError, match=words):
        Spec(**(GOOD | changed))


def test_a_sandbox_is_told_apart_from_what_it_holds() -> None:
    made = Spec(**(GOOD | {"wrap": ("bwrap", "--")}))
    request = made.request(0.0)
    assert request["wrap"] == ["bwrap", "--"]
    assert request["argv"] == made.full_argv()
    assert "bwrap" not in request["argv"]
    assert made.full_argv()[-2:] == ["-c", "true"]
    assert made.containment == "pidns"


def test_without_bash_there_is_sh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spec.shell()[1:] == ("--noprofile", "--norc")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert spec.shell() == ("/bin/sh",)


def test_a_request_is_json_whatever_the_bytes() -> None:
    made = Spec(**(GOOD | {"env": {"A": "\udcff"}}))
    assert json.loads(json.dumps(made.request(1.0)))["env"] == {"A": "\udcff"}
