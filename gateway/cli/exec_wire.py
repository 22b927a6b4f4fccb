"""The wire to the endpoint for shell commands: connections, events, refusals; decides nothing.

Standard library alone and few modules of it: `gateway sh` pays for this start with every command.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 900.0
"""A request may stand in a queue before its command starts."""

_READ = 1 << 16

FAILED = 125
"""The exit code of failures that are not the command's own."""


class CallError(Exception):
    """Why there is no answer, as one sentence. ``unreached``: nothing was there to be asked."""

    def __init__(self, sentence: str, *, code: int = FAILED, unreached: bool = False) -> None:
        self.sentence = sentence
        self.code = code
        self.unreached = unreached
        super().__init__(sentence)


class Interrupted(Exception):  # noqa: N818 - nobody's error
    """A signal that asks to end the command came."""

    def __init__(self, signal: int) -> None:
        self.signal = signal
        super().__init__(signal)


class Connection(http.client.HTTPConnection):
    """One socket, which stays at hand when ``http.client`` lets go of it."""

    def __init__(self, stream: socket.socket, host: str, port: int | None = None) -> None:
        super().__init__(host, port)
        self.auto_open = 0
        self.sock = stream
        self.stream = stream

    def leave(self) -> None:
        """Close it even if a response still reads from it."""
        with suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.close()


class Endpoint:
    """Where commands are run: ``host:port`` or ``unix:/path``, and the token for it."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._token = token
        self._path = address.removeprefix("unix:") if address.startswith("unix:") else ""
        if not self._path:
            host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
            self._host = host.removeprefix("[").removesuffix("]")
            if not colon or not self._host or not (port.isascii() and port.isdigit()):
                raise CallError(
                    f"The endpoint {address!r} is no address: it must be one such as "
                    '"unix:/run/gateway/exec.sock" or "127.0.0.1:8486".'
                )
            self._port = int(port)

    def connect(self) -> Connection:
        """A connection that is there. Raises :class:`CallError`."""
        try:
            if self._path:
                stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    stream.settimeout(CONNECT_SECONDS)
                    stream.connect(self._path)
                except BaseException:
                    stream.close()
                    raise
                return Connection(stream, "localhost")
            stream = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Connection(stream, self._host, self._port)
        except (OSError, OverflowError) as error:
            raise CallError(self._unreached(error), unreached=True) from None

    def _unreached(self, error: Exception) -> str:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if isinstance(error, ConnectionRefusedError | FileNotFoundError):
            return (
                f"Nothing listens on {self.address} ({reason}): start `gateway serve` with "
                "[exec] enabled, or say with --endpoint or GATEWAY_EXEC_ENDPOINT where it is."
            )
        if isinstance(error, PermissionError):
            return f"The socket {self.address} may not be used by this user ({reason})."
        return f"The endpoint {self.address} cannot be reached: {reason}."

    def ask(
        self,
        connection: Connection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> http.client.HTTPResponse:
        """One request on ``connection``. Raises ``OSError`` and ``http.client.HTTPException``."""
        connection.stream.settimeout(seconds)
        named = {"Authorization": f"Bearer {self._token}", **headers}
        if body is not None:
            named["Content-Type"] = "application/json"
        connection.request(method, path, body, named)
        return connection.getresponse()


def events_of(response: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """Name and data of each whole event; ends where the stream does."""
    pending = b""
    name, data = "", b""
    while chunk := response.read1(_READ):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in map(_bare, lines):
            if line.startswith(b"data:"):
                data += line[5:].removeprefix(b" ")
            elif line.startswith(b"event:"):
                name = line[6:].strip().decode("ascii", "replace")
            elif not line:
                if data:
                    yield name, data
                name, data = "", b""


def _bare(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


def as_object(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises :class:`CallError`."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise stranger()
    return value


def stranger() -> CallError:
    """Something else listens there."""
    return CallError("What answers there is not the endpoint for shell commands.")


def refusal(status: int, body: bytes, address: str) -> CallError:
    """Why a command was not started."""
    said, document = "", {}
    try:
        document = json.loads(body)
        error = document.get("error", document)
        said = str(error.get("message") or "") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        document = {}
    if status == 401:
        return CallError(f"{address} refused the token. {said}".strip())
    if status == 429:
        return CallError(f"{address} is busy, and stayed so. {said}".strip())
    if status == 422:
        spawn = document.get("spawn_error") or (document.get("detail") or {}).get("spawn_error")
        number = spawn.get("errno") if isinstance(spawn, dict) else None
        stage = spawn.get("stage", "exec") if isinstance(spawn, dict) else "exec"
        why = str(spawn.get("message", "")) if isinstance(spawn, dict) else ""
        known = {2: 127, 13: 126, 8: 126} if stage == "exec" else {}
        said = said or f"The command could not be started: {why}."
        return CallError(said, code=known.get(number or 0, FAILED))
    if said:
        return CallError(f"{address} refused: {said}")
    return CallError(f"{address} answered {status}: is it the endpoint for shell commands?")
