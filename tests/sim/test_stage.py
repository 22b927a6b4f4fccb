"""Where scripts break an answer, as plans; nothing is sent."""

from __future__ import annotations

import json

import pytest

from gateway.sim.plan import Beat, End, Pause, Send
from gateway.sim.script import SCRIPTS
from tests.sim.support import PROTOCOLS, contents, events, finishes, planned

STREAMED = [name for name in SCRIPTS if name != "sim-status-NNN"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_cut_stands_after_as_many_content_events_as_asked(protocol: str, after: int) -> None:
    body = planned(protocol, f"sim-bare-eof,after={after}").body()
    assert len(contents(protocol, body)) == after
    assert finishes(protocol, body) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_named_places_are_before_all_after_all_content_after_the_finish_and_at_the_end(
    protocol: str,
) -> None:
    def body(place: str) -> bytes:
        return planned(protocol, f"sim-reset,after={place}").body()

    whole = planned(protocol, "sim-ok").body()
    assert body("none") == b""
    assert contents(protocol, body("all")) == contents(protocol, whole)
    assert finishes(protocol, body("all")) == 0
    assert finishes(protocol, body("finish")) == 1
    assert body("end") == whole


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_count_beyond_the_content_stands_after_its_last_event(protocol: str) -> None:
    many, everything = (planned(protocol, f"sim-cut,after={n}").body() for n in ("9999", "all"))
    assert many == everything


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_opening_frames_pass_even_where_no_content_does(protocol: str) -> None:
    opened = len(events(planned(protocol, "sim-cut,after=0").body()))
    assert opened == {"chat": 1, "responses": 4, "anthropic": 3}.get(protocol, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_torn_stream_ends_inside_its_next_event(protocol: str) -> None:
    whole = planned(protocol, "sim-bare-eof,after=2").body()
    torn = planned(protocol, "sim-torn,after=2").body()
    assert torn.startswith(whole)
    assert len(torn) > len(whole) + 10
    assert events(torn) == events(whole)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("sim-bare-eof", End.CLEAN),
        ("sim-cut", End.FIN),
        ("sim-short-chunk", End.SHORT),
        ("sim-bad-chunk", End.BAD),
        ("sim-reset", End.RESET),
        ("sim-torn,end=reset", End.RESET),
        ("sim-no-done,end=fin", End.FIN),
        ("sim-error-event,end=short", End.SHORT),
        ("sim-stall", End.CLEAN),
    ],
)
def test_the_connection_ends_as_the_script_says(name: str, end: End) -> None:
    assert planned("chat", name).end is end


def test_a_short_chunk_promises_the_event_that_it_cuts() -> None:
    plan = planned("chat", "sim-short-chunk,after=1")
    assert events(plan.body() + plan.rest) == events(planned("chat", "sim-cut,after=2").body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_but_the_finish_frame_passes(protocol: str) -> None:
    body = planned(protocol, "sim-half-finish").body()
    assert finishes(protocol, body) == 0
    assert contents(protocol, body) == contents(protocol, planned(protocol, "sim-ok").body())


def test_with_several_choices_only_the_last_does_not_finish() -> None:
    body = planned("chat", "sim-half-finish", n=3).body()
    assert finishes("chat", body) == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_done_stands_alone_for_a_finish(protocol: str) -> None:
    body = planned(protocol, "sim-done-only").body()
    assert finishes(protocol, body) == 0
    assert events(body)[-1][1] == "[DONE]"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_done_still_finishes(protocol: str) -> None:
    body = planned(protocol, "sim-no-done").body()
    assert finishes(protocol, body) == 1
    assert all(payload != "[DONE]" for _, payload in events(body))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("eol", ["auto", "lf", "crlf", "cr"])
def test_the_last_frame_lacks_exactly_its_blank_line(protocol: str, eol: str) -> None:
    body = planned(protocol, f"sim-no-blank,eol={eol}").body()
    ending = {
        "auto": b"\r\n" if protocol == "gemini" else b"\n",
        "lf": b"\n",
        "crlf": b"\r\n",
        "cr": b"\r",
    }[eol]
    assert body.endswith(b"}" + ending)
    assert finishes(protocol, body) == 0
    assert finishes(protocol, body + ending) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("eol", "absent"), [("crlf", b"}\n"), ("cr", b"\n"), ("lf", b"\r")])
def test_line_ends_change_nothing_but_line_ends(protocol: str, eol: str, absent: bytes) -> None:
    body = planned(protocol, f"sim-ok,eol={eol}").body()
    plain = planned(protocol, "sim-ok").body()
    assert absent not in body
    texts = "".join(contents(protocol, body)), "".join(contents(protocol, plain))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stall_is_a_pause_and_then_the_rest(protocol: str) -> None:
    plan = planned(protocol, "sim-stall,after=2,for=9")
    at = plan.steps.index(Pause(9.0))
    before = b"".join(step.data for step in plan.steps[:at] if isinstance(step, Send))
    assert len(contents(protocol, before)) == 2
    texts = "".join(contents(protocol, plan.body()))
    assert texts == "".join(contents(protocol, planned(protocol, "sim-ok,words=48").body()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_heartbeats_last_as_long_as_asked_and_carry_no_content(protocol: str) -> None:
    plan = planned(protocol, "sim-stall-keepalive,after=1,for=6,beat=2")
    (beat,) = [step for step in plan.steps if isinstance(step, Beat)]
    assert (beat.every, beat.count) == (2.0, 3)
    sent = b"".join(beat.make(index) for index in range(3))
    assert sent
    assert not contents(protocol, sent)
    assert finishes(protocol, plan.body()) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seconds", [3, 200])
def test_a_dripping_event_stays_one_valid_event_however_long_it_drips(
    protocol: str, seconds: int
) -> None:
    plan = planned(protocol, f"sim-drip,after=1,for={seconds},beat=1")
    data = b""
    for step in plan.steps:
        match step:
            case Send(piece):
                data += piece
            case Beat(make, every, count):
                dripped = [make(index) for index in range(count)]
                assert (every, count) == (1.0, seconds)
                assert all(len(byte) == 1 for byte in dripped)
                data += b"".join(dripped)
            case Pause():
                pytest.fail("a drip makes no pauses")
    assert len(events(data)) == len(events(planned(protocol, "sim-ok").body()))


def test_a_drip_after_the_end_drips_nothing() -> None:
    assert not any(isinstance(step, Beat) for step in planned("chat", "sim-drip,after=end").steps)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_stands_after_the_content_asked_for_or_first_of_all(protocol: str) -> None:
    body = planned(protocol, "sim-error-event,after=2").body()
    assert len(contents(protocol, body)) == 2
    first = events(planned(protocol, "sim-error-event,after=none").body())
    assert len(first) == (2 if protocol == "responses" else 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_error_may_be_followed_by_what_looks_like_a_normal_end(protocol: str) -> None:
    body = planned(protocol, "sim-error-done").body()
    last = events(body)[-1]
    assert last[1] == "[DONE]" or last[0] == "message_stop"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pauses_stand_before_the_first_event_and_between_all(protocol: str) -> None:
    steps = planned(protocol, "sim-ok,words=8,first=5,every=0.5").steps
    assert steps[0] == Pause(5.0)
    assert all(isinstance(step, Send) for step in steps[1::2])
    assert set(steps[2::2]) == {Pause(0.5)}


def test_late_headers_and_no_headers_are_delays_before_the_first_byte() -> None:
    assert planned("chat", "sim-ok,headers=3").delay == 3
    assert planned("chat", "sim-no-headers,for=4,headers=1").delay == 5


def test_lingering_is_a_pause_after_everything() -> None:
    plan = planned("anthropic", "sim-linger,for=7")
    assert plan.steps[-1] == Pause(7.0)
    assert plan.body() == planned("anthropic", "sim-ok").body()


def test_the_slow_script_is_slow_by_itself() -> None:
    steps = planned("chat", "sim-slow").steps
    assert (steps[0], steps[2]) == (Pause(2.0), Pause(0.3))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_big_event_is_as_big_as_asked(protocol: str) -> None:
    body = planned(protocol, "sim-big-event,size=300k,after=1").body()
    assert max(len(text) for text in contents(protocol, body)) >= 300 * 1024


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_codings_are_named_in_the_headers_and_left_to_the_wire(protocol: str) -> None:
    plan = planned(protocol, "sim-gzip")
    assert plan.coding == "gzip"
    assert ("content-encoding", "gzip") in plan.headers
    assert plan.body() == planned(protocol, "sim-gzip,coding=identity").body()


def test_a_body_shorter_than_promised_is_half_of_it() -> None:
    plan = planned("chat", "sim-truncated-json", stream=False)
    whole = planned("chat", "sim-ok", stream=False)
    assert plan.end is End.FIN
    assert plan.length is not None
    assert len(plan.body()) == plan.length // 2
    assert plan.length == len(whole.body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", STREAMED)
def test_every_script_has_a_plan_with_and_without_streaming(protocol: str, name: str) -> None:
    for stream in (True, False):
        plan = planned(protocol, name, stream=stream)
        assert plan.status in (200, 400, 500, None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["sim-bare-eof", "sim-cut", "sim-torn", "sim-reset"])
def test_without_streaming_a_cut_leaves_half_of_the_json(protocol: str, name: str) -> None:
    plan = planned(protocol, name, stream=False)
    assert plan.length is None
    with pytest.raises(json.JSONDecodeError):
        json.loads(plan.body())


@pytest.mark.parametrize(
    "name", ["sim-stall,for=1", "sim-stall-keepalive,for=1", "sim-drip,for=50"]
)
def test_without_streaming_a_silence_is_filled_as_json_allows(name: str) -> None:
    plan = planned("chat", name, stream=False)
    data = b""
    for step in plan.steps:
        data += step.data if isinstance(step, Send) else b""
        data += b"".join(map(step.make, range(step.count))) if isinstance(step, Beat) else b""
    assert json.loads(data)["object"] == "chat.completion"


@pytest.mark.parametrize(
    "name", ["sim-no-done", "sim-no-blank", "sim-half-finish", "sim-done-only", "sim-keepalive"]
)
def test_without_streaming_scripts_that_are_about_frames_leave_the_answer_whole(name: str) -> None:
    plan = planned("anthropic", name, stream=False)
    assert json.loads(plan.body())["stop_reason"] == "end_turn"
    assert plan.length == len(plan.body())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_streaming_an_error_is_an_http_error(protocol: str) -> None:
    plan = planned(protocol, "sim-error-event,type=quota", stream=False)
    assert plan.status == 429
    assert "quota" in plan.body().decode()
