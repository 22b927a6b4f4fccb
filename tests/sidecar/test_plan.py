"""From the table to how commands run: users, sandboxes, limits, and what is a refusal to start."""

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.config.model import Exec, Limits
from gateway.observe.exec_metrics import ExecMetrics
from gateway.policy.exec_request import ExecRequest
from gateway.sidecar import plan
from gateway.sidecar.plan import Planner
from gateway.sidecar.refusal import RefusedError
from gateway.sidecar.server import Sidecar
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


def test_no_variable_is_in_an_argv_that_everybody_can_read(exec_: Exec) -> None:
    given = {"LD_PRELOAD": "/repo/x.so", "GCONV_PATH": "/repo/conv", "MY_SECRET": "hidden"}
    request = ExecRequest(command="ls", env=given)
    for isolation in ("bwrap", "none"):
        spec = planner(changed(exec_, isolation=isolation)).spec("x", request, 99, "/")
        assert given.items() <= spec.env.items()
        words = " ".join((*spec.wrap, *spec.full_argv()))
        assert not [value for value in given.values() if value in words]


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
    Path(exec_.spill_dir).mkdir()
    repo = exec_.allowed_roots[0]
    apart = tmp_path / "keys"
    apart.mkdir()
    wrap = " ".join(planner(exec_, str(key), str(apart / "none-now")).wrap(repo))
    assert f"--bind {repo} {repo}" in wrap
    assert f"--tmpfs {exec_.spill_dir}" in wrap
    assert f"--ro-bind {os.devnull} {key}" in wrap
    assert f"--tmpfs {apart}" in wrap
    assert wrap.endswith(f"--chdir {repo} --")


def test_what_has_to_be_hidden_may_not_lie_where_commands_can_move_it(
    exec_: Exec, tmp_path: Path
) -> None:
    repo = exec_.allowed_roots[0]
    inside = f"{repo}/.config/key"
    boxed = changed(exec_, isolation="bwrap")
    assert planner(boxed, str(tmp_path / "key")).exposed() is None
    said = planner(boxed, str(tmp_path / "key"), inside).exposed()
    assert said == (
        f"A file with a key or token ({inside}) lies within {repo}, one of exec.allowed_roots, "
        "where a command can move it to where it is not hidden: move it elsewhere."
    )
    with pytest.raises(RefusedError):
        planner(boxed, inside).wrap(repo)
    assert planner(exec_, inside).exposed() is None
    spills = changed(boxed, spill_dir=f"{repo}/spill")
    assert str(planner(spills).exposed()).startswith("exec.spill_dir (")
    (tmp_path / "link").symlink_to(inside)
    assert planner(boxed, str(tmp_path / "link")).exposed() is not None


async def test_a_sidecar_that_would_not_hide_its_token_does_not_start(
    exec_: Exec, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = f"{exec_.allowed_roots[0]}/token"
    boxed = changed(exec_, isolation="bwrap")
    sidecar = Sidecar(boxed, ExecMetrics(), {}, [inside])
    # Whether there is a bubblewrap here or not.
    monkeypatch.setattr("gateway.sidecar.isolation.find_bwrap", lambda: "/usr/bin/bwrap")
    with pytest.raises(ConfigError) as refused:
        await sidecar.start()
    assert "lies within" in str(refused.value)
