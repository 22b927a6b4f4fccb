"""Outputs that people have lost, processes that stayed behind: one row each, over HTTP.

The first rows come from public reports, under their numbers; the others are of the same kinds.
"""

import asyncio
import hashlib
import io
import json
import os
import resource
import shlex
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.sidecar import kernel
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import Got, Site, token
from tests.sidecar.support import eventually, running, unique_sleep
from tests.sidecar.test_endpoint import check_invariants


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, and what has to be true of its answer.

    ``@NAP@`` in a command is a ``sleep`` that can be told from all others, ``@I@`` the number of a
    request among ``parallel`` ones, ``@REPO@`` the directory it runs in, ``@PY@`` this Python.
    ``naps`` says what becomes of the sleeps: ``gone`` a second after the answer, or ``left``
    running.
    """

    name: str
    command: str | None = None
    argv: tuple[str, ...] | None = None
    service_env: dict[str, str] = field(default_factory=dict)
    env_allow: tuple[str, ...] = ("PATH", "HOME", "LANG")
    request: dict[str, Any] = field(default_factory=dict)
    timeout: float = 20.0
    grace: float = 5.0
    cwd: str | None = None
    parallel: int = 1
    repeat: int = 1
    spill_limit: int | None = None
    status: int = 200
    exit_code: int | None = 0
    signal: int | None = None
    timed_out: bool = False
    complete: bool = True
    size: int | None = None
    exact: bytes | None = None
    has: tuple[str, ...] = ()
    hasnt: tuple[str, ...] = ()
    head: bytes = b""
    tail: bytes = b""
    text_has: tuple[str, ...] = ()
    text_hasnt: tuple[str, ...] = ()
    max_s: float = 15.0
    naps: str | None = None
    own_lines: int = 0
    error_has: tuple[str, ...] = ()


NUMBERS = b"".join(b"%d\n" % number for number in range(1, 50_001))

REPORTED = (
    Case(
        name="101-fast-producer", command="seq 1 50000", repeat=20,
        exact=NUMBERS, head=b"1\n2\n", tail=b"\n50000\n", text_has=("49999\n50000\n",),
    ),
    Case(
        name="102-stderr-then-instant-exit", repeat=50,
        command="printf 'out-A\\n'; printf 'fatal: x\\n' >&2; printf 'out-Z\\n'; exit 128",
        exit_code=128, exact=b"out-A\nfatal: x\nout-Z\n",
    ),
    Case(
        name="103-background-child-holds-the-pipe", command="echo started; @NAP@ &", grace=0.6,
        request={"on_output_open": "kill"}, size=8, max_s=4, naps="gone",
    ),
    Case(
        name="103-and-may-stay", command="echo started; @NAP@ &", grace=0.6,
        complete=False, size=8, max_s=4, naps="left", text_has=("started", "open"),
    ),
    Case(
        name="105-timeout-leaves-grandchildren", timeout=0.7,
        command="bash -c 'echo begin; @NAP@ & @NAP@; echo never'",
        exit_code=None, signal=15, timed_out=True, max_s=4, has=("begin",), hasnt=("never",),
        naps="gone",
    ),
    Case(
        name="106-term-is-ignored", timeout=0.7,
        command="trap '' TERM; echo on; while :; do sleep 0.35; @NAP@; done",
        exit_code=None, signal=9, timed_out=True, max_s=5, has=("on",), naps="gone",
    ),
    Case(
        name="107-invalid-utf8", command="printf 'ok\\360\\377\\000end\\n'",
        exact=b"ok\xf0\xff\0end\n", text_has=("ok", "end"),
    ),
    Case(
        name="108-multibyte-at-the-edge",
        command="@PY@ -c \"import sys; sys.stdout.buffer.write('é漢🌍'.encode()*30000)\"",
        exact="é漢🌍".encode() * 30_000, text_has=("é漢🌍",), text_hasnt=("\ufffd",),
    ),
    Case(
        name="109-carriage-return-progress",
        command="for i in $(seq 1 5000); do printf '\\rprogress %05d/05000' $i; done;"
        " printf '\\nFINAL-LINE\\n'",
        size=105_012, tail=b"05000/05000\nFINAL-LINE\n",
        text_has=("progress 05000/05000\nFINAL-LINE",), text_hasnt=("progress 04999",),
    ),
    Case(
        name="110-one-20-MB-line", command="head -c 20000000 /dev/zero | tr '\\0' x; echo",
        size=20_000_001, head=b"xxx", tail=b"xxx\n", text_has=("xxxx",),
    ),
    Case(
        name="111-both-pipes-full", max_s=5,
        command="@PY@ -c \"import sys; sys.stderr.write('e'*300000); sys.stderr.flush();"
        " sys.stdout.write('o'*300000)\"",
        exact=b"e" * 300_000 + b"o" * 300_000,
    ),
    Case(
        name="112-killed-by-signal", command="echo part; kill -9 $$",
        exit_code=None, signal=9, exact=b"part\n",
    ),
    Case(name="112-an-exit-code-is-no-signal", command="exit 137", exit_code=137),
    Case(
        name="113-waits-for-stdin", timeout=5, max_s=3,
        command="cat; echo rc=$?; (read x </dev/tty) 2>/dev/null; echo tty=$?",
        has=("rc=0",), hasnt=("tty=0",),
    ),
    Case(
        name="114-secrets-of-the-service", service_env={"OPENAI_API_KEY": "sk-LEAK9"},
        env_allow=("PATH", "HOME", "LANG", "OPENAI_API_KEY"),
        command="env; tr '\\0' '\\n' </proc/$$/cmdline; tr '\\0' '\\n' </proc/$PPID/environ;"
        " echo PATH=$PATH",
        has=("PATH=/",), hasnt=("sk-LEAK9",),
    ),
    Case(
        name="116-spill-cannot-grow", spill_limit=1_000_000,
        command="head -c 5000000 /dev/zero | tr '\\0' y; echo END",
        complete=False, size=5_000_004, text_has=("yyyEND\n", "complete"),
    ),
    Case(
        name="118-twenty-at-once", parallel=20, own_lines=2000,
        command='for n in $(seq 1 2000); do echo "id-@I@ line $n"; done',
    ),
)  # fmt: skip

OUTPUTS = (
    Case(
        name="many-tiny-writes", size=60_000, tail=b"x" * 100,
        command="@PY@ -c \"import os\nfor _ in range(60000): os.write(1, b'x')\"",
    ),
    Case(
        name="no-newline-at-the-end", command="printf 'a\\nb'", exact=b"a\nb", text_has=("a\nb",),
    ),
    Case(
        name="one-long-line-without-an-end", command="head -c 3000000 /dev/zero | tr '\\0' z",
        size=3_000_000, tail=b"zzz", text_has=("zzzz",),
    ),
    Case(name="only-newlines", command="yes '' | head -n 100000", exact=b"\n" * 100_000),
    Case(name="nul-bytes", command="head -c 100000 /dev/zero", exact=bytes(100_000)),
    Case(
        name="every-byte",
        argv=("@PY@", "-c", "import os; os.write(1, bytes(range(256)) * 200)"),
        exact=bytes(range(256)) * 200,
    ),
    Case(
        name="crlf", command="printf 'one\\r\\ntwo\\r\\n'", exact=b"one\r\ntwo\r\n",
        text_has=("one", "two"),
    ),
    Case(
        name="ansi", command="printf '\\033[31mred\\033[0m\\n\\033]0;title\\007done\\n'",
        exact=b"\x1b[31mred\x1b[0m\n\x1b]0;title\x07done\n",
        text_has=("red\n", "done\n"), text_hasnt=("\x1b", "[31m"),
    ),
    Case(
        name="a-character-in-two-writes",
        command="printf '\\342\\202'; sleep 0.1; printf '\\254\\n'",
        exact="€\n".encode(), text_has=("€",), text_hasnt=("\ufffd",),
    ),
    Case(
        name="a-character-cut-by-the-end", command="printf 'ok \\342\\202'", exact=b"ok \xe2\x82",
        text_has=("ok",),
    ),
    Case(
        name="dev-stderr-opened-again",
        command="seq 1 1000; echo err > /dev/stderr; seq 1 3; echo out > /dev/stdout; echo end",
        size=3893 + 4 + 6 + 4 + 4, head=b"1\n2\n", tail=b"1000\nerr\n1\n2\n3\nout\nend\n",
    ),
    Case(
        name="tee-to-dev-stdout", command="seq 1 1000; echo twice | tee /dev/stdout; seq 1 3",
        size=3893 + 12 + 6, head=b"1\n2\n", tail=b"twice\ntwice\n1\n2\n3\n",
    ),
    Case(
        name="tee-to-dev-stderr", command="seq 1 1000; echo twice | tee /dev/stderr; seq 1 3",
        size=3893 + 12 + 6, tail=b"twice\ntwice\n1\n2\n3\n",
    ),
    Case(
        name="dd-to-dev-stdout", tail=b"999\n1000\nmiddle\n1\n2\n3\n", head=b"1\n2\n",
        command="seq 1 1000; echo middle | dd of=/dev/stdout status=none; seq 1 3",
    ),
    Case(
        name="proc-self-fd", command="seq 1 1000; echo x > /proc/self/fd/2; seq 1 3",
        size=3893 + 2 + 6, tail=b"1000\nx\n1\n2\n3\n",
    ),
    Case(
        name="truncating-standard-output", size=3893 + 4, tail=b"1000\nend\n",
        command="seq 1 1000; @PY@ -c 'import os; os.ftruncate(1, 0)' 2>/dev/null; echo end",
    ),
    Case(
        name="order-of-both-streams", exact=b"o1\ne1\no2\ne2\no3\ne3\n",
        command="for i in 1 2 3; do echo o$i; echo e$i >&2; done",
    ),
    Case(
        name="two-writers-tear-no-line", size=2 * 5000 * 1001,
        command="@PY@ -c \"\nimport os\npid = os.fork()\nline = (b'c' if pid == 0 else b'p') *"
        ' 1000 + b\'\\n\'\nfor _ in range(5000): os.write(1, line)\nif pid: os.wait()"'
        " | tee /dev/null",
    ),
    Case(
        name="both-streams-closed", command="echo before; exec >&- 2>&-; @NAP@ & sleep 0.1; exit 4",
        exit_code=4, exact=b"before\n",
    ),
    Case(
        name="written-after-stdout-is-closed", exit_code=1,
        command="echo before; exec >&-; echo lost 2>/dev/null || { echo told >&2; exit 1; }",
        exact=b"before\ntold\n",
    ),
    Case(
        name="broken-pipe-is-silent", command="yes | head -n 1; echo ${PIPESTATUS[0]}",
        exact=b"y\n141\n",
    ),
    Case(
        name="process-substitution", exact=b"1\n2\n3\n",
        command="cat <(seq 1 3)",
    ),
    Case(
        name="output-by-a-grandchild", exact=b"deep\n",
        command="sh -c \"sh -c 'sh -c \\\"echo deep\\\"'\"",
    ),
    Case(name="silent", command="true", exact=b"", text_has=("(no output)",)),
    Case(
        name="thirty-processes-write", size=30 * 28_894 + 0,
        command="for i in $(seq 1 30); do head -c 28894 /dev/zero | tr '\\0' w & done; wait",
    ),
)  # fmt: skip

ENDINGS = (
    Case(name="not-found", command="no-such-program-here", exit_code=127, has=("not found",)),
    Case(name="not-executable", command="/etc/passwd", exit_code=126, has=("ermission denied",)),
    Case(name="exit-255", command="exit 255", exit_code=255),
    Case(name="exit-256-wraps", command="exit 256", exit_code=0),
    Case(name="segmentation-fault", command="kill -SEGV $$", exit_code=None, signal=11),
    Case(name="aborted", command="kill -ABRT $$", exit_code=None, signal=6),
    Case(name="broken-pipe", command="kill -PIPE $$", exit_code=None, signal=13),
    Case(name="hung-up", command="kill -HUP $$; sleep 9", exit_code=None, signal=1),
    Case(name="a-child-killed-by-a-signal", command="sh -c 'kill -9 $$'; exit $?", exit_code=137),
    Case(name="syntax-error", command="if then", exit_code=2, has=("syntax error",)),
    Case(
        name="not-started", argv=("/no/such/program",), status=422, exit_code=None, complete=False,
        error_has=("exec", "No such file or directory"),
    ),
    Case(
        name="cwd-is-gone", command="pwd", cwd="gone", status=422, exit_code=None, complete=False,
        error_has=("cwd", "No such file or directory"), max_s=3,
    ),
    Case(
        name="cwd-is-a-file", command="pwd", cwd="file", status=422, exit_code=None,
        complete=False, error_has=("cwd", "Not a directory"),
    ),
    Case(
        name="cwd-is-removed-by-the-command", cwd="here",
        command="rmdir @REPO@/here; echo on; cat /proc/self/cwd/x 2>/dev/null; exit 3",
        exit_code=3, exact=b"on\n",
    ),
    Case(name="cwd-has-odd-characters", cwd="a b'\"$é", command="pwd", text_has=("/a b'\"$é\n",)),
    Case(
        name="timeout-keeps-what-was-written", command="seq 1 50000; @NAP@", timeout=0.7,
        exit_code=None, signal=15, timed_out=True, exact=NUMBERS, naps="gone",
    ),
    Case(
        name="timeout-and-a-last-word", timeout=0.5, exit_code=5, timed_out=True,
        command="trap 'seq 1 50000; exit 5' TERM; @NAP@ & wait",
        exact=NUMBERS, naps="gone",
    ),
    Case(
        name="timeout-of-a-flood", command="yes flood", timeout=0.3, exit_code=None, signal=15,
        timed_out=True, head=b"flood\nflood\n",
    ),
    Case(
        name="a-stopped-process", command="echo on; @NAP@ & kill -STOP $!; kill -STOP $$",
        timeout=0.5, exit_code=None, signal=15, timed_out=True, exact=b"on\n", naps="gone",
    ),
)  # fmt: skip

PROCESSES = (
    Case(
        name="daemon-by-double-fork", timeout=0.7, exit_code=None, signal=15, timed_out=True,
        command="echo on; (setsid sh -c 'setsid @NAP@ & exit' &);"
        " (trap '' TERM HUP; @NAP@) & @NAP@",
        has=("on",), naps="gone",
    ),
    Case(
        name="daemon-holds-the-output", grace=0.3, request={"on_output_open": "kill"},
        command="echo on; setsid setsid @NAP@ & exit 6", exit_code=6, exact=b"on\n", naps="gone",
        max_s=4,
    ),
    Case(
        name="daemon-with-its-own-output", max_s=3, naps="left",
        command="echo on; nohup @NAP@ >/dev/null 2>&1 </dev/null &", exact=b"on\n",
    ),
    Case(
        name="background-with-redirect", command="@NAP@ >@REPO@/log 2>&1 & echo pid=$!",
        has=("pid=",), max_s=3, naps="left",
    ),
    Case(
        name="late-output-is-waited-for", request={"on_output_open": "wait"}, grace=0.0,
        command="(sleep 0.6; echo late) & echo now", exact=b"now\nlate\n",
    ),
    Case(
        name="wait-ends-at-the-timeout", request={"on_output_open": "wait"}, timeout=0.7,
        command="echo now; @NAP@ &", exit_code=0, timed_out=True, exact=b"now\n", naps="gone",
        max_s=4,
    ),
    Case(
        name="zombies-are-reaped", has=("zombies=0",),
        command="for i in $(seq 1 50); do (sh -c 'exit 0' &) ; done; sleep 0.3;"
        r' echo zombies=$(grep -l "^PPid:.$PPID\$" /proc/[0-9]*/status 2>/dev/null'
        " | xargs grep -l '^State:.Z' 2>/dev/null | wc -l)",
    ),
    Case(
        name="no-terminal", command="tty; test -t 0 || test -t 1 || echo none", has=("none",),
    ),
    Case(
        name="a-password-prompt", timeout=5, max_s=4, hasnt=("got it",),
        command="read -s -p 'Password: ' x </dev/tty && echo got it; true",
    ),
    Case(
        # Those above 28 are the C library's own, and no program may set them.
        name="only-the-asked-for-signals",
        command="grep SigBlk /proc/self/status; grep SigIgn /proc/self/status | tail -c 8",
        exact=b"SigBlk:\t0000000000000000\n0000000\n",
    ),
    Case(
        name="no-descriptor-of-ours", command="ls /proc/self/fd | tr '\\n' ' '", exact=b"0 1 2 3 ",
    ),
)  # fmt: skip

INPUTS = (
    Case(
        name="stdin-of-8-MB", command="sha256sum", request={"stdin": "0123456789abcdef" * 500_000},
        has=(hashlib.sha256(b"0123456789abcdef" * 500_000).hexdigest(),),
    ),
    Case(
        name="stdin-comes-back-whole", command="cat", request={"stdin": "é\n" * 200_000},
        exact="é\n".encode() * 200_000,
    ),
    Case(
        name="stdin-that-nobody-reads", command="exec true", request={"stdin": "x" * 1_000_000},
    ),
    Case(
        name="argv-is-not-parsed", argv=("printf", "%s|", "a  b", "", "$HOME", "*", "'q'", "é\n"),
        exact="a  b||$HOME|*|'q'|é\n|".encode(),
    ),
    Case(
        name="quotes", command="echo \"it's\" '\"$x\"' $'tab\\there'",
        exact=b"it's \"$x\" tab\there\n",
    ),
    Case(name="lines", command="echo 1\necho 2\n\ncat <<'E'\n$three\nE\n", exact=b"1\n2\n$three\n"),
    Case(
        name="a-command-of-100-KB", command=": " + "x" * 100_000 + "; echo end", exact=b"end\n",
    ),
    Case(name="a-command-of-unicode", command="echo 漢🌍", exact="漢🌍\n".encode()),
    Case(
        name="locale-is-utf-8", exact=b"3 UTF-8\n",
        command="x=é漢🌍; echo ${#x} $(@PY@ -c 'import locale; print(locale.getencoding())')",
    ),
    Case(
        name="variables-of-the-request", service_env={"HOME": "/root", "DB_PASSWORD": "sk-LEAK9"},
        request={"env": {"MY_API_KEY": "given", "EMPTY": "", "SPACE": " a b "}},
        command='echo "$MY_API_KEY|$EMPTY|$SPACE|$DB_PASSWORD|"', exact=b"given|| a b ||\n",
    ),
    Case(
        name="nothing-asks-a-person", has=("0 cat cat dumb",),
        command="echo $GIT_TERMINAL_PROMPT $PAGER $GIT_PAGER $TERM",
    ),
    Case(name="no-start-up-files", command="alias; shopt -q login_shell || echo no", exact=b"no\n"),
)  # fmt: skip


@pytest.mark.parametrize(
    "case", [*REPORTED, *OUTPUTS, *ENDINGS, *PROCESSES, *INPUTS], ids=lambda case: str(case.name)
)
async def test_a_case(case: Case, make_site: MakeSite) -> None:
    site = await make_site(case.service_env, env_allow=case.env_allow)
    nap = unique_sleep()
    if case.spill_limit is not None:
        limit_spills(case.spill_limit)
    for _ in range(case.repeat):
        asked = (ask(site, case, nap, number) for number in range(case.parallel))
        answers = await asyncio.gather(*asked)
        for number, (got, seconds) in enumerate(answers):
            check(case, site, number, got, seconds)
        assert len({got.id for got, _ in answers if "id" in got.json}) in (0, case.parallel)
    if case.naps == "gone":
        assert await eventually(lambda: not running(nap), 1)
    elif case.naps == "left":
        assert running(nap)


def limit_spills(size: int) -> None:
    """No file that a shim writes can grow beyond this; what a command writes can."""
    for child in kernel.descendants(os.getpid()):
        hard = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (size, hard))


async def ask(site: Site, case: Case, nap: str, number: int) -> tuple[Got, float]:
    """Send the request of a case; the answer, and the seconds that it took."""
    body: dict[str, Any] = {
        "timeout_ms": int(case.timeout * 1000),
        "output_grace_ms": int(case.grace * 1000),
        "kill_grace_ms": 500,
        **case.request,
    }
    python = sys.executable if case.command is None else shlex.quote(sys.executable)
    names = {"@NAP@": nap, "@I@": str(number), "@REPO@": str(site.repo), "@PY@": python}
    words = [case.command] if case.command is not None else list(case.argv or ())
    for name, value in names.items():
        words = [word.replace(name, value) for word in words]
    body |= {"argv": words} if case.command is None else {"command": words[0]}
    if case.cwd is not None:
        where = site.repo / case.cwd
        if case.cwd == "file":
            where.write_text("")
        elif case.cwd != "gone":
            where.mkdir()
        body["cwd"] = str(where)
    began = time.monotonic()
    sent = io.BytesIO(json.dumps(body).encode())
    got = await site.ask("POST", data=sent, headers={"Content-Type": "application/json"})
    return got, time.monotonic() - began


def check(case: Case, site: Site, number: int, got: Got, seconds: float) -> None:
    """Compare one answer with what the case says."""
    assert got.status == case.status, got.json
    assert seconds < case.max_s
    for words in case.error_has:
        assert words in str(got.json["error"]) + str(got.json["spawn_error"])
    if case.status != 200:
        return
    told = got.json
    output = site.spill(got.id).read_bytes()
    ended = (told["exit_code"], told["signal"], told["timed_out"], told["complete"])
    assert ended == (case.exit_code, case.signal, case.timed_out, case.complete), told
    check_invariants(got, site)
    if case.size is not None:
        assert got.detail["output"]["bytes"] == case.size
        assert len(output) == (case.size if case.spill_limit is None else case.spill_limit)
    if case.exact is not None:
        assert output == case.exact
    for words in case.has:
        assert words.encode() in output
        assert words in told["text"]
    for words in case.hasnt:
        assert words not in got.body.decode()
        assert words.encode() not in output
    for words in case.text_has:
        assert words in told["text"]
    for words in case.text_hasnt:
        assert words not in told["text"]
    assert output.startswith(case.head)
    assert output.endswith(case.tail)
    if case.own_lines:
        lines = [f"id-{number} line {n}" for n in range(1, case.own_lines + 1)]
        assert output.decode().splitlines() == lines


# --- what is no row ------------------------------------------------------------------------------


async def test_119_a_client_that_leaves_takes_its_command_along(site: Site) -> None:
    nap = unique_sleep()
    body = {"command": f"echo go; {nap}", "kill_grace_ms": 500}
    headers = {"Authorization": f"Bearer {token()}"}
    async with aiohttp.ClientSession(headers=headers) as leaver:
        asked = asyncio.ensure_future(leaver.post(f"{site.url}/v1/exec", json=body))
        assert await eventually(lambda: bool(running(nap)))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    assert await eventually(lambda: not running(nap), 1.5)
    (listed,) = (await site.ask("GET")).json["commands"]
    final = await site.final(listed["id"])
    assert (final.detail["reason"], final.json["signal"]) == ("client_gone", signal.SIGTERM)
    assert site.spill(final.id).read_bytes() == b"go\n"
    assert final.json["complete"] is True


async def test_107_the_bytes_of_an_output_come_over_http_as_they_are(site: Site) -> None:
    got = await site.run("printf 'ok\\360\\377\\000end\\n'")
    assert (await site.output(got.id)).body == b"ok\xf0\xff\0end\n"


async def test_a_fork_bomb_is_ended_by_the_timeout(site: Site, tmp_path: Path) -> None:
    """A bounded one: each generation starts two, six generations deep, and none of them ends."""
    script = tmp_path / "bomb"
    nap = unique_sleep()
    script.write_text(
        f'[ "$1" -gt 0 ] && {{ sh {script} $(($1 - 1)) & sh {script} $(($1 - 1)) & }}\n{nap}\n'
    )
    got = await site.run(f"echo on; setsid sh {script} 5 & wait", timeout_ms=1500)
    assert (got.json["timed_out"], site.spill(got.id).read_bytes()) == (True, b"on\n")
    assert await eventually(lambda: not running(nap), 1)
    assert got.detail["survivors"] == 0
