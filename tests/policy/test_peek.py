"""The facts of a request are found in every shape clients send, and hostile bodies cost little."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import peek as module
from gateway.policy.peek import MAX_NAME, RequestFacts, peek

UNKNOWN = RequestFacts()
CHAT = {
    "messages": [{"role": "user", "content": 'with "stream": false inside'}],
    "model": "gpt-5",
    "stream": True,
    "n": 3,
    "stream_options": {"include_usage": True, "other": [1]},
    "background": False,
}
CHAT_FACTS = RequestFacts(
    model="gpt-5", stream=True, choices=3, background=False, asks=True, readable=True
)


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_the_facts_of_a_chat_request() -> None:
    assert peek(json.dumps(CHAT).encode()) == CHAT_FACTS


def test_what_is_absent_is_unknown() -> None:
    assert peek(b"{}") == RequestFacts(readable=True)


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"[1]", b"null", b"{", b'{"model":"m"', b'{"model":"m"}x', b"\x00\x01", b"hello",
     b'{"model":' * 100_000, b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_json_object_is_unknown(text: bytes) -> None:
    assert peek(text) == UNKNOWN


@pytest.mark.parametrize("odd", [None, 1, 1.5, "yes", [], {}, [[1]], {"a": 1}, "x" * 100_000])
def test_an_odd_type_in_one_field_does_not_hide_the_others(odd: object) -> None:
    assert peek(body(model=odd, stream=True)).stream is True
    assert peek(body(model="m", stream=odd)) == RequestFacts(model="m", readable=True)
    assert peek(body(model="m", generationConfig=odd)).model == "m"


@pytest.mark.parametrize(
    ("count", "choices"), [(1, 1), (4, 4), (0, 1), (-3, 1), (2.0, 2), (2.5, 1), (True, 1), ("2", 2),
    ("two", 1), ("-2", 1), ("", 1), (10**30, 1024), (None, 1)],
)  # fmt: skip
def test_choices_are_a_sane_number_whatever_is_asked_for(count: object, choices: int) -> None:
    assert peek(body(n=count)).choices == choices


def test_a_models_name_is_bounded() -> None:
    assert peek(body(model="m" * 2000)).model == "m" * MAX_NAME
    assert peek(body(model="m" * 100_000)).model is None
    assert peek(body(model="")).model is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"model":"m","stream":true,"x":NaN}',
        b'{"model":"m","stream":true,"x":"cut emoji \\ud83d"}',
        b'{"model":"m","stream":true,"x":"a\nb\tc"}',
        b'{"model":"m","stream":true,"x":"\xff\xfe"}',
        b'\xef\xbb\xbf{"model":"m","stream":true}',
        b'\r\n\t {"model":"m","stream":true}\n',
        b" " * 300 + b'{"model":"m","stream":true}',
        b'{"model":"m","stream":false,"stream":true}',
    ],
)
def test_json_that_providers_take_is_read_although_it_is_not_strict(text: bytes) -> None:
    assert peek(text) == RequestFacts(model="m", stream=True, asks=True, readable=True)


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "br", "zstd", "deflate", "odd"]))
def test_no_body_makes_it_raise(data: bytes, coding: str) -> None:
    for text in (data, b"{" + data, b'{"model":"' + data + b'"}'):
        peek(text, content_type="multipart/form-data; boundary=x", content_encoding=coding)


PACKED = json.dumps(CHAT).encode()


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(PACKED)),
        ("GZIP", gzip.compress(PACKED)),
        ("x-gzip", gzip.compress(PACKED)),
        ("deflate", zlib.compress(PACKED)),
        ("br", brotli.compress(PACKED)),
        ("zstd", zstandard.ZstdCompressor().compress(PACKED)),
        ("identity", PACKED),
    ],
)
def test_a_compressed_body_is_read(coding: str, packed: bytes) -> None:
    assert peek(packed, content_encoding=coding) == CHAT_FACTS


def test_a_large_compressed_prompt_is_read() -> None:
    plain = json.dumps(
        CHAT | {"padding": [str(number * 7919) for number in range(200_000)]}
    ).encode()
    packed = zstandard.ZstdCompressor().compress(plain)
    assert peek(packed, content_encoding="zstd") == CHAT_FACTS


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "odd", "gzip, zstd"])
def test_a_body_that_cannot_be_decoded_is_unknown(coding: str) -> None:
    assert peek(PACKED, content_encoding=coding) == UNKNOWN


def _zstd_bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor().compress(bytes(size))


@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", gzip.compress(bytes(200 << 20), 1)),
        ("br", brotli.compress(bytes(200 << 20), quality=1)),
        ("zstd", _zstd_bomb(200 << 20)),
    ],
    ids=["gzip", "br", "zstd"],
)
def test_a_bomb_costs_bounded_memory_and_is_unknown(
    coding: str, bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PLAIN", 4 << 20)
    tracemalloc.start()
    try:
        assert peek(bomb, content_encoding=coding) == UNKNOWN
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro", True),
        ("/v1beta/models/gemini-2.5-pro:generateContent?key=k", "gemini-2.5-pro", False),
        ("/v1beta/models/g:countTokens", "g", None),
        ("/v1beta/models/g%3AstreamGenerateContent?alt=sse", "g", True),
        ("/v1beta/models/g%3agenerateContent", "g", False),
        ("/v1beta/models/a%3Ab:generateContent", "a:b", False),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude%40x:streamRawPredict",
            "claude@x",
            True,
        ),
        ("/model/anthropic.claude%3A0/converse-stream", "anthropic.claude:0", True),
        ("/model/a/invoke-with-response-stream?x", "a", True),
        ("/model/a/invoke", "a", False),
        ("/model/a/converse", "a", False),
        ("/openai/deployments/dep1/chat/completions?api-version=1", "dep1", None),
        ("/v1/chat/completions", None, None),
        ("/v1/models/gpt-5", None, None),
    ],
)
def test_a_path_that_names_model_and_verb_says_them(
    path: str, model: str | None, stream: bool | None
) -> None:
    assert peek(b"", path=path) == RequestFacts(model=model, stream=stream)


def test_the_path_wins_over_the_body_and_leaves_it_what_it_does_not_say() -> None:
    facts = peek(
        body(model="other", stream=True, generationConfig={"candidateCount": 2}),
        path="/v1beta/models/g:generateContent",
    )
    assert facts == RequestFacts(model="g", stream=False, choices=2, asks=True, readable=True)
    assert peek(body(stream=True), path="/deployments/d/chat/completions").stream is True
    assert peek(body(generation_config={"candidate_count": 3})).choices == 3


def test_json_under_another_type_is_json_all_the_same() -> None:
    facts = peek(PACKED, content_type="application/x-www-form-urlencoded")
    assert facts == CHAT_FACTS


def test_an_upload_says_model_and_stream_in_its_form_fields() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n" + bytes(100_000) + b"\r\n"
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
        b'--b\r\nContent-Disposition: form-data; name="stream"\r\n'
        b"Content-Type: text/plain\r\n\r\ntrue\r\n"
        b'--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n2\r\n--b--\r\n'
    )
    facts = peek(form, content_type="Multipart/Form-Data; boundary=b")
    assert facts == RequestFacts(model="whisper-1", stream=True, choices=2, readable=True)
    assert peek(form, content_type="application/octet-stream") == UNKNOWN


@pytest.mark.parametrize("name", ["messages", "prompt", "input", "contents"])
def test_json_that_holds_a_prompt_or_wants_a_stream_asks_for_an_answer(name: str) -> None:
    assert peek(body(**{name: ["\ud83d"]})).asks
    assert peek(body(**{name: "hello"})).asks
    assert peek(body(stream=True)).asks
    for other in ({name: None}, {"stream": False}, {"model": "m", "training_file": "f"}):
        assert not peek(body(**other)).asks


@pytest.mark.parametrize(
    "name",
    [
        "previous_response_id",
        "previous_interaction_id",
        "agent_id",
        "context_id",
        "conversation",
        "cachedContent",
        "cached_content",
        "container",
    ],
)
def test_what_goes_on_from_something_stored_is_bound_to_its_provider(name: str) -> None:
    assert peek(body(**{name: "id_1"})).bound
    assert peek(body(**{name: {"id": "id_1"}})).bound
    assert not peek(body(**{name: None})).bound
    assert not peek(body(input=[{name: "id_1"}])).bound


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"prompt": {"id": "pmpt_1", "version": "2"}}, True),
        ({"prompt": {"prompt_string": "x"}}, False),
        ({"prompt": "pmpt_1"}, False),
        ({"container": {"skills": []}}, False),
        ({"container": {"id": None}}, False),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, True),
        ({"input": [{"role": "user", "content": 'say "item_reference"'}]}, False),
        ({"input": [{"role": "user", "content": r'"item\u005freference"'}]}, False),
        ({"input": [{"type": "item_reference", "id": "rs_1"}, "\ud83d"]}, True),
    ],
)
def test_what_names_something_stored_is_bound_to_its_provider(
    fields: dict[str, object], bound: bool
) -> None:
    assert peek(body(**fields)).bound is bound


def test_only_a_conversation_grows_by_its_answer() -> None:
    assert peek(body(conversation="conv_1")).appends
    assert peek(body(conversation={"id": "conv_1"})).appends
    assert not peek(body(conversation=None, previous_response_id="r")).appends


@pytest.mark.parametrize(
    ("said", "background"),
    [(True, True), (1, True), (0, True), ("true", True), ({}, True), (False, False), (None, None)],
)
def test_any_background_but_a_plain_no_may_be_one(said: object, background: bool | None) -> None:
    assert peek(body(background=said)).background is background


@pytest.mark.parametrize(
    ("prompt", "n", "choices"),
    [
        ("a", 1, 1),
        (["a", "b"], 1, 2),
        (["a", "\ud83d"], 2, 4),
        ([[1, 2], [3]], 3, 6),
        ([1, 2, 3], 1, 1),
        ([1, 2, 3], 2, 2),
        ([12, "a", 34], 1, 1),
        (["a", 34], 1, 1),
        ([{"prompt_string": "a"}, "b"], 1, 2),
        ([], 1, 1),
        (["a"] * 5000, 1, 1024),
        ({"id": "p"}, 1, 1),
    ],
)
def test_each_prompt_of_a_list_has_its_choices(prompt: object, n: int, choices: int) -> None:
    assert peek(body(prompt=prompt, n=n)).choices == choices
    assert peek(b'{"prompt": ' + json.dumps(prompt, indent=1).encode() + b"}").choices == min(
        choices // n, 1024
    )


def test_a_list_of_prompts_that_is_not_strict_is_counted_all_the_same() -> None:
    assert peek(b'{"n":2,"prompt":["a","\xff",[1]]}').choices == 6
    assert peek(b'{"n":2,"prompt":[1,NaN]}').choices == 2


def test_a_deep_prompt_that_is_not_strict_costs_nothing() -> None:
    deep = b'{"stream":true,"messages":[' + b"[" * 800 + b'"\xff"' + b"]" * 800 + b"]}"
    assert peek(deep) == RequestFacts(stream=True, asks=True, readable=True)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "field",
    [
        '"n":%s',
        '"prompt":{"x":%s}',
        '"input":{"a":[1,{"b":%s}]}',
        '"generationConfig":{"temperature":%s,"candidateCount":2}',
    ],
)
def test_numbers_that_json_does_not_have_hide_nothing(field: str, number: str) -> None:
    facts = peek(b'{"model":"m","bad":"\xff",%b}' % (field % number).encode())
    assert (facts.model, facts.readable) == ("m", True)
    assert facts.choices == (2 if "Count" in field else 1)


@pytest.mark.parametrize("word", [rb"item\u005freference", rb"\u0069tem\u005Freference"])
def test_a_reference_may_be_spelled_with_escapes(word: bytes) -> None:
    assert peek(b'{"input":[{"type":"%b","id":"x"}]}' % word).bound


@pytest.mark.parametrize(
    "half", [b"\\ud83d", b"\\uDE00", b"\\uD83D\\ud83d\\ude00", b"x\\ud83d\\\\ude00"]
)
def test_half_a_pair_hides_nothing_however_long_the_body_is(half: bytes) -> None:
    facts = peek(b'{"model":"m","deferred":true,"x":"' + half + b"a" * (5 << 20) + b'"}')
    assert (facts.model, facts.background, facts.readable) == ("m", True, True)


@pytest.mark.parametrize(
    ("fields", "acts"),
    [
        ({"tools": [{"type": "mcp", "server_url": "https://x"}]}, True),
        ({"tools": [{"type": "function", "name": "f"}, {"type": "mcp"}], "x": "\ud83d"}, True),
        ({"tools": [{"type": "function", "name": "mcp", "description": '"type":"mcp"'}]}, False),
        ({"tools": None}, False),
        ({"mcp_servers": [{"type": "url", "url": "https://x"}]}, True),
        ({"tools": [{"mcpServers": [{"name": "x"}]}]}, True),
        ({"tools": [{"mcpServers": []}]}, False),
        ({"tools": [{"type": "mcp_server", "url": "https://x"}]}, True),
        ({"tools": [{"type": "connector", "connector_id": "x"}]}, True),
        ({"mcp_servers": {"a": {"url": "https://x"}}}, True),
        ({"mcp_servers": {}}, False),
        ({"mcp_servers": []}, False),
        ({"input": [{"type": "additional_tools", "tools": [{"type": "mcp"}]}]}, True),
        ({"input": [{"type": "mcp_list_tools"}]}, False),
        ({"input": [{"type": "mcp_approval_response", "approve": True}]}, True),
        ({"messages": [{"type": "tool_use", "input": {"type": "mcp"}}]}, False),
        ({"tools": [{"parameters": {"default": {"type": "mcp"}}}]}, False),
    ],
)
def test_tools_of_other_servers_may_act(fields: dict[str, Any], acts: bool) -> None:
    assert peek(body(**fields)).acts is acts
    assert peek(json.dumps(fields, indent=32).encode()).acts is acts
