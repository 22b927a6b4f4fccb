"""The files in deploy/ are accepted by the programs that read them, and fit the gateway."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import aiohttp
import pytest

from gateway.observe.exec_metrics import EXEC_FAMILIES
from tests.app.test_exec_process import Served
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


@pytest.mark.parametrize("exec_", ["as it is", "with commands", "with commands in a sandbox"])
def test_systemd_takes_the_unit(exec_: str, tmp_path: Path) -> None:
    analyze = need("systemd-analyze")
    program = "/opt/gateway/bin/gateway"
    text = (DEPLOY / "gateway.service").read_text()
    assert text.count(program) == 1
    unit = tmp_path / "gateway.service"
    # Neither the program nor its user need be here.
    unit.write_text(text.replace(program, need("true")))
    if exec_ != "as it is":
        more = (DEPLOY / "exec.conf").read_text()
        if exec_ == "with commands in a sandbox":
            more = re.sub(r"^#(?=\w+=)", "", more, flags=re.MULTILINE)
        folder = tmp_path / "gateway.service.d"
        folder.mkdir()
        (folder / "exec.conf").write_text(more)
    assert said(analyze, "verify", str(unit)) == ""


async def test_prometheus_takes_the_metrics_of_commands(tmp_path: Path) -> None:
    served = Served(tmp_path)
    try:
        await served.start()
        told = await served.command("yes", max_output_bytes=1000)
        assert told["complete"] is False
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{served.address}/metrics") as response,
        ):
            metrics = await response.read()
    finally:
        await served.close()
    assert b'gateway_exec_incomplete_total{reason="client_limit"} 1.0' in metrics
    # Each reason is there before it has happened: what comes into being with 1 never increases.
    assert b'gateway_exec_incomplete_total{reason="write_error"} 0.0' in metrics
    assert said(need("promtool"), "check", "metrics", given=metrics) == ""


RULE_TEST = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: gateway_exec_incomplete_total{{instance="i", reason="write_error"}}
        values: 0x5 1x30
      - series: gateway_exec_incomplete_total{{instance="i", reason="output_limit"}}
        values: 0x35
      - series: gateway_exec_incomplete_total{{instance="i", reason="client_limit"}}
        values: 0x5 1x30
    alert_rule_test:
      - {{eval_time: 5m, alertname: OutputsAreIncomplete}}
      - eval_time: 8m
        alertname: OutputsAreIncomplete
        exp_alerts:
          - exp_labels: {{severity: warning, instance: i, reason: write_error}}
            exp_annotations:
              summary: "A command at i ended with an output that is not all there: write_error."
      - {{eval_time: 30m, alertname: OutputsAreIncomplete}}
"""


def test_one_incomplete_output_is_an_alert_that_ends(tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    file.write_text(RULE_TEST.format(rules=DEPLOY / "rules.yml"))
    assert "SUCCESS" in said(need("promtool"), "test", "rules", str(file))


def test_systemd_waits_longer_than_streams_may_take_to_drain() -> None:
    from gateway.config.model import Server as ServerSettings

    text = (DEPLOY / "gateway.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > ServerSettings().drain_timeout
