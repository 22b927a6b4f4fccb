"""The sidecar's numbers: every family on the page, from closed sets of labels."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import exec_metrics as names
from gateway.observe.exec_metrics import EXEC_FAMILIES, Ended, ExecMetrics, Gauges
from gateway.observe.export import SnapshotCollector
from gateway.observe.snapshot import FAMILIES

DOCUMENTED = {
    "requests_total", "running", "queued", "duration_seconds", "spawn_seconds",
    "output_bytes_total", "spill_bytes", "spill_write_errors_total", "incomplete_total",
    "output_open_total", "killed_processes_total", "survivors_total",
    "drain_after_exit_seconds", "shim_lost_total", "disk_free_bytes", "range_requests_total",
}  # fmt: skip


def end(**changed: Any) -> Ended:
    given: dict[str, Any] = {
        "outcome": "exit0",
        "incomplete": None,
        "write_error": None,
        "output_bytes": 0,
        "killed": 0,
        "kill_signal": "SIGTERM",
        "survivors": 0,
        "duration": None,
        "spawn": None,
        "drain": None,
    }
    return Ended(**(given | changed))


def page(metrics: ExecMetrics) -> str:
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(metrics.snapshot, EXEC_FAMILIES))
    return generate_latest(registry).decode()


def test_every_documented_metric_is_on_the_page_and_nowhere_else() -> None:
    assert {family.name for family in EXEC_FAMILIES} == {f"gateway_exec_{n}" for n in DOCUMENTED}
    assert not {family.name for family in EXEC_FAMILIES} & {family.name for family in FAMILIES}
    text = page(ExecMetrics())
    for name in DOCUMENTED:
        assert f"# TYPE gateway_exec_{name} " in text
    assert list(text_string_to_metric_families(text))


def test_the_first_incomplete_output_is_an_increase() -> None:
    """An alert compares with what was there before: a series must not begin with 1."""
    metrics = ExecMetrics()
    for reason in names.INCOMPLETE:
        assert f'gateway_exec_incomplete_total{{reason="{reason}"}} 0.0' in page(metrics)
    metrics.ended(end(outcome="interrupted", incomplete="interrupted"))
    assert 'gateway_exec_incomplete_total{reason="interrupted"} 1.0' in page(metrics)
    assert "gateway_exec_shim_lost_total 1.0" in page(metrics)


def test_what_is_not_known_makes_no_new_series() -> None:
    metrics = ExecMetrics()
    metrics.ended(
        end(outcome="x", incomplete="y", write_error="z", killed=2, kill_signal="rm -rf /")
    )
    text = page(metrics)
    assert "rm -rf" not in text
    assert 'gateway_exec_requests_total{outcome="other"} 1.0' in text
    assert 'gateway_exec_killed_processes_total{signal="other"} 2.0' in text
    assert 'gateway_exec_spill_write_errors_total{errno="other"} 1.0' in text


def test_an_end_is_counted_with_all_that_is_known_of_it() -> None:
    metrics = ExecMetrics()
    metrics.gauges = lambda: Gauges(1, 2, 3, 4)
    metrics.ended(
        end(outcome="timeout", output_bytes=10, killed=3, survivors=1, duration=0.5,
            incomplete="write_error", write_error="ENOSPC", spawn=0.01, drain=0.0)
    )  # fmt: skip
    metrics.rejected()
    metrics.output_open()
    metrics.range_request()
    text = page(metrics)
    for line in (
        'requests_total{outcome="timeout"} 1.0',
        'requests_total{outcome="rejected"} 1.0',
        "output_bytes_total 10.0",
        'killed_processes_total{signal="SIGTERM"} 3.0',
        "survivors_total 1.0",
        'spill_write_errors_total{errno="ENOSPC"} 1.0',
        'incomplete_total{reason="write_error"} 1.0',
        "duration_seconds_sum 0.5",
        "spawn_seconds_count 1.0",
        "drain_after_exit_seconds_count 1.0",
        "output_open_total 1.0",
        "range_requests_total 1.0",
        "running 1.0",
        "queued 2.0",
        "spill_bytes 3.0",
        "disk_free_bytes 4.0",
    ):
        assert f"gateway_exec_{line}\n" in text
