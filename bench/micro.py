"""Measures the stream object alone, in CPU time per event. Opens no socket, needs no other program.

    python bench/micro.py [--events 20000] [--reps 5] [--json FILE] [--only NAME ...]

For each protocol a whole stream is generated (opening, many text deltas, finish) and fed in four
ways: one event per read and 64 KiB per read, each with LF and with CRLF line ends. The figure in
brackets is what framing takes without any protocol. The least of all repetitions counts, for noise
only adds. A run that does not hand on every byte and end complete is an error, not a figure.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from time import thread_time_ns
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gateway import protocols
from gateway.streams.events import Verdict
from gateway.streams.settings import Settings
from gateway.streams.sse import SseFramer, parse_block
from gateway.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

READ = 65536
FILLER = "the quick brown fox jumps over the lazy dog "


@dataclass(frozen=True)
class Sample:
    """A stream to generate: the path that its protocol claims, and its events as (name, data)."""

    path: str
    opening: tuple[tuple[str, object], ...]
    delta: Callable[[int], tuple[str, object]]
    closing: tuple[tuple[str, object], ...]
    done: bool = False

    def events(self, count: int, line_end: str) -> list[bytes]:
        """The whole stream as encoded events with ``count`` deltas."""
        middle = (self.delta(number) for number in range(count))
        events = (*self.opening, *middle, *self.closing)
        encoded = [_encode(name, data, line_end) for name, data in events]
        if self.done:
            encoded.append(f"data: [DONE]{line_end * 2}".encode())
        return encoded


def _encode(name: str, data: object, line_end: str) -> bytes:
    head = f"event: {name}{line_end}" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}{line_end * 2}".encode()


def _text(number: int) -> str:
    start = number % len(FILLER)
    return (FILLER + FILLER)[start : start + 40]


def _chat(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
    return {
        "id": "chatcmpl-0001",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


def _completion(text: str, reason: str | None = None) -> dict[str, object]:
    return {
        "id": "cmpl-0001",
        "object": "text_completion",
        "created": 1700000000,
        "model": "bench",
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}],
    }


def _response(kind: str, **fields: object) -> tuple[str, object]:
    return kind, {"type": kind, **fields}


def _candidate(text: str, **fields: object) -> dict[str, object]:
    return {
        "candidates": [
            {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **fields}
        ],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 12},
        "modelVersion": "bench",
    }


_ITEM = {"item_id": "msg_0001", "output_index": 0, "content_index": 0}
_RESPONSE = {
    "id": "resp_0001",
    "object": "response",
    "status": "in_progress",
    "model": "bench",
    "output": [],
}

SAMPLES: dict[str, Sample] = {
    "chat": Sample(
        "/v1/chat/completions",
        (("", _chat({"role": "assistant", "content": ""})),),
        lambda number: ("", _chat({"content": _text(number)})),
        (("", _chat({}, "stop")),),
        done=True,
    ),
    "completions": Sample(
        "/v1/completions",
        (),
        lambda number: ("", _completion(_text(number))),
        (("", _completion("", "stop")),),
        done=True,
    ),
    "responses": Sample(
        "/v1/responses",
        (
            _response("response.created", sequence_number=0, response=_RESPONSE),
            _response(
                "response.output_item.added",
                sequence_number=1,
                output_index=0,
                item={"id": "msg_0001", "type": "message", "role": "assistant", "content": []},
            ),
        ),
        lambda number: _response(
            "response.output_text.delta",
            sequence_number=number + 2,
            **_ITEM,
            delta=_text(number),
            logprobs=[],
        ),
        (
            _response(
                "response.completed",
                sequence_number=9,
                response={**_RESPONSE, "status": "completed"},
            ),
        ),
    ),
    "messages": Sample(
        "/v1/messages",
        (
            _response(
                "message_start",
                message={
                    "id": "msg_0001",
                    "type": "message",
                    "role": "assistant",
                    "model": "bench",
                    "content": [],
                    "stop_reason": None,
                    "usage": {"input_tokens": 10, "output_tokens": 1},
                },
            ),
            _response("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ),
        lambda number: _response(
            "content_block_delta", index=0, delta={"type": "text_delta", "text": _text(number)}
        ),
        (
            _response("content_block_stop", index=0),
            _response(
                "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 12}
            ),
            _response("message_stop"),
        ),
    ),
    "gemini": Sample(
        "/v1beta/models/bench:streamGenerateContent",
        (),
        lambda number: ("", _candidate(_text(number))),
        (("", _candidate("", finishReason="STOP")),),
    ),
}


def _reads(events: list[bytes], size: int | None) -> list[bytes]:
    if size is None:
        return events
    whole = b"".join(events)
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def run_stream(path: str, reads: list[bytes]) -> int:
    """Feed one stream; return the nanoseconds taken. ValueError if it was not relayed whole."""
    protocol = protocols.for_path("POST", path)
    if protocol is None:
        raise ValueError(f"no protocol claims {path}")
    stream = Stream(protocol.name, protocol.reader(1), Settings(), 0.0)
    receive = stream.receive_data
    handed_on: list[bytes] = []
    keep = handed_on.append
    now = 0.0
    begin = thread_time_ns()
    for read in reads:
        now += 0.01
        keep(receive(read, now))
    taken = thread_time_ns() - begin
    handed_on.append(stream.receive_eof(now))
    if stream.verdict is not Verdict.COMPLETE:
        raise ValueError(f"{protocol.name}: the verdict is {stream.verdict}, not complete")
    if b"".join(handed_on) != b"".join(reads):
        raise ValueError(f"{protocol.name}: the bytes handed on are not those received")
    return taken


def run_framer(reads: list[bytes]) -> int:
    """Frame and split into fields only; return the nanoseconds taken."""
    framer = SseFramer()
    begin = thread_time_ns()
    for read in reads:
        for block in framer.feed(read):
            parse_block(block)
    return thread_time_ns() - begin


def measure(sample: Sample, count: int, reps: int) -> dict[str, float]:
    """Least nanoseconds per event for each way of feeding."""
    figures: dict[str, float] = {}
    for ends, line_end in (("lf", "\n"), ("crlf", "\r\n")):
        events = sample.events(count, line_end)
        for ways, size in (("one", None), ("64k", READ)):
            reads = _reads(events, size)
            runs = [run_stream(sample.path, reads) for _ in range(reps)]
            figures[f"{ways}_{ends}"] = min(runs) / len(events)
            frames = [run_framer(reads) for _ in range(reps)]
            figures[f"{ways}_{ends}_framing"] = min(frames) / len(events)
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and store it if asked."""
    parser = argparse.ArgumentParser(description="CPU time per event of the stream object alone")
    parser.add_argument("--events", type=int, default=20_000, help="deltas per stream")
    parser.add_argument("--reps", type=int, default=5, help="streams per figure; the least counts")
    parser.add_argument("--only", nargs="*", choices=sorted(SAMPLES), help="what to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures")
    options = parser.parse_args(arguments)
    results: dict[str, dict[str, float]] = {}
    gc.freeze()
    print(f"ns per event (of it framing), Python {sys.version.split()[0]}")
    titles = ("1 event LF", "64 KiB LF", "1 event CRLF", "64 KiB CRLF")
    print(" " * 12 + "".join(f"{title:>16s}" for title in titles))
    for name, sample in SAMPLES.items():
        if options.only and name not in options.only:
            continue
        try:
            figures = results[name] = measure(sample, options.events, options.reps)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        cells = (
            f"{figures[way]:.0f} ({figures[way + '_framing']:.0f})"
            for way in ("one_lf", "64k_lf", "one_crlf", "64k_crlf")
        )
        print(f"{name:12s}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
