"""The sidecar as a whole: what it refuses to start with, what isolation hides, and a clean stop."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.observe.exec_metrics import ExecMetrics
from gateway.sidecar.runner import SidecarError
from gateway.sidecar.server import Sidecar
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import changed, settings
from tests.sidecar.support import exists, running, succeeds, unique_sleep

ROOT = os.geteuid() == 0
BWRAP = shutil.which("bwrap") is not None and succeeds(
    "bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"
)


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can reach and write to; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o777)
        yield place


@pytest.mark.skipif(not ROOT, reason="another user needs root")
async def test_another_user_reads_neither_keys_nor_the_outputs_of_others(
    make_site: MakeSite, open_place: Path
) -> None:
    site = await make_site(
        isolation="uid", run_as="nobody", allow_root=False, allowed_roots=(str(open_place),)
    )
    first = await site.run("echo secret")
    got = await site.run(
        f"id -un; echo x >mine; stat -c %U mine; cat {site.spill(first.id)};"
        f" head -c 1 /proc/{os.getpid()}/environ; kill -0 {os.getpid()}"
    )
    lines = got.text.splitlines()
    assert lines[:2] == ["nobody", "nobody"]
    assert "secret" not in got.text
    assert got.text.count("denied") + got.text.count("not permitted") == 3
    nap = unique_sleep()
    late = await site.run(f"setsid {nap} & {nap}", timeout_ms=300)
    assert late.json["timed_out"]
    assert not running(nap)


@pytest.mark.skipif(not BWRAP, reason="no bubblewrap that works here")
async def test_a_sandbox_writes_within_its_roots_and_sees_no_other_process(
    make_site: MakeSite, open_place: Path
) -> None:
    key = open_place / "key"
    key.write_text("the-key")
    nap = unique_sleep()
    site = await make_site(isolation="bwrap", allow_root=False)
    assert "the-key" in (await site.run(f"cat {key}")).text
    site.sidecar.hide([str(key)])
    first = await site.run("echo secret")
    got = await site.run(
        f"echo x >in; pwd; cat {key}; cat {site.spill(first.id)}; touch {open_place}/out;"
        f" ls -d /proc/[0-9]* | wc -l; setsid {nap} >/dev/null 2>&1 & sleep 0.1"
    )
    assert got.detail["containment"] == "pidns"
    assert (site.repo / "in").read_text() == "x\n"
    assert got.text.splitlines()[0] == str(site.repo)
    assert "the-key" not in got.text
    assert "secret" not in got.text
    assert not exists(f"{open_place}/out")
    assert int(got.text.split()[-1]) < 10
    assert not running(nap)
    missing = await site.run("no-such-program")
    assert missing.json["exit_code"] == 127


@pytest.mark.skipif(not BWRAP, reason="no bubblewrap that works here")
async def test_a_sandbox_that_cannot_be_made_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'no namespaces' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr("gateway.sidecar.isolation.find_bwrap", lambda: str(fake))
    exec_ = changed(settings(tmp_path), isolation="bwrap")
    with pytest.raises(ConfigError, match="no namespaces"):
        await Sidecar(exec_, ExecMetrics(), {}).start()


@pytest.mark.parametrize("which", ["folder", "listen"])
async def test_a_start_that_fails_leaves_nothing(which: str, tmp_path: Path) -> None:
    from gateway.sidecar import kernel

    exec_ = settings(tmp_path)
    if which == "folder":
        (tmp_path / "spill").mkdir()
        (tmp_path / "spill").chmod(0o755)
    else:
        exec_ = changed(exec_, listen=f"unix:{tmp_path}/none/none/sock")
    before = len(os.listdir("/proc/self/fd"))
    children = {found.pid for found in kernel.descendants(os.getpid())}
    sidecar = Sidecar(exec_, ExecMetrics(), {})
    with pytest.raises(ConfigError if which == "folder" else SidecarError):
        await sidecar.start()
    assert {found.pid for found in kernel.descendants(os.getpid())} == children
    assert len(os.listdir("/proc/self/fd")) <= before
