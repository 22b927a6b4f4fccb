"""The model's name changes, and nothing else."""

import pytest

from gateway.policy.rename import rename_model


def test_the_name_in_the_body_changes_and_every_other_value_keeps_its_bytes() -> None:
    body = b'{"model": "a", "n": 1.0, "big": 12345678901234567890123, "x": {"model":"a" }}'
    path, renamed = rename_model("/v1/chat/completions", body, "b") or ("", b"")
    assert path == "/v1/chat/completions"
    assert renamed == b'{"model":"b","n":1.0,"big":12345678901234567890123,"x":{"model":"a" }}'


def test_the_name_in_the_path_changes() -> None:
    target = "/v1beta/models/a-1:streamGenerateContent?alt=sse"
    assert rename_model(target, b"{}", "b/2") == (
        "/v1beta/models/b%2F2:streamGenerateContent?alt=sse",
        b"{}",
    )


@pytest.mark.parametrize("colon", [":", "%3A", "%3a"])
def test_the_colon_of_the_path_may_be_encoded(colon: str) -> None:
    for name in ("a-1", "a%3Ab", "a:b"):
        target = f"/v1beta/models/{name}{colon}streamGenerateContent?alt=sse"
        assert rename_model(target, b"{}", "z") == (
            f"/v1beta/models/z{colon}streamGenerateContent?alt=sse",
            b"{}",
        )


def test_what_names_no_model_cannot_be_renamed() -> None:
    for body in (b"", b"[]", b"{}", b'{"model": 3}', b"\x28\xb5\x2f\xfd", b"[" * 5000):
        assert rename_model("/v1/chat/completions", body, "b") is None


def test_a_prompt_that_was_cut_inside_an_emoji_does_not_hide_the_model() -> None:
    body = b'{ "n": 1.50, "model" : "a", "messages":[{"content":"cut \\ud83d"}] }'
    renamed = rename_model("/v1/chat/completions", body, "b")
    assert renamed == ("/v1/chat/completions", body.replace(b'"a"', b'"b"'))
    assert rename_model("/v1", b'{"model":1,"x":"\\ud83d"}', "b") is None
    assert rename_model("/v1", b'{"model', "b") is None
