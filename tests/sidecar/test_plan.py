"""From the table to how commands run: users, sandboxes, limits, and what is a refusal to start."""

import os
from pathlib import Path

import pytest

from gateway.config.model import Exec, Limits
from gateway.policy.exec_request import ExecRequest
from gateway.sidecar import plan
from gateway.sidecar.plan import Planner
from tests.sidecar.site import changed, settings


def refusal(root: bool, **values: object) -> str | None:
    return plan.refusal(Exec(**values), root=root, platform="linux")  # type: ignore[arg-type]


def test_root_runs_no_commands_by_accident() -> None:
    assert refusal(False) is None
    assert refusal(True, allow_root=True) is None
    said = refusal(True)
    assert said is not None
    assert "as root" in said
    assert "exec.allow_root = true" in said
    assert refusal(True, isolation="uid", run_as="nobody") is None
    assert refusal(True, isolation="uid", run_as="root") == said


def test_what_cannot_be_had_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no user here" in str(refusal(True, isolation="uid", run_as="no-such-user"))
    assert "runs as root" in str(refusal(False, isolation="uid", run_as="nobody"))
    monkeypatch.setattr("gateway.sidecar.isolation.find_bwrap", lambda: None)
    assert "install bubblewrap" in str(refusal(False, isolation="bwrap"))
    monkeypatch.setattr("gateway.sidecar.isolation.find_bwrap", lambda: "/usr/bin/bwrap")
    assert refusal(False, isolation="bwrap") is None


@pytest.fixture
def exec_(tmp_path: Path) -> Exec:
    return settings(tmp_path)


def planner(exec_: Exec, *secret_files: str) -> Planner:
    return Planner.of(exec_, exec_.spill_dir, {"LANG": "de", "X": "x"}, secret_files)


def test_a_request_becomes_a_spec(exec_: Exec) -> None:
    exec_ = changed(exec_, limits=Limits(cpu=7, memory=1 << 30, processes=9))
    request = ExecRequest(argv=("ls",), stdin=b"in", timeout_ms=5, head_bytes=1, tail_bytes=2)
    spec = planner(exec_).spec("x", request, 99, "/where")
    assert (spec.argv, spec.command, spec.stdin, spec.timeout_ms) == (("ls",), None, b"in", 5)
    assert (spec.cwd, spec.cwd_fd, spec.head_bytes, spec.tail_bytes) == ("/where", 99, 1, 2)
    assert spec.directory == f"{exec_.spill_dir}/x"
    assert {"core": 0, "cpu": 7, "as": 1 << 30, "nproc": 9}.items() <= spec.limits.items()
    assert (spec.run_as, spec.wrap, spec.on_gone) == (None, (), "kill")
    assert (spec.env["LANG"], "X" in spec.env) == ("de", False)


def test_another_user_has_its_own_home(exec_: Exec) -> None:
    import pwd

    nobody = pwd.getpwnam("nobody")
    exec_ = changed(exec_, isolation="uid", run_as="nobody")
    spec = planner(exec_).spec("x", ExecRequest(command="ls"), 99, "/")
    assert spec.run_as == (nobody.pw_uid, nobody.pw_gid)
    assert (spec.env["USER"], spec.env["HOME"]) == ("nobody", nobody.pw_dir)


def test_a_sandbox_shows_neither_outputs_nor_the_files_with_keys(
    exec_: Exec, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    exec_ = changed(exec_, isolation="bwrap")
    repo = exec_.allowed_roots[0]
    wrap = " ".join(planner(exec_, str(key), str(tmp_path / "none")).wrap(repo))
    assert f"--bind {repo} {repo}" in wrap
    assert f"--tmpfs {exec_.spill_dir}" in wrap
    assert f"--ro-bind {os.devnull} {key}" in wrap
    assert str(tmp_path / "none") not in wrap
    assert wrap.endswith(f"--chdir {repo} --")
