"""What a sandbox is made of, what is missing for one, and that it holds where it can be had."""

import subprocess
import sys
from typing import Any

import pytest

from gateway.sidecar import isolation
from gateway.sidecar.runner import Runner
from tests.sidecar.support import Bench, eventually, exists, running, unique_sleep, within

OUTSIDE = "/var/tmp/written-from-a-sandbox"  # noqa: S108 - never written, all could
HERE: dict[str, Any] = {"platform": "linux", "root": True, "run_as": (1, 1), "bwrap": "/bin/bwrap"}


def works() -> bool:
    """Whether a sandbox can be made on this machine."""
    bwrap = isolation.find_bwrap()
    if bwrap is None or sys.platform != "linux":
        return False
    return (
        subprocess.run(
            isolation.trial(bwrap), capture_output=True, check=False, timeout=20
        ).returncode
        == 0
    )


sandboxed = pytest.mark.skipif(not works(), reason="bwrap is not there, or may not work here")


@pytest.mark.parametrize(
    ("level", "changed", "word"),
    [
        ("none", {"platform": "darwin", "root": False, "run_as": None, "bwrap": None}, None),
        ("uid", {}, None),
        ("uid", {"run_as": None}, "needs a user"),
        ("uid", {"root": False}, "runs as root"),
        ("bwrap", {}, None),
        ("bwrap", {"bwrap": None}, "apt install bubblewrap"),
        ("bwrap", {"platform": "darwin"}, "Linux only"),
    ],
)
def test_what_is_missing_is_one_sentence_with_the_mend(
    level: isolation.Level, changed: dict[str, Any], word: str | None
) -> None:
    said = isolation.missing(level, **(HERE | changed))
    assert (said is None) == (word is None)
    if said is not None and word is not None:
        assert word in said
        assert said.endswith(".")


def test_what_lies_deeper_is_mounted_later() -> None:
    argv = isolation.bwrap_argv(
        "/usr/bin/bwrap",
        roots=["/srv/a/open", "/tmp/work"],  # noqa: S108 - named, not used
        cwd="/srv/a/open",
        hidden=["/srv/a", "/srv/a/open/secret"],
        network=False,
    )
    places = [argv.index(path) for path in ("/srv/a", "/srv/a/open", "/srv/a/open/secret")]
    assert places == sorted(places)
    assert argv.index("/tmp") < argv.index("/tmp/work")  # noqa: S108 - named, not used
    assert argv[-3:] == ("--chdir", "/srv/a/open", "--")
    assert "--unshare-net" in argv
    assert "--unshare-net" not in isolation.bwrap_argv("bwrap", roots=[], cwd="/")


def test_a_directory_is_not_writable_and_hidden_at_once() -> None:
    with pytest.raises(ValueError, match="/a cannot be writable and hidden"):
        isolation.bwrap_argv("bwrap", roots=["/a"], cwd="/a", hidden=["/a"])


@sandboxed
async def test_a_sandbox_writes_to_its_roots_alone_and_sees_no_other_process(
    runner: Runner, bench: Bench
) -> None:
    root, spills = bench.directory / "root", bench.directory / "spills"
    root.mkdir()
    spills.mkdir()
    bwrap = isolation.find_bwrap()
    assert bwrap is not None
    wrap = isolation.bwrap_argv(bwrap, roots=[str(root)], cwd=str(root), hidden=[str(spills)])
    script = (
        f"pwd; echo in > inside; echo out > {OUTSIDE} && echo wrote; ls {spills}; "
        "ls -d /proc/[0-9]* | wc -l; grep CapEff /proc/self/status; exit 9"
    )
    spec = bench.spec(script, cwd=str(root), wrap=wrap, directory=str(spills / "x"))
    command = await runner.spawn(spec)
    status = await within(10, command.ended())
    assert (status.exit_code, status.containment) == (9, "pidns")
    lines = command.head.splitlines()
    assert lines[0] == str(root).encode()
    assert b"Read-only file system" in lines[1]
    assert int(lines[2]) <= 5
    assert lines[3].split()[1] == b"0" * 16
    assert (root / "inside").read_text() == "in\n"
    assert not exists(OUTSIDE)


@sandboxed
async def test_a_sandbox_ends_softly_first_and_wholly_then(runner: Runner, bench: Bench) -> None:
    naps = [unique_sleep() for _ in range(2)]
    bwrap = isolation.find_bwrap()
    assert bwrap is not None
    script = f"trap 'echo bye; exit 5' TERM; setsid setsid {naps[0]} & {naps[1]} & echo on; wait"
    command = await runner.spawn(
        bench.spec(
            script,
            wrap=isolation.bwrap_argv(bwrap, roots=[], cwd="/"),
            timeout_ms=700,
            kill_grace_ms=5_000,
        )
    )
    assert await eventually(lambda: all(running(nap) for nap in naps), 3)
    status = await within(10, command.ended())
    assert (status.exit_code, status.timed_out) == (5, True)
    assert command.head == b"on\nbye\n"
    assert await eventually(lambda: not any(running(nap) for nap in naps))
