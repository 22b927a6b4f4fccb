"""Other providers for a request whose own has failed for good. Decides nothing about when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config.fallback import speaks
from gateway.observe import logs
from gateway.policy.bound import holds_what_was_made_there
from gateway.policy.rename import rename_model
from gateway.relay.call import Asked
from gateway.streams.coding import is_compressed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.relay.attempt import Tools
    from gateway.relay.call import Call, Destination


def chain(call: Call, destinations: Mapping[str, Destination]) -> Iterator[Destination]:
    """The providers that may be asked in place of the one that the call goes to, in their order.

    Only for inference that stands for itself: a file, a batch or an earlier response is at the
    provider that made it, and what runs on may still be running there. Each can be reached, and
    speaks the protocol of the request as far as that is known.
    """
    first, protocol = call.destination, call.protocol
    facts = call.facts
    bound = facts.bound or facts.acts or call.goes_once or not facts.readable
    bound = bound or call.request.method != "POST"
    alone = not call.inference or bound or call.asks_no_retry
    if first is None or protocol is None or first.observes or alone:
        return
    kept = None if call.body is None else call.body.kept
    packed = call.request.headers.get("Content-Encoding")
    if first.provider.fallback and kept is not None and holds_what_was_made_there(kept, packed):
        return
    for name in first.provider.fallback:
        other = destinations.get(name)
        if other is None or other.endpoint is None:
            continue
        spoken = speaks(other.provider)
        if spoken and protocol.name not in spoken:
            continue
        wanted = (other.provider.model_map or first.provider.model_map).get(facts.model or "")
        # What is compressed can be renamed in its path alone.
        if wanted and is_compressed(packed) and rename_model(call.rest, b"", wanted) is None:
            continue
        yield other


def count_failed_try(tools: Tools, call: Call) -> None:
    """A try has failed, and another one follows: its error and its stream are counted now."""
    record = call.record
    body, status = record.upstream_body, record.upstream_status
    if body is not None and status is not None and record.provider is not None:
        tools.metrics.upstream_error(record.provider, status, body)
        record.upstream_body = None
    tools.metrics.retire(record)


def redirect(tools: Tools, call: Call, other: Destination) -> bool:
    """Send the call to another provider, under its name for the model; False where that cannot be.

    Only a body that was kept can be sent again.
    """
    body, own = call.body, call.destination
    assert own is not None
    if body is None or body.kept is None:
        return False
    asked = call.asked
    if asked is None:
        asked = call.asked = Asked(own.provider, call.rest, body.kept)
    names = other.provider.model_map or asked.provider.model_map
    wanted = names.get(call.facts.model or "")
    call.rest = asked.rest
    body.replace(asked.body)
    if wanted is not None:
        renamed = rename_model(asked.rest, asked.body, wanted)
        if renamed is None:
            logs.logger().warning(
                "fallback_skipped",
                request_id=call.record.request_id,
                provider=other.provider.name,
                reason="the model's name in the request cannot be changed",
            )
            return False
        call.rest = renamed[0]
        body.replace(renamed[1])
    logs.logger().warning(
        "fallback",
        request_id=call.record.request_id,
        provider=own.provider.name,
        to=other.provider.name,
    )
    # What has failed is counted where it failed.
    count_failed_try(tools, call)
    call.destination = other
    call.record.provider = other.provider.name
    return True
