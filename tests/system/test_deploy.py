"""The files in deploy/ are accepted by the programs that read them, and fit the gateway."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from gateway.observe.exec_metrics import EXEC_FAMILIES
from tests.system.support import CHAT, ROOT, Server, ask, chat, get, need

if TYPE_CHECKING:
    from pathlib import Path

DEPLOY = ROOT / "deploy"


def said(*command: str, given: bytes = b"") -> str:
    """Run a program; what it printed. It has to succeed."""
    done = subprocess.run(
        command, input=given, capture_output=True, timeout=30, cwd=DEPLOY, check=False
    )
    out = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, out
    return out


def test_prometheus_takes_the_scrape_config_and_the_rules() -> None:
    promtool = need("promtool")
    said(promtool, "check", "config", "prometheus.yml")
    assert "5 rules found" in said(promtool, "check", "rules", "rules.yml")


def test_prometheus_takes_the_metrics_without_a_complaint(gateway: Server) -> None:
    for model in ("sim-ok", "sim-bare-eof,after=2", "sim-status-503"):
        ask(gateway, f"/up{CHAT}", chat(model))
    metrics = get(gateway, "/metrics").body
    assert said(need("promtool"), "check", "metrics", given=metrics) == ""


def test_each_metric_that_a_rule_names_exists(gateway: Server) -> None:
    named = set(re.findall(r"\bgateway_\w+", (DEPLOY / "rules.yml").read_text()))
    ask(gateway, f"/up{CHAT}", chat("sim-bare-eof,after=2"))
    metrics = get(gateway, "/metrics").body.decode()
    known = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    known |= {f"{name}_total" for name in known}
    # Those of the sidecar are there only where it is enabled.
    known |= {family.name for family in EXEC_FAMILIES}
    assert len(named) >= 4
    assert named <= known


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = need("systemd-analyze")
    program = "/opt/gateway/bin/gateway"
    text = (DEPLOY / "gateway.service").read_text()
    assert text.count(program) == 1
    unit = tmp_path / "gateway.service"
    # The program itself need not be installed here.
    unit.write_text(text.replace(program, need("true")))
    assert said(analyze, "verify", str(unit)) == ""


def test_systemd_waits_longer_than_streams_may_take_to_drain() -> None:
    from gateway.config.model import Server as ServerSettings

    text = (DEPLOY / "gateway.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > ServerSettings().drain_timeout
