"""The contract of the endpoint: each status, each field, and what must hold between the fields."""

import asyncio
import base64
import dataclasses
import hashlib
import io
import os
import socket
from typing import Any

import pytest

from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import TOKENS, Got, Site, token
from tests.sidecar.support import eventually, running, unique_sleep

SEQ = "".join(f"{number}\n" for number in range(1, 50_001)).encode()


def check_invariants(got: Got, site: Site) -> None:
    """What holds of every answer, whatever was run."""
    told, detail = got.json, got.detail
    output = detail["output"]
    path = site.spill(got.id)
    on_disk = path.stat().st_size if path.exists() else 0
    assert told["complete"] is output["complete"]
    if output["complete"]:
        assert not output["open"]
        assert output["spill"]["error"] is None
        assert output["bytes"] == output["spill"]["bytes"] == on_disk
    else:
        assert "complete" in told["text"] or "running" in told["text"] or "open" in told["text"]
    assert told["exit_code"] is None or told["signal"] is None
    for name in ("exit_code", "signal", "timed_out"):
        assert told[name] == detail[name]
    assert output["head_bytes"] + output["tail_bytes"] + output["omitted_bytes"] == output["bytes"]
    if output["omitted_bytes"] == 0:
        assert output["tail"] == ""
    assert output["truncated_preview"] is (output["omitted_bytes"] > 0)
    assert len(told["text"].encode()) <= site.exec_.text_bytes
    assert told["spill"]["url"] == f"/v1/exec/{got.id}/output"
    assert got.headers["X-Should-Retry"] == "false"


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("true", 0, None),
        ("exit 3", 3, None),
        ("exit 300", 44, None),
        ("exit 137", 137, None),
        ("no-such-program", 127, None),
        ("echo part; kill -9 $$", None, 9),
        ("kill -SEGV $$", None, 11),
        ("printf 'out-A\\n'; printf 'fatal: x\\n' >&2; printf 'out-Z\\n'; exit 128", 128, None),
        ("cat; (read x </dev/tty) 2>/dev/null && exit 9; exit 4", 4, None),
    ],
)
async def test_what_a_command_ends_with_is_data(
    command: str, code: int | None, signal: int | None, site: Site
) -> None:
    got = await site.run(command)
    assert got.status == 200
    assert (got.json["exit_code"], got.json["signal"]) == (code, signal)
    assert got.json["complete"] is True
    check_invariants(got, site)


async def test_a_short_output_is_the_text_and_a_silent_command_says_so(site: Site) -> None:
    got = await site.run("echo one; echo two >&2; echo three")
    assert got.text == "one\ntwo\nthree\n"
    assert not got.json["truncated"]
    assert (await site.run("true")).text == "(no output)"


async def test_ten_fast_long_outputs_are_whole(site: Site) -> None:
    digest = hashlib.sha256(SEQ).hexdigest()
    for _ in range(10):
        got = await site.run("seq 1 50000")
        assert (got.json["complete"], got.json["truncated"]) == (True, True)
        assert (got.json["spill"]["bytes"], got.json["spill"]["lines"]) == (288_894, 50_000)
        assert got.text.splitlines()[1] == "1"
        assert got.text.splitlines()[-2] == "50000"
        assert got.text.splitlines()[0] == got.text.splitlines()[-1]
        assert str(site.spill(got.id)) in got.text
        whole = await site.output(got.id)
        assert hashlib.sha256(whole.body).hexdigest() == digest
        assert site.spill(got.id).read_bytes() == SEQ
        check_invariants(got, site)


async def test_what_stops_reading_at_the_exit_does_lose_output() -> None:
    """The negative control: the same command, and a reader that takes its end for that of its
    output, as slow as one that has something else to do."""
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec("seq", "1", "50000", stdout=write)
    os.close(write)
    held = b""
    while process.returncode is None:
        held += os.read(read, 4096)
        await asyncio.sleep(0.001)
    left = os.read(read, 1 << 20)
    os.close(read)
    assert SEQ.startswith(held)
    assert len(held) < len(SEQ)
    assert left


async def test_a_slow_disk_loses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = type(site.service._planner)
    plan = planner.spec
    monkeypatch.setattr(
        planner, "spec", lambda *given: dataclasses.replace(plan(*given), sink_delay_ms=30)
    )
    got = await site.run("seq 1 50000", output_grace_ms=50)
    assert (got.json["complete"], got.json["spill"]["bytes"]) == (True, 288_894)
    assert site.spill(got.id).read_bytes() == SEQ


async def test_one_huge_line_is_shown_and_kept(site: Site) -> None:
    got = await site.run("head -c 2000000 /dev/zero | tr '\\0' x; echo")
    assert got.json["spill"] == got.json["spill"] | {"bytes": 2_000_001, "lines": 1}
    assert "xxxxxxxx" in got.text
    check_invariants(got, site)


async def test_bytes_that_are_no_text_are_escaped_and_kept(site: Site) -> None:
    got = await site.run("printf 'ok\\360\\377\\000end\\n'")
    assert got.detail["output"]["encoding"] == "binary"
    assert "ok" in got.text
    assert "end" in got.text
    assert (await site.output(got.id)).body == b"ok\xf0\xff\0end\n"
    check_invariants(got, site)


async def test_an_output_beyond_the_limit_is_told_and_never_called_complete(site: Site) -> None:
    got = await site.run("yes", max_output_bytes=100_000)
    assert got.status == 200
    assert (got.detail["reason"], got.json["complete"]) == ("output_limit", False)
    assert got.detail["output"]["spill"]["error"] == "output_limit"
    assert got.json["spill"]["bytes"] == 100_000
    check_invariants(got, site)
    drained = await site.run("seq 1 50000; exit 7", max_output_bytes=1000, on_output_limit="drain")
    assert (drained.json["exit_code"], drained.json["complete"]) == (7, False)
    assert "50000" in drained.detail["output"]["tail"]
    check_invariants(drained, site)
    again = await site.ask("GET", f"/{drained.id}")
    assert again.json == drained.json
    # As much as its client had asked for: nobody is to be woken for it.
    assert site.number("gateway_exec_incomplete_total", "client_limit") == 2
    assert site.number("gateway_exec_incomplete_total", "output_limit") == 0


async def test_a_timeout_kills_the_grandchildren_and_keeps_the_output(site: Site) -> None:
    nap = unique_sleep()
    got = await site.run(
        f"seq 1 50000; setsid {nap} & trap '' TERM; {nap}; echo never", timeout_ms=500
    )
    assert got.status == 200
    assert (got.json["timed_out"], got.detail["reason"]) == (True, "timeout")
    assert got.json["exit_code"] != 0
    assert site.spill(got.id).read_bytes().startswith(SEQ)
    assert not running(nap)
    check_invariants(got, site)


@pytest.mark.parametrize("policy", ["return", "wait", "kill"])
async def test_a_child_that_holds_the_output_open(policy: str, site: Site) -> None:
    got = await site.run(
        "(sleep 0.7; echo late) & echo started", output_grace_ms=100, on_output_open=policy
    )
    assert (got.status, got.json["exit_code"]) == (200, 0)
    check_invariants(got, site)
    if policy == "return":
        assert (got.json["output_open"], got.json["complete"]) == (True, False)
        assert got.detail["state"] == "output_open"
        got = await site.final(got.id)
        check_invariants(got, site)
        assert site.number("gateway_exec_output_open_total") == 1
    late = b"" if policy == "kill" else b"late\n"
    assert got.json["complete"] is True
    assert site.spill(got.id).read_bytes() == b"started\n" + late
    assert (got.detail["killed"] > 0) is (policy == "kill")


async def test_a_child_with_its_own_output_is_not_waited_for(site: Site) -> None:
    nap = unique_sleep()
    started = asyncio.get_running_loop().time()
    got = await site.run(f"echo started; {nap} >/dev/null 2>&1 &", output_grace_ms=5000)
    assert asyncio.get_running_loop().time() - started < 3
    assert (got.json["complete"], got.detail["survivors"]) == (True, 1)
    assert await eventually(lambda: bool(running(nap)))
    assert (await site.ask("DELETE", f"/{got.id}")).status == 204
    assert not running(nap)


# --- what is asked for ---------------------------------------------------------------------------


async def test_a_command_gets_what_the_request_gives_it(site: Site) -> None:
    deep = site.repo / "deep"
    deep.mkdir()
    got = await site.run(
        "pwd; cat; echo $GIVEN $HOME",
        cwd=str(deep),
        stdin="fed\n",
        env={"GIVEN": "v", "HOME": "/h"},
    )
    assert got.text == f"{deep}\nfed\nv /h\n"
    argv = {"argv": ["printf", "%s|", "a b", "$HOME"]}
    assert (await site.ask("POST", json=argv)).text == "a b|$HOME|"
    stdin = {"argv": ["wc", "-c"], "stdin_b64": base64.b64encode(bytes(300_000)).decode()}
    assert (await site.ask("POST", json=stdin)).text == "300000\n"


async def test_inherited_secrets_stay_behind_and_given_ones_arrive(make_site: MakeSite) -> None:
    site = await make_site(
        {"MY_API_KEY": "sk-LEAK9", "GOOD": "passed", "OTHER": "unlisted"},
        env_allow=("MY_API_KEY", "GOOD"),
    )
    got = await site.run("env; tr '\\0' '\\n' </proc/$$/cmdline", env={"SOME_TOKEN": "given"})
    assert "sk-LEAK9" not in got.body.decode()
    assert "unlisted" not in got.text
    assert "GOOD=passed\n" in got.text
    assert "SOME_TOKEN=given\n" in got.text
    assert ["MY_API_KEY" in warning for warning in got.detail["warnings"]] == [True]


async def test_background_and_wait_answer_202_and_can_be_asked_again(site: Site) -> None:
    nap = unique_sleep()
    for more in ({"background": True}, {"wait_ms": 200}):
        got = await site.run(f"echo go; {nap}", **more)
        assert (got.status, got.detail["state"]) == (202, "running")
        assert not got.json["complete"]
        check_invariants(got, site)
        assert await eventually(lambda nap=nap: bool(running(nap)))  # type: ignore[misc]
        killed = await site.ask("POST", f"/{got.id}/kill?wait_ms=5000", json={"signal": "SIGTERM"})
        assert (killed.detail["state"], killed.detail["reason"]) == ("exited", "killed")
        assert (killed.json["signal"], killed.json["exit_code"]) == (15, None)
        assert not running(nap)
        check_invariants(killed, site)


async def test_the_list_is_the_tokens_own_newest_first(site: Site) -> None:
    first = await site.run("echo 1")
    second = await site.run("echo 2")
    listed = await site.ask("GET")
    assert [each["id"] for each in listed.json["commands"]] == [second.id, first.id]
    assert listed.json["commands"][0] == listed.json["commands"][0] | {
        "state": "exited", "exit_code": 0, "complete": True, "bytes": 2
    }  # fmt: skip
    other = await site.ask("GET", owner=TOKENS[1])
    assert other.json == {"commands": [], "total": 0}


@pytest.mark.parametrize(
    ("method", "part"),
    [("GET", ""), ("GET", "/output"), ("HEAD", "/output"), ("GET", "/events"), ("POST", "/kill"),
     ("DELETE", "")],
)  # fmt: skip
async def test_a_token_never_reaches_the_commands_of_another(
    method: str, part: str, site: Site
) -> None:
    got = await site.run("echo mine")
    more: dict[str, Any] = {"json": {}} if method == "POST" else {}
    stranger = await site.ask(method, f"/{got.id}{part}", owner=TOKENS[1], **more)
    unknown = await site.ask(method, f"/x_{'0' * 32}{part}", **more)
    assert stranger.status == unknown.status == 404
    assert stranger.body == unknown.body
    assert (await site.output(got.id)).body == b"mine\n"


# --- what is refused -----------------------------------------------------------------------------

JSON = {"Content-Type": "application/json"}
BIG = bytes(17 << 20)
RUN: dict[str, Any] = {"json": {"command": "x"}}


def sent(**headers: str) -> dict[str, Any]:
    """A request that would run, but for these headers."""
    return RUN | {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "more"),
    [
        (400, "bad_request", "POST", "", {"data": b"{", "headers": JSON}),
        (400, "bad_request", "POST", "", {"json": {}}),
        (400, "bad_request", "POST", "", {"json": {"command": "x", "argv": ["x"]}}),
        (400, "bad_request", "POST", "", {"json": {"command": "x", "timeout": 1}}),
        (400, "bad_request", "POST", "", {"json": {"command": "x", "cwd": "relative"}}),
        (400, "bad_request", "POST", "", sent(Idempotency_Key=" ")),
        (401, "unauthorized", "POST", "", RUN | {"owner": None}),
        (403, "forbidden", "POST", "", sent(Origin="http://a.test")),
        (403, "forbidden", "POST", "", sent(Host="rebound.test")),
        (403, "forbidden", "GET", "", {"headers": {"Host": "rebound.test:80"}}),
        (403, "forbidden", "POST", "", {"json": {"command": "x", "cwd": "/etc"}}),
        (404, "not_found", "GET", "/nothing", {}),
        (404, "not_found", "GET", "/a/b/c", {}),
        (405, "method_not_allowed", "PUT", "", {}),
        (413, "request_too_large", "POST", "", {"json": {"command": "x" * 200_000}}),
        (413, "request_too_large", "POST", "", {"data": io.BytesIO(BIG), "headers": JSON}),
        (415, "unsupported_media_type", "POST", "", {"data": {"command": "x"}}),
        (422, "spawn_failed", "POST", "", {"json": {"argv": ["/no/such/program"]}}),
    ],
)  # fmt: skip
async def test_what_is_refused_says_why_in_one_sentence(
    status: int, code: str, method: str, path: str, more: dict[str, Any], site: Site
) -> None:
    got = await site.ask(method, path, **more)
    assert got.status == status
    assert (got.json["error"]["code"], got.headers["x-gateway-error"]) == (code, code)
    assert got.json["error"]["message"].endswith((".", "?"))
    assert "\n" not in got.json["error"]["message"]


@pytest.mark.parametrize("wait", ["x", "-1", "1.5", "3600001", "9" * 30, ""])
async def test_how_long_to_wait_must_be_a_number_within_bounds(wait: str, site: Site) -> None:
    got = await site.run("true")
    assert (await site.ask("GET", f"/{got.id}?wait_ms={wait}")).status == 400


async def test_a_wrong_token_is_refused_without_a_word_of_it(site: Site) -> None:
    got = await site.ask("GET", owner=None, headers={"Authorization": f"Bearer {token()[:-1]}"})
    assert (got.status, got.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert token()[:-1] not in got.body.decode()


async def test_a_link_out_of_the_roots_is_refused(site: Site) -> None:
    (site.repo / "out").symlink_to("/etc")
    (site.repo / "real").mkdir()
    (site.repo / "in").symlink_to(site.repo / "real")
    got = await site.run("pwd", cwd=str(site.repo / "out"))
    assert (got.status, got.json["error"]["code"]) == (403, "forbidden")
    inside = await site.run("pwd -P", cwd=str(site.repo / "in"))
    assert inside.text == f"{site.repo}/real\n"


async def test_a_link_in_the_place_of_an_inner_root_lets_nobody_out(make_site: MakeSite) -> None:
    site = await make_site()
    inner = site.repo / "inner"
    inner.mkdir()
    await site.close()
    site = await make_site(allowed_roots=(str(site.repo), str(inner)))
    await site.run(f"rmdir {inner}; ln -s / {inner}")
    for cwd in ("", "/etc"):
        assert (await site.run("pwd", cwd=f"{inner}{cwd}")).status == 403


@pytest.mark.parametrize("case", ["exec", "cwd"])
async def test_what_cannot_be_started_is_422_with_the_errno(case: str, site: Site) -> None:
    if case == "exec":
        got = await site.ask("POST", json={"argv": ["/no/such/program"]})
        assert got.detail["state"] == "spawn_failed"
        assert (await site.ask("GET", f"/{got.id}")).status == 200
        assert site.number("gateway_exec_requests_total", "spawn_failed") == 1
    else:
        got = await site.run("true", cwd=str(site.repo / "gone"))
    assert got.status == 422
    assert got.headers["X-Should-Retry"] == "false"
    failure = got.json["spawn_error"]
    assert (failure["errno"], failure["message"]) == (2, "No such file or directory")
    assert failure["stage"] == case


async def test_a_disk_with_too_little_room_is_503_before_the_start(make_site: MakeSite) -> None:
    site = await make_site(min_free=1 << 60)
    marker = site.repo / "ran"
    got = await site.run(f"touch {marker}")
    assert (got.status, got.json["error"]["code"]) == (503, "unavailable")
    assert int(got.headers["Retry-After"]) > 0
    assert "X-Should-Retry" not in got.headers
    assert not marker.exists()
    assert os.listdir(site.exec_.spill_dir) == []


async def test_a_spill_that_cannot_be_made_is_told_before_anything_runs(site: Site) -> None:
    os.rmdir(site.exec_.spill_dir)
    marker = site.repo / "ran"
    got = await site.run(f"touch {marker}")
    assert got.status in (422, 503)
    assert not marker.exists()


async def test_the_path_is_kept_back_where_it_means_nothing_to_the_client(
    make_site: MakeSite,
) -> None:
    site = await make_site(path_in_answers=False)
    got = await site.run("seq 1 50000")
    assert got.json["spill"]["path"] is None
    assert site.exec_.spill_dir not in got.body.decode()
    assert f"/v1/exec/{got.id}/output" in got.text


async def test_a_large_body_that_asks_to_go_on_is_told_to(site: Site) -> None:
    got = await site.ask("POST", json={"command": "wc -c", "stdin": "x" * 900_000}, expect100=True)
    assert got.text == "900000\n"


async def test_half_a_request_runs_nothing(site: Site) -> None:
    marker = site.repo / "ran"
    body = f'{{"command": "touch {marker}"}}'.encode()
    head = (
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token()}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", site.sidecar.address.port)) as sent:
        sent.sendall(head.encode() + body)
        await asyncio.sleep(0.1)
    assert (await site.run("true")).status == 200
    assert not marker.exists()
