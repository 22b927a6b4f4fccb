"""Measures the gateway beside nginx, interleaved in one run; prints medians and ratios.

    python -m bench.run [--quick] [--json FILE] [--check] [--only NAME ...]

Every answer is checked byte for byte on the way, so a proxy that is fast and wrong ends the run.
Exit codes: 0 measured, 1 a wrong answer or (with --check) a missed target, 2 something is missing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rig import Rig, RigError, Target, WrongAnswerError, cpu_ns, family, resident_kib

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"


@dataclass(frozen=True)
class Scenario:
    """One kind of load; ``per`` is what CPU time is divided by: ``events`` or ``ok`` requests."""

    name: str
    what: str
    per: str
    connections: int
    requests: int
    model: str = "bench-n1-i0"
    path: str = CHAT
    prompt: int = 0
    stream: bool = True
    latency: str = ""
    """Which of the client's figures is this scenario's latency; measured without a proxy, too."""

    def arguments(self, scale: float) -> list[str]:
        """The client's options, with ``scale`` times the requests (at least one a connection)."""
        requests = max(self.connections, int(self.requests * scale))
        return [
            *("-c", str(self.connections), "-r", str(requests), "-m", self.model),
            *("-B", str(self.prompt), "-s", str(int(self.stream))),
        ]


SCENARIOS = (
    Scenario("paced", "event, 64 streams at 10 ms", "events", 64, 64, "bench-n150-i10000-j1"),
    Scenario(
        "paced_messages", "event, the same as Messages", "events", 64, 64,
        "bench-n150-i10000-j1-a1", MESSAGES,
    ),
    Scenario("many", "event, 500 streams at 50 ms", "events", 500, 500, "bench-n30-i50000-j1"),
    Scenario("burst", "event, flat out, one per write", "events", 8, 160, "bench-n500-i0"),
    Scenario("bulk", "event, flat out, 60 KB per write", "events", 4, 160, "bench-n1000-i0-c250"),
    Scenario("stream", "streamed request", "ok", 16, 1600),
    Scenario("json", "JSON request", "ok", 16, 1600, stream=False),
    Scenario("prompt", "request with a 200 KB prompt", "ok", 8, 400, prompt=200_000),
    Scenario(
        "alone", "event, one stream at 2 ms", "events", 1, 2, "bench-n250-i2000",
        latency="event_us",
    ),
    Scenario("first_byte", "streamed request, one at a time", "ok", 1, 400, latency="ttfb_us"),
)  # fmt: skip

IDLE_STREAMS = 5000
IDLE_SECONDS = 4.0


@dataclass(frozen=True)
class Goal:
    """What this version has promised: a figure that must not be above ``limit``."""

    figure: str
    limit: float
    text: str


GOALS = (
    Goal("paced_ratio", 2.6, "CPU per paced event, times nginx's"),
    Goal("idle_kib_per_stream", 30.0, f"KiB per idle stream at {IDLE_STREAMS:,}"),
    Goal("idle_cpu_percent", 0.5, f"% of a core while {IDLE_STREAMS:,} streams are idle"),
)


def measure_once(rig: Rig, target: Target, scenario: Scenario, scale: float) -> dict[str, float]:
    """One run of the client against one target; CPU is in microseconds."""
    pids = family(target.pid) if target.pid else []
    before = cpu_ns(pids)
    figures = rig.ask(target, scenario.path, scenario.arguments(scale))
    used = cpu_ns(pids) - before
    row = {
        "cpu_us": used / 1000 / figures[scenario.per],
        "events_per_read": figures["events"] / max(1, figures["reads"]),
        "per_second": figures[scenario.per] / figures["seconds"],
    }
    if scenario.latency:
        row["p50_us"], row["p99_us"] = figures[scenario.latency]
    return row


def measure(
    rig: Rig, targets: list[Target], scenario: Scenario, reps: int, scale: float
) -> dict[str, dict[str, float]]:
    """Medians per target; the targets take turns, in alternating order, so that noise hits all."""
    rows: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for rep in range(reps):
        for target in targets if rep % 2 == 0 else targets[::-1]:
            if target.pid or scenario.latency:
                rows[target.name].append(measure_once(rig, target, scenario, scale))
    return {
        name: {key: statistics.median(row[key] for row in found) for key in found[0]}
        for name, found in rows.items()
        if found
    }


def measure_idle(rig: Rig, target: Target, count: int) -> dict[str, float]:
    """Memory and CPU of ``count`` open streams that wait; the target must be freshly started."""
    rig.ask(target, CHAT, ["-c", "16", "-r", "64", "-m", "bench-n2-i0"])
    pids = family(target.pid)
    base = resident_kib(pids)
    with rig.idle_streams(target, CHAT, count):
        time.sleep(1.0)
        before, start = cpu_ns(pids), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (cpu_ns(pids) - before) / 1e9 / (time.monotonic() - start)
        held = resident_kib(pids)
    return {
        "base_mib": base / 1024,
        "kib_per_stream": (held - base) / count,
        "cpu_percent": 100 * share,
    }


# --- Saying it ----------------------------------------------------------------------------------


def print_scenario(scenario: Scenario, medians: dict[str, dict[str, float]]) -> None:
    """One line of the table."""
    nginx, gateway = medians["nginx"], medians["gateway"]
    line = (
        f"{scenario.what:34s} {nginx['cpu_us']:9.2f} {gateway['cpu_us']:9.2f}"
        f" {gateway['cpu_us'] / nginx['cpu_us']:7.2f}x"
    )
    if scenario.per == "events":
        line += (
            f"   events per read {nginx['events_per_read']:.1f} / {gateway['events_per_read']:.1f}"
        )
    if scenario.latency:
        added = (
            f"{name} {medians[name]['p50_us'] - medians['direct']['p50_us']:.0f}"
            f" (p99 {medians[name]['p99_us'] - medians['direct']['p99_us']:.0f})"
            for name in ("nginx", "gateway")
        )
        line += "   adds us: " + ", ".join(added)
    print(line, flush=True)


def summarise(results: dict[str, Any]) -> dict[str, float]:
    """The figures that goals and later comparisons name."""
    figures: dict[str, float] = {}
    for name, medians in results["scenarios"].items():
        figures[f"{name}_us"] = medians["gateway"]["cpu_us"]
        figures[f"{name}_ratio"] = medians["gateway"]["cpu_us"] / medians["nginx"]["cpu_us"]
        if "direct" in medians:
            figures[f"{name}_added_us"] = medians["gateway"]["p50_us"] - medians["direct"]["p50_us"]
    for name, value in results["idle"].get("gateway", {}).items():
        figures[f"idle_{name}"] = value
    return figures


def print_goals(figures: dict[str, float]) -> bool:
    """Say which goals are met; return whether all that were measured are."""
    print("\ntargets of this version")
    met = True
    for goal in GOALS:
        value = figures.get(goal.figure)
        if value is None:
            print(f"  not measured  {goal.text}: at most {goal.limit:g}")
            continue
        good = value <= goal.limit
        met = met and good
        print(
            f"  {'met' if good else 'MISSED':12s}  {goal.text}: {value:.2f}, at most {goal.limit:g}"
        )
    return met


def run(rig: Rig, options: argparse.Namespace) -> dict[str, Any]:
    """Do all that was asked for."""
    reps, scale = (3, 0.4) if options.quick else (7, 1.0)
    wanted = [item for item in SCENARIOS if not options.only or item.name in options.only]
    results: dict[str, Any] = {"scenarios": {}, "idle": {}}
    targets: list[Target] = []
    if wanted:
        targets = [rig.nginx(), rig.gateway(), rig.direct()]
        for target in targets:
            rig.ask(target, CHAT, ["-c", "8", "-r", "200", "-m", "bench-n20-i0-s40"])
        print(f"{'CPU in us per':34s} {'nginx':>9s} {'gateway':>9s} {'ratio':>8s}")
    for scenario in wanted:
        medians = measure(rig, targets, scenario, reps, scale)
        results["scenarios"][scenario.name] = medians
        print_scenario(scenario, medians)
    if not options.only or "idle" in options.only:
        print(f"\n{IDLE_STREAMS:,} idle streams, fresh process")
        for target in (rig.nginx(), rig.gateway()):
            found = results["idle"][target.name] = measure_idle(rig, target, IDLE_STREAMS)
            print(
                f"  {target.name:8s} {found['kib_per_stream']:6.1f} KiB per stream over"
                f" {found['base_mib']:.0f} MiB, {found['cpu_percent']:.2f} % CPU",
                flush=True,
            )
    return results


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, store."""
    names = [scenario.name for scenario in SCENARIOS] + ["idle"]
    parser = argparse.ArgumentParser(description="the gateway's cost beside nginx's")
    parser.add_argument(
        "--quick", action="store_true", help="about a minute instead of about three"
    )
    parser.add_argument("--only", nargs="+", choices=names, help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store all figures")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--python", default=sys.executable, help="the gateway's interpreter")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gateway-bench-") as directory,
            Rig(Path(directory), python=options.python) as rig,
        ):
            results = run(rig, options)
    except RigError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1 if isinstance(error, WrongAnswerError) else 2
    figures = results["figures"] = summarise(results)
    results["machine"] = {"python": platform.python_version(), "kernel": platform.release()}
    met = print_goals(figures)
    print(f"\n{time.monotonic() - started:.0f} s")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
