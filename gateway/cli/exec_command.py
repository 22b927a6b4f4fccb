"""`gateway exec`: one command at the endpoint, with its output as it comes; runs nothing itself."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from binascii import b2a_base64
from typing import TYPE_CHECKING, Any

from gateway.cli import exec_caller
from gateway.cli.exec_client import Run, exit_code
from gateway.cli.exec_wire import CallError, Interrupted
from gateway.cli.sh import BROKEN_PIPE, timeout_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INCOMPLETE = 123
"""The command exited with 0, and not all of its output is here."""

_EVERY = 0.5
"""Seconds between two looks at the progress."""

_EPILOG = """\
Its standard output and standard error come on standard output, in the order of writing and byte for
byte. Ctrl-C, SIGTERM and SIGHUP end it. A connection that breaks is made again, and the output goes
on where it was.

exit codes: the command's; 128+N if signal N ended it, or this program; 123 if the command exited
with 0, but its output is not complete, which is told on standard error; 124 after the timeout; 125
if it was not run, or how it ended is not known; 126 and 127 as in a shell.

environment: GATEWAY_EXEC_ENDPOINT, GATEWAY_EXEC_TOKEN_FILE, GATEWAY_EXEC_CONFIG and
GATEWAY_EXEC_STDIN, as `gateway sh --help` explains them. The command gets the variables of the
caller, but not the token and the way to it.
"""


def main(words: Sequence[str]) -> int:
    """Run what the ``words`` say, and return the exit code."""
    parser = _parser()
    ours, argv = list(words), []
    if "--" in ours:
        at = ours.index("--")
        ours, argv = ours[:at], ours[at + 1 :]
    arguments = parser.parse_args(ours)
    if arguments.words:
        parser.error("the command stands behind --, as in: gateway exec -- ls -l")
    if bool(argv) == (arguments.shell is not None):
        parser.error("give either a command behind -- or --shell STRING")
    try:
        return _run(arguments, argv)
    except CallError as failure:
        exec_caller.tell("exec", failure.sentence)
        return failure.code
    except Interrupted as stop:
        return 128 + stop.signal


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gateway exec",
        usage="gateway exec [OPTIONS] (-- CMD [ARG...] | --shell STRING)",
        description="Run a command at the gateway's endpoint for shell commands.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", help=argparse.SUPPRESS)
    add("--shell", metavar="STRING", help="a command line for bash instead of CMD")
    add("--cwd", metavar="DIR", help="where it runs (default: here)")
    add("--timeout", metavar="SECONDS", help="end it then (default, and at most: 3600)")
    add("--background", action="store_true", help="print its id and do not wait for its end")
    add("--json", action="store_true", help="print the whole answer at the end, not the output")
    add("--endpoint", metavar="ADDR", help="host:port or unix:/path of the endpoint")
    add("--token-file", metavar="FILE", help="what holds the token")
    add("--config", metavar="FILE", help="the gateway's configuration, for what is not given")
    return parser


def _run(arguments: argparse.Namespace, argv: list[str]) -> int:
    place = exec_caller.find(os.environ, arguments.endpoint, arguments.token_file, arguments.config)
    limit = timeout_ms(arguments.timeout)
    exec_caller.interruptible()
    connection = place.endpoint.connect()
    shell = exec_caller.real_shell(os.environ)
    variables, dropped = exec_caller.environment(os.environ, place, shell)
    if dropped:
        exec_caller.tell("exec", f"Not UTF-8 and not passed on: {', '.join(dropped)}.")
    here = exec_caller.directory() if arguments.cwd is None else os.path.abspath(arguments.cwd)
    request: dict[str, Any] = {
        "cwd": here,
        "env": variables,
        "umask": exec_caller.umask(),
        "timeout_ms": limit,
        # A connection that breaks is made again; who wants the command to end says so.
        "on_disconnect": "continue",
        "background": arguments.background,
    }
    if argv:
        request["argv"] = argv
    else:
        request["command"] = arguments.shell
    stdin = exec_caller.Stdin(os.environ.get(exec_caller.STDIN, "auto"))
    data = stdin.read()
    if data:
        request["stdin_b64"] = b2a_base64(data, newline=False).decode()
    run = Run(place.endpoint, request, connection)
    if arguments.background:
        return _background(run, as_json=arguments.json)
    code = _follow(run, as_json=arguments.json)
    if stdin.missed():
        exec_caller.tell(
            "exec",
            "Standard input came after the command had started, and was not passed on: "
            f"{exec_caller.STDIN}=wait waits for it.",
        )
    return code


def _background(run: Run, *, as_json: bool) -> int:
    answer = run.submit()
    sys.stdout.write(f"{json.dumps(answer) if as_json else answer.get('id')}\n")
    return 0


def _follow(run: Run, *, as_json: bool) -> int:
    progress = Progress(run, shown=_is_seen(as_json))
    signal = 0
    try:
        with progress:
            try:
                _pass_on(run, as_json)
            except Interrupted as stop:
                signal = stop.signal
                if not run.kill():
                    if run.asked:
                        exec_caller.tell("exec", "The command could not be ended, and may run on.")
                    return 128 + signal
                _pass_on(run, as_json)
    except BrokenPipeError:
        run.kill()
        _forget_stdout()
        return BROKEN_PIPE
    finally:
        run.close()
    answer = run.answer
    assert answer is not None
    if as_json:
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    code = exit_code(answer)
    if answer.get("timed_out"):
        exec_caller.tell("exec", "The command ran into its timeout and was ended.")
    missing = incomplete(answer, None if as_json else run)
    if missing:
        exec_caller.tell("exec", missing)
        code = code or INCOMPLETE
    return 128 + signal if signal else code


def _pass_on(run: Run, as_json: bool) -> None:
    for piece in run.events():
        if not as_json:
            exec_caller.write(piece)


def incomplete(answer: Mapping[str, Any], run: Run | None) -> str:
    """Why what is here is not all of the output; empty if it is. ``run``: what was received."""
    spill = answer.get("spill") or {}
    detail = answer.get("detail") or {}
    output = detail.get("output") or {}
    size = output.get("bytes", spill.get("bytes"))
    place = spill.get("path") or spill.get("url") or ""
    where = f" What was saved is in {place}." if place and spill.get("bytes") else ""
    if detail.get("state") == "interrupted":
        return f"The output may not be complete: what watched the command died.{where}"
    if answer.get("output_open"):
        return (
            "The output is not complete: a process that was left behind holds it open. "
            f"What it still writes is added to {place}."
        )
    if not answer.get("complete"):
        error = (output.get("spill") or {}).get("error")
        return f"The output is not complete{f' ({error})' if error else ''}.{where}"
    if run is not None and (run.lost or run.received != size):
        return f"The output is not complete: {run.received} of {size} bytes came.{where}"
    return ""


class Progress:
    """Bytes and seconds in the last line of a terminal, as long as the command runs."""

    def __init__(self, run: Run, *, shown: bool) -> None:
        self._run = run
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True) if shown else None

    def __enter__(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._done.set()
            self._thread.join()

    def _show(self) -> None:
        started = time.monotonic()
        while not self._done.wait(_EVERY):
            self._write(line(self._run.received, time.monotonic() - started))
        self._write("")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        except (OSError, ValueError):
            self._done.set()


def line(received: int, seconds: float) -> str:
    """What a person is told while it runs."""
    size, unit = float(received), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    shown = f"{size:.0f}" if unit == "B" else f"{size:.1f}"
    return f"{shown} {unit}, {seconds:.0f} s"


def _is_seen(as_json: bool) -> bool:
    """A line on a terminal that the output does not write over."""
    return exec_caller.is_terminal(2) and (as_json or not exec_caller.is_terminal(1))


def _forget_stdout() -> None:
    """Its reader has left; the interpreter must not complain about it at its exit."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
