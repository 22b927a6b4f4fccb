"""The order of evidence, one step after the other."""

from itertools import product

from gateway.protocols.base import provider_error
from gateway.streams.events import Facts, Verdict
from gateway.streams.evidence import Evidence, judge

NAMES = ("unread", "done", "broke", "torn", "known", "empty")
EVERY = [
    Evidence(**dict(zip(NAMES, values, strict=True)))
    for values in product((False, True), repeat=len(NAMES))
]


def test_an_error_wins_over_everything() -> None:
    facts = Facts(finished=True, error=provider_error("server_error", "x"))
    known = [each for each in EVERY if each.known]
    assert {judge(facts, each) for each in known} == {Verdict.PROVIDER_ERROR}


def test_in_a_stream_of_no_known_protocol_an_error_excuses_no_break() -> None:
    facts = Facts(error=provider_error("error", "tool failed"))
    for each in EVERY:
        if not (each.known or each.unread or each.done):
            found = judge(facts, each)
            assert (found is Verdict.PROVIDER_ERROR) == (not each.broke and not each.torn)


def test_a_finish_wins_over_however_the_transport_ended() -> None:
    assert {judge(Facts(finished=True), each) for each in EVERY} == {Verdict.COMPLETE}
    abnormal = Facts(finished=True, abnormal=True)
    assert {judge(abnormal, each) for each in EVERY} == {Verdict.COMPLETE_ABNORMAL}


def test_while_more_choices_are_awaited_only_an_end_in_good_order_is_one() -> None:
    facts = Facts(finished=True, awaited=True)
    for each in EVERY:
        assert (judge(facts, each) is Verdict.COMPLETE) == (not each.broke and not each.torn)


def test_without_a_finish_nothing_is_complete() -> None:
    seen = {judge(Facts(), each) for each in EVERY}
    assert not seen & {Verdict.COMPLETE, Verdict.COMPLETE_ABNORMAL}


def test_each_step_down_the_order() -> None:
    steps = [
        (Evidence(True, True, True, True, True, True), Verdict.OPAQUE),
        (Evidence(False, True, True, True, True, True), Verdict.DONE_WITHOUT_FINISH),
        (Evidence(False, False, True, True, True, True), Verdict.RESET),
        (Evidence(False, False, False, True, True, True), Verdict.TORN),
        (Evidence(False, False, False, False, False, True), Verdict.OPAQUE),
        (Evidence(False, False, False, False, True, True), Verdict.EMPTY),
        (Evidence(False, False, False, False, True, False), Verdict.BARE_EOF),
    ]
    for evidence, verdict in steps:
        assert judge(Facts(), evidence) is verdict
