"""A provider's errors on their way to the client: in its own words, where every client shows them.

What the words become is ``policy.enrich``'s to say. Here is where they come from (an HTTP error, an
error object in a 200, an error event that is all of a stream) and how they leave: as an HTTP error,
or in-band where status and header fields are out already.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.observe import logs
from gateway.policy import headers
from gateway.policy.enrich import enrich
from gateway.policy.error_body import Answer, ErrorBody, read_error
from gateway.policy.retry import Stop, says_when
from gateway.relay import replies
from gateway.streams.events import Fault

if TYPE_CHECKING:
    from gateway.errors import GatewayError
    from gateway.policy.enrich import Enriched
    from gateway.policy.error_body import Document
    from gateway.protocols.base import StreamProtocol
    from gateway.relay.call import Call
    from gateway.relay.failures import Failed, Held
    from gateway.streams.events import ProviderError

_WAITS: Final = frozenset({"retry-after", "retry-after-ms"})


class _Said(NamedTuple):
    """What a provider said: the HTTP status it has or means, and a body in the client's dialect."""

    status: int
    body: bytes
    how: str | None
    recoded: bool = False


def failed(call: Call, failure: Failed, stop: Stop | None = None) -> None:
    """Tell the client that the last try failed, in the provider's own words where there are any,
    and else with how often it was tried and why not once more (``stop``).
    """
    if failure.held is None and failure.provider_error is None:
        failure = replace(failure, error=_explained(call, failure.error, stop))
    if call.downstream.started:
        _tell(call, failure)
    elif failure.held is not None:
        _pass_on(call, failure, failure.held)
    elif failure.provider_error is not None:
        _answer(call, failure, failure.provider_error)
    else:
        replies.refuse(call, failure.error, failure.fields)


_WHY_NOT: Final = {
    Stop.NOT_REPEATABLE: "it is no request that may be sent twice",
    Stop.AMBIGUOUS: "it may have been billed",
    Stop.CONTENT: "a part of an answer had come, and each one is billed",
    Stop.TOO_LATE: "the time for that is over (retry.deadline)",
    Stop.ACTED: "a tool of another server may have been used, and would be once more",
    Stop.BUDGET: "this provider's retries of the last minute are used up (retry.budget)",
}
"""Why there was no further try; for the other reasons the message speaks for itself."""


def _explained(call: Call, error: GatewayError, stop: Stop | None) -> GatewayError:
    tries, why = call.record.attempts, None if stop is None else _WHY_NOT.get(stop)
    message = error.message
    if tries > 1:
        message += f" Tried {tries} times."
    if why is not None and error.retryable:
        message += f" It was not tried again: {why}."
    return error.but_saying(message)


def _pass_on(call: Call, failure: Failed, held: Held) -> None:
    """The provider's HTTP error, with a body that says all that it says."""
    assert call.destination is not None
    record, said = call.record, _said_in(call, held)
    record.status, record.enriched = held.status, said.how
    # That an error broke off nothing but a broken connection can tell, unless the words do.
    breaks = held.broken and said.how in (None, "masked")
    body, kind = held.body, headers.Body.STREAMED if breaks else headers.Body.UNCHANGED
    if said.how is not None:
        body, kind = said.body, headers.Body.REPLACED
    fields = headers.to_client(
        held.fields,
        body=kind,
        request_id=record.request_id,
        provider=call.destination.provider.name,
        attempts=record.attempts,
    )
    if said.how == "masked":
        fields += _kind_of(held, recoded=said.recoded)
    elif said.how is not None:
        fields.append(("Content-Type", "application/json"))
    if kind is headers.Body.REPLACED and not breaks:
        fields.append(("Content-Length", str(len(body))))
    if failure.failure.retryable:
        fields = _when_to_retry(call, held.status, fields, failure.failure.retry_after)
    record.bytes_down += len(body)
    call.downstream.start(held.status, held.reason, fields)
    if breaks:
        call.downstream.send(body)
        call.downstream.abort()
    else:
        call.downstream.end(body)


def _kind_of(held: Held, *, recoded: bool) -> list[tuple[str, str]]:
    """The field that names the type of an error's body, and its encoding if that is another now."""
    fields = [field for field in held.fields if field[0].lower() == "content-type"]
    if not recoded or not fields:
        return fields
    return [("Content-Type", f"{fields[0][1].partition(';')[0].strip()}; charset=utf-8")]


def _answer(call: Call, failure: Failed, error: ProviderError) -> None:
    """An error that came with status 200, as the HTTP error that its type means."""
    call.record.upstream_body = ErrorBody.JSON
    said = _said(call, failure, error)
    call.record.enriched = said.how
    replies.note(call, failure.error, error.code or error.type)
    fields = replies.fields_of(call, failure.fields)
    if error.retryable:
        fields = _when_to_retry(call, error.status, fields, failure.failure.retry_after)
    replies.send(call, said.status, said.body, fields)


def _tell(call: Call, failure: Failed) -> None:
    """Status and header fields are out, for keepalives: what failed is told in-band."""
    error = failure.error
    fault = Fault(error.code, error.message)
    if failure.held is not None:
        fault = _fault(call, _said_in(call, failure.held), fault)
    elif failure.provider_error is not None:
        call.record.upstream_body = ErrorBody.JSON
        fault = _fault(call, _said(call, failure, failure.provider_error), fault)
    replies.note(call, error, fault.code)
    replies.tell(call, fault, failure.frames)


def _fault(call: Call, said: _Said, otherwise: Fault) -> Fault:
    """What is told in-band of an error that would have been an HTTP one. Its type must say what its
    status would have said: one without is taken for the server's fault, and asked again.
    """
    words, kind = read_error(said.body), None
    if said.status < 500:
        kind = read_error(replies.dialect(call).error_body(said.status, None, "")).type
    code, message = words.code or otherwise.code, words.message or otherwise.message
    return Fault(code, message, words.type or kind, said.status)


def _said_in(call: Call, held: Held) -> _Said:
    protocol = replies.dialect(call) if call.known or call.downstream.started else None
    fields = {name.lower(): value for name, value in held.fields}
    if held.plain is None or call.destination_observes:
        return _Said(held.status, held.body, None)
    answer = Answer(held.status, fields, held.plain, cut=held.broken, reason=held.reason)
    enriched = _enriched(call, answer, protocol, held.document)
    if enriched is None:
        return _Said(held.status, held.plain, None)
    return _Said(held.status, enriched.body, enriched.how, enriched.recoded)


def _said(call: Call, failure: Failed, error: ProviderError) -> _Said:
    protocol = replies.dialect(call)
    body = failure.said or provider_error_body(protocol, error)
    enriched = _enriched(call, Answer(error.status, {}, body), protocol)
    if enriched is None:
        return _Said(error.status, body, None)
    return _Said(error.status, enriched.body, enriched.how)


def _enriched(
    call: Call,
    answer: Answer,
    protocol: StreamProtocol | None,
    document: Document | None = None,
) -> Enriched | None:
    """The body to send instead; None for the provider's own, also where telling it met a fault."""
    try:
        return enrich(answer, protocol, call.secrets(), document)
    except Exception:  # noqa: BLE001 - a fault of ours must not take the provider's error away
        logs.logger().error("internal_error", request_id=call.record.request_id, exc_info=True)
        return None


def provider_error_body(protocol: StreamProtocol, error: ProviderError) -> bytes:
    """A provider's error in the shape of ``protocol``: its own message, type, code and param."""
    message = error.message or error.type
    shaped: Any = json.loads(protocol.error_body(error.status, error.code or error.type, message))
    inner = shaped["error"]
    if "status" in inner:
        # Google's shape: the type is called status, and the code is the HTTP status.
        if error.type.isupper():
            inner["status"] = error.type
    else:
        inner["type"] = error.type
        if error.code is not None or "code" in inner:
            inner["code"] = error.code
        if error.param is not None:
            inner["param"] = error.param
    return json.dumps(shaped, ensure_ascii=False).encode("utf-8", "replace")


def _when_to_retry(
    call: Call, status: int, fields: list[tuple[str, str]], wait: float | None
) -> list[tuple[str, str]]:
    """The fields of a rate limit, which always says when: some clients give up on one that does
    not, or not so that it can be read. ``wait`` is what the provider said elsewhere, in seconds.
    """
    assert call.destination is not None
    waits = [field for field in fields if field[0].lower() in _WAITS]
    now = time.time()  # noqa: TID251 - Retry-After may be a date
    if status != 429 or says_when(waits, now):
        return fields
    wait = call.destination.provider.retry.retry_after_default if wait is None else wait
    kept = [field for field in fields if field not in waits]
    return [*kept, ("Retry-After", str(math.ceil(wait)))]
