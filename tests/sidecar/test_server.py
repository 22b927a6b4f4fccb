"""The sidecar as a whole: what it refuses to start with, what isolation hides, and a clean stop."""

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.observe.exec_metrics import ExecMetrics
from gateway.sidecar.fallback import ThreadRunner
from gateway.sidecar.runner import SidecarError
from gateway.sidecar.server import Sidecar
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import changed, events, settings
from tests.sidecar.support import running, unique_sleep
from tests.sidecar.test_endpoint import check_invariants


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


async def test_where_there_is_no_linux_the_contract_is_the_same(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sidecar.server.make_runner", ThreadRunner)
    site = await make_site()
    got = await site.run("seq 1 50000")
    assert (got.json["complete"], got.json["spill"]["bytes"]) == (True, 288_894)
    assert got.detail["containment"] == "process_group"
    check_invariants(got, site)
    nap = unique_sleep()
    late = await site.run(f"echo x; {nap} & {nap}", timeout_ms=300)
    assert (late.json["timed_out"], late.json["exit_code"]) == (True, None)
    assert not running(nap)
    failed = await site.ask("POST", json={"argv": ["/no/such/program"]})
    assert (failed.status, failed.json["spawn_error"]["errno"]) == (422, 2)
    stream = await site.run("echo a; echo b", headers={"Accept": "text/event-stream"})
    assert [event.name for event in events(stream.body)][-1] == "end"


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
