"""Structured log lines: one per request, cut and stall. Never a key, a prompt or an answer.

Every value of every line goes through redaction, tracebacks and the lines of aiohttp and asyncio
included. A log that cannot be written is given up, never the request that it speaks of.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
import structlog

from gateway.observe.log_writer import LineWriter, QueuedWriter
from gateway.policy.error_detail import contains
from gateway.policy.redact import MASK, bounded, escape_controls, is_secret_name, redact
from gateway.streams.events import Phase

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

    from gateway.observe.records import RequestRecord
    from gateway.streams.stream import Stream

_LIBRARIES = ("", "aiohttp", "asyncio")
_TELLING = ("verdict", "status", "provider", "model", "phase", "error", "reason", "path")
_MAX_DEPTH = 6
_MAX_PATH = 1024
_MAX_NAME = 128


def configure(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002 - the config's own word
    """Set up logging for the process; may be called again. ``stream`` defaults to standard error.

    ``format`` is ``json`` (one object per line), ``console`` (for people) or ``auto`` (console on a
    terminal).
    """
    lines = _standard_error() if stream is None else LineWriter(stream)
    stream = sys.stderr if stream is None else stream
    console = format == "console" or (format == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.processors.format_exc_info,
        redact_values,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if console:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False)
        processors += [_telling_first, _escape_values, renderer]
    else:
        processors.append(structlog.processors.JSONRenderer(serializer=_to_json))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_number(level)),
        logger_factory=lambda *_: _Writer(lines),
        cache_logger_on_first_use=False,
    )
    _take_over_libraries()


def logger() -> FilteringBoundLogger:
    """The logger for everything that is no request line."""
    log: FilteringBoundLogger = structlog.get_logger()
    return log


def log_request(record: RequestRecord) -> None:
    """The one line of a request, at its end."""
    logger().info("request", **request_fields(record))


def warn_cut(record: RequestRecord, now: float) -> None:
    """A stream has just ended without its finish."""
    logger().warning("stream_cut", **_trouble(record, now))


def warn_stall(record: RequestRecord, now: float) -> None:
    """A stream has just made no progress for as long as it may."""
    stream = record.stream
    line = "silent" if stream is None else stream.line
    logger().warning("stream_stalled", **_trouble(record, now), line=line)


def note_retry(record: RequestRecord, reason: str, error: str, delay: float) -> None:
    """A try has failed unseen by the client, and another one follows."""
    logger().warning(
        "retry",
        request_id=record.request_id,
        provider=record.provider,
        attempts=record.attempts,
        reason=reason,
        error=bounded(error, _MAX_NAME),
        upstream_status=record.upstream_status,
        upstream_request_id=_name(record.upstream_request_id),
        delay_ms=round(delay * 1000),
    )


def request_fields(record: RequestRecord) -> dict[str, Any]:
    """The fields of a request's line: always the same, None where there is nothing to say."""
    stream = record.stream
    return {
        "request_id": record.request_id,
        "client_app": record.client_app.value,
        "client": record.client,
        "session": record.session,
        "provider": record.provider,
        "protocol": record.protocol,
        "method": bounded(record.method, 32),
        "path": bounded(record.path, _MAX_PATH),
        "status": record.status or None,
        "stream": record.is_stream,
        **_stream_fields(record, stream),
        "attempts": record.attempts,
        "rescued": record.rescued,
        "ttfb_ms": _ms(record.started, record.first_byte_at),
        "duration_ms": _ms(record.started, record.ended),
        "bytes": record.bytes_down,
        "tokens_discarded": record.tokens_discarded,
        "upstream_request_id": _name(record.upstream_request_id),
        "upstream_status": record.upstream_status,
        "error": _error(record),
        "error_type": record.error_type,
        "error_body": record.upstream_body.value if record.upstream_body else None,
    }


def _stream_fields(record: RequestRecord, stream: Stream | None) -> dict[str, Any]:
    usage = None if stream is None else stream.usage
    return {
        "verdict": stream.verdict.value if stream and stream.verdict else None,
        "phase": stream.phase.value if stream else None,
        "notes": list(stream.notes) if stream else [],
        "finish_reason": _name(stream.finish_reason) if stream else None,
        "first_content_ms": _ms(record.started, stream.first_content_at) if stream else None,
        "max_gap_ms": round(stream.max_gap * 1000, 1) if stream else None,
        "events": _events(stream) if stream else None,
        "heartbeats": stream.heartbeats if stream else None,
        "tokens_in": usage.input if usage else None,
        "tokens_out": usage.output if usage else None,
        "model": _name((stream.model if stream else None) or record.model),
    }


def _trouble(record: RequestRecord, now: float) -> dict[str, Any]:
    stream = record.stream
    last = record.started
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "provider": record.provider,
        "protocol": record.protocol,
        "client_app": record.client_app.value,
        "session": record.session,
        "verdict": None,
        "phase": None,
        "events": 0,
        "bytes": 0,
        "tool_call_open": False,
        "upstream_request_id": _name(record.upstream_request_id),
    }
    if stream is not None:
        last = last if stream.last_progress_at is None else stream.last_progress_at
        fields |= {
            "verdict": stream.verdict.value if stream.verdict else None,
            "phase": stream.phase.value,
            "events": _events(stream),
            "bytes": stream.bytes_received,
            "tool_call_open": stream.phase is Phase.IN_TOOL_CALL,
        }
    return fields | {"seconds_since_event": round(now - last, 3)}


def _events(stream: Stream) -> int:
    return stream.content_events + stream.state_events + stream.opaque_events


def _ms(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 1)


def _name(text: str | None) -> str | None:
    return None if text is None else bounded(text, _MAX_NAME)


def _error(record: RequestRecord) -> str | None:
    code, words = record.error_code, record.error
    if code and words and contains(words, code):
        return words  # it is told there what it is
    return ": ".join(filter(None, (code, words))) or None


# Redaction.


def redact_values(_logger: object, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: values without secrets, of types that any renderer takes."""
    return {key: _clean(key, value, 0) for key, value in event.items()}


def _clean(name: object, value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    # "key" alone is how a fault in the config is named; what stands there still goes through
    # redaction.
    if isinstance(name, str) and name != "key" and is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return redact(str(value))
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {redact(str(key)): _clean(key, each, depth + 1) for key, each in value.items()}
    if isinstance(value, tuple) and len(value) == 2:
        # A header is often at hand as a pair of name and value.
        return [_clean(None, value[0], depth + 1), _clean(_as_text(value[0]), value[1], depth + 1)]
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(None, each, depth + 1) for each in value]
    return redact(_as_text(value))


def _as_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object that cannot be shown must not stop the line that mentions it
        return f"<{type(value).__name__}>"


def _telling_first(_logger: object, _method: str, event: EventDict) -> EventDict:
    """For people: what a line is about comes first, what it says nothing of is left out."""
    order = {name: number for number, name in enumerate(_TELLING)}
    names = sorted(event, key=lambda name: order.get(name, len(order)))
    return {name: event[name] for name in names if event[name] not in (None, [])}


def _escape_values(_logger: object, _method: str, event: EventDict) -> EventDict:
    """On a terminal a value could otherwise start a line of its own, or switch colours."""
    return {
        key: escape_controls(value) if isinstance(value, str) and key != "exception" else value
        for key, value in event.items()
    }


def _to_json(event: EventDict, **_: object) -> str:
    try:
        return msgspec.json.encode(event).decode()
    except UnicodeEncodeError:  # lone surrogates: bytes that were no UTF-8
        return msgspec.json.encode(_without_surrogates(event)).decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    return [_without_surrogates(each) for each in value] if isinstance(value, list) else value


# Where lines go.


class _Writer:
    """What structlog writes to."""

    def __init__(self, lines: LineWriter | QueuedWriter) -> None:
        self._lines = lines

    def msg(self, message: str) -> None:
        self._lines.write(message)

    debug = info = warning = error = critical = exception = log = msg


@cache
def _standard_error() -> QueuedWriter:
    return QueuedWriter(sys.stderr)


class StandardHandler(logging.Handler):
    """Hands the lines of the standard library's loggers to structlog, to be redacted, too."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the library would print the arguments, secrets and all
            message = str(record.msg)
        log = logger()
        say = log.error if record.levelno >= logging.ERROR else log.warning
        say(message, logger=record.name, exc_info=record.exc_info)


def _take_over_libraries() -> None:
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        for handler in library.handlers[:]:
            if isinstance(handler, StandardHandler):
                library.removeHandler(handler)
        library.addHandler(StandardHandler())
        library.setLevel(logging.WARNING)
        # Not twice, and to no handler that does not redact.
        library.propagate = False


def _number(level: str) -> int:
    return {"debug": 10, "info": 20, "warning": 30, "error": 40}[level]
