"""An error as bare JSON inside a stream of events is the error, whatever came before it and however
it is cut into reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.protocols import ALL
from gateway.streams.events import Hold, Verdict
from tests.protocols.reading import first_content, told
from tests.streams.feeding import feed, open_stream, singles

if TYPE_CHECKING:
    from gateway.protocols.base import StreamProtocol

KNOWN = [protocol for protocol in ALL if protocol.known]
every_known = pytest.mark.parametrize("protocol", KNOWN, ids=lambda protocol: protocol.name)
ERROR = b'{"error":{"message":"too long","type":"invalid_request_error","code":"context_length"}}'
BEFORE = [b"", b"\n\n", b": ping\n", b": ping\n\n", b"\r\n: ping\r\n\r\n", b"\xef\xbb\xbf: p\n"]
AFTER = [b"", b"\n", b"\n\n", b"\n\n: ping\n\n"]


@every_known
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("after", AFTER)
def test_it_is_read_under_every_chunking(
    protocol: StreamProtocol, before: bytes, after: bytes
) -> None:
    whole = before + ERROR + after
    chunkings = [[whole[:cut], whole[cut:]] for cut in range(len(whole))]
    for chunks in (*chunkings, singles(whole)):
        stream = open_stream(protocol.name)
        assert feed(stream, chunks) == b""
        assert stream.verdict is Verdict.PROVIDER_ERROR
        assert stream.error is not None
        assert (stream.error.message, stream.error.retryable) == ("too long", False)
        assert stream.withheld.endswith(b"\n")


@every_known
@pytest.mark.parametrize("hold", [Hold.FIRST_EVENT, Hold.FIRST_CONTENT])
def test_a_client_that_has_seen_something_is_told_so_that_it_raises(
    protocol: StreamProtocol, hold: Hold
) -> None:
    seen = first_content(protocol.name)
    stream = open_stream(protocol.name, hold=hold)
    out = feed(stream, [seen, b": ping\n\n", ERROR])
    assert stream.verdict is Verdict.PROVIDER_ERROR
    head = seen + b": ping\n\n" + ERROR
    assert out.startswith(head)
    if protocol.name != "gemini":  # its clients read bare JSON
        events = told(out[len(head) :].lstrip())
        assert "too long" in str(events)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_field_of_its_own_is_read_under_every_chunking(line_end: bytes) -> None:
    flat = b'error: {"code":400,"message":"too long","type":"exceed_context_size_error"}'
    whole = b": ping" + line_end * 2 + flat + line_end * 2
    for chunks in (*([whole[:cut], whole[cut:]] for cut in range(len(whole))), singles(whole)):
        stream = open_stream("openai_chat")
        feed(stream, chunks)
        assert stream.error is not None
        assert (stream.error.message, stream.error.retryable) == ("too long", False)


@every_known
@pytest.mark.parametrize(
    "line", [b'{"choices":[]}', b'{"error":{"mess', b"{", b'{"error":null}', b'["error"]']
)
def test_other_json_is_no_error(protocol: StreamProtocol, line: bytes) -> None:
    stream = open_stream(protocol.name)
    feed(stream, [b": ping\n\n" + line])
    assert stream.error is None
