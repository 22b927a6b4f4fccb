"""What `gateway try` prints of what two clients saw."""

from gateway.app.rehearsal import Seen, as_the_operator_sees_it, side_by_side

LEFT = Seen("DIRECT", text="half an ans")
RIGHT = Seen("GATEWAY", text="half an ans", error={"code": "c", "message": "it was cut"})


def test_both_columns_say_how_it_ended() -> None:
    shown = side_by_side(LEFT, RIGHT, 100)
    assert "The stream just ended" in shown
    assert "ERROR c: it was cut" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_a_narrow_terminal_still_shows_both() -> None:
    assert "GATEWAY" in side_by_side(LEFT, RIGHT, 10)


def test_a_finished_answer_and_a_broken_connection_are_told_apart() -> None:
    assert Seen("x", finish_reason="stop").ending == "Finished: stop."
    assert Seen("x", broken="reset").ending == "The connection broke: reset"


def test_the_operator_sees_the_cut_and_its_counter_alone() -> None:
    log = (
        '{"event": "request"}\n'
        '{"event": "stream_cut", "request_id": "1", "provider": "sim", "verdict": "bare_eof",'
        ' "phase": "in_text", "events": 3, "bytes": 10, "seconds_since_event": 0.1}\n'
    )
    metrics = 'gateway_stream_ends_total{verdict="bare_eof"} 1.0\nother 2.0\n'
    shown = as_the_operator_sees_it(log, metrics)
    assert "stream_cut: request_id=1, provider=sim, verdict=bare_eof" in shown
    assert 'gateway_stream_ends_total{verdict="bare_eof"} 1.0' in shown
    assert "other" not in shown
