"""Whose turn it is."""

import pytest

from gateway.sidecar.refusal import RefusedError
from gateway.sidecar.turns import Turns


async def test_turns_come_in_order_and_too_many_are_refused() -> None:
    turns = Turns(2, 2)
    first, second, third, fourth = (turns.ask() for _ in range(4))
    assert [turn.done() for turn in (first, second, third, fourth)] == [True, True, False, False]
    assert (turns.running, turns.queued) == (2, 2)
    with pytest.raises(RefusedError) as full:
        await turns.ask()
    assert (full.value.status, full.value.retry_after > 0) == (429, True)
    turns.leave()
    assert third.done()
    assert not fourth.done()
    turns.leave()
    assert fourth.done()
    turns.leave()
    turns.leave()
    assert (turns.running, turns.queued) == (0, 0)


async def test_who_has_left_the_queue_takes_no_turn_and_no_room() -> None:
    turns = Turns(1, 1)
    await turns.ask()
    turns.ask().cancel()
    waiting = turns.ask()
    assert turns.queued == 1
    turns.leave()
    assert waiting.done()
    assert turns.running == 1


async def test_nobody_overtakes_who_waits() -> None:
    turns = Turns(1, 5)
    await turns.ask()
    waiting = turns.ask()
    turns.leave()
    late = turns.ask()
    assert waiting.done()
    assert not late.done()


async def test_a_queue_that_is_closed_tells_who_waits() -> None:
    turns = Turns(1, 5)
    await turns.ask()
    waiting = turns.ask()
    turns.close()
    with pytest.raises(RefusedError) as stopping:
        await waiting
    assert stopping.value.status == 503
    with pytest.raises(RefusedError):
        await turns.ask()
