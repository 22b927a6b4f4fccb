"""Model names: what they mean, and what a wrong one is told."""

from __future__ import annotations

import pytest

from gateway.sim.params import COMMON, PARAMS
from gateway.sim.script import SCRIPTS, Script, ScriptError, model_names, parse_model, table


def refusal(name: str) -> str:
    with pytest.raises(ScriptError) as caught:
        parse_model(name)
    return str(caught.value)


def faulted(name: str, requests: int) -> list[int]:
    script = parse_model(name)
    return [number for number in range(1, requests + 1) if script.faults(number)]


def test_a_name_alone_has_the_defaults() -> None:
    script = parse_model("sim-bare-eof")
    assert (script.name, script.after, script.times, script.every) == (
        "sim-bare-eof",
        3,
        None,
        None,
    )


def test_parameters_follow_after_commas_and_may_be_padded() -> None:
    script = parse_model("sim-stall, after=0 ,for=1.5,chunk=7")
    assert (script.after, script.lasts, script.chunk) == (0, 1.5, 7)


def test_a_prefix_up_to_the_last_slash_is_ignored() -> None:
    assert parse_model("openai/sim-cut,after=2").after == 2


def test_the_model_name_is_kept_as_it_was_sent() -> None:
    assert parse_model("models/sim-ok").model == "models/sim-ok"


@pytest.mark.parametrize("mark", ["none", "all", "finish", "end"])
def test_a_fault_may_stand_at_a_named_place(mark: str) -> None:
    assert parse_model(f"sim-reset,after={mark}").after == mark


def test_a_status_is_part_of_the_name() -> None:
    script = parse_model("sim-status-429,retry_after=2.5,body=html")
    assert (script.status, script.retry_after, script.body) == (429, 2.5, "html")


def test_error_types_are_known_by_the_providers_own_names_too() -> None:
    assert parse_model("sim-error-event,type=overloaded_error").type == "overloaded"
    assert parse_model("sim-error-event,type=RESOURCE_EXHAUSTED").type == "rate_limit"


@pytest.mark.parametrize(("text", "size"), [("700", 700), ("64k", 65536), ("9M", 9437184)])
def test_sizes_take_units(text: str, size: int) -> None:
    assert parse_model(f"sim-big-event,size={text}").size == size


def test_an_unknown_script_is_told_the_nearest_and_all() -> None:
    message = refusal("sim-bare-eoff,after=1")
    assert "unknown script 'sim-bare-eoff'" in message
    assert "did you mean 'sim-bare-eof'?" in message
    assert all(name in message for name in SCRIPTS)


def test_a_foreign_model_is_told_all_scripts_but_no_nearest() -> None:
    message = refusal("claude-opus-4")
    assert "did you mean" not in message
    assert "sim-ok" in message


@pytest.mark.parametrize("name", ["", "sim-", "sim-status-NNN", "sim-status-20", "sim-status-abc"])
def test_names_that_are_no_script_are_refused(name: str) -> None:
    assert "unknown script" in refusal(name)


@pytest.mark.parametrize("status", [200, 299, 600, 999])
def test_a_status_that_is_no_error_is_refused(status: int) -> None:
    assert "300 to 599" in refusal(f"sim-status-{status}")


def test_an_unknown_parameter_is_told_the_nearest_and_all() -> None:
    message = refusal("sim-bare-eof,aftr=3")
    assert "takes no parameter 'aftr'; did you mean 'after'?" in message
    assert all(name in message for name in ("after", *COMMON))


def test_a_parameter_of_another_script_is_refused() -> None:
    assert "sim-ok takes no parameter 'after'" in refusal("sim-ok,after=1")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sim-cut,after=-1", "a number of content events, or one of none"),
        ("sim-cut,after=some", "a number of content events, or one of none"),
        ("sim-ok,times=0", "a whole number from 1"),
        ("sim-ok,words=many", "a whole number from 1"),
        ("sim-ok,every=nan", "seconds from 0"),
        ("sim-ok,first=-1", "seconds from 0"),
        ("sim-drip,beat=0", "seconds from 0.001"),
        ("sim-ok,answer=poem", "one of text, tool, reasoning"),
        ("sim-error-event,type=overlod", "one of server_error"),
        ("sim-big-event,size=1G", "a number of bytes"),
        ("sim-big-event,size=65M", "a number of bytes"),
        ("sim-length,reason=a b", "a word"),
        ("sim-ok,words", "needs a value: words="),
        ("sim-ok,words=1,words=2", "is given twice"),
        ("sim-ok,", "takes no parameter ''"),
    ],
)
def test_a_wrong_value_is_told_what_was_expected(name: str, expected: str) -> None:
    assert expected in refusal(name)


def test_without_times_every_request_is_faulted() -> None:
    assert faulted("sim-cut", 4) == [1, 2, 3, 4]


def test_times_faults_the_first_requests_only() -> None:
    assert faulted("sim-cut,times=2", 5) == [1, 2]


def test_skip_lets_the_first_requests_pass() -> None:
    assert faulted("sim-cut,skip=2,times=2", 8) == [3, 4]


def test_one_in_faults_every_nth_request_after_the_skipped_ones() -> None:
    assert faulted("sim-cut,one_in=3", 8) == [1, 4, 7]
    assert faulted("sim-cut,one_in=3,skip=1,times=2", 12) == [2, 5]


def test_a_request_that_is_not_faulted_keeps_pace_and_kind_of_answer_and_nothing_else() -> None:
    name = "sim-error-event,type=quota,times=1,words=9,answer=tool,coding=gzip,every=0.5"
    healed = parse_model(name).healed()
    assert healed == Script(
        model=name, name="sim-ok", times=1, words=9, answer="tool", coding="gzip", every=0.5
    )


def test_what_a_script_sets_itself_does_not_outlive_it() -> None:
    healed = parse_model("sim-slow,times=1").healed()
    assert (healed.first, healed.every) == (0.0, None)


def test_every_parameter_is_taken_by_some_script_and_every_taken_one_exists() -> None:
    taken = {name for entry in SCRIPTS.values() for name in entry.params}
    assert taken == set(PARAMS)


def test_the_list_of_models_can_be_asked_for_and_described() -> None:
    for name, summary in model_names():
        assert parse_model(name).model == name
        assert summary
        assert "\n" not in summary


def test_the_table_names_every_script_and_parameter() -> None:
    lines = table().splitlines()
    for name in [*SCRIPTS, *PARAMS]:
        assert sum(line.split()[:1] == [name] for line in lines) == 1
