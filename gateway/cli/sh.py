"""`gateway sh`: a shell whose commands run at the endpoint; runs none of them itself.

Starts with few modules of the standard library, for an agent starts it with every command.
"""

from __future__ import annotations

import os
import signal
import sys
from binascii import b2a_base64

from gateway.cli import exec_caller
from gateway.cli.exec_client import Run, exit_code
from gateway.cli.exec_wire import FAILED, CallError, Interrupted
from gateway.cli.sh_output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FALLBACK = "GATEWAY_EXEC_FALLBACK"

MAX_MS = 3_600_000
"""The longest that the endpoint lets a command run."""

BROKEN_PIPE = 128 + 13

_OPTIONS = ("--endpoint", "--token-file", "--config", "--timeout")
_LONG_WITH_VALUE = ("--rcfile", "--init-file")
_TRUE = ("1", "true", "yes", "on")

HELP = """\
usage: gateway sh [OPTIONS] [SHELL FLAGS] -c COMMAND [NAME ARG...]
       gateway-bash [SHELL FLAGS] -c COMMAND [NAME ARG...]

Runs COMMAND at the gateway's endpoint for shell commands as `bash -c COMMAND` would here: with this
directory, environment, umask, standard input and exit code. Its output comes when it has ended:
whole, or the beginning, the end and the path of the file that has all of it. (The beginning comes
earlier if it runs for more than two seconds.) Standard error is part of standard output, in the
order of writing.

SHELL FLAGS are those of bash (-l, -i, -e, -o NAME, -lc, ...) and reach it unchanged. Without -c
(a script, -s, an interactive shell) nothing goes to the endpoint: the real shell takes the place of
this program. gateway-bash is the same for programs that want the path of a shell: all its words are
the shell's.

options, each before the flags of the shell:
  --endpoint ADDR    host:port or unix:/path; else GATEWAY_EXEC_ENDPOINT, else [exec] listen of the
                     config, else unix:/run/gateway/exec.sock
  --token-file FILE  what holds the token; else GATEWAY_EXEC_TOKEN_FILE, else [exec] token
  --config FILE      the gateway's configuration; else GATEWAY_EXEC_CONFIG
  --timeout SECONDS  end the command then; at most, and without it, 3600
  --fallback         if nothing can be reached there, run the command here and say so; also
                     GATEWAY_EXEC_FALLBACK=1. Never done unless asked for
  --help

environment:
  GATEWAY_EXEC_SHELL  the real shell (default: bash, where there is none sh)
  GATEWAY_EXEC_STDIN  auto: all of standard input is read before the command starts (8 MiB at most);
                      a terminal, or a pipe that stays open and silent for 0.1 s, is none.
                      wait: such a pipe is waited for. none: nothing is read
The command gets neither the token nor these settings, and a SHELL that is a real one.

exit codes: the command's; 128+N if signal N ended it, or this program; 124 after the timeout; 125
if it was not run, or how it ended is not known; 126 and 127 as in a shell.
"""


class Options:
    """What stands before the flags of the shell."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.fallback = False
        self.help = False
        self.rest: list[str] = []

    @property
    def timeout_ms(self) -> int:
        """Raises :class:`CallError`."""
        return timeout_ms(self.values.get("--timeout"))


def timeout_ms(seconds: str | None) -> int:
    """``seconds`` as the endpoint wants them. Raises :class:`CallError`."""
    if seconds is None:
        return MAX_MS
    try:
        milliseconds = int(float(seconds) * 1000)
    except (ValueError, OverflowError):
        milliseconds = 0
    if not 1 <= milliseconds <= MAX_MS:
        raise CallError(f"--timeout must be a number of seconds up to {MAX_MS // 1000}.")
    return milliseconds


def split(words: Sequence[str]) -> Options:
    """The options of this program, and what is the shell's. Raises :class:`CallError`."""
    options = Options()
    rest = list(words)
    while rest:
        name, equals, value = rest[0].partition("=")
        if rest[0] == "--fallback":
            options.fallback = True
        elif rest[0] == "--help":
            options.help = True
        elif name in _OPTIONS:
            if not equals:
                if len(rest) < 2:
                    raise CallError(f"{name} needs a value.")
                value = rest.pop(1)
            options.values[name] = value
        else:
            break
        del rest[0]
    options.rest = rest
    return options


def has_command(words: Sequence[str]) -> bool:
    """Whether a shell called with ``words`` runs the string after its flags."""
    wanted = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-", "--"):
            break
        if word.startswith("--"):
            if word in _LONG_WITH_VALUE and rest:
                del rest[0]
        elif len(word) > 1 and word[0] in "-+":
            wanted = wanted or (word[0] == "-" and "c" in word)
            # Each -o and each -O takes a name from behind.
            del rest[: word.lower().count("o")]
        else:
            return wanted
    return wanted and bool(rest)


def main(words: Sequence[str]) -> int:
    """Run the command in ``words``, or become the real shell; the exit code."""
    try:
        options = split(words)
    except CallError as failure:
        exec_caller.tell("sh", failure.sentence)
        return 2
    if options.help:
        sys.stdout.write(HELP)
        return 0
    return _until_interrupted(options)


def bash() -> int:
    """The command `gateway-bash`: every word is the shell's."""
    options = Options()
    options.rest = sys.argv[1:]
    return _until_interrupted(options)


def _until_interrupted(options: Options) -> int:
    try:
        return _shell(options)
    except Interrupted as stop:
        return 128 + stop.signal


def _shell(options: Options) -> int:
    shell = exec_caller.real_shell(os.environ)
    if not has_command(options.rest):
        return _become(shell, options.rest)
    exec_caller.interruptible()
    try:
        place = exec_caller.find(
            os.environ,
            options.values.get("--endpoint"),
            options.values.get("--token-file"),
            options.values.get("--config"),
        )
        connection = place.endpoint.connect()
    except CallError as failure:
        wanted = options.fallback or os.environ.get(FALLBACK, "").lower() in _TRUE
        if failure.unreached and wanted:
            exec_caller.tell("sh", f"{failure.sentence} The command is run here instead.")
            return _become(shell, options.rest)
        exec_caller.tell("sh", failure.sentence)
        return FAILED
    stdin = exec_caller.Stdin(os.environ.get(exec_caller.STDIN, "auto"))
    try:
        variables, dropped = exec_caller.environment(os.environ, place, shell)
        if dropped:
            exec_caller.tell("sh", f"Not UTF-8 and not passed on: {', '.join(dropped)}.")
        request: dict[str, Any] = {
            "argv": [shell, *options.rest],
            "cwd": exec_caller.directory(),
            "env": variables,
            "umask": exec_caller.umask(),
            "timeout_ms": options.timeout_ms,
            "on_disconnect": "kill",
        }
        data = stdin.read()
        if data:
            request["stdin_b64"] = b2a_base64(data, newline=False).decode()
        run = Run(place.endpoint, request, connection)
    except CallError as failure:
        exec_caller.tell("sh", failure.sentence)
        return FAILED
    code = follow(run)
    if stdin.missed():
        exec_caller.tell(
            "sh",
            "Standard input came after the command had started, and was not passed on: "
            f"{exec_caller.STDIN}=wait waits for it.",
        )
    return code


def follow(run: Run) -> int:
    """Wait for the end of the command and print what is shown of it."""
    output = Output()
    output.watch()
    stopped_by = 0
    try:
        try:
            _collect(run, output)
        except Interrupted as stop:
            stopped_by = stop.signal
            if not run.kill():
                # It has not begun; if it has, it ends with this connection.
                output.give_up()
                return 128 + stopped_by
            _collect(run, output)
    except CallError as failure:
        output.give_up()
        exec_caller.tell("sh", failure.sentence)
        return 128 + stopped_by if stopped_by else failure.code
    finally:
        run.close()
    assert run.answer is not None
    output.finish(run.answer, run.received)
    if stopped_by:
        return 128 + stopped_by
    if (run.answer.get("detail") or {}).get("state") == "interrupted":
        exec_caller.tell("sh", "What watched the command died: how it ended is not known.")
    return BROKEN_PIPE if output.left else exit_code(run.answer)


def _collect(run: Run, output: Output) -> None:
    for piece in run.events():
        output.add(piece)


def _become(shell: str, words: Sequence[str]) -> int:
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores them, and exec hands that on.
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execvp(shell, [shell, *words])  # noqa: S606 - what the caller asked for
    except OSError as error:
        exec_caller.tell("sh", f"The shell {shell} cannot be started: {error.strerror}.")
        return 126 if isinstance(error, PermissionError) else 127
