"""Which requests go to another provider, with what, and whose failure is told in the end."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.config.model import Circuit, Retry
from tests.relay.fake_upstream import (
    FIN,
    LAST_CHUNK,
    SSE,
    FakeUpstream,
    Step,
    chunk,
    head,
    json_answer,
)
from tests.relay.raw_client import ask, request
from tests.relay.streams import ROLE, WHOLE, text
from tests.relay.support import (
    BUSY,
    CHAT,
    FAST,
    GOOD,
    JSON,
    PLAIN,
    after,
    backup,
    counted,
    with_backup,
)

if TYPE_CHECKING:
    from tests.relay.conftest import StartGateway

PIECES = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")
CUT: list[Step] = [SSE, chunk(ROLE + text("a")), LAST_CHUNK]


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/up/v1/batches/b1", None),
        ("DELETE", "/up/v1/files/f1", None),
        ("GET", "/up/v1/responses/resp_1", None),
        ("POST", "/up/v1/messages/batches", b'{"requests":[]}'),
        ("POST", "/up/v1/embeddings", b'{"model":"m","input":"x"}'),
        ("POST", "/up/v1/responses", b'{"model":"m","background":true}'),
        ("POST", "/up/v1/responses", b'{"model":"m","previous_response_id":"resp_1"}'),
        ("POST", "/up/v1/responses", b'{"model":"m","conversation":{"id":"conv_1"}}'),
        ("POST", "/up/v1/responses", b'{"model":"m","prompt":{"id":"pmpt_1"}}'),
        ("POST", "/up/v1/responses", b'{"input":[{"type":"item_reference","id":"rs_1"}]}'),
        ("POST", "/up/v1/messages", b'{"model":"m","messages":[],"container":"container_1"}'),
        ("POST", "/up/v1beta/models/m:generateContent", b'{"cachedContent":"cachedContents/1"}'),
    ],
)
async def test_what_makes_sense_at_one_provider_only_goes_to_no_other(
    start_gateway: StartGateway, method: str, target: str, body: bytes | None
) -> None:
    async with FakeUpstream([json_answer(b"{}", status="404 Not Found")]) as second:
        gateway = await start_gateway(1, retry=FAST, **with_backup(second.port))
        answer = await ask(gateway.port, request(target, body, method=method))
        assert answer.values("x-gateway-error") == [b"upstream_unreachable"]
        assert second.requests == []


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (b'{"type":"input_file","file_id":"file-1"}', 0),
        (b'{"fileData":{"fileUri":"https://x/files/1"}}', 0),
        (b'{"type":"reasoning","encrypted_content":"c2VhbGVk"}', 0),
        (b'{"type":"container","file_ids": ["file-1"]}', 0),
        (b'{"type":"file_search","vector_store_ids":["vs_1"]}', 0),
        (b'{"type":"code_interpreter","container":"cntr_1"}', 0),
        (b'{"type":"code_interpreter","container":{"type":"auto"}}', 2),
        (b'{"fileSearch":{"fileSearchStoreNames":["fileSearchStores/a"]}}', 0),
        (b'{"file_search":{"file_search_store_names": ["fileSearchStores/a"]}}', 0),
        (b'{"vertexRagStore":{"ragResources":[{"ragCorpus":"projects/p"}]}}', 0),
        (b'{"vertexAiSearch":{"datastore":"projects/p"}}', 0),
        (b'{"type":"document_library","library_ids":["l"]}', 0),
        (b'{"role":"system","content":"fileid://file-1"}', 0),
        (b'{"role":"user","content":[{"image_url":{"url":"ms://file-1"}}]}', 0),
        (
            b'{"type":"container",\n                                  "file_ids":\n[\n  "f"]}',
            0,
        ),
        (b'{"api_key":"secret"}', 0),
        (b'{"data_sources":[{"type":"azure_search"}]}', 0),
        (b'{"type":"agent_reference","name":"a"}', 0),
        (b'{"id":"msg_1"}', 0),
        (b'{"type":"reasoning","id":"rs_1","summary":[]}', 0),
        (b'{"type":"reasoning.encrypted","data":"c2VhbGVk"}', 0),
        (b'{"role":"assistant","audio":{"id":"audio_1"}}', 0),
        (b'{"id":"call_1","type":"function"}', 2),
        (b'{"type":"thinking","thinking":"t","signature":"c2VhbGVk"}', 2),
        (b'{"type":"reasoning","encrypted_content":null}', 2),
        (b'{"text":"say \\"file_id\\": \\"x\\""}', 2),
    ],
)
async def test_what_only_the_first_provider_can_read_goes_to_no_other(
    start_gateway: StartGateway, part: bytes, asked: int
) -> None:
    async with FakeUpstream(BUSY) as first, FakeUpstream(BUSY) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port))
        await ask(gateway.port, request(CHAT, b'{"model":"m","x":[%b]}' % part))
        assert len(first.requests) > 0
        assert min(len(second.requests), 1) == min(asked, 1)


@pytest.mark.parametrize(
    ("coding", "part", "asked"),
    [
        ("gzip", b'{"type":"reasoning","encrypted_content":"c2VhbGVk"}', 0),
        ("gzip", b"{}", 1),
        ("zz", b"{}", 0),
    ],
)
async def test_a_packed_request_is_looked_into_as_well(
    start_gateway: StartGateway, coding: str, part: bytes, asked: int
) -> None:
    body = gzip.compress(b'{"model":"m","x":[%b]}' % part)
    async with FakeUpstream(BUSY) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port))
        await ask(gateway.port, request(CHAT, body, f"Content-Encoding: {coding}"))
        assert len(second.requests) == asked


async def test_inference_goes_elsewhere_when_the_first_cannot_be_reached(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(GOOD) as second:
        gateway = await start_gateway(1, retry=FAST, **with_backup(second.port))
        assert (await ask(gateway.port)).body == WHOLE


@pytest.mark.parametrize(
    ("name", "protocol", "asked"),
    [
        ("backup", "openai_chat", 0),
        ("backup", "anthropic", 1),
        ("backup", "auto", 1),
        ("groq", "auto", 0),
        ("openrouter", "auto", 1),
    ],
)
async def test_a_provider_that_does_not_speak_the_protocol_is_passed_over(
    start_gateway: StartGateway, name: str, protocol: str, asked: int
) -> None:
    async with FakeUpstream(BUSY) as first, FakeUpstream(BUSY) as second:
        other = msgspec.structs.replace(backup(second.port, protocol=protocol), name=name)
        gateway = await start_gateway(first.port, fallback=(name,), others={name: other})
        answer = await ask(gateway.port, request("/up/v1/messages", b'{"model":"m"}'))
        assert answer.status == 503
        assert len(second.requests) == asked


AMBIGUOUS: list[Step] = [FIN]
BROKEN: list[Step] = [
    head("200 OK", "Content-Type: application/json", f"Content-Length: {len(JSON)}"),
    JSON[:-5],
    FIN,
]


@pytest.mark.parametrize(
    ("script", "asking"),
    [(CUT, request(CHAT)), (AMBIGUOUS, PLAIN), (BROKEN, PLAIN)],
    ids=["after content", "ambiguous", "part of an answer"],
)
async def test_an_earlier_try_that_was_billed_keeps_the_request_from_going_elsewhere(
    start_gateway: StartGateway, script: list[Step], asking: bytes
) -> None:
    async with FakeUpstream(script, BUSY) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port, retry=FAST, hold="finish", **with_backup(second.port)
        )
        assert (await ask(gateway.port, asking)).status == 503
        assert len(first.requests) > 1
        assert second.requests == []


@pytest.mark.parametrize(
    "script",
    [
        BROKEN,
        [json_answer(JSON[:-5])],
        [head("200 OK", "Content-Type: application/json", "Content-Length: 5000"), FIN],
        [PIECES, chunk(b"\n\n"), FIN],
    ],
    ids=["broken off", "broken JSON", "head", "blank lines"],
)
async def test_a_part_of_an_answer_is_tried_again_once_and_not_elsewhere(
    start_gateway: StartGateway, script: list[Step]
) -> None:
    async with FakeUpstream(script) as first, FakeUpstream([json_answer(JSON)]) as second:
        gateway = await start_gateway(first.port, retry=FAST, **with_backup(second.port))
        assert (await ask(gateway.port, PLAIN)).status == 502
        assert len(first.requests) == 2
        assert second.requests == []


@pytest.mark.parametrize("status", ["400 Bad", "401 Who", "403 No", "404 Not Found", "413 Big"])
async def test_a_fallback_that_does_not_fit_does_not_hide_the_error(
    start_gateway: StartGateway, status: str
) -> None:
    body = b'{"error":{"type":"overloaded_error","message":"Overloaded"}}'
    over = [json_answer(body, "Retry-After: 7", status="529 Over")]
    async with (
        FakeUpstream(over) as first,
        FakeUpstream([json_answer(b'{"error":{"message":"no"}}', status=status)]) as second,
    ):
        gateway = await start_gateway(first.port, **with_backup(second.port))
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (529, body)
        assert answer.values("Retry-After") == [b"7"]
        assert answer.values("x-gateway-provider") == [b"up"]
        await gateway.record()
        errors = counted(gateway, "gateway_upstream_errors_total")
        assert errors == {("up", "529", "json"): 1.0, ("backup", status[:3], "json"): 1.0}


async def test_a_clients_session_and_account_stay_with_the_provider_it_asked(
    start_gateway: StartGateway,
) -> None:
    fields = ["Cookie: session=s", "ChatGPT-Account-Id: a", "X-Auth-Token: t", "X-Plain: p"]
    async with FakeUpstream(BUSY) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port))
        await ask(gateway.port, request(CHAT, b'{"stream":true}', *fields))
        for seen, expected in ((first.requests[0], 1), (second.requests[0], 0)):
            for name in ("Cookie", "ChatGPT-Account-Id", "X-Auth-Token"):
                assert len(seen.values(name)) == expected
            assert seen.values("X-Plain") == [b"p"]


async def test_no_secret_in_the_query_goes_to_another_provider(
    start_gateway: StartGateway,
) -> None:
    query = "?subscription-key=1&token=2&api_%74oken=3&key=4&sig=5&alt=sse&api-version=6"
    async with FakeUpstream(BUSY) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port))
        await ask(gateway.port, request(CHAT + query))
        assert first.requests[0].line.split()[1].endswith(query.encode())
        assert second.requests[0].line.split()[1].endswith(b"?alt=sse&api-version=6")


async def test_a_fallback_is_not_asked_after_a_deadline_of_its_own(
    start_gateway: StartGateway,
) -> None:
    soon = Retry(max_retries=0, deadline=0.1)
    async with FakeUpstream([after(0.3), *BUSY]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port, retry=soon))
        assert (await ask(gateway.port)).status == 503
        assert second.requests == []


async def test_a_client_that_is_retrying_gets_one_retry_from_all_providers_together(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(BUSY) as one, FakeUpstream(BUSY) as two, FakeUpstream(BUSY) as three:
        third = msgspec.structs.replace(backup(three.port, retry=FAST), name="third")
        gateway = await start_gateway(
            one.port,
            retry=FAST,
            fallback=("backup", "third"),
            others={"backup": backup(two.port, retry=FAST), "third": third},
        )
        await ask(gateway.port, request(CHAT, b'{"stream":true}', "x-stainless-retry-count: 2"))
        asked = [len(upstream.requests) for upstream in (one, two, three)]
        assert asked == [2, 1, 1]


async def test_a_model_in_the_path_is_renamed_behind_an_encoded_colon(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream(BUSY) as first, FakeUpstream(BUSY) as second:
        gateway = await start_gateway(first.port, **with_backup(second.port, model_map={"m": "z"}))
        target = "/up/v1beta/models/m%3AstreamGenerateContent?alt=sse"
        await ask(gateway.port, request(target, b"{}"))
        assert second.requests[0].line.startswith(b"POST /v1beta/models/z%3AstreamGenerateContent?")


async def test_after_the_last_retry_the_fallback_is_asked_with_its_own_key(
    start_gateway: StartGateway,
) -> None:
    async with FakeUpstream([SSE, LAST_CHUNK]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=FAST,
            **with_backup(second.port, model_map={"m": "m-eu"}),
        )
        answer = await ask(
            gateway.port,
            request(CHAT, b'{"model":"m","stream":true}', "Authorization: Bearer sk-client"),
        )
        assert (answer.status, answer.body) == (200, WHOLE)
        assert answer.values("x-gateway-provider") == [b"backup"]
        assert len(first.requests) == 4
        (seen,) = second.requests
        assert seen.values("Authorization") == [b"Bearer sk-backup"]
        assert json.loads(seen.body) == {"model": "m-eu", "stream": True}
        assert sum(counted(gateway, "gateway_rescued_total").values()) == 1


async def test_a_final_error_does_not_go_elsewhere(start_gateway: StartGateway) -> None:
    script = [json_answer(b"{}", status="400 Bad")]
    async with FakeUpstream(script) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=FAST,
            **with_backup(second.port),
        )
        assert (await ask(gateway.port)).status == 400
        assert second.requests == []


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("x-gateway-no-retry: 1", b'{"model":"m","stream":true}'),
        ("x-other: 1", b'{"model":"m","stream":true,"background":true}'),
    ],
)
async def test_what_must_not_be_sent_twice_goes_to_no_fallback(
    start_gateway: StartGateway, field: str, body: bytes
) -> None:
    async with FakeUpstream([SSE, LAST_CHUNK]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=Retry(max_retries=0),
            **with_backup(second.port),
        )
        answer = await ask(gateway.port, request("/up/v1/responses", body, field))
        assert answer.status == 502
        assert second.requests == []


async def test_what_failed_is_counted_where_it_failed(start_gateway: StartGateway) -> None:
    async with FakeUpstream([SSE, LAST_CHUNK]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=Retry(max_retries=0),
            **with_backup(second.port),
        )
        await ask(gateway.port)
        await gateway.record()
        ends = counted(gateway, "gateway_stream_ends_total")
        assert {(key[0], key[2]) for key in ends} == {("up", "empty"), ("backup", "complete")}


@pytest.mark.parametrize("kind", ["ambiguous", "after content", "too late"])
async def test_what_was_billed_or_is_too_late_goes_to_no_fallback(
    start_gateway: StartGateway, kind: str
) -> None:
    scripts: dict[str, list[Step]] = {
        "ambiguous": [FIN],
        "after content": [SSE, chunk(ROLE + text("a")), LAST_CHUNK],
        "too late": [json_answer(b"{}", status="503 No")],
    }
    deadline = 0.0 if kind == "too late" else 270.0
    async with FakeUpstream(scripts[kind]) as first, FakeUpstream(GOOD) as second:
        gateway = await start_gateway(
            first.port,
            retry=Retry(max_retries=0, deadline=deadline),
            hold="finish",
            **with_backup(second.port),
        )
        assert (await ask(gateway.port)).status in (502, 503)
        assert second.requests == []


async def test_each_fallback_gets_its_own_name_for_the_model(start_gateway: StartGateway) -> None:
    bad: list[Step] = [SSE, LAST_CHUNK]
    async with FakeUpstream(bad) as one, FakeUpstream(bad) as two, FakeUpstream(GOOD) as three:
        named = backup(two.port, model_map={"m": "m-two"})
        plain = msgspec.structs.replace(backup(three.port), name="third")
        gateway = await start_gateway(
            one.port,
            retry=Retry(max_retries=0),
            fallback=("backup", "third"),
            others={"backup": named, "third": plain},
        )
        body = b'{"model":"m","stream":true}'
        assert (await ask(gateway.port, request(CHAT, body))).body == WHOLE
        assert json.loads(two.requests[0].body)["model"] == "m-two"
        assert three.requests[0].body == body


async def test_a_fallback_that_cannot_be_reached_does_not_hide_the_error(
    start_gateway: StartGateway,
) -> None:
    body = b'{"error":{"message":"the real reason"}}'
    async with FakeUpstream([json_answer(body, status="500 Oops")]) as first:
        gateway = await start_gateway(
            first.port,
            retry=Retry(max_retries=0),
            **with_backup(1),
        )
        answer = await ask(gateway.port)
        assert (answer.status, answer.body) == (500, body)
        assert answer.values("x-gateway-provider") == [b"up"]
        record = await gateway.record()
        assert (record.provider, record.upstream_status) == ("up", 500)
        assert record.error == "the real reason"
        errors = counted(gateway, "gateway_upstream_errors_total")
        assert errors == {("up", "500", "json"): 1.0}


async def test_a_wait_that_does_not_fit_is_too_long(start_gateway: StartGateway) -> None:
    limited = [json_answer(b'{"error":{"message":"slow"}}', "Retry-After: 25", status="429 Slow")]
    async with FakeUpstream(limited) as first, FakeUpstream(GOOD) as second:
        retry = Retry(deadline=20.0)
        gateway = await start_gateway(first.port, retry=retry, **with_backup(second.port))
        assert (await ask(gateway.port)).body == WHOLE
        assert len(first.requests) == 1


async def test_who_cannot_get_a_renamed_request_is_no_way_out(start_gateway: StartGateway) -> None:
    """So an open circuit of a model does not turn its request away for nothing."""
    packed = request(CHAT, gzip.compress(b'{"model":"m"}'), "Content-Encoding: gzip")
    circuit = Circuit(failures=1, open_for=30.0)
    async with FakeUpstream(BUSY, GOOD) as first, FakeUpstream(GOOD) as second:
        more = with_backup(second.port, model_map={"m": "other"})
        retry = Retry(max_retries=0)
        gateway = await start_gateway(first.port, retry=retry, circuit=circuit, **more)
        assert (await ask(gateway.port, request(CHAT, b'{"model":"m"}'))).status == 200
        assert (await ask(gateway.port, packed)).status == 200
        assert (len(first.requests), len(second.requests)) == (2, 1)
