"""What of a delta is something to show."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocols.chat_delta import calls, says_more, sounds, trails


@pytest.mark.parametrize(
    ("audio", "shown"),
    [
        ({"id": "audio_1"}, False),
        ({"id": "audio_1", "expires_at": 1764600000}, False),
        ({"id": "audio_1", "transcript": ""}, False),
        ({"id": "audio_1", "transcript": "Hi"}, True),
        ({"data": "UklGRg=="}, True),
        ("UklGRg==", True),
        (None, False),
    ],
)
def test_sound_is_what_can_be_heard_or_read(audio: Any, shown: bool) -> None:
    assert sounds(audio) is shown


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        (None, False),
        ([], False),
        ([{"index": 0, "id": "c"}], False),
        ([{"function": {"name": "", "arguments": ""}}], False),
        ([{"function": {"name": "f"}}], True),
        ([{"custom": {"input": "x"}}], True),
        ([7, {"function": 7}], False),
    ],
)
def test_a_call_is_a_name_or_a_piece_of_arguments(listed: Any, shown: bool) -> None:
    assert calls(listed) is shown


def test_an_unknown_field_says_something_if_it_holds_something() -> None:
    known = frozenset({"content"})
    assert says_more(b'{"choices":[{"delta":{"content":"","novel":1}}]}', known)
    assert not says_more(b'{"choices":[{"delta":{"content":"a","novel":null}},7]}', known)


@pytest.mark.parametrize(
    ("chunk", "trailing"),
    [
        (b'{"choices":[]}', True),
        (b'{"choices":[{"index":0,"delta":{},"finish_reason":null}]}', False),
        (b'{"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}', False),
        (b'{"choices":[{"index":0,"delta":{"audio":{"expires_at":1}}}]}', True),
        (b'{"choices":[{"index":0,"content_filter_offsets":{"check_offset":5}}]}', True),
        (b'{"choices":[7]}', False),
    ],
)
def test_what_trails_a_finish_says_something(chunk: bytes, trailing: bool) -> None:
    assert trails(chunk) is trailing
