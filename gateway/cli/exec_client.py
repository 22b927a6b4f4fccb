"""Asks the endpoint for shell commands to run one, and hears of it; runs nothing itself.

Standard library alone and few modules of it: `gateway sh` pays for this start with every command.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from binascii import a2b_base64
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 900.0
"""A request may stand in a queue before its command starts."""

SILENCE_SECONDS = 60.0
"""A stream of events carries a comment every 15 s; one that is silent for so long is broken."""

BUSY_SECONDS = 60.0
"""How long an endpoint that is busy (429) is asked again, all in all."""

RECONNECTS = 8
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0
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


class _Connection(http.client.HTTPConnection):
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

    def connect(self) -> _Connection:
        """A connection that is there. Raises :class:`CallError`."""
        try:
            if self._path:
                stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                stream.settimeout(CONNECT_SECONDS)
                stream.connect(self._path)
                return _Connection(stream, "localhost")
            stream = socket.create_connection((self._host, self._port), CONNECT_SECONDS)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _Connection(stream, self._host, self._port)
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
        connection: _Connection,
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


class Run:
    """One command: :meth:`events` from its request to its answer, across broken connections."""

    def __init__(
        self,
        endpoint: Endpoint,
        request: Mapping[str, Any],
        connection: _Connection | None = None,
    ) -> None:
        self.id: str | None = None
        self.received = 0
        """Bytes of output so far."""
        self.lost = False
        """Whether a part of the output was never sent."""
        self.answer: dict[str, Any] | None = None
        self._endpoint = endpoint
        try:
            self._body = json.dumps(request, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise CallError(
                "The command, an argument or the directory's name is not UTF-8, which the "
                "endpoint cannot be sent."
            ) from None
        self._key = os.urandom(16).hex()
        self._sent = False
        self._connection = connection

    def events(self) -> Iterator[bytes]:
        """The output as it comes; ``answer`` is there at its end. Raises :class:`CallError`.

        May be called again after an exception from outside, and goes on where it was.
        """
        broken = 0
        while self.answer is None:
            try:
                response = self._subscribe() if self.id is not None else self._begin()
                if response is not None:
                    before = self.received
                    for data in self._read(response):
                        broken = 0
                        yield data
                    if self.received > before:
                        broken = 0
            except (OSError, http.client.HTTPException):
                pass
            except CallError as failure:
                # What was running was there: it may come back.
                if not failure.unreached or not self._sent:
                    raise
            if self.answer is None:
                self._disconnect()
                broken += 1
                if broken > RECONNECTS:
                    raise CallError(
                        f"The connection to {self._endpoint.address} broke and could not be made "
                        "again: how the command ended is not known."
                    )
                _pause(min(_FIRST_PAUSE * 2 ** (broken - 1), _LONGEST_PAUSE))
        self._disconnect()

    def submit(self) -> dict[str, Any]:
        """The answer to a request that is not waited for. Raises :class:`CallError`."""
        for _ in range(3):
            try:
                self._begin(stream=False)
            except (OSError, http.client.HTTPException):
                self._disconnect()
                continue
            if self.answer is not None:
                self._disconnect()
                return self.answer
        raise CallError(f"{self._endpoint.address} did not answer.")

    def kill(self) -> bool:
        """End the command; whether the endpoint has said yes."""
        try:
            if self.id is None:
                if not self._sent:
                    return False
                # It may run under a name that has not been heard of: the same request is not run
                # twice, and tells it.
                old, self._connection = self._connection, None
                response = self._begin()
                if response is not None:
                    next(self._read(response), None)
                if old is not None:
                    old.leave()
                if self.id is None:
                    return False
            connection = self._endpoint.connect()
            try:
                path = f"/v1/exec/{self.id}/kill"
                return self._endpoint.ask(connection, "POST", path, {}, b"{}", 5.0).status < 300
            finally:
                connection.leave()
        except (OSError, http.client.HTTPException, CallError):
            return False

    def close(self) -> None:
        """Leave; what the endpoint does with the command then was said in the request."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.leave()
            self._connection = None

    def _begin(self, *, stream: bool = True) -> http.client.HTTPResponse | None:
        """Ask for the command; None where the answer has come at once."""
        asked_until = time.monotonic() + BUSY_SECONDS
        while True:
            if self._connection is None:
                self._connection = self._endpoint.connect()
            headers = {"Idempotency-Key": self._key}
            headers["Accept"] = "text/event-stream" if stream else "application/json"
            self._sent = True
            response = self._endpoint.ask(self._connection, "POST", "/v1/exec", headers, self._body)
            if response.status < 300:
                if (response.getheader("Content-Type") or "").startswith("text/event-stream"):
                    return response
                self.answer = _object(response.read())
                return None
            self._sent = False
            failure = _refusal(response.status, response.read(), self._endpoint.address)
            self._disconnect()
            if response.status != 429:
                raise failure
            pause = _seconds(response.getheader("Retry-After"))
            if time.monotonic() + pause > asked_until:
                raise failure
            _pause(pause)

    def _subscribe(self) -> http.client.HTTPResponse | None:
        """Hear of the command that runs, from the first byte that has not come."""
        old, self._connection = self._connection, None
        try:
            self._connection = self._endpoint.connect()
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.received)}
            path = f"/v1/exec/{self.id}/events"
            response = self._endpoint.ask(
                self._connection, "GET", path, headers, seconds=SILENCE_SECONDS
            )
        finally:
            if old is not None:
                old.leave()
        if response.status >= 500:
            return None
        if response.status != 200:
            refusal = _refusal(response.status, response.read(), self._endpoint.address)
            raise CallError(
                f"The connection broke, and how the command ended is not known: {refusal.sentence}"
            )
        return response

    def _read(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        if self._connection is not None:
            self._connection.stream.settimeout(SILENCE_SECONDS)
        for name, data in _sse(response):
            if name == "start":
                self.id = _object(data).get("id") or self.id
            elif name == "output":
                piece = self._piece(_object(data))
                if piece:
                    self.received += len(piece)
                    yield piece
            elif name == "end":
                self.answer = _object(data)
                self.id = self.answer.get("id") or self.id
                return

    def _piece(self, event: Mapping[str, Any]) -> bytes:
        text, coded = event.get("text"), event.get("b64")
        data = a2b_base64(coded) if coded is not None else str(text or "").encode()
        offset = int(event.get("offset", self.received))
        if offset > self.received:
            self.lost = True
            self.received = offset
        return data[self.received - offset :]


def _sse(response: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
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


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CallError("What answers there is not the endpoint for shell commands.")
    return value


def _refusal(status: int, body: bytes, address: str) -> CallError:
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
        said = said or why
        return CallError(
            f"The command could not be started: {said.rstrip('.')}.".replace(": .", "."),
            code=known.get(number or 0, FAILED),
        )
    if said:
        return CallError(f"{address} refused: {said}")
    return CallError(f"{address} answered {status}: is it the endpoint for shell commands?")


def _seconds(retry_after: str | None) -> float:
    try:
        return min(max(float(retry_after or 1), 0.05), BUSY_SECONDS)
    except ValueError:
        return 1.0


def _pause(seconds: float) -> None:
    time.sleep(seconds)  # noqa: TID251 - there is no event loop here


def exit_code(answer: Mapping[str, Any]) -> int:
    """What a shell would exit with: 124 after a timeout, 128+N after signal N."""
    if answer.get("timed_out"):
        return 124
    signal = answer.get("signal")
    if signal is not None:
        return 128 + int(signal)
    code = answer.get("exit_code")
    return FAILED if code is None else int(code)
