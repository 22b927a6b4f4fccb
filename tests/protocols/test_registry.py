"""Which protocol a request belongs to, and what every protocol must offer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway import protocols
from gateway.errors import STATUS, Code
from gateway.protocols import ALL, BY_NAME, NAMES, for_path
from gateway.streams.events import Fault, Kind
from tests.protocols.reading import told
from tests.samples.catalog import SAMPLES

if TYPE_CHECKING:
    from gateway.protocols.base import StreamProtocol

every_protocol = pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)


def test_each_protocol_file_is_registered_under_its_own_name() -> None:
    modules = {path.stem for path in Path(protocols.__file__).parent.glob("*.py")}

    assert set(NAMES) == modules - {"__init__", "base", "chat_delta", "choices"}
    assert len(ALL) == len(NAMES) == len(BY_NAME)


def test_the_samples_are_of_the_registered_protocols() -> None:
    assert {sample.protocol for sample in SAMPLES} == set(NAMES)


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/chat/completions", "openai_chat"),
        ("POST", "/openai/deployments/d/chat/completions", "openai_chat"),
        ("GET", "/v1/chat/completions", None),
        ("GET", "/v1/chat/completions/chatcmpl-1", None),
        ("POST", "/v1/completions", "openai_completions"),
        ("POST", "/completion", "openai_completions"),
        ("POST", "/completions", "openai_completions"),
        ("GET", "/v1/completions", None),
        ("POST", "/v1/responses", "openai_responses"),
        ("POST", "/backend-api/codex/responses", "openai_responses"),
        ("GET", "/v1/responses/resp_1", "openai_responses"),
        ("GET", "/v1/responses", None),
        ("GET", "/v1/responses/resp_1/input_items", None),
        ("POST", "/v1/responses/resp_1/cancel", None),
        ("POST", "/v1/responses/compact", None),
        ("DELETE", "/v1/responses/resp_1", None),
        ("POST", "/v1/messages", "anthropic"),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1/messages/batches", None),
        ("GET", "/v1/messages", None),
        ("POST", "/messages", "anthropic"),
        ("POST", "/claude/messages", "anthropic"),
        ("POST", "/api/v1/messages", "anthropic"),
        ("POST", "/v1/account/gateway/anthropic/v1/messages", "anthropic"),
        ("POST", "/api/llm/anthropic/messages", "anthropic"),
        ("POST", "/v1/threads/thread_1/messages", None),
        ("POST", "/agents/a1/messages", None),
        ("POST", "/v1/sessions/s/messages", None),
        ("POST", "/conversations/c/messages", None),
        ("POST", "/api/chat/c/messages", None),
        (
            "POST",
            "/v1/projects/p/locations/l/publishers/anthropic/models/m@1:streamRawPredict",
            "anthropic",
        ),
        (
            "POST",
            "/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict",
            "anthropic",
        ),
        ("POST", "/v1/p/publishers/anthropic/models/m%3AstreamRawPredict", "anthropic"),
        ("POST", "/v1/p/publishers/mistralai/models/m:streamRawPredict", None),
        ("POST", "/v1beta/models/gemini-1:streamGenerateContent", "gemini"),
        ("POST", "/v1beta/models/gemini-1:generateContent", "gemini"),
        ("POST", "/v1beta/models/gemini-1%3AgenerateContent", "gemini"),
        ("POST", "/v1beta/tunedModels/t:generateContent", "gemini"),
        (
            "POST",
            "/v1beta1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent",
            "gemini",
        ),
        ("POST", "/v1beta/models/gemini-1:countTokens", None),
        ("GET", "/v1beta/models/gemini-1", None),
        ("POST", "/v1/embeddings", None),
        ("GET", "/v1/models", None),
        ("POST", "/", None),
        ("POST", "", None),
    ],
)
def test_which_protocol_claims_a_request(method: str, path: str, name: str | None) -> None:
    protocol = for_path(method, path)

    assert (protocol.name if protocol else None) == name


@every_protocol
def test_a_keepalive_is_no_event(protocol: StreamProtocol) -> None:
    assert protocol.keepalive in (b":\n\n", b"\n", b"")
    assert (protocol.keepalive == b"") == (not protocol.known)


@every_protocol
@pytest.mark.parametrize("code", list(Code))
def test_an_error_body_holds_message_and_code(protocol: StreamProtocol, code: Code) -> None:
    body = protocol.error_body(STATUS[code], code, "It did not work.")

    assert json.loads(body)["error"]["message"] == "It did not work."
    assert f'"{code}"' in body.decode()


@every_protocol
def test_two_streams_share_nothing(protocol: StreamProtocol) -> None:
    one, other = protocol.reader(1), protocol.reader(1)

    one.read(b"error", b'{"error":{"message":"x"}}')

    assert one.facts.error is not None
    assert other.facts.error is None


@every_protocol
def test_a_fresh_reader_knows_nothing(protocol: StreamProtocol) -> None:
    reader = protocol.reader(1)
    facts = reader.facts

    assert not (facts.finished)
    assert not (facts.terminal)
    assert not (facts.abnormal)
    assert not (facts.waiting)
    assert (facts.error, facts.finish_reason, facts.model) == (None, None, None)
    assert not reader.may_close()
    assert reader.complement(ending=True) == b""
    assert reader.read_bare(b"event: x") is Kind.HEARTBEAT


@every_protocol
def test_what_can_be_told_in_band_names_its_code(protocol: StreamProtocol) -> None:
    frames = protocol.reader(1).fault(Fault("some_code", "Some \u2028 words."))

    if protocol.known:
        assert frames is not None
        assert b"some_code" in frames
        assert "Some \u2028 words.".encode() in frames
    else:
        assert frames is None


@every_protocol
@pytest.mark.parametrize(
    "data",
    [
        b"null", b"true", b"1", b"[]", b"{}", b'"text"', b"{", b"not json", b"\xff\xfe", b"[[[",
        b'{"choices":5}', b'{"choices":[null]}', b'{"choices":[{"index":"x","delta":7}]}',
        b'{"type":5}', b'{"type":null,"delta":[]}', b'{"type":"content_block_delta","delta":3}',
        b'{"type":"response.completed","response":"x"}', b'{"type":"message_start","message":1}',
        b'{"candidates":{}}', b'{"candidates":[5]}', b'{"candidates":[{"content":{"parts":[1]}}]}',
        b'{"error":{"message":{"a":1},"type":[],"code":{}}}', b'{"usage":"x","usageMetadata":1}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [b"", b"error", b"\xff"])
def test_no_event_makes_a_reader_raise(protocol: StreamProtocol, data: bytes, name: bytes) -> None:
    reader = protocol.reader(1)

    assert isinstance(reader.read(name, data), Kind)
    assert isinstance(reader.read(name, data), Kind)
    added = told(reader.complement(ending=True))
    if reader.facts.error is None:
        assert added == []
    assert reader.complement(ending=True) == b""


@every_protocol
def test_an_error_that_no_client_knows_is_told_once_in_a_form_that_raises(
    protocol: StreamProtocol,
) -> None:
    reader = protocol.reader(1)
    assert reader.read(b"error", b'{"error":"plain words"}') is Kind.ERROR
    assert reader.facts.error is not None

    added = told(reader.complement(ending=True))

    assert any(data.get("error", {}).get("message") == "plain words" for _, data in added) == (
        protocol.known
    )
    assert reader.complement(ending=True) == b""
