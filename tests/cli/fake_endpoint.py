"""A small endpoint for shell commands: it runs them, speaks the contract, and fails on request."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socketserver
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "t" * 40


class Command:
    """A command and everything it has written."""

    def __init__(self, id_: str, request: dict[str, Any], spill: Path) -> None:
        self.id = id_
        self.spill = spill
        self.killed = False
        self.timed_out = False
        self.output = b""
        self.news = threading.Condition()
        self.ended = False
        argv = request.get("argv") or ["/bin/bash", "-c", request["command"]]
        self.process = subprocess.Popen(
            argv,
            cwd=request.get("cwd"),
            env={"TERM": "dumb", **request.get("env", {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.timer = threading.Timer(request.get("timeout_ms", 120_000) / 1000, self.time_out)
        self.timer.daemon = True
        self.timer.start()
        stdin = base64.b64decode(request.get("stdin_b64") or "")
        threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()
        threading.Thread(target=self._drain, daemon=True).start()

    def _feed(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
            pipe.write(data)

    def _drain(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as pipe, self.spill.open("wb") as spill:
            while data := os.read(pipe.fileno(), 8192):
                spill.write(data)
                with self.news:
                    self.output += data
                    self.news.notify_all()
        self.process.wait()
        self.timer.cancel()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def time_out(self) -> None:
        self.timed_out = True
        self.kill()

    def kill(self) -> None:
        if self.process.poll() is not None:
            return  # its number may be another's by now
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def answer(self, changes: dict[str, Any]) -> dict[str, Any]:
        code = self.process.returncode
        died = code is not None and code < 0
        cut = len(self.output) > 28_672
        text = self.output.decode("utf-8", "replace")
        if cut:
            text = f"[Left out: some; the whole output is in {self.spill}.]\n{text[-1000:]}"
        if died or self.timed_out:
            text += f"[The command was ended by signal {-code}.]"
        answer: dict[str, Any] = {
            "id": self.id,
            "text": text or "(no output)",
            "exit_code": None if died else code,
            "signal": -code if died else None,
            "complete": True,
            "truncated": cut,
            "timed_out": self.timed_out,
            "output_open": False,
            "spill": {
                "path": str(self.spill),
                "url": f"/v1/exec/{self.id}/output",
                "bytes": len(self.output),
                "lines": self.output.count(b"\n"),
            },
            "detail": {
                "state": "exited",
                "reason": "killed" if self.killed else "exit",
                "output": {"encoding": "utf-8", "bytes": len(self.output), "spill": {}},
            },
        }
        for key, value in changes.items():
            place: dict[str, Any] = answer
            keys = key.split(".")
            for each in keys[:-1]:
                place = place[each]
            place[keys[-1]] = value
        return answer


class Endpoint:
    """Listens on a socket in ``folder``; notes each request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "exec.sock"
        self.requests: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.commands: dict[str, Command] = {}
        self.keys: dict[str, str] = {}
        self.refuse: list[tuple[int, dict[str, str], dict[str, Any]]] = []
        """Answers for the next requests, before anything is run."""
        self.break_after: list[int] = []
        """Bytes of output after which the next streams break."""
        self.changes: dict[str, Any] = {}
        """What the answers say otherwise."""
        self.told = threading.Event()
        """Unless it is set, nobody but the one who asks again is told of the start."""
        self.told.set()
        self.lock = threading.Lock()

        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint.post(self)

            def do_GET(self) -> None:
                endpoint.get(self)

            def log_message(self, *arguments: object) -> None:
                pass

            def address_string(self) -> str:
                return "unix"

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # clients of these tests leave as they like

        self.server = Server(str(self.path), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for command in self.commands.values():
            command.kill()

    def note(self, handler: BaseHTTPRequestHandler) -> bytes:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.asked.append((handler.command, handler.path, headers))
        return handler.rfile.read(int(headers.get("content-length", 0)))

    def post(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(self.note(handler) or b"{}")
        if handler.headers["Authorization"] != f"Bearer {TOKEN}":
            say(handler, 401, {"error": {"message": "This token is not one of exec.token."}})
        elif handler.path.endswith("/kill"):
            self.commands[handler.path.split("/")[3]].kill()
            say(handler, 200, {})
        elif self.refuse:
            status, headers, answer = self.refuse.pop(0)
            say(handler, status, answer, headers)
        else:
            self.start(handler, body)

    def start(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        key = handler.headers["Idempotency-Key"]
        with self.lock:
            known = key in self.keys
            if not known:
                self.requests.append(body)
                id_ = f"x_{len(self.requests)}"
                try:
                    self.commands[id_] = Command(id_, body, self.folder / f"{id_}.out")
                except OSError as error:
                    failed = {"stage": "exec", "errno": error.errno, "message": error.strerror}
                    message = f"The command was not started: {error.strerror}."
                    say(handler, 422, {"error": {"message": message}, "spawn_error": failed})
                    return
                self.keys[key] = id_
            command = self.commands[self.keys[key]]
        if body.get("background"):
            say(handler, 202, {"id": command.id, "detail": {"state": "running"}})
            return
        if not known:
            self.told.wait(30)
        stream(handler)
        handler.wfile.write(chunk(f"event: start\ndata: {json.dumps({'id': command.id})}\n\n"))
        self.follow(handler, command, 0)

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        self.note(handler)
        command = self.commands.get(handler.path.split("/")[3])
        if command is None:
            say(handler, 404, {"error": {"message": "There is no such command."}})
            return
        stream(handler)
        self.follow(handler, command, int(handler.headers["Last-Event-ID"]))

    def follow(self, handler: BaseHTTPRequestHandler, command: Command, offset: int) -> None:
        limit = self.break_after.pop(0) if self.break_after else None
        while True:
            with command.news:
                while not command.ended and len(command.output) <= offset:
                    command.news.wait()
                data, ended = command.output[offset : offset + 1000], command.ended
            if data:
                event: dict[str, Any] = {"offset": offset, "len": len(data)}
                try:
                    event["text"] = data.decode()
                except UnicodeDecodeError:
                    event["b64"] = base64.b64encode(data).decode()
                offset += len(data)
                handler.wfile.write(
                    chunk(f"event: output\nid: {offset}\ndata: {json.dumps(event)}\n\n")
                )
                if limit is not None and offset >= limit:
                    handler.close_connection = True
                    return
            elif ended:
                break
        end = json.dumps(command.answer(self.changes))
        handler.wfile.write(chunk(f": keepalive\n\nevent: end\ndata: {end}\n\n"))
        handler.wfile.write(b"0\r\n\r\n")


def chunk(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def say(
    handler: BaseHTTPRequestHandler,
    status: int,
    answer: dict[str, Any],
    headers: dict[str, str] | None = None,
) -> None:
    body = json.dumps(answer).encode()
    handler.send_response(status)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def wait_until(reached: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, "it did not happen in time"
        threading.Event().wait(0.01)
