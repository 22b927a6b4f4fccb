"""What the caller of `gateway sh` and `gateway exec` hands over; sends nothing itself.

Standard library alone. The whole configuration is not loaded: it may ask for keys of providers that
who runs commands does not have.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys

from gateway.cli.exec_wire import CallError, Endpoint, Interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType
    from typing import Any

ENDPOINT = "GATEWAY_EXEC_ENDPOINT"
TOKEN_FILE = "GATEWAY_EXEC_TOKEN_FILE"  # noqa: S105 - a name
CONFIG = "GATEWAY_EXEC_CONFIG"
STDIN = "GATEWAY_EXEC_STDIN"
SHELL = "GATEWAY_EXEC_SHELL"

OWN = "GATEWAY_EXEC_"
"""How variables begin that no command gets."""

DEFAULT_ENDPOINT = "unix:/run/gateway/exec.sock"

MAX_STDIN = 8 << 20
SILENT_SECONDS = 0.1
"""How long a pipe that says nothing is waited for."""

_LONGEST_TOKEN = 4096


class Place:
    """The endpoint, and the names of variables that hold its token."""

    def __init__(self, endpoint: Endpoint, token: str, variables: tuple[str, ...] = ()) -> None:
        self.endpoint = endpoint
        self.token = token
        self.variables = variables


def find(
    environ: Mapping[str, str],
    endpoint: str | None = None,
    token_file: str | None = None,
    config: str | None = None,
) -> Place:
    """Where commands are run: options, then variables, then the file. Raises :class:`CallError`."""
    address = endpoint or environ.get(ENDPOINT)
    file = token_file or environ.get(TOKEN_FILE)
    path = config or environ.get(CONFIG)
    token = ""
    variables: tuple[str, ...] = ()
    if file:
        token = _token_in(file)
    if path and not (address and token):
        table = _exec_table(path)
        address = address or _reachable(str(table.get("listen") or ""))
        if not token:
            token, variables = _token_of(table, path, environ)
    if not token:
        raise CallError(
            "No token is named: give --token-file FILE, set GATEWAY_EXEC_TOKEN_FILE, or give "
            "--config FILE with [exec] token."
        )
    return Place(Endpoint(address or DEFAULT_ENDPOINT, token), token, variables)


def _reachable(listen: str) -> str:
    """How a client on this machine reaches a listener."""
    host, _, port = listen.rpartition(":")
    return {"0.0.0.0": "127.0.0.1:", "[::]": "[::1]:"}.get(host, f"{host}:") + port if host else ""  # noqa: S104 - told apart, not bound


def _token_in(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(_LONGEST_TOKEN).strip()
    except OSError as error:
        raise CallError(f"The token file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise CallError(f"The token file {path} holds no token.")
    return token


def _exec_table(path: str) -> Mapping[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.loads(file.read().decode("utf-8-sig")).get("exec", {})
    except OSError as error:
        raise CallError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CallError(f"{path} is not valid TOML: {error}.") from None
    if not isinstance(table, dict) or not table.get("enabled", False):
        raise CallError(f"{path} does not enable [exec]: nothing would listen.")
    return table


def _token_of(
    table: Mapping[str, Any], path: str, environ: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """The first token of the configuration that can be had."""
    given = table.get("token", [])
    references = given if isinstance(given, list) else [given]
    failure = CallError(f"{path} has no exec.token.")
    names = tuple(str(each)[4:] for each in references if str(each).startswith("env:"))
    for reference in references:
        kind, _, rest = str(reference).partition(":")
        try:
            if kind == "file":
                return _token_in(rest), names
        except CallError as error:
            failure = error
            continue
        if kind == "env" and environ.get(rest, "").strip():
            return environ[rest].strip(), names
        failure = CallError(f"The exec.token of {path} is not to be had in this environment.")
    raise failure


def environment(
    environ: Mapping[str, str], place: Place, shell: str
) -> tuple[dict[str, str], list[str]]:
    """The variables of the command, and the names of those that cannot be sent.

    It never gets the token, in whatever variable it stands, nor the way to it. ``SHELL`` becomes a
    real shell where it is none that this system knows: a command that starts ``$SHELL`` would find
    `gateway sh` without a token.
    """
    kept: dict[str, str] = {}
    dropped: list[str] = []
    for name, value in environ.items():
        if name.startswith(OWN) or name in place.variables or place.token in value:
            continue
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            dropped.append(ascii(name)[1:-1])
            continue
        kept[name] = value
    if "SHELL" in kept and kept["SHELL"] not in _known_shells():
        kept["SHELL"] = shell
    return kept, dropped


def _known_shells() -> set[str]:
    try:
        with open("/etc/shells", encoding="utf-8", errors="replace") as file:
            return {line.strip() for line in file if line.startswith("/")}
    except OSError:
        return {"/bin/sh", "/bin/bash"}


def real_shell(environ: Mapping[str, str]) -> str:
    """The shell itself: ``GATEWAY_EXEC_SHELL``, else bash, else sh."""
    chosen = environ.get(SHELL)
    if chosen:
        return chosen
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"):
        if os.access(path, os.X_OK):
            return path
    return "/bin/sh"


def umask() -> str:
    """The caller's, as the endpoint wants it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:04o}"


def directory() -> str:
    """The caller's. Raises :class:`CallError` where it is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        raise CallError(f"The current directory cannot be used: {error.strerror}.") from None


class Stdin:
    """Standard input: what is there of it before the command starts, 8 MiB at most.

    A terminal and a closed one are none. Neither is a pipe that stays open and silent, as some
    agents leave one to their shells: a shell would just start the command. :meth:`missed` says
    whether something came after all.
    """

    def __init__(self, mode: str = "auto") -> None:
        self._mode = mode
        self._open = False

    def read(self) -> bytes | None:
        """Raises :class:`CallError` where there is too much."""
        try:
            kind = os.fstat(0).st_mode
        except OSError:
            return None
        if self._mode == "none" or is_terminal(0):
            return None
        if self._mode != "wait" and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
            poll = select.poll()
            poll.register(0, select.POLLIN)
            if not poll.poll(SILENT_SECONDS * 1000):
                self._open = True
                return None
        data = bytearray()
        try:
            while piece := os.read(0, 1 << 16):
                data += piece
                if len(data) > MAX_STDIN:
                    raise CallError(
                        f"Standard input has more than {MAX_STDIN} bytes: put it into a file and "
                        "redirect the command's input from there."
                    )
        except OSError as error:
            if data:
                raise CallError(f"Standard input cannot be read: {error.strerror}.") from None
            # Open for writing alone, or a directory: a command that read it would fail as well.
            return None
        return bytes(data)

    def missed(self) -> bool:
        """Whether data came when it was too late."""
        if not self._open:
            return False
        poll = select.poll()
        poll.register(0, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))


def interruptible() -> None:
    """From now on INT, TERM and HUP raise :class:`Interrupted`, and the second one ends this."""

    def raise_it(number: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, leave)
        raise Interrupted(number)

    def leave(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, raise_it)


def tell(command: str, sentence: str) -> None:
    """One line on standard error, if there is one."""
    try:
        sys.stderr.write(f"gateway {command}: {sentence}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def is_terminal(descriptor: int) -> bool:
    """Whether a person looks at it."""
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def write(data: bytes) -> None:
    """All of ``data`` to standard output, at once. Raises ``BrokenPipeError``."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            select.select([], [1], [])
