"""Measures the sidecar beside the shell, interleaved in one run; prints medians and ratios.

    python -m bench.exec [--quick] [--json FILE] [--check] [--only drain memory relay]

Every output is compared with what was to be printed, so a sidecar that is fast and loses something
ends the run. Exit codes: 0 measured, 1 a wrong output or (with --check) a missed target, 2
something is missing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rig import Rig, RigError, Target, WrongAnswerError, cpu_ns, family, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "t" * 40
CHAT = "/v1/chat/completions"
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """A command that prints so many bytes; ``seq`` and a pipe cost most of the time themselves."""

    name: str
    what: str
    command: str
    size: int


def zeros(blocks: int, block: int = 65_536) -> Load:
    """The cheapest way to print: whatever is not ``dd`` has more to do for each byte."""
    size = blocks * block
    command = f"dd if=/dev/zero bs={block} count={blocks} status=none"
    return Load(
        "zeros", f"dd, {size / 1e6:,.0f} MB in writes of {block // 1024} KiB", command, size
    )


def loads(scale: float) -> list[Load]:
    """What the drain is measured with."""
    lines = int(40_000_000 * scale)
    size = sum((10**n - 10 ** (n - 1)) * (n + 1) for n in range(1, len(str(lines))))
    size += (lines + 1 - 10 ** (len(str(lines)) - 1)) * (len(str(lines)) + 1)
    head = int(800e6 * scale)
    return [
        zeros(int(16_000 * scale)),
        Load("seq", f"seq, {size / 1e6:,.0f} MB in writes of 4 KiB", f"seq 1 {lines}", size),
        Load("pipe", f"yes | head, {head / 1e6:,.0f} MB", f"yes | head -c {head}", head),
    ]


@dataclass(frozen=True)
class Goal:
    """What has been promised: a figure that must not be above ``limit``, or not below it."""

    figure: str
    limit: float
    text: str
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Whether a value keeps the promise."""
        return value >= self.limit if self.at_least else value <= self.limit


GOALS = (
    Goal("zeros_over_cat", 0.85, "of the throughput of `| cat > file`, dd", at_least=True),
    Goal("seq_throughput", 0.85, "of the throughput of `> file`, seq", at_least=True),
    Goal("pipe_throughput", 0.85, "of the throughput of `> file`, yes | head", at_least=True),
    Goal("zeros_cpu_over_cat", 2.0, "times the CPU of `| cat > file`, dd"),
    Goal("seq_cpu", 2.0, "times the CPU of `> file`, seq"),
    Goal("pipe_cpu", 2.0, "times the CPU of `> file`, yes | head"),
    Goal("memory_shim_mib", 32.0, "MiB at most in a shim during 5 GiB"),
    Goal("memory_gateway_grown_mib", 8.0, "MiB more in the gateway after 5 GiB"),
    Goal("relay_p50", 1.5, "times the latency (median) of an event beside the same in the shell"),
    Goal("relay_p99", 1.5, "times the latency (p99) of an event beside the same in the shell"),
)


@dataclass(frozen=True)
class Used:
    """Seconds on the clock and of CPU, until the output was there; not of its removal."""

    seconds: float
    cpu: float


class Sidecar:
    """The endpoint of a gateway that a rig has started."""

    def __init__(self, rig: Rig, target: Target, port: int, directory: Path) -> None:
        self._rig = rig
        self.pid = target.pid
        self.target = target
        self._port = port
        self.directory = directory

    @classmethod
    def start(cls, rig: Rig) -> Sidecar:
        """A gateway with everything on and a sidecar, as they are installed."""
        port, directory = free_port(), rig.directory
        (directory / "token").write_text(TOKEN)
        (directory / "repo").mkdir(exist_ok=True)
        table = {
            "enabled": True,
            "listen": f"127.0.0.1:{port}",
            "token": f"file:{directory}/token",
            "allowed_roots": [str(directory / "repo")],
            "spill_dir": str(directory / "spill"),
            "allow_root": os.geteuid() == 0,
            "max_output": "8GiB",
            "retention_bytes": "64GiB",
        }
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
        return cls(rig, rig.gateway(f"[exec]\n{lines}\n"), port, directory)

    def ask(self, method: str, path: str = "", body: object = None) -> dict[str, Any]:
        """One request. Raises RigError where it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"/v1/exec{path}", sent, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status not in (200, 204):
                raise RigError(f"the sidecar answered {response.status}: {answer[:300]!r}")
            told: dict[str, Any] = json.loads(answer) if answer else {}
            return told
        finally:
            connection.close()

    def run(self, command: str, size: int, *, alone: bool = False) -> Used:
        """Run a command, look at its output, remove it. Raises WrongAnswerError.

        CPU time is of use only where no other command runs: say ``alone`` then.
        """
        body = {"command": command, "timeout_ms": 280_000, "max_output_bytes": 8 << 30}
        cpu, began = self.cpu_seconds(), time.monotonic()
        told = self.ask("POST", body=body)
        seconds = time.monotonic() - began
        # What a shim has used is known when it has been reaped, which is after its last word.
        while alone and _children(self.zygote()):
            time.sleep(0.002)
        used = Used(seconds, self.cpu_seconds() - cpu)
        on_disk = Path(told["spill"]["path"]).stat().st_size
        if not (told["complete"] and told["exit_code"] == 0 and on_disk == size):
            raise WrongAnswerError(f"{command}: {on_disk} of {size} bytes, {told['text'][:200]!r}")
        self.ask("DELETE", f"/{told['id']}")
        return used

    def zygote(self) -> int:
        """The process whose children are the shims."""
        children = [pid for pid in family(self.pid) if b"zygote.py" in _read(pid, "cmdline")]
        if not children:
            raise RigError("the sidecar has no zygote: it runs on Linux only.")
        return children[0]

    def cpu_seconds(self) -> float:
        """CPU time of the gateway and of every command and shim that has ended."""
        fields = _read(self.zygote(), "stat").rpartition(b")")[2].split()
        own_and_reaped = sum(int(field) for field in fields[11:15])
        return cpu_ns([self.pid]) / 1e9 + own_and_reaped / TICKS


class Shell:
    """The same commands without a sidecar: their output goes to a file, or by ``cat`` to it.

    The first has no pipe at all; the second is the least that a drain of any kind can do.
    """

    def __init__(self, directory: Path, by: str = "") -> None:
        self._directory = directory
        self._by = by

    def run(self, command: str, size: int, *, alone: bool = False) -> Used:
        """Run a command, look at its output, remove it. Raises WrongAnswerError."""
        del alone
        path = self._directory / f"plain-{threading.get_ident()}"
        argv = ["bash", "--noprofile", "--norc", "-c", f"( {command} ) {self._by} > {path}"]
        cpu, began = self.cpu_seconds(), time.monotonic()
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        used = Used(time.monotonic() - began, self.cpu_seconds() - cpu)
        if path.stat().st_size != size:
            raise WrongAnswerError(f"{command}: {path.stat().st_size} of {size} bytes")
        path.unlink()
        return used

    @staticmethod
    def cpu_seconds() -> float:
        """CPU time of every command that has ended."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


# --- Draining ------------------------------------------------------------------------------------


def measure_drain(
    runs: dict[str, Shell | Sidecar], load: Load, reps: int
) -> dict[str, dict[str, float]]:
    """Medians of each, which take turns; ratios are of runs right beside one another."""
    rows: dict[str, list[Used]] = {name: [] for name in runs}
    for rep in range(reps + 1):
        for name in list(runs) if rep % 2 == 0 else list(runs)[::-1]:
            used = runs[name].run(load.command, load.size, alone=True)
            # The first of each warms up.
            if rep:
                rows[name].append(used)
    found = {}
    for name, each in rows.items():
        pairs = list(zip(each, rows["shell"], strict=True))
        found[name] = {
            "mb_s": load.size / 1e6 / statistics.median(used.seconds for used in each),
            "throughput": statistics.median(shell.seconds / own.seconds for own, shell in pairs),
            "cpu_s_gb": statistics.median(used.cpu for used in each) / load.size * 1e9,
            "cpu": statistics.median(own.cpu / shell.cpu for own, shell in pairs),
            "noise": max(used.seconds for used in each) / min(used.seconds for used in each),
        }
    return found


def print_drain(load: Load, found: dict[str, dict[str, float]]) -> None:
    """Three lines of the table."""
    for name, what in (("shell", load.what), ("cat", "  | cat > file"), ("exec", "  sidecar")):
        row = found[name]
        print(
            f"{what:36s} {row['mb_s']:7.0f} {row['throughput']:7.2f}"
            f" {row['cpu_s_gb']:9.2f} {row['cpu']:7.2f} {row['noise']:9.2f}",
            flush=True,
        )


# --- Memory --------------------------------------------------------------------------------------


def peak_kib(pid: int) -> int:
    """The largest resident size that a process has had; 0 for none."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1])
    return 0


def measure_memory(sidecar: Sidecar, gib: int) -> dict[str, float]:
    """Peaks of gateway and shim during one output, over what a short one takes."""
    small, large = zeros(1024, MIB // 16), zeros(gib * 1024, MIB)
    if shutil.disk_usage(sidecar.directory).free < 2 * large.size:
        raise RigError(f"{sidecar.directory} has no room for {gib} GiB: set TMPDIR.")
    zygote = sidecar.zygote()
    peaks: dict[str, dict[int, int]] = {}
    for name, load in (("small", small), ("large", large)):
        seen = peaks[name] = {}
        over = threading.Event()

        def watch(seen: dict[int, int] = seen, over: threading.Event = over) -> None:
            while not over.wait(0.005):
                for pid in _children(zygote):
                    seen[pid] = max(seen.get(pid, 0), peak_kib(pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            sidecar.run(load.command, load.size)
        finally:
            over.set()
            watching.join()
        peaks[f"gateway_{name}"] = {0: peak_kib(sidecar.pid)}
    return {
        "gib": gib,
        "shim_small_mib": max(peaks["small"].values(), default=0) / 1024,
        "shim_mib": max(peaks["large"].values()) / 1024,
        "gateway_mib": peaks["gateway_large"][0] / 1024,
        "gateway_grown_mib": (peaks["gateway_large"][0] - peaks["gateway_small"][0]) / 1024,
    }


def _children(pid: int) -> list[int]:
    return [int(child) for child in _read(pid, f"task/{pid}/children").split()]


# --- The relay beside it -------------------------------------------------------------------------


@contextmanager
def beside(run: Callable[..., Used] | None, count: int, load: Load) -> Iterator[list[int]]:
    """Run ``count`` commands at once, again and again; what is given counts those that ended."""
    over = threading.Event()
    ended: list[int] = [0]

    def again() -> None:
        assert run is not None
        while not over.is_set():
            run(load.command, load.size)
            ended[0] += 1

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(again) for _ in range(count if run else 0)]
        try:
            yield ended
        finally:
            over.set()
            for each in running:
                each.result()


def measure_relay(rig: Rig, sidecar: Sidecar, shell: Shell, reps: int) -> dict[str, float]:
    """Latency of events that pass while nothing, the shell or the sidecar writes four outputs."""
    load = zeros(4578)
    kinds: dict[str, Callable[..., Used] | None] = {
        "idle": None,
        "shell": shell.run,
        "exec": sidecar.run,
    }
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    ended = dict.fromkeys(kinds, 0)
    arguments = ["-c", "1", "-r", "2", "-m", "bench-n500-i2000"]
    for rep in range(reps):
        for name in list(kinds) if rep % 2 == 0 else list(kinds)[::-1]:
            with beside(kinds[name], 4, load) as count:
                time.sleep(0.2)
                p50, p99 = rig.ask(sidecar.target, CHAT, arguments)["event_us"]
                rows[name].append((p50, p99))
            ended[name] += count[0]
    found: dict[str, float] = {}
    for name, figures in rows.items():
        found[f"{name}_p50_us"] = statistics.median(row[0] for row in figures)
        found[f"{name}_p99_us"] = statistics.median(row[1] for row in figures)
        found[f"{name}_outputs"] = ended[name]
    for part, which in ((0, "p50"), (1, "p99")):
        trios = list(zip(rows["idle"], rows["shell"], rows["exec"], strict=True))
        found[which] = statistics.median(row[2][part] / row[1][part] for row in trios)
        found[f"{which}_over_idle"] = statistics.median(
            row[2][part] / row[0][part] for row in trios
        )
    return found


def print_relay(found: dict[str, float]) -> None:
    """A line for each kind of load."""
    for name, what in (
        ("idle", "nothing beside it"),
        ("shell", "4 x 300 MB, cmd > file"),
        ("exec", "4 x 300 MB, sidecar"),
    ):
        print(
            f"  {what:24s} p50 {found[f'{name}_p50_us']:7.0f} us   p99"
            f" {found[f'{name}_p99_us']:7.0f} us   {found[f'{name}_outputs']:4.0f} outputs"
        )
    print(
        f"  sidecar / shell: p50 {found['p50']:.2f}, p99 {found['p99']:.2f};"
        f" sidecar / nothing: p50 {found['p50_over_idle']:.2f},"
        f" p99 {found['p99_over_idle']:.2f}",
        flush=True,
    )


# --- All of it -----------------------------------------------------------------------------------


def print_goals(figures: dict[str, float]) -> bool:
    """Say which targets are met; return whether all that were measured are."""
    print("\ntargets of this version")
    met = True
    for goal in GOALS:
        value = figures.get(goal.figure)
        bound = f"{'at least' if goal.at_least else 'at most'} {goal.limit:g}"
        if value is None:
            print(f"  not measured  {goal.text}: {bound}")
            continue
        good = goal.met(value)
        met = met and good
        print(f"  {'met' if good else 'MISSED':12s}  {goal.text}: {value:.2f}, {bound}")
    return met


def run(rig: Rig, options: argparse.Namespace) -> dict[str, float]:
    """Do all that was asked for; every figure under its name."""
    reps, scale = (3, 0.4) if options.quick else (9, 1.0)
    wanted = options.only or ["drain", "memory", "relay"]
    sidecar, shell = Sidecar.start(rig), Shell(rig.directory)
    figures: dict[str, float] = {}

    def keep(prefix: str, found: dict[str, float]) -> None:
        figures.update({f"{prefix}_{name}": value for name, value in found.items()})

    if "drain" in wanted:
        print(f"{'':36s} {'MB/s':>7s} {'ratio':>7s} {'CPU s/GB':>9s} {'ratio':>7s}  max / min")
        runs: dict[str, Shell | Sidecar] = {
            "shell": shell,
            "cat": Shell(rig.directory, "| cat"),
            "exec": sidecar,
        }
        for load in loads(scale):
            drained = measure_drain(runs, load, reps)
            print_drain(load, drained)
            keep(load.name, drained["exec"])
            keep(f"{load.name}_cat", drained["cat"])
            over = drained["exec"]["mb_s"] / drained["cat"]["mb_s"]
            figures[f"{load.name}_over_cat"] = over
            over = drained["exec"]["cpu_s_gb"] / drained["cat"]["cpu_s_gb"]
            figures[f"{load.name}_cpu_over_cat"] = over
    if "memory" in wanted:
        found = measure_memory(sidecar, 1 if options.quick else 5)
        print(
            f"\n{found['gib']:.0f} GiB of output: shim at most {found['shim_mib']:.1f} MiB"
            f" ({found['shim_small_mib']:.1f} during 64 MiB), gateway at most"
            f" {found['gateway_mib']:.1f} MiB ({found['gateway_grown_mib']:+.1f})",
            flush=True,
        )
        keep("memory", found)
    if "relay" in wanted:
        print("\nlatency of an event through the relay, one stream at 2 ms")
        found = measure_relay(rig, sidecar, shell, 3 if options.quick else 9)
        print_relay(found)
        keep("relay", found)
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description="the sidecar's cost beside the shell's")
    parser.add_argument("--quick", action="store_true", help="about half a minute")
    parser.add_argument("--only", nargs="+", choices=["drain", "memory", "relay"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store all figures")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gateway-bench-") as directory,
            Rig(Path(directory), pinned=False) as rig,
        ):
            figures = run(rig, options)
    except RigError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1 if isinstance(error, WrongAnswerError) else 2
    met = print_goals(figures)
    print(f"\n{time.monotonic() - started:.0f} s")
    if options.json:
        machine = {"python": platform.python_version(), "kernel": platform.release()}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"figures": figures, "machine": machine}, indent=1))
    return 1 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
