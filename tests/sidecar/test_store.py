"""What is kept for how long, and what the next gateway says of commands of the one before."""

import contextlib
import fcntl
import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from gateway.policy.exec_request import ExecError
from gateway.sidecar.folder import Folder, Meta, new_id
from gateway.sidecar.status import Output, Shim, Spill, State, Status
from gateway.sidecar.store import GRACE, Entry, Store, interrupted, shim_is_alive
from tests.clock import Clock
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import TOKENS, Site
from tests.sidecar.support import eventually, exists, running, unique_sleep
from tests.sidecar.test_endpoint import check_invariants


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Store:
    return Store(Folder(str(tmp_path / "spill")), retention=100, most=1000, now=clock)


def ended(store: Store, at: float, size: int = 10, key: str | None = None) -> Entry:
    """A command that has ended, on the disk too."""
    id_ = new_id()
    directory = Path(store.folder.directory(id_))
    directory.mkdir(mode=0o700)
    (directory / "output").write_bytes(b"x" * size)
    spill = Spill(path=store.folder.spill(id_), bytes=size)
    status = Status(
        id=id_,
        state=State.EXITED,
        exit_code=0,
        output=Output(complete=True, bytes=size, spill=spill),
    )
    entry = Entry(Meta(id=id_, owner="me", created_at=at, key=key), status)
    entry.ended_at = at
    store.add(entry)
    return entry


async def test_what_is_old_expires_and_is_remembered(store: Store, clock: Clock) -> None:
    old, young = ended(store, clock.now, key="k"), ended(store, clock.now + 50)
    clock.now += 99.9
    await store.sweep()
    assert store.find(old.id, "me") is old
    clock.now += 0.1
    await store.sweep()
    with pytest.raises(ExecError) as gone:
        store.find(old.id, "me")
    assert gone.value.status == 410
    with pytest.raises(ExecError) as strange:
        store.find(old.id, "another")
    assert strange.value.status == 404
    assert not exists(store.folder.directory(old.id))
    assert store.find(young.id, "me") is young
    assert store.of_key("me", "k", "") is None


async def test_too_much_goes_oldest_first_and_never_what_runs_or_is_read(
    store: Store, clock: Clock
) -> None:
    clock.now += 70
    runs = ended(store, clock.now - 69, 600)
    runs.ended_at = None
    runs.status = msgspec.structs.replace(runs.status, state=State.RUNNING)
    read = ended(store, clock.now - 68, 300)
    read.attached = 1
    entries = [ended(store, clock.now - 67 + number, 100) for number in range(4)]
    await store.sweep()
    kept = [entry.id for entry in store.entries]
    assert kept == [runs.id, read.id, entries[3].id]
    assert store.spill_bytes == 1000


async def test_what_has_just_ended_does_not_expire_for_its_size(store: Store, clock: Clock) -> None:
    large = ended(store, clock.now, 5000)
    await store.sweep()
    assert store.find(large.id, "me") is large
    clock.now += GRACE
    await store.sweep()
    assert store.entries == []


async def test_only_so_many_are_kept(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sidecar.store.KEPT", 2)
    entries = [ended(store, clock.now + number, 0) for number in range(4)]
    clock.now += 70
    await store.sweep()
    assert [entry.id for entry in store.entries] == [entry.id for entry in entries[2:]]


async def test_only_so_many_are_remembered(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sidecar.store.REMEMBERED", 2)
    gone = [ended(store, 0) for _ in range(3)]
    await store.sweep()
    statuses = []
    for entry in gone:
        with pytest.raises(ExecError) as error:
            store.find(entry.id, "me")
        statuses.append(error.value.status)
    assert statuses == [404, 410, 410]


def test_what_a_dead_shim_had_told_is_less_than_the_file() -> None:
    before = Status(id="x", started_at="then", output=Output(bytes=5, open=True, lines=1))
    after = interrupted(before, "x", 9, "/spill")
    assert (after.state, after.started_at) == (State.INTERRUPTED, "then")
    assert (after.output.bytes, after.output.spill.bytes, after.output.lines) == (9, 9, None)
    assert not after.output.complete
    assert not after.output.open


def test_a_number_that_another_process_has_is_no_shim() -> None:
    from gateway.sidecar import kernel

    own = kernel.process(os.getpid())
    assert own is not None
    mine = Status(id="x", shim=Shim(pid=own.pid, started=own.started))
    assert shim_is_alive(mine)
    assert not shim_is_alive(msgspec.structs.replace(mine, shim=Shim(pid=own.pid, started=1)))
    assert not shim_is_alive(Status(id="x"))
    assert not shim_is_alive(None)


# --- the gateway after this one ------------------------------------------------------------------


async def test_records_outlive_the_gateway(make_site: MakeSite) -> None:
    first = await make_site()
    key = {"Idempotency-Key": "k"}
    got = await first.run("seq 1 50000; echo x >>ran", headers=key)
    short = await first.run("printf '\\033[1mbold'", preview={"ansi": "keep"})
    await first.close()
    second = await make_site()
    again = await second.ask("GET", f"/{got.id}")
    assert _timeless(again.json) == _timeless(got.json)
    assert _timeless((await second.ask("GET", f"/{short.id}")).json) == _timeless(short.json)
    assert (await second.ask("GET", f"/{got.id}", owner=TOKENS[1])).status == 404
    assert (await second.run("seq 1 50000; echo x >>ran", headers=key)).id == got.id
    assert (await second.run("other", headers=key)).status == 409
    assert (second.repo / "ran").read_text() == "x\n"
    assert (await second.output(got.id)).body == second.spill(got.id).read_bytes()


def _timeless(told: dict[str, object]) -> str:
    detail = json.loads(json.dumps(told))
    detail["detail"]["output"]["spill"].pop("expires_at")
    return json.dumps(detail)


async def test_a_command_of_a_dead_gateway_is_interrupted_with_its_true_size(
    make_site: MakeSite,
) -> None:
    first = await make_site()
    got = await first.run("seq 1 50000; echo end")
    await first.close()
    saved = first.spill(got.id).with_name("status.json")
    told = json.loads(saved.read_bytes())
    told |= {"state": "running", "exit_code": None, "shim": {"pid": 2**22 - 1, "started": 1}}
    told["output"] |= {"complete": False, "open": True, "bytes": 17}
    told["output"]["spill"]["bytes"] = 17
    saved.write_text(json.dumps(told))
    second = await make_site()
    again = await second.ask("GET", f"/{got.id}")
    assert (again.detail["state"], again.json["complete"]) == ("interrupted", False)
    assert again.json["spill"]["bytes"] == 288_898
    assert again.json["exit_code"] is None
    check_invariants(again, second)
    assert json.loads(saved.read_bytes())["state"] == "interrupted"


async def test_an_output_that_was_changed_is_not_called_complete(make_site: MakeSite) -> None:
    first = await make_site()
    got = await first.run("echo 123456")
    await first.close()
    with first.spill(got.id).open("ab") as file:
        file.write(b"more")
    second = await make_site()
    again = await second.ask("GET", f"/{got.id}")
    assert (again.json["complete"], again.detail["output"]["spill"]["error"]) == (False, "EIO")
    check_invariants(again, second)


async def test_a_shim_that_outlives_its_gateway_is_waited_for(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: the command gets SIGTERM, and may take its grace to end."""
    first = await make_site()
    nap = unique_sleep()
    script = f"trap 'sleep 0.4; echo told; exit 5' TERM; echo begun; {nap} & wait"
    got = await first.run(script, background=True, kill_grace_ms=5000)
    assert await eventually(lambda: bool(running(nap)))
    [entry] = first.service.store.entries
    # Breaking the connection is what the shim sees of a gateway that dies; which then says nothing.
    monkeypatch.setattr(first.service.store.folder, "save", lambda status: None)
    entry.command._link.abort()
    fcntl.flock(first.service.store.folder._fd, fcntl.LOCK_UN)
    second = await make_site()
    now = await second.ask("GET", f"/{got.id}")
    assert (now.detail["state"], now.json["complete"]) == ("running", False)
    assert (now.json["spill"]["bytes"], now.detail["output"]["head"]) == (6, "begun\n")
    then = await second.final(got.id)
    assert (then.detail["state"], then.detail["reason"]) == ("exited", "server_shutdown")
    assert (then.json["exit_code"], then.json["complete"]) == (5, True)
    assert then.text.splitlines()[:2] == ["begun", "told"]
    check_invariants(then, second)


async def test_what_never_ran_and_what_is_foreign_is_left_out(make_site: MakeSite) -> None:
    first = await make_site()
    got = await first.run("echo x")
    await first.close()
    spill = Path(first.exec_.spill_dir)
    never = new_id()
    (spill / f".{never}.meta").write_text("{}")
    (spill / "keep me").write_text("foreign")
    outside = first.directory / "outside"
    outside.mkdir()
    (outside / "output").write_text("secret")
    link = new_id()
    (spill / link).symlink_to(outside)
    second = await make_site()
    listed = await second.ask("GET")
    assert [each["id"] for each in listed.json["commands"]] == [got.id]
    assert not (spill / f".{never}.meta").exists()
    assert (spill / "keep me").read_text() == "foreign"
    assert (outside / "output").read_text() == "secret"
    assert (await second.output(link)).status == 404


async def test_an_output_whose_end_was_lost_shows_no_false_tail(make_site: MakeSite) -> None:
    first = await make_site()
    got = await first.run("seq 1 50000", max_output_bytes=100_000, on_output_limit="drain")
    assert "50000" in got.detail["output"]["tail"]
    await first.close()
    second = await make_site()
    again = await second.ask("GET", f"/{got.id}")
    output = again.detail["output"]
    assert (output["bytes"], output["spill"]["bytes"], output["tail"]) == (288_894, 100_000, "")
    check_invariants(again, second)


async def test_a_child_of_a_killed_shim_is_gone_before_the_sweep(site: Site) -> None:
    nap = unique_sleep()
    got = await site.run(f"setsid {nap}", background=True)
    assert await eventually(lambda: bool(running(nap)))
    [entry] = site.service.store.entries
    with contextlib.suppress(ProcessLookupError):
        os.kill(entry.command.status.shim.pid, signal.SIGKILL)
    assert (await site.final(got.id)).detail["state"] == "interrupted"
    assert await eventually(lambda: not running(nap))
