"""What needs root or bubblewrap: other users, sandboxes, full disks, a look into foreign memory."""

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.sidecar import isolation, kernel
from gateway.sidecar.runner import Runner
from tests.app.test_exec_process import KEY, TOKEN, Served, text_of
from tests.sidecar.conftest import MakeSite
from tests.sidecar.support import (
    Bench,
    environ,
    eventually,
    exists,
    owner,
    running,
    spilled,
    succeeds,
    unique_sleep,
    within,
)
from tests.sidecar.test_endpoint import check_invariants
from tests.system.support import need

OUTSIDE = "/var/tmp/written-from-a-sandbox"  # noqa: S108 - never written, all could


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.fail("Other users and disks of one's own can be had by root alone.", pytrace=False)


@pytest.fixture
def bwrap() -> str:
    """Bubblewrap, that can make sandboxes here."""
    program = need("bwrap")
    trial = (*isolation.bwrap_argv(program, roots=(), cwd="/"), "/bin/sh", "-c", ":")
    assert succeeds(*trial), "no sandbox can be made here"
    return program


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user can reach and write to; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o777)
        yield place


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    yield made
    await made.close()


async def test_a_sandbox_writes_to_its_roots_alone_and_sees_no_other_process(
    runner: Runner, bench: Bench, bwrap: str
) -> None:
    root, spills = bench.directory / "root", bench.directory / "spills"
    root.mkdir()
    spills.mkdir()
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


async def test_a_sandbox_ends_softly_first_and_wholly_then(
    runner: Runner, bench: Bench, bwrap: str
) -> None:
    naps = [unique_sleep() for _ in range(2)]
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


@pytest.mark.usefixtures("bwrap")
async def test_a_sandbox_hides_keys_outputs_and_other_processes(
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
    assert (got.detail["survivors"], len(running(nap))) == (1, 1)
    await site.ask("DELETE", f"/{got.id}")
    assert await eventually(lambda: not running(nap))
    loaded = await site.run("echo $LD_PRELOAD", env={"LD_PRELOAD": "/no/such.so"})
    assert loaded.text.splitlines()[-1] == "/no/such.so"
    # Every program that loads it complains; bwrap, which is outside, is none of them.
    assert loaded.text.count("cannot be preloaded") == 1
    assert (await site.run("ls /run; touch /run/x && ls /run")).text == "x\n"
    missing = await site.run("no-such-program")
    assert missing.json["exit_code"] == 127
    missing = await site.ask("POST", json={"argv": ["no-such-program"]})
    assert (missing.status, missing.json["spawn_error"]["name"]) == (422, "ENOENT")


@pytest.mark.usefixtures("bwrap")
async def test_a_key_that_is_renewed_while_a_command_runs_stays_hidden(
    make_site: MakeSite, open_place: Path
) -> None:
    key = open_place / "key"
    key.write_text("the-old-key")
    site = await make_site(isolation="bwrap", allow_root=False)
    site.sidecar.hide([str(key)])
    go = site.repo / "go"
    asked = asyncio.ensure_future(
        site.run(f"touch ready; until [ -e {go} ]; do sleep 0.02; done; cat {key}; echo done")
    )
    assert await eventually((site.repo / "ready").exists)
    (open_place / "new").write_text("the-new-key")
    (open_place / "new").rename(key)
    go.touch()
    got = await asked
    assert got.text.endswith("done\n")
    assert "-key" not in got.text.replace(str(key), "")
    key.unlink()
    assert (await site.run("true")).status == 200
    site.sidecar.hide([str(open_place / "none/key")])
    refused = await site.run("true")
    assert (refused.status, "is not there" in refused.json["error"]["message"]) == (503, True)


async def test_another_user_can_open_its_own_output_by_name(
    make_site: MakeSite, open_place: Path
) -> None:
    site = await make_site(
        isolation="uid", run_as="nobody", allow_root=False, allowed_roots=(str(open_place),)
    )
    got = await site.run(
        "echo err > /dev/stderr; echo x | tee /dev/stderr; cat /dev/stdin", stdin="in\n"
    )
    assert (got.text, got.json["complete"]) == ("err\nx\nx\nin\n", True)


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


async def test_another_user_and_no_groups(runner: Runner, bench: Bench) -> None:
    bench.directory.chmod(0o711)
    command = await runner.spawn(
        bench.spec("id -u; id -g; id -G; echo x > /root/x", run_as=(65534, 65533))
    )
    status = await within(5, command.ended())
    assert command.head.startswith(b"65534\n65533\n65533\n")
    assert status.exit_code != 0
    assert owner(command.spill_path) == 0


async def test_a_directory_that_the_user_may_not_enter(runner: Runner, bench: Bench) -> None:
    closed = bench.directory / "closed"
    closed.mkdir(mode=0o700)
    command = await runner.spawn(bench.spec("pwd", cwd=str(closed), run_as=(65534, 65534)))
    status = await within(5, command.ended())
    assert status.spawn_error is not None
    assert (status.spawn_error.stage, status.spawn_error.name) == ("cwd", "EACCES")


async def test_a_full_file_system_is_named(runner: Runner, bench: Bench) -> None:
    small = bench.directory / "small"
    small.mkdir()
    assert succeeds("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)), (
        "nothing can be mounted here"
    )
    try:
        spec = bench.spec(
            "head -c 5000000 /dev/zero | tr '\\0' y; echo END", directory=str(small / "x")
        )
        command = await runner.spawn(spec)
        status = await within(10, command.ended())
        assert (status.exit_code, status.output.spill.error) == (0, "ENOSPC")
        assert status.output.bytes == 5_000_004
        assert not status.output.complete
        assert status.output.spill.bytes == len(spilled(command)) < 1 << 20
        assert command.tail.endswith(b"yyyEND\n")
        await within(5, command.closed())
    finally:
        assert succeeds("umount", "--lazy", str(small))


async def test_a_full_disk_is_told_and_never_blocks_or_fails_the_command(
    tmp_path: Path, make_site: MakeSite
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir(mode=0o700)
    assert succeeds("mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", str(spill)), (
        "nothing can be mounted here"
    )
    try:
        site = await make_site()
        got = await site.run("head -c 5000000 /dev/zero | tr '\\0' y; echo END; exit 3")
        assert (got.status, got.json["exit_code"], got.json["complete"]) == (200, 3, False)
        output = got.detail["output"]
        assert (output["bytes"], output["spill"]["error"]) == (5_000_004, "ENOSPC")
        assert output["tail"].endswith("yyyEND\n")
        assert "disk is full" in got.text
        assert 0 < output["spill"]["bytes"] < 1 << 20
        assert (await site.output(got.id)).body == b"y" * output["spill"]["bytes"]
        check_invariants(got, site)
        assert (await site.ask("GET", f"/{got.id}")).json == got.json
        assert site.number("gateway_exec_spill_write_errors_total", "ENOSPC") == 1
        assert site.number("gateway_exec_incomplete_total", "write_error") == 1
        refused = await site.run(f"touch {site.repo}/ran")
        assert refused.status in (422, 503)
        assert not (site.repo / "ran").exists()
        assert (await site.ask("DELETE", f"/{got.id}")).status == 204
        assert (await site.run("echo room")).json["complete"] is True
        await site.close()
    finally:
        assert succeeds("umount", "-l", str(spill))


async def test_no_process_that_runs_commands_holds_a_key(served: Served) -> None:
    await served.start()
    got = await served.command("sleep 30", background=True)
    ours = [found.pid for found in kernel.descendants(served.process.pid)]
    ours = [pid for pid in ours if "zygote.py" in text_of(pid, "cmdline")]
    assert len(ours) == 2, "the zygote and a shim"
    assert KEY.encode() in memory(served.process.pid), "the control: it is looked for rightly"
    for pid in ours:
        assert KEY.encode() not in environ(pid)
        assert KEY.encode() not in memory(pid)
        assert TOKEN.encode() not in memory(pid)
    await served.ask("POST", f"/{got['id']}/kill", json={"signal": "KILL"})


def memory(pid: int) -> bytes:
    """All that a process has written to its memory."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", 0) as file:
        for line in text_of(pid, "maps").splitlines():
            if re.match(r"\S+ rw", line) and "[v" not in line:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                file.seek(start)
                with contextlib.suppress(OSError):
                    found.append(file.read(end - start))
    return b"".join(found)
