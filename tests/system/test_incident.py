"""The incident in small: 23 cuts and a stall among some hundred requests, with and without."""

import pytest

from bench.incident import SDKS, faults, report, three_nights

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


async def test_no_cut_is_taken_for_an_answer_and_all_can_be_saved() -> None:
    tallies = await three_nights(400)
    assert faults(tallies) == [], report(tallies, 400)
    without, content, finish = tallies
    assert (without.raw["hung"], without.raw["complete, though cut"]) == (1, 23)
    assert content.raw["failed loudly"] == 24
    assert finish.raw["complete"] == 400
    for sdk in SDKS:
        assert without.sdks[sdk]["complete, though cut"] == 23
        assert content.sdks[sdk]["failed loudly"] == 24
        assert finish.sdks[sdk]["complete"] == finish.sdks[sdk].total() == 44
