"""Who may run how much, the same request twice, shims that die, and the end of the gateway."""

import asyncio
import hashlib
import io
import json
import os
import signal
from typing import Any

import pytest

from gateway.observe import exec_log, logs
from gateway.sidecar import kernel, service
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import TOKENS, Site
from tests.sidecar.support import eventually, running, unique_sleep
from tests.sidecar.test_endpoint import check_invariants


def gate(site: Site, name: str = "gate") -> str:
    """A command that runs until :func:`open_gate`."""
    path = site.repo / name
    if not path.exists():
        os.mkfifo(path)
    return f"read x <{path}"


def open_gate(site: Site, name: str = "gate") -> None:
    (site.repo / name).write_text("go\n")


# --- how much ------------------------------------------------------------------------------------


async def test_twenty_at_once_keep_their_outputs_apart(make_site: MakeSite) -> None:
    site = await make_site(max_running=4, max_queued=16)

    async def one(number: int) -> str:
        got = await site.run(f'for n in $(seq 1 2000); do echo "id-{number} line $n"; done')
        assert (got.status, got.json["complete"]) == (200, True)
        lines = site.spill(got.id).read_text().splitlines()
        assert lines == [f"id-{number} line {line}" for line in range(1, 2001)]
        return got.id

    ids = await asyncio.gather(*map(one, range(20)))
    assert len(set(ids)) == 20


async def test_a_full_queue_is_429_and_nothing_of_it_runs(make_site: MakeSite) -> None:
    site = await make_site(max_running=1, max_queued=1)
    first = await site.run(gate(site), background=True)
    assert first.status == 202
    second = asyncio.ensure_future(site.run("echo second"))
    assert await eventually(lambda: site.number("gateway_exec_queued") == 1)
    third = await site.run(f"touch {site.repo}/third")
    assert (third.status, third.json["error"]["code"]) == (429, "too_many_commands")
    assert int(third.headers["Retry-After"]) > 0
    assert "X-Should-Retry" not in third.headers
    assert site.number("gateway_exec_running") == 1
    open_gate(site)
    assert (await second).text == "second\n"
    assert not (site.repo / "third").exists()
    assert await eventually(lambda: site.number("gateway_exec_running") == 0)
    assert site.number("gateway_exec_requests_total", "rejected") == 1


async def test_who_leaves_the_queue_is_never_run(make_site: MakeSite) -> None:
    site = await make_site(max_running=1, max_queued=1)
    await site.run(gate(site), background=True)
    waiting = asyncio.ensure_future(site.run(f"touch {site.repo}/ran"))
    assert await eventually(lambda: site.number("gateway_exec_queued") == 1)
    waiting.cancel()
    assert await eventually(lambda: site.number("gateway_exec_queued") == 0)
    open_gate(site)
    assert (await site.run("true")).status == 200
    assert not (site.repo / "ran").exists()


async def test_the_digest_of_the_output_is_told_on_request(site: Site) -> None:
    got = await site.run("printf abc", sha256=True)
    assert got.detail["output"]["spill"]["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert (await site.run("printf abc")).detail["output"]["spill"]["sha256"] is None


async def test_a_wait_that_is_over_in_the_queue_keeps_the_place(make_site: MakeSite) -> None:
    site = await make_site(max_running=1)
    await site.run(gate(site), background=True)
    got = await site.run("echo turn", wait_ms=50)
    assert (got.status, got.detail["state"], got.detail["started_at"]) == (202, "queued", None)
    assert got.text == "[The command has not started: it waits for its turn.]"
    open_gate(site)
    assert (await site.final(got.id)).text == "turn\n"


async def test_in_the_background_the_queue_is_not_waited_for(make_site: MakeSite) -> None:
    site = await make_site(max_running=1)
    await site.run(gate(site), background=True)
    got = await asyncio.wait_for(site.run("echo turn", background=True), 2)
    assert (got.status, got.detail["state"]) == (202, "queued")
    open_gate(site)
    assert (await site.final(got.id)).text == "turn\n"


async def test_what_was_promised_and_cannot_start_tells_why(make_site: MakeSite) -> None:
    site = await make_site(max_running=1)
    (site.repo / "gone").mkdir()
    await site.run(gate(site), background=True)
    more: dict[str, Any] = {"cwd": str(site.repo / "gone"), "background": True}
    got = await site.run("true", headers=KEY, **more)
    assert got.status == 202
    (site.repo / "gone").rmdir()
    open_gate(site)
    told = await site.final(got.id)
    assert (told.status, told.detail["state"], told.json["complete"]) == (
        200,
        "spawn_failed",
        False,
    )
    assert told.json["error"]["code"] == "spawn_failed"
    why = f"its cwd ({site.repo / 'gone'}) cannot be used: No such file"
    assert why in told.json["error"]["message"]
    assert told.json["spawn_error"]["name"] == "ENOENT"
    reason = "No such file or directory"
    assert told.text == f"[The command could not be started: {reason}. There is no output.]"
    events = (await site.ask("GET", f"/{got.id}/events")).body
    assert b"event: end" in events
    (site.repo / "gone").mkdir()
    again = await site.run("true", headers=KEY, **more)
    assert again.id != got.id


async def test_a_kill_takes_a_command_out_of_the_queue(make_site: MakeSite) -> None:
    site = await make_site(max_running=1)
    await site.run(gate(site), background=True)
    waits = asyncio.ensure_future(site.run(f"touch {site.repo}/ran"))
    assert await eventually(lambda: site.number("gateway_exec_queued") == 1)
    newest = (await site.ask("GET")).json["commands"][0]
    assert newest["state"] == "queued"
    killed = await asyncio.wait_for(site.ask("POST", f"/{newest['id']}/kill", json={}), 2)
    said = "The command was killed before it had started."
    assert (killed.status, killed.json["error"]["message"]) == (200, said)
    refused = await waits
    assert (refused.status, refused.json["error"]["message"]) == (422, said)
    assert site.number("gateway_exec_queued") == 0
    deleted = await site.run(f"touch {site.repo}/ran", background=True)
    assert (await asyncio.wait_for(site.ask("DELETE", f"/{deleted.id}"), 2)).status == 204
    assert (await site.ask("GET", f"/{deleted.id}")).status == 410
    open_gate(site)
    assert (await site.run("true")).status == 200
    assert not (site.repo / "ran").exists()


async def test_what_holds_its_output_open_takes_no_turn_but_is_bounded(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_LIVE_PER_TURN", 2)
    site = await make_site(max_running=1, max_queued=0)
    held = [await site.run(f"{unique_sleep()} &", output_grace_ms=0) for _ in range(2)]
    assert all(got.json["output_open"] for got in held)
    assert site.number("gateway_exec_running") == 0
    refused = await site.run("true")
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_commands")
    assert "left processes behind that still run" in refused.json["error"]["message"]
    listed = (await site.ask("GET")).json["commands"]
    assert [each["survivors"] for each in listed] == [1, 1]
    await site.ask("DELETE", f"/{held[0].id}")
    assert (await site.run("true")).status == 200


async def test_what_survives_is_listed_as_long_as_it_does(site: Site) -> None:
    got = await site.run(f"{unique_sleep()} >/dev/null 2>&1 & echo x")
    [listed] = (await site.ask("GET")).json["commands"]
    assert (listed["state"], listed["survivors"], listed["complete"]) == ("exited", 1, True)
    await site.ask("POST", f"/{got.id}/kill", json={})
    [entry] = site.service.store.entries
    assert await eventually(lambda: entry.command is None)
    [listed] = (await site.ask("GET")).json["commands"]
    assert listed["survivors"] == 0


async def test_what_no_file_has_is_remembered_of_the_last_ones_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_WITH_PIECES", 1)
    bounds = {"max_output_bytes": 10, "head_bytes": 5, "tail_bytes": 50}
    more: dict[str, Any] = bounds | {"on_output_limit": "drain"}
    old, new = [await site.run("seq 1 100", **more) for _ in range(2)]
    assert (await site.ask("GET", f"/{new.id}")).json == new.json
    again = await site.ask("GET", f"/{old.id}")
    assert "100\n" in old.detail["output"]["tail"]
    assert again.detail["output"]["tail"] == ""
    check_invariants(again, site)


# --- the same request twice ----------------------------------------------------------------------

KEY = {"Idempotency-Key": "one"}


async def test_the_same_key_and_body_run_once(site: Site) -> None:
    first = await site.run("echo x >>ran", headers=KEY)
    again = await site.run("echo x >>ran", headers=KEY)
    assert again.json == first.json
    at_once = await asyncio.gather(
        *(site.run("sleep 0.1; echo y >>ran", headers={"Idempotency-Key": "two"}) for _ in range(5))
    )
    assert len({got.id for got in at_once}) == 1
    assert (site.repo / "ran").read_text() == "x\ny\n"


async def test_the_same_key_with_another_body_is_409(site: Site) -> None:
    await site.run("echo 1", headers=KEY)
    got = await site.run("touch ran", headers=KEY)
    assert (got.status, got.json["error"]["code"]) == (409, "idempotency_conflict")
    assert not (site.repo / "ran").exists()


async def test_a_key_is_one_tokens_own(site: Site) -> None:
    body = {"command": "echo x >>ran"}
    for owner in TOKENS:
        assert (await site.ask("POST", json=body, owner=owner, headers=KEY)).status == 200
    assert (site.repo / "ran").read_text() == "x\nx\n"


async def test_a_key_whose_command_never_ran_is_free_again(site: Site) -> None:
    body = {"command": "pwd", "cwd": str(site.repo / "later")}
    assert (await site.ask("POST", json=body, headers=KEY)).status == 422
    (site.repo / "later").mkdir()
    assert (await site.ask("POST", json=body, headers=KEY)).status == 200


# --- what dies -----------------------------------------------------------------------------------


async def test_a_command_whose_shim_dies_is_told_as_interrupted(site: Site) -> None:
    nap = unique_sleep()
    asked = asyncio.ensure_future(site.run(f"seq 1 50000; {nap}"))
    assert await eventually(lambda: bool(running(nap)))
    [entry] = site.service.store.entries
    assert await eventually(lambda: entry.size == 288_894)
    os.kill(entry.command.status.shim.pid, signal.SIGKILL)
    got = await asked
    assert got.status == 200
    assert (got.detail["state"], got.json["complete"]) == ("interrupted", False)
    assert (got.json["exit_code"], got.json["signal"]) == (None, None)
    assert "interrupted" in got.text
    assert got.json["spill"]["bytes"] == site.spill(got.id).stat().st_size == 288_894
    check_invariants(got, site)
    assert await eventually(lambda: not running(nap))
    assert site.number("gateway_exec_shim_lost_total") == 1
    assert site.number("gateway_exec_incomplete_total", "interrupted") == 1
    saved = json.loads(site.spill(got.id).with_name("status.json").read_bytes())
    assert saved["state"] == "interrupted"


async def test_a_stop_ends_commands_and_their_clients_are_told(site: Site) -> None:
    nap = unique_sleep()
    script = f"trap 'echo told; exit 5' TERM; echo begun; {nap} & wait"
    asked = asyncio.ensure_future(site.run(script, kill_grace_ms=2000))
    stream = asyncio.ensure_future(
        site.run(script, kill_grace_ms=2000, headers={"Accept": "text/event-stream"})
    )
    assert await eventually(lambda: len(running(nap)) == 2)
    draining = asyncio.ensure_future(site.sidecar.drain(2.0))
    got = await asked
    assert (got.status, got.detail["reason"]) == (200, "server_shutdown")
    assert (got.json["exit_code"], got.text.splitlines()[:2]) == (5, ["begun", "told"])
    assert b"event: end" in (await stream).body
    refused = await site.run("true")
    assert (refused.status, refused.json["error"]["code"]) == (503, "unavailable")
    await draining
    assert not running(nap)


async def test_what_a_stop_calls_off_is_told_to_be_sent_again(make_site: MakeSite) -> None:
    """Nothing has run: the same request with the same key has to run when the gateway is back."""
    site = await make_site()
    spawn = site.service._runner.spawn

    async def spawn_late(spec: Any, begin: Any) -> Any:
        def call_off(command: Any) -> None:
            begin(command)
            site.service.draining = True
            command.kill()

        return await spawn(spec, call_off)

    site.service._runner.spawn = spawn_late
    key = {"Idempotency-Key": "k1"}
    got = await site.run(f"touch {site.repo}/ran", headers=key)
    assert (got.status, got.json["error"]["code"]) == (503, "unavailable")
    assert int(got.headers["Retry-After"]) > 0
    assert not (site.repo / "ran").exists()
    assert list((site.directory / "spill").glob("x_*")) == []
    site.service._runner.spawn, site.service.draining = spawn, False
    again = await site.run(f"touch {site.repo}/ran", headers=key)
    assert (again.status, again.json["exit_code"]) == (200, 0)
    assert (site.repo / "ran").exists()


async def test_a_stop_empties_the_queue(make_site: MakeSite) -> None:
    site = await make_site(max_running=1)
    await site.run(gate(site), background=True)
    waiting = asyncio.ensure_future(site.run(f"touch {site.repo}/ran"))
    assert await eventually(lambda: site.number("gateway_exec_queued") == 1)
    await site.sidecar.drain(1.0)
    assert (await waiting).status == 503
    assert not (site.repo / "ran").exists()


async def test_deleting_ends_the_command_and_removes_what_it_wrote(site: Site) -> None:
    nap = unique_sleep()
    got = await site.run(f"echo x; {nap}", background=True)
    assert await eventually(lambda: bool(running(nap)))
    assert (await site.ask("DELETE", f"/{got.id}")).status == 204
    assert not running(nap)
    assert not site.spill(got.id).parent.exists()
    for method, path in (("GET", ""), ("DELETE", f"/{(await site.run('true')).id}")):
        assert (await site.ask(method, path)).headers["X-Should-Retry"] == "false"
    gone = await site.ask("GET", f"/{got.id}")
    assert (gone.status, gone.json["error"]["code"]) == (410, "expired")


@pytest.mark.parametrize(
    "body", [{"signal": "STOP"}, {"signal": 0}, {"x": 1}, [], {"signal": True}]
)
async def test_only_signals_that_end_may_be_sent(body: object, site: Site) -> None:
    got = await site.run("sleep 0.3; echo alive", background=True)
    assert (await site.ask("POST", f"/{got.id}/kill", json=body)).status == 400
    assert (await site.final(got.id)).text == "alive\n"


@pytest.mark.parametrize(("name", "number"), [("KILL", 9), ("SIGINT", 2), (1, 1)])
async def test_the_signal_that_is_asked_for_is_sent(name: object, number: int, site: Site) -> None:
    nap = unique_sleep()
    got = await site.run(f"exec {nap}", background=True)
    assert await eventually(lambda: bool(running(nap)))
    killed = await site.ask("POST", f"/{got.id}/kill?wait_ms=5000", json={"signal": name})
    assert (killed.json["signal"], killed.json["exit_code"]) == (number, None)
    label = signal.Signals(number).name
    assert await eventually(lambda: site.number("gateway_exec_killed_processes_total", label) >= 1)


# --- what is told of it --------------------------------------------------------------------------


async def test_the_audit_log_has_the_command_redacted_and_never_its_output(site: Site) -> None:
    log = io.StringIO()
    logs.configure("info", "json", log)
    key = "sk-proj-abcdefghijklmnop1234567890"
    got = await site.run(
        f"echo OUT$((1+1))PUT; : {key} " + "x" * 500, env={"SHY": "variable-value"}
    )
    assert await eventually(lambda: log.getvalue().count("\n") == 2)
    start, end = map(json.loads, log.getvalue().splitlines())
    assert (start["event"], end["event"]) == ("exec_start", "exec_end")
    assert start["id"] == end["id"] == got.id
    assert (start["client"], start["peer"]) == (TOKENS[0], "127.0.0.1")
    assert len(start["sha256"]) == 64
    assert start["command"].startswith("echo OUT$((1+1))PUT; : ")
    assert len(start["command"]) <= exec_log.SHOWN
    assert end == end | {"outcome": "exit0", "exit_code": 0, "complete": True, "bytes": 8}
    for secret in (key, "OUT2PUT", "variable-value"):
        assert secret not in log.getvalue()


async def test_the_log_says_why_a_request_was_refused_as_its_client_was_told(site: Site) -> None:
    log = io.StringIO()
    logs.configure("info", "json", log)
    got = await site.ask("GET", owner=None)
    [line] = map(json.loads, log.getvalue().splitlines())
    assert (line["event"], line["reason"]) == ("exec_refused", got.json["error"]["message"])


async def test_the_metrics_count_what_became_of_commands(site: Site) -> None:
    await site.run("echo 12345")
    await site.run("exit 3")
    await site.run("kill -9 $$")
    await site.run("sleep 5", timeout_ms=100)
    assert await eventually(lambda: site.number("gateway_exec_requests_total", "timeout") == 1)
    for outcome in ("exit0", "nonzero", "signal"):
        assert site.number("gateway_exec_requests_total", outcome) == 1
    assert site.number("gateway_exec_output_bytes_total") == 6
    assert site.number("gateway_exec_spill_bytes") == 6
    assert site.number("gateway_exec_disk_free_bytes") > 0
    assert site.number("gateway_exec_incomplete_total", "end_not_seen") == 0
    durations = site.metrics.snapshot().histograms["gateway_exec_duration_seconds"][()]
    assert sum(durations.counts) == 4


async def test_no_process_is_left_when_all_is_done(site: Site) -> None:
    before = {found.pid for found in kernel.descendants(os.getpid())}
    for _ in range(3):
        await site.run("sleep 0.01 & (sleep 0.01 &) ; wait")
    assert await eventually(
        lambda: {found.pid for found in kernel.descendants(os.getpid())} <= before
    )
