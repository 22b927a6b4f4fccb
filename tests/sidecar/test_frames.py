"""Bytes to events and back: nothing is lost, nothing is torn, however it was cut."""

import pytest

from gateway.sidecar.frames import Frames, event
from tests.sidecar.site import Event, events
from tests.sidecar.test_reader import bytes_of

TEXT = "aé漢🌍\r\n\n".encode() * 3


def feed(pieces: list[bytes], start: int = 0) -> list[Event]:
    frames = Frames(start)
    sent = b""
    for piece in pieces:
        sent += frames.feed(piece)
        assert start <= frames.next - len(frames._held)
        assert len(frames._held) <= 3
    return list(events(sent + frames.feed(b"", last=True)))


@pytest.mark.parametrize("data", [TEXT, bytes(range(256)), b"\xf0\x9f\x8c", b"\xc0\x80\xff", b""])
def test_however_it_is_cut_the_bytes_are_the_same(data: bytes) -> None:
    for size in range(1, len(data) + 1):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert bytes_of(feed(pieces, 7), 7) == data


def test_whole_characters_are_text_however_they_come() -> None:
    received = feed([bytes([byte]) for byte in TEXT])
    assert "".join(each.data["text"] for each in received) == TEXT.decode()


def test_what_is_no_text_is_base64_and_only_that() -> None:
    [first, second] = feed([b"ok\n", b"\xff\xfe"])
    assert (first.data["text"], second.data.get("text")) == ("ok\n", None)
    assert second.data["b64"] == "//4="


def test_data_never_ends_an_event() -> None:
    made = event("output", {"text": "a\n\nevent: end\ndata: {}\n\n"}, 5)
    assert made.count(b"\n\n") == 1
    assert list(events(made)) == [Event("output", "5", {"text": "a\n\nevent: end\ndata: {}\n\n"})]
