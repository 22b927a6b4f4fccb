"""`gateway sh` behaves like a shell for its caller, and runs nothing anywhere else."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli import sh
from gateway.cli.exec_wire import CallError
from tests.cli.conftest import ROOT, Done
from tests.cli.fake_endpoint import TOKEN, Endpoint, wait_until

Gateway = Callable[..., Done]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-c", "x"], True),
        (["-lc", "x"], True),
        (["-ic", "x"], True),
        (["-cl", "x"], True),
        (["-c", "-l", "x"], True),
        (["-l", "-c", "x"], True),
        (["-c", "--", "x"], True),
        (["-c", "x", "name", "-s"], True),
        (["--login", "-c", "x"], True),
        (["--rcfile", "f", "-c", "x"], True),
        (["-o", "pipefail", "-c", "x"], True),
        (["-eo", "pipefail", "-c", "x"], True),
        (["-euxo", "pipefail", "+o", "posix", "-c", "x"], True),
        (["-O", "extglob", "-c", "x"], True),
        (["-c"], False),
        (["-c", "--"], False),
        (["-o", "pipefail", "-c"], False),
        ([], False),
        (["-s"], False),
        (["-l"], False),
        (["-i"], False),
        (["script"], False),
        (["script", "-c", "x"], False),
        (["--", "-c", "x"], False),
        (["-x", "script", "-c"], False),
        (["+c", "x"], False),
        (["--version"], False),
        (["--rcfile", "-c", "x"], False),
    ],
)
def test_only_a_shell_with_a_command_string_asks_the_endpoint(
    words: list[str], expected: bool
) -> None:
    assert sh.has_command(words) is expected


@pytest.mark.parametrize(
    "words",
    [
        ["-c", 'echo "$0|$1|$2"', "name", "a b", "-c"],
        ["-c", "--", "echo $0"],
        ["-ec", "false; echo no"],
        ["-euo", "pipefail", "-c", "false | true; echo no"],
        ["-c", ""],
        ["-c", "exit 300"],
        ["-c", "no-such-command"],
        ["-c", "if"],
        ["-c", "printf 'no newline'"],
        ["-c", r"printf '\033[31mred\033[0m\r\n\000\377'"],
        ["-c", "echo out; echo err >&2; echo out"],
        ["-O", "extglob", "-c", "shopt extglob"],
        ["-c", "pwd; echo $PWD; echo $VARIABLE"],
        ["-c", "cat"],
        ["-s", "argument"],
        ["--version"],
    ],
)
def test_it_does_what_the_shell_does(
    words: list[str], endpoint: Endpoint, gateway: Gateway, here: Path, variables: dict[str, str]
) -> None:
    here.joinpath("file").write_text("in the file\n", encoding="utf-8")
    env = {"VARIABLE": "é 'x'\ny", "LC_ALL": "C.UTF-8"}
    shell = subprocess.run(
        ["/bin/bash", *words],
        cwd=here,
        env=variables | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        input=b"echo line $1\n",
        check=False,
    )
    done = gateway("sh", *words, env=env, input=b"echo line $1\n")
    assert (done.stdout + done.stderr, done.returncode) == (shell.stdout, shell.returncode)
    assert len(endpoint.requests) == sh.has_command(words)


def test_the_endpoint_gets_the_words_as_they_are(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    done = gateway("sh", "-lc", "--", "echo $0 $1", "name", "argument")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"name argument\n", b"")
    [request] = endpoint.requests
    assert request["argv"][1:] == ["-lc", "--", "echo $0 $1", "name", "argument"]
    assert request["argv"][0].endswith("/bash")
    assert request["cwd"] == str(here)
    assert "stdin_b64" not in request


def test_a_script_is_the_real_shells(endpoint: Endpoint, gateway: Gateway, here: Path) -> None:
    here.joinpath("script").write_text("cat; exit $1", encoding="utf-8")
    done = gateway("sh", "script", "7", input=b"input")
    assert (done.returncode, done.stdout, endpoint.requests) == (7, b"input", [])
    here.joinpath("script").write_text("yes | head -1; echo ${PIPESTATUS[0]}", encoding="utf-8")
    assert gateway("sh", "script").stdout == b"y\n141\n"


@pytest.mark.parametrize("name", ["KILL", "SEGV", "PIPE", "TERM"])
def test_death_by_a_signal_is_128_and_its_number(
    name: str, endpoint: Endpoint, gateway: Gateway
) -> None:
    done = gateway("sh", "-c", f"echo before; kill -{name} $$")
    assert done.returncode == 128 + getattr(signal, f"SIG{name}")
    assert done.stdout.startswith(b"before\n[The command was ended by signal ")


def test_a_timeout_is_124(endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("sh", "--timeout", "0.2", "-c", "echo before; sleep 30")
    assert (done.returncode, done.stdout[:7]) == (124, b"before\n")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_command_and_its_output_is_kept(
    name: str, endpoint: Endpoint, start: Start
) -> None:
    number = getattr(signal, f"SIG{name}")
    process = start("sh", "-c", "trap 'echo trapped; exit 5' TERM; echo started; sleep 30 & wait")
    wait_until(lambda: endpoint.commands and endpoint.commands["x_1"].output)
    process.send_signal(number)
    output, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (128 + number, b"")
    assert output.startswith(b"started\ntrapped\n")
    assert endpoint.commands["x_1"].process.returncode == 5
    assert endpoint.requests[0]["on_disconnect"] == "kill"


def test_a_signal_before_the_start_starts_nothing(endpoint: Endpoint, start: Start) -> None:
    endpoint.refuse = [(429, {"Retry-After": "30"}, {})]
    process = start("sh", "-c", "echo ran")
    wait_until(lambda: endpoint.asked and not endpoint.refuse)
    # The refusal has to reach it: before that the command may have been started, for all it knows.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    output, _ = process.communicate(timeout=10)
    assert (process.returncode, output, endpoint.requests) == (143, b"", [])


# --- standard input -------------------------------------------------------------------------------


def test_a_file_and_a_pipe_are_passed_whole(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    data = os.urandom(300_000)
    file = here / "file"
    file.write_bytes(data)
    with file.open("rb") as opened:
        of_file = gateway("sh", "-c", "sha256sum", stdin=opened).stdout
    of_pipe = gateway("sh", "-c", "sha256sum", input=data).stdout
    assert of_file.split() == of_pipe.split() == [hashlib.sha256(data).hexdigest().encode(), b"-"]


def test_what_is_too_much_is_refused_before_anything_runs(
    endpoint: Endpoint, gateway: Gateway
) -> None:
    done = gateway("sh", "-c", "wc -c", input=bytes((8 << 20) + 1))
    assert (done.returncode, endpoint.requests) == (125, [])
    assert b"Standard input has more than 8388608 bytes" in done.stderr


@pytest.mark.parametrize("redirection", ["<&-", "0>file", "</dev/null"])
def test_what_cannot_be_read_is_an_empty_one(
    redirection: str, endpoint: Endpoint, here: Path, variables: dict[str, str]
) -> None:
    python = shlex.quote(sys.executable)
    script = f"exec {python} -m gateway sh -c 'wc -c' {redirection}"
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=here, env=variables, capture_output=True, check=False
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == (b"0", b"", 0)


def test_a_pipe_that_stays_silent_does_not_hold_the_command(
    endpoint: Endpoint, start: Start
) -> None:
    process = start("sh", "-c", "cat; echo done", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read() == b"done\n"
    assert process.wait(10) == 0


def test_what_comes_too_late_is_told(endpoint: Endpoint, start: Start, here: Path) -> None:
    process = start("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done", stdin=subprocess.PIPE)
    wait_until(lambda: endpoint.commands)
    assert process.stdin is not None
    process.stdin.write(b"late")
    process.stdin.flush()
    here.joinpath("go").touch()
    assert process.stderr is not None
    assert b"Standard input came after the command had started" in process.stderr.read()
    assert process.wait(10) == 0


def test_a_late_standard_input_is_waited_for_where_that_is_asked(
    endpoint: Endpoint, start: Start, variables: dict[str, str]
) -> None:
    variables["GATEWAY_EXEC_STDIN"] = "wait"
    process = start("sh", "-c", "cat", stdin=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert process.communicate(b"late", timeout=10) == (b"late", b"")


# --- the environment ------------------------------------------------------------------------------


def test_the_command_gets_the_callers_variables_and_no_way_to_the_token(
    endpoint: Endpoint, gateway: Gateway
) -> None:
    env = {
        "VARIABLE": "value",
        "BASH_FUNC_greet%%": "() { echo hello; }",
        "MY_COPY": f"Bearer {TOKEN}",
        "SHELL": "/opt/wrapper/gateway-bash",
    }
    done = gateway("sh", "-c", "greet; echo $VARIABLE $SHELL", env=env)
    assert done.stdout == b"hello\nvalue /bin/bash\n"
    sent = endpoint.requests[0]["env"]
    assert sent.keys() >= {"PATH", "VARIABLE", "BASH_FUNC_greet%%"}
    assert not [name for name in sent if name.startswith("GATEWAY_EXEC_") or name == "MY_COPY"]
    assert TOKEN not in json.dumps(endpoint.requests)
    assert endpoint.asked[0][2]["authorization"] == f"Bearer {TOKEN}"


def test_a_real_shell_stays_the_shell(endpoint: Endpoint, gateway: Gateway) -> None:
    gateway("sh", "-c", "true", env={"SHELL": "/bin/sh"})
    assert endpoint.requests[0]["env"]["SHELL"] == "/bin/sh"


# --- failures -------------------------------------------------------------------------------------


def test_nothing_runs_elsewhere_unless_that_is_asked_for(gateway: Gateway, here: Path) -> None:
    done = gateway("sh", "-c", "touch ran")
    assert (done.returncode, done.stdout, here.joinpath("ran").exists()) == (125, b"", False)
    assert done.stderr.startswith(b"gateway sh: Nothing listens on unix:")
    assert done.stderr.count(b"\n") == 1
    done = gateway("sh", "--fallback", "-c", "cat; exit 4", input=b"input")
    assert (done.returncode, done.stdout) == (4, b"input")
    assert b"The command is run here instead." in done.stderr
    done = gateway("sh", "-c", "touch ran", env={"GATEWAY_EXEC_FALLBACK": "1"})
    assert (done.returncode, here.joinpath("ran").exists()) == (0, True)


def test_without_a_token_it_is_not_run_here_either(gateway: Gateway, here: Path) -> None:
    done = gateway("sh", "--fallback", "--token-file", "none", "-c", "touch ran")
    assert (done.returncode, here.joinpath("ran").exists()) == (125, False)
    assert b"The token file none cannot be read" in done.stderr


def test_an_endpoint_that_refuses_is_no_reason_to_run_it_here(
    endpoint: Endpoint, gateway: Gateway, here: Path
) -> None:
    here.joinpath("token").write_text("x" * 40, encoding="utf-8")
    done = gateway("sh", "--fallback", "--token-file", "token", "-c", "touch ran")
    assert (done.returncode, here.joinpath("ran").exists()) == (125, False)
    assert b"refused the token" in done.stderr


def test_a_directory_that_is_gone_is_told(
    endpoint: Endpoint, gateway: Gateway, here: Path, variables: dict[str, str]
) -> None:
    python = shlex.quote(sys.executable)
    script = f"rmdir '{here}'; exec {python} -m gateway sh -c true"
    done = subprocess.run(
        ["/bin/bash", "-c", script], cwd=here, env=variables, capture_output=True, check=False
    )
    assert done.returncode == 125
    assert b"The current directory cannot be used" in done.stderr


def test_what_is_not_utf8_is_told(endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("sh", "-c", os.fsdecode(b"echo \xff"))
    assert (done.returncode, endpoint.requests) == (125, [])
    assert b"not UTF-8" in done.stderr
    done = gateway("sh", "-c", "true", env={"LATIN": os.fsdecode(b"\xe9")})
    assert (done.returncode, done.stderr) == (
        0,
        b"gateway sh: Not UTF-8 and not passed on: LATIN.\n",
    )


@pytest.mark.parametrize("words", [["--timeout"], ["--endpoint"]])
def test_an_option_without_its_value_is_bad_usage(words: list[str], gateway: Gateway) -> None:
    assert gateway("sh", *words).returncode == 2


@pytest.mark.parametrize("seconds", ["0", "3601", "-1", "x", "inf", "nan"])
def test_a_timeout_has_bounds(seconds: str) -> None:
    with pytest.raises(CallError):
        sh.timeout_ms(seconds)
    assert sh.timeout_ms(None) == sh.timeout_ms("3600") == 3_600_000


def test_a_reader_that_has_left_causes_no_complaint(endpoint: Endpoint, start: Start) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("sh", "-c", "echo output", stdout=writing)
    os.close(writing)
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(10)) == (b"", 141)


# --- what is printed ------------------------------------------------------------------------------


def test_a_long_output_is_cut_and_its_file_named(endpoint: Endpoint, gateway: Gateway) -> None:
    done = gateway("sh", "-c", "seq 1 50000")
    assert done.returncode == 0
    assert str(endpoint.commands["x_1"].spill).encode() in done.stdout
    assert len(done.stdout) < 28_672
    assert done.stdout.splitlines()[-1] == b"50000"


def test_an_output_that_is_not_complete_says_so(endpoint: Endpoint, gateway: Gateway) -> None:
    endpoint.changes = {"complete": False, "text": "all\n[The output is not complete.]"}
    done = gateway("sh", "-c", "echo all")
    assert (done.returncode, done.stdout) == (0, b"all\n[The output is not complete.]")


def test_an_end_that_nobody_saw_is_no_success(endpoint: Endpoint, gateway: Gateway) -> None:
    endpoint.changes = {"exit_code": None, "complete": False, "detail.state": "interrupted"}
    done = gateway("sh", "-c", "true")
    assert done.returncode == 125
    assert b"how it ended is not known" in done.stderr


def test_who_runs_for_long_shows_its_beginning_early(
    endpoint: Endpoint, start: Start, here: Path
) -> None:
    script = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo end; exit 3"
    process = start("sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    here.joinpath("go").touch()
    assert (process.stdout.read(), process.wait(10)) == (b"end\n", 3)


def test_a_broken_stream_goes_on_where_it_was(endpoint: Endpoint, gateway: Gateway) -> None:
    endpoint.break_after = [1, 3000, 1]
    done = gateway("sh", "-c", "seq 1 2000; exit 3")
    assert done.returncode == 3
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 2001))
    assert len(endpoint.requests) == 1
    assert [path for method, path, _ in endpoint.asked if method == "GET"] == [
        "/v1/exec/x_1/events"
    ] * 3


# --- the weight -----------------------------------------------------------------------------------


def test_it_starts_light(endpoint: Endpoint, gateway: Gateway, here: Path) -> None:
    script = here / "script.py"
    script.write_text(
        "import sys\nfrom gateway.cli import main\n"
        "code = main(['sh', '-c', 'true'])\nprint(*sorted(sys.modules))\nsys.exit(code)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | _places(endpoint),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.partition(".")[0] == "gateway"}
    assert ours == {
        "gateway",
        "gateway.cli",
        "gateway.cli.exec_caller",
        "gateway.cli.exec_client",
        "gateway.cli.exec_wire",
        "gateway.cli.sh",
        "gateway.cli.sh_output",
    }
    heavy = {"aiohttp", "argparse", "asyncio", "dataclasses", "msgspec", "structlog", "tomllib"}
    assert not loaded & (heavy | {"prometheus_client", "yarl", "subprocess"})


def _places(endpoint: Endpoint) -> dict[str, str]:
    token = endpoint.folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    return {
        "GATEWAY_EXEC_ENDPOINT": f"unix:{endpoint.path}",
        "GATEWAY_EXEC_TOKEN_FILE": str(token),
    }


# --- as agents call it ----------------------------------------------------------------------------


@pytest.fixture
def wrapper(here: Path) -> Path:
    """gateway-bash, as the package installs it."""
    path = here / "gateway-bash"
    path.write_text(
        # A path with a blank cannot stand in the first line.
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "
        "'import sys; from gateway.cli.sh import bash; sys.exit(bash())' \"$@\"\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def test_claude_code_finds_its_directory_file_and_its_snapshot(
    endpoint: Endpoint, wrapper: Path, here: Path, variables: dict[str, str]
) -> None:
    here.joinpath("snapshot.sh").write_text("greet() { echo hello $1; }\n", encoding="utf-8")
    here.joinpath("sub").mkdir()
    line = (
        "source snapshot.sh 2>/dev/null || true && shopt -u extglob 2>/dev/null || true && "
        "eval 'greet you; cd sub' < /dev/null && pwd -P >| ../cwd"
    )
    line = line.replace("../cwd", f"'{here / 'cwd'}'")
    silent, holder = os.pipe()
    try:
        done = subprocess.run(
            [wrapper, "-c", "-l", line],
            cwd=here,
            env=variables,
            stdin=silent,
            capture_output=True,
            check=False,
        )
    finally:
        os.close(silent)
        os.close(holder)
    assert (done.returncode, done.stdout) == (0, b"hello you\n"), done
    assert here.joinpath("cwd").read_text(encoding="utf-8") == f"{here / 'sub'}\n"


def test_opencode_gives_its_directory_as_an_argument(
    endpoint: Endpoint, wrapper: Path, here: Path, variables: dict[str, str]
) -> None:
    script = 'shopt -s expand_aliases\ncd -- "$1"\neval "pwd; exit 6"\n'
    done = subprocess.run(
        [wrapper, "-l", "-c", script, "opencode", str(here)],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (6, f"{here}\n".encode()), done


def test_help_tells_how_it_is_used(gateway: Gateway) -> None:
    done = gateway("sh", "--help")
    assert done.returncode == 0
    assert b"the real shell takes the place of" in done.stdout.replace(b"\n", b" ")
