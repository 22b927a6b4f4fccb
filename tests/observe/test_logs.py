"""Each request has one line with the documented fields, and no line ever holds a secret."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from aiohttp import ClientConnectorError, ClientSession, web
from multidict import CIMultiDict

from gateway.config.model import LOG_FORMATS, LOG_LEVELS
from gateway.observe import logs
from gateway.policy.redact import MASK, redact_path, secrets_of, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.observe.records import RequestRecord
    from gateway.streams.stream import Stream

FIELDS = {
    "request_id", "client_app", "client", "session", "provider", "protocol", "method", "path",
    "status", "stream", "verdict", "phase", "finish_reason", "notes", "attempts", "rescued",
    "ttfb_ms", "first_content_ms", "max_gap_ms", "duration_ms", "events", "heartbeats", "bytes",
    "tokens_in", "tokens_out", "tokens_discarded", "model", "upstream_request_id",
    "upstream_status", "error", "error_type", "error_body",
}  # fmt: skip
OF_EVERY_LINE = {"event", "level", "timestamp"}


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    kept = [
        (library, library.level, library.propagate)
        for library in map(logging.getLogger, ("", "aiohttp", "asyncio"))
    ]
    yield
    structlog.reset_defaults()
    for library, level, propagate in kept:
        library.setLevel(level)
        library.propagate = propagate
        # Only ours: the test runner comes and goes with handlers of its own.
        for handler in library.handlers[:]:
            if isinstance(handler, logs.StandardHandler):
                library.removeHandler(handler)


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    return stream


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_request_is_one_line_with_the_documented_fields(
    out: io.StringIO, make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    stream = make_stream("a", "b", end="complete")
    logs.log_request(
        make_record(
            stream=stream,
            streaming=True,
            status=200,
            client="10.0.0.7",
            session="ses_1",
            attempts=2,
            rescued=True,
            tokens_discarded=30,
            first_byte_at=1000.4,
            ended=1004.0,
            bytes_down=900,
            model="asked",
            upstream_request_id="req_1",
            upstream_status=200,
        )
    )
    (line,) = lines(out)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "request",
        "level": "info",
        "request_id": "r1",
        "client_app": "opencode",
        "client": "10.0.0.7",
        "session": "ses_1",
        "provider": "openai",
        "protocol": "openai_chat",
        "method": "POST",
        "path": "/openai/v1/chat/completions",
        "status": 200,
        "stream": True,
        "verdict": "complete",
        "phase": "after_finish",
        "finish_reason": "stop",
        "notes": [],
        "attempts": 2,
        "rescued": True,
        "ttfb_ms": 400.0,
        "first_content_ms": 1500.0,
        "max_gap_ms": 1000.0,
        "duration_ms": 4000.0,
        "events": stream.content_events + stream.state_events,
        "heartbeats": 0,
        "bytes": 900,
        "tokens_in": 21,
        "tokens_out": 9,
        "tokens_discarded": 30,
        "model": "m1",
        "upstream_request_id": "req_1",
        "upstream_status": 200,
        "error": None,
        "error_type": None,
        "error_body": None,
    }


@pytest.mark.parametrize("end", [None, "complete", "bare_eof", "stalled", "no stream"])
def test_every_request_has_the_same_fields(
    out: io.StringIO,
    make_record: Callable[..., RequestRecord],
    make_stream: Callable[..., Stream],
    end: str | None,
) -> None:
    stream = None if end == "no stream" else make_stream("a", end=end)
    logs.log_request(make_record(stream=stream))
    (line,) = lines(out)
    assert line.keys() == FIELDS | OF_EVERY_LINE


def test_a_failed_request_says_code_and_sentence(
    out: io.StringIO, make_record: Callable[..., RequestRecord]
) -> None:
    logs.log_request(make_record(status=502, error_code="upstream_unreachable", error="DNS failed"))
    logs.log_request(make_record(status=400, error="Invalid request."))
    assert [line["error"] for line in lines(out)] == [
        "upstream_unreachable: DNS failed",
        "Invalid request.",
    ]


def test_a_code_that_the_sentence_names_is_not_said_twice(
    out: io.StringIO, make_record: Callable[..., RequestRecord]
) -> None:
    for code, words in (("bad_x", "No (code: bad_x)"), ("400", "No"), ("bad", "No (code: bad_x)")):
        logs.log_request(make_record(status=400, error_code=code, error=words))
    errors = [json.loads(line)["error"] for line in out.getvalue().splitlines()]
    assert errors == ["No (code: bad_x)", "400: No", "bad: No (code: bad_x)"]


def test_a_cut_is_warned_of_with_what_is_needed_to_find_it(
    out: io.StringIO, make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    stream = make_stream("content-word", "tool", end="bare_eof")
    record = make_record(stream=stream, upstream_request_id="req_9", session="ses_1")
    logs.warn_cut(record, 1004.0)
    assert "content-word" not in out.getvalue()
    (line,) = lines(out)
    del line["timestamp"]
    assert line == {
        "event": "stream_cut",
        "level": "warning",
        "request_id": "r1",
        "provider": "openai",
        "protocol": "openai_chat",
        "client_app": "opencode",
        "session": "ses_1",
        "verdict": "bare_eof",
        "phase": "in_tool_call",
        "events": 3,
        "bytes": stream.bytes_received,
        "tool_call_open": True,
        "upstream_request_id": "req_9",
        "seconds_since_event": 1.5,
    }


def test_a_stall_is_warned_of_with_the_kind_of_line(
    out: io.StringIO, make_record: Callable[..., RequestRecord], make_stream: Callable[..., Stream]
) -> None:
    logs.warn_stall(make_record(stream=make_stream("a", end="stalled")), 1300.0)
    logs.warn_stall(make_record(), 1300.0)
    with_stream, without = lines(out)
    assert with_stream["event"] == without["event"] == "stream_stalled"
    assert with_stream["line"] == "heartbeats"
    assert with_stream["verdict"] == "stalled"
    assert with_stream["tool_call_open"] is False
    assert with_stream["seconds_since_event"] == 298.5
    assert without["seconds_since_event"] == 300.0


def test_a_hostile_value_stays_on_its_line_and_within_bounds(
    out: io.StringIO, make_record: Callable[..., RequestRecord]
) -> None:
    record = make_record(
        model="m\n" * 50_000,
        method="X\r\n" * 100,
        path="/p" * 50_000,
        upstream_request_id="\x1b[31m" + "i" * 50_000,
        session="\udce9",
    )
    logs.log_request(record)
    assert out.getvalue().count("\n") == 1
    assert len(out.getvalue()) < 3000


# Secrets.

SECRETS = ("AIzaSECRET1", "sk-SECRET2", "plain-SECRET3", "hunter2SECRET4", "cookieSECRET5")
HEADERS = CIMultiDict(
    [
        ("Authorization", "Bearer sk-SECRET2"),
        ("x-api-key", "plain-SECRET3"),
        ("Proxy-Authorization", "Basic bWU6aHVudGVyMlNFQ1JFVDQ="),
        ("Cookie", "session=cookieSECRET5"),
        ("Content-Type", "application/json"),
    ]
)
TARGET = "/v1beta/models/g:generateContent?alt=sse&key=AIzaSECRET1"
ERROR_BODY = '{"error":{"message":"Incorrect API key provided: sk-SECRET2 (or plain-SECRET3)"}}'


def leaked(text: str) -> list[str]:
    return [word for word in ("SECRET", "bWU6aHVudGVy") if word in text]


def test_keys_in_headers_query_and_error_bodies_never_reach_the_line_of_a_request(
    out: io.StringIO, make_record: Callable[..., RequestRecord]
) -> None:
    secrets = secrets_of(HEADERS.items(), TARGET.partition("?")[2])
    logs.log_request(
        make_record(
            path=redact_path("/gemini" + TARGET),
            status=401,
            upstream_status=401,
            error=summary(ERROR_BODY, secrets),
        )
    )
    (line,) = lines(out)
    assert leaked(out.getvalue()) == []
    assert line["path"] == f"/gemini/v1beta/models/g:generateContent?alt=sse&key={MASK}"
    assert "Incorrect API key provided" in line["error"]


def test_the_redaction_of_the_log_is_a_net_under_a_caller_that_forgot(
    out: io.StringIO, make_record: Callable[..., RequestRecord]
) -> None:
    logs.log_request(
        make_record(
            path=TARGET,
            session="sk-SECRET2",
            model="sk-SECRET2",
            upstream_request_id="Bearer SECRET",
            error="Incorrect API key provided: sk-SECRET2",
            error_code="x-api-key: plain-SECRET3",
            client="http://me:hunter2SECRET4@host",
        )
    )
    assert leaked(out.getvalue()) == []


@pytest.mark.parametrize("format_", ["json", "console"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_no_shape_of_value_carries_a_secret_at_any_level(format_: str, level: str) -> None:
    out = io.StringIO()
    logs.configure("debug", format_, out)
    say = getattr(logs.logger(), level)
    say(f"request to {TARGET}", headers=HEADERS, pairs=list(HEADERS.items()), url=TARGET)
    say("raw", raw=[(b"Authorization", b"Bearer sk-SECRET2"), (b"x-api-key", b"plain-SECRET3")])
    body = ERROR_BODY.replace(" (or plain-SECRET3)", "")
    say("body", body=body.encode(), text=json.dumps({"raw": body}))
    say("nested", a={"b": [{"c": {"api_key": "plain-SECRET3", "key": "AIzaSECRET1"}}]})
    say("named", api_key="plain-SECRET3", authorization="SECRET", x_token=b"SECRET")
    say("object", error=ValueError("sk-SECRET2"), other={1: {"sk-SECRET2"}})
    deep: list[object] = ["sk-SECRET2"]
    for _ in range(50):
        deep = [deep]
    say("deep", deep=deep)
    assert out.getvalue().count("\n") >= 7
    assert leaked(out.getvalue()) == []


def test_tracebacks_keep_their_frames_and_lose_their_secrets(out: io.StringIO) -> None:
    def fails(url: str) -> None:
        raise ValueError(f"cannot reach {url}")

    try:
        try:
            fails("https://me:hunter2SECRET4@host" + TARGET)
        except ValueError as error:
            raise RuntimeError("headers: {'Authorization': 'Bearer sk-SECRET2'}") from error
    except RuntimeError:
        logs.logger().exception("attempt failed")
    (line,) = lines(out)
    assert leaked(out.getvalue()) == []
    assert "in fails" in line["exception"]
    assert "cannot reach" in line["exception"]
    assert "RuntimeError" in line["exception"]


def test_lines_of_aiohttp_and_asyncio_are_redacted_warnings(
    out: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("aiohttp.server", "aiohttp.client", "asyncio", "somewhere.else"):
        library = logging.getLogger(name)
        library.info("quiet %s", TARGET)
        library.warning("odd request: %r", b"GET / HTTP/1.1\r\nAuthorization: Bearer sk-SECRET2")
        try:
            raise ValueError(TARGET)
        except ValueError:
            library.exception("Error handling request")
    assert leaked(out.getvalue()) == []
    found = [(line["logger"], line["level"], line["event"][:4]) for line in lines(out)]
    assert found == [
        (name, level, start)
        for name in ("aiohttp.server", "aiohttp.client", "asyncio", "somewhere.else")
        for level, start in (("warning", "odd "), ("error", "Erro"))
    ]
    assert capsys.readouterr().err == ""


def test_a_library_line_that_cannot_be_formatted_prints_none_of_its_arguments(
    out: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    record = logging.LogRecord("aiohttp", logging.ERROR, "f.py", 1, "%d", ("sk-SECRET2",), None)
    logs.StandardHandler().handle(record)
    assert [line["event"] for line in lines(out)] == ["%d"]
    assert leaked(out.getvalue() + capsys.readouterr().err) == []


async def test_errors_of_a_real_server_and_client_are_redacted(out: io.StringIO) -> None:
    async def fails(request: web.Request) -> web.Response:
        raise RuntimeError(f"{request.headers} {request.raw_path}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fails)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    url = f"http://me:hunter2SECRET4@{host}:{port}{TARGET}"
    headers = {"x-api-key": "plain-SECRET3", "Cookie": "session=cookieSECRET5"}
    async with ClientSession() as client:
        async with client.post(url, headers=headers) as answer:
            assert answer.status == 500
        await runner.cleanup()
        try:
            await client.post(url, headers=headers)
        except ClientConnectorError:
            logs.logger().exception("upstream_unreachable", url=url)
    assert [line["event"] for line in lines(out)] == [
        "Error handling request from 127.0.0.1",
        "upstream_unreachable",
    ]
    assert leaked(out.getvalue()) == []


# Set-up.


def test_the_level_decides_what_is_written() -> None:
    out = io.StringIO()
    logs.configure("warning", "json", out)
    log = logs.logger()
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line["event"] for line in lines(out)] == ["c", "d"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_auto_is_for_people_on_a_terminal_and_json_elsewhere() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    logs.configure("info", "auto", terminal)
    logs.logger().info("hello", a=1)
    logs.configure("info", "auto", pipe)
    logs.logger().info("hello", a=1)
    assert not terminal.getvalue().startswith("{")
    assert "hello" in terminal.getvalue()
    (line,) = lines(pipe)
    assert line["a"] == 1


def test_a_value_cannot_forge_a_line_on_a_terminal() -> None:
    out = io.StringIO()
    logs.configure("info", "console", out)
    logs.logger().info("one\n2026 [info] forged", path="/x\r\n\x1b[2Jforged", a="\u202e")
    assert out.getvalue().count("\n") == 1
    assert "\x1b[2J" not in out.getvalue()
    assert "\r" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_what_is_no_utf8_is_written_escaped(out: io.StringIO) -> None:
    logs.logger().info("caf\udce9", a=["\udce9", {"\udce9": b"\xff"}], n=1.5)
    (line,) = lines(out)
    assert line["event"] == "caf\\udce9"
    assert line["n"] == 1.5


def test_an_object_that_cannot_be_shown_does_not_stop_its_line(out: io.StringIO) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError

    logs.logger().info("odd", value=Odd(), nothing=float("nan"))
    (line,) = lines(out)
    assert line["value"] == "<Odd>"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


def test_a_log_that_nobody_reads_any_more_breaks_nothing(
    make_record: Callable[..., RequestRecord],
) -> None:
    logs.configure("info", "json", Gone())
    logs.log_request(make_record())
    closed = io.StringIO()
    logs.configure("info", "json", closed)
    closed.close()
    logs.log_request(make_record())


def test_configuring_twice_writes_each_library_line_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("info", "json", first)
    logs.configure("info", "json", second)
    logging.getLogger("aiohttp.server").warning("once")
    assert first.getvalue() == ""
    assert len(lines(second)) == 1


@pytest.mark.parametrize("level", LOG_LEVELS)
@pytest.mark.parametrize("format_", LOG_FORMATS)
def test_every_documented_level_and_format_is_accepted(level: str, format_: str) -> None:
    out = io.StringIO()
    logs.configure(level, format_, out)
    logs.logger().error("there")
    assert "there" in out.getvalue()
