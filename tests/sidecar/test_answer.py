"""What a client is told: true in each state, and told even where the output cannot be shown."""

from typing import Any

import msgspec
import pytest

from gateway.policy.preview import Bounds
from gateway.policy.preview_render import Look
from gateway.sidecar import endpoint
from gateway.sidecar.answer import View, compose_answer, without_output
from gateway.sidecar.status import Output, Reason, Spill, State, Status
from tests.sidecar.site import Site
from tests.sidecar.test_endpoint import check_invariants


def view(head: bytes = b"", tail: bytes = b"", **changed: Any) -> View:
    output = Output(complete=True, bytes=len(head + tail), lines=1, spill=Spill(path="/s/x"))
    given: dict[str, Any] = {"id": "x", "state": State.EXITED, "exit_code": 0, "output": output}
    return View(
        status=Status(**(given | changed)),
        head=head,
        tail=tail,
        look=Look(),
        bounds=Bounds(),
        path="/s/x/output",
        url="/v1/exec/x/output",
        expires_at=0.0,
        warnings=("first",),
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": State.RUNNING}, "still running"),
        ({"state": State.OUTPUT_OPEN}, "held open"),
        ({"state": State.INTERRUPTED}, "interrupted"),
        ({"reason": Reason.TIMEOUT, "signal": 15, "exit_code": None}, "timeout"),
        ({"reason": Reason.CLIENT_GONE}, "client had left"),
    ],
)
def test_what_is_not_whole_says_so_in_its_text(status: dict[str, Any], words: str) -> None:
    output = Output(bytes=3, open=True, lines=1, spill=Spill(path="/s/x", bytes=3))
    told = compose_answer(view(b"ab\n", output=output, **status))
    assert words in told["text"]
    assert told["text"].startswith("ab\n")
    assert told["complete"] is False
    assert told["output_open"] is (status.get("state") is State.OUTPUT_OPEN)


def test_warnings_and_times_are_all_there() -> None:
    told = compose_answer(view(b"x", warnings=("second",)))
    assert told["detail"]["warnings"] == ["first", "second"]
    expires = told["detail"]["output"]["spill"]["expires_at"]
    assert expires == "1970-01-01T00:00:00+00:00"


def test_an_output_that_cannot_be_shown_is_still_told_of() -> None:
    shown = view(b"head", b"tail")
    output = msgspec.structs.replace(shown.status.output, bytes=100, lines=5)
    shown = msgspec.structs.replace(
        shown, status=msgspec.structs.replace(shown.status, output=output)
    )
    told = without_output(shown)
    assert told.keys() == compose_answer(shown).keys()
    assert told["detail"].keys() == compose_answer(shown)["detail"].keys()
    assert (told["exit_code"], told["complete"], told["truncated"]) == (0, True, True)
    assert "/s/x/output" in told["text"]
    assert told["detail"]["output"]["omitted_bytes"] == 100


async def test_a_fault_of_ours_is_no_reason_to_run_it_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: View) -> dict[str, Any]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(endpoint, "compose_answer", fail)
    got = await site.run("echo x; exit 3")
    assert (got.status, got.json["exit_code"], got.json["complete"]) == (200, 3, True)
    assert str(site.spill(got.id)) in got.text
    check_invariants(got, site)
