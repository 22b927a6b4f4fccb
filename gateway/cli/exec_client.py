"""One command at the endpoint, from its request to its answer; runs nothing itself.

Standard library alone and few modules of it: `gateway sh` pays for this start with every command.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from binascii import a2b_base64

from gateway.cli import exec_wire
from gateway.cli.exec_wire import ANSWER_SECONDS, FAILED, CallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from gateway.cli.exec_wire import Connection, Endpoint

SILENCE_SECONDS = 60.0
"""A stream of events carries a comment every 15 s; one that is silent for so long is broken."""

KILL_SECONDS = 5.0

BUSY_SECONDS = 60.0
"""How long an endpoint that is busy (429) is asked again, all in all."""

RECONNECTS = 8
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 3.0


class Run:
    """One command: :meth:`events` from its request to its answer, across broken connections."""

    def __init__(
        self,
        endpoint: Endpoint,
        request: Mapping[str, Any],
        connection: Connection | None = None,
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
        self.asked = False
        """Whether it may run."""
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
                    for data in self._read(response):
                        broken = 0
                        if data:
                            yield data
            except (OSError, http.client.HTTPException):
                pass
            except CallError as failure:
                # What was running was there: it may come back.
                if not failure.unreached or not self.asked:
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
        """End the command; whether its end can be waited for."""
        try:
            if self.id is None:
                if not self.asked:
                    return False
                # It may run under a name that has not been heard of: the same request is not run
                # twice, and tells it.
                old, self._connection = self._connection, None
                try:
                    response = self._begin(seconds=KILL_SECONDS)
                    if response is not None:
                        next(self._read(response), None)
                finally:
                    if old is not None:
                        old.leave()
                if self.id is None:
                    return False
            connection = self._endpoint.connect()
            try:
                path = f"/v1/exec/{self.id}/kill"
                ask = self._endpoint.ask
                return ask(connection, "POST", path, {}, b"{}", KILL_SECONDS).status < 300
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

    def _begin(
        self, *, stream: bool = True, seconds: float = ANSWER_SECONDS
    ) -> http.client.HTTPResponse | None:
        """Ask for the command; None where the answer has come at once."""
        asked_until = time.monotonic() + BUSY_SECONDS
        while True:
            if self._connection is None:
                self._connection = self._endpoint.connect()
            headers = {"Idempotency-Key": self._key}
            headers["Accept"] = "text/event-stream" if stream else "application/json"
            self.asked = True
            response = self._endpoint.ask(
                self._connection, "POST", "/v1/exec", headers, self._body, seconds
            )
            if response.status < 300:
                if (response.getheader("Content-Type") or "").startswith("text/event-stream"):
                    return response
                self.answer = exec_wire.as_object(response.read())
                if not self.answer.get("id"):
                    raise exec_wire.stranger()
                return None
            self.asked = False
            failure = exec_wire.refusal(response.status, response.read(), self._endpoint.address)
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
            refusal = exec_wire.refusal(response.status, response.read(), self._endpoint.address)
            raise CallError(
                f"The connection broke, and how the command ended is not known: {refusal.sentence}"
            )
        return response

    def _read(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """Something for each event: a piece of the output, or nothing of it."""
        if self._connection is not None:
            self._connection.stream.settimeout(SILENCE_SECONDS)
        for name, data in exec_wire.events_of(response):
            if name == "start":
                self.id = exec_wire.as_object(data).get("id") or self.id
                yield b""
            elif name == "output":
                piece = self._piece(exec_wire.as_object(data))
                self.received += len(piece)
                yield piece
            elif name == "end":
                self.answer = exec_wire.as_object(data)
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
