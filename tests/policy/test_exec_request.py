"""The body of a request to run a command: what is read, and the sentence for what is not."""

import base64
import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.exec_request import (
    MAX_BODY,
    MAX_STDIN,
    MAX_STRING,
    ExecError,
    ExecRequest,
    fingerprint,
    idempotency_key,
    parse,
)
from gateway.policy.preview_render import Look

CAP = 2**30
SECRET = "sk-LEAK9"


def parsed(**fields: object) -> ExecRequest:
    return parse(json.dumps({"command": "ls", **fields}).encode(), CAP)


def refused(body: bytes, cap: int = CAP) -> tuple[int, str]:
    with pytest.raises(ExecError) as error:
        parse(body, cap)
    assert SECRET not in error.value.message
    assert re.fullmatch(r"[^\n]+[.?]", error.value.message)
    return error.value.status, error.value.message


def refused_fields(**fields: object) -> tuple[int, str]:
    return refused(json.dumps({"command": "ls", **fields}).encode())


def test_a_command_alone_gets_the_defaults() -> None:
    request = parsed()
    assert request == ExecRequest(command="ls")
    assert msgspec.structs.asdict(request) == {
        "command": "ls",
        "argv": None,
        "cwd": None,
        "env": {},
        "umask": 0o022,
        "stdin": None,
        "timeout_ms": 120_000,
        "kill_grace_ms": 3_000,
        "output_grace_ms": 5_000,
        "on_output_open": "return",
        "wait_ms": None,
        "on_disconnect": "kill",
        "max_output_bytes": 1_073_741_824,
        "on_output_limit": "kill",
        "head_bytes": 8_192,
        "tail_bytes": 20_480,
        "sha256": False,
        "preview": Look(ansi="strip", cr="collapse"),
        "background": False,
    }


def test_every_field_is_read() -> None:
    body = {
        "argv": ["ls", "-l", ""],
        "cwd": "/repo",
        "env": {"OPENAI_API_KEY": "x", "a.b": ""},
        "umask": "0077",
        "stdin": "é",
        "timeout_ms": 3_600_000,
        "kill_grace_ms": 0,
        "output_grace_ms": 0,
        "on_output_open": "wait",
        "wait_ms": 0,
        "on_disconnect": "continue",
        "max_output_bytes": 1,
        "on_output_limit": "drain",
        "head_bytes": 0,
        "tail_bytes": 262_144,
        "sha256": True,
        "preview": {"ansi": "keep", "cr": "keep"},
        "background": True,
    }
    request = parse(json.dumps(body).encode(), CAP)
    expected = body | {
        "command": None,
        "argv": ("ls", "-l", ""),
        "umask": 0o077,
        "stdin": "é".encode(),
        "preview": Look(ansi="keep", cr="keep"),
    }
    assert msgspec.structs.asdict(request) == expected


def test_null_is_not_given() -> None:
    nothing = dict.fromkeys(ExecRequest.__struct_fields__)
    assert parsed(**{**nothing, "command": "ls", "stdin_b64": None}) == parsed()
    assert parsed(preview={"ansi": None}) == parsed()


def test_standard_input_may_be_bytes() -> None:
    data = bytes(range(256))
    assert parsed(stdin_b64=base64.b64encode(data).decode()).stdin == data
    assert parsed(stdin="").stdin == b""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is not valid JSON: "),
        (b"\xff", "The body is not valid JSON: "),
        (b"[" * 100_000, "The body is not valid JSON: "),
        (b'{"command": "\\ud800"}', "The body is not valid JSON: "),
        (b"[]", "The body must be a JSON object such as "),
        (b"{}", "Exactly one of command and argv must be given."),
        (b'{"command": "a", "argv": ["a"]}', "Exactly one of command and argv must be given."),
        (b'{"command": null, "argv": null}', "Exactly one of command and argv must be given."),
    ],
)
def test_a_body_that_asks_for_nothing_is_refused(body: bytes, message: str) -> None:
    status, told = refused(body)
    assert status == 400
    assert told.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": " \n"}, "command must not be empty."),
        ({"command": 1}, "command must be a string."),
        ({"command": f"a\0{SECRET}"}, "command must not contain a NUL character"),
        ({"command": None, "argv": "ls"}, "argv must be a list of strings"),
        ({"command": None, "argv": [1]}, "argv must be a list of strings"),
        ({"command": None, "argv": []}, "argv must begin with the name of a program."),
        ({"command": None, "argv": [""]}, "argv must begin with the name of a program."),
        ({"command": None, "argv": ["a\0"]}, "argv must not contain a NUL character"),
        ({"cwd": "repo"}, "cwd must be an absolute path"),
        ({"cwd": "/a\0"}, "cwd must be an absolute path"),
        ({"cwd": "/" + "x" * 4095}, "cwd must be an absolute path"),
        ({"env": [SECRET]}, "env must be an object of strings"),
        ({"env": {"A": 1}}, "env must be an object of strings"),
        ({"env": {"": SECRET}}, "env must have names that are not empty"),
        ({"env": {f"A={SECRET}": ""}}, "env must have names that are not empty"),
        ({"env": {"A\0": SECRET}}, "env must have names that are not empty"),
        ({"env": {"A": f"{SECRET}\0"}}, "env must have values without NUL"),
        ({"stdin": 1}, "stdin must be a string."),
        ({"stdin_b64": "a"}, "stdin_b64 must be base64"),
        ({"stdin_b64": "YQ=\n="}, "stdin_b64 must be base64"),
        ({"stdin_b64": "é"}, "stdin_b64 must be base64"),
        ({"stdin": "", "stdin_b64": ""}, "Only one of stdin and stdin_b64 may be given."),
        ({"timeout_ms": 0}, "timeout_ms must be a whole number of milliseconds, 1 to 3600000."),
        ({"timeout_ms": 3_600_001}, "timeout_ms must be a whole number of milliseconds, 1 to "),
        ({"timeout_ms": 1.5}, "timeout_ms must be a whole number"),
        ({"timeout_ms": True}, "timeout_ms must be a whole number"),
        ({"kill_grace_ms": -1}, "kill_grace_ms must be a whole number of milliseconds, 0 to "),
        ({"wait_ms": "1"}, "wait_ms must be a whole number"),
        ({"max_output_bytes": 0}, "max_output_bytes must be a whole number of bytes, 1 or more."),
        ({"max_output_bytes": CAP + 1}, "max_output_bytes must be 1073741824 or less, the server"),
        ({"head_bytes": 250_000}, "head_bytes and tail_bytes must be 262144 or less together."),
        ({"tail_bytes": 262_145}, "tail_bytes must be a whole number of bytes, 0 to 262144."),
        ({"umask": 18}, 'umask must be three or four octal digits in a string such as "0022".'),
        ({"umask": "1022"}, 'umask must be three or four octal digits in a string such as "0022".'),
        ({"umask": "029"}, 'umask must be three or four octal digits in a string such as "0022".'),
        ({"on_output_open": "x"}, 'on_output_open must be one of "return", "wait", "kill".'),
        ({"on_disconnect": 1}, 'on_disconnect must be one of "kill", "continue".'),
        ({"background": 1}, "background must be true or false."),
        ({"preview": []}, "preview must be an object"),
        ({"preview": {"ansi": "x"}}, 'preview is wrong: ansi must be one of "strip", "keep".'),
        ({"preview": {"ansii": "keep"}}, "preview.ansii is not a known field: did you mean pr"),
        ({"timeout": 1}, "timeout is not a known field: did you mean timeout_ms?"),
        ({"comand": "ls"}, "comand is not a known field: did you mean command?"),
        ({"zzz": 1}, "zzz is not a known field: known are command, argv, cwd, "),
        ({SECRET: 1}, "[redacted] is not a known field: "),
    ],
)
def test_each_fault_is_one_sentence_that_names_the_field(
    fields: dict[str, object], message: str
) -> None:
    status, told = refused_fields(**fields)
    assert status == 400
    assert told.startswith(message)


@pytest.mark.parametrize(
    ("largest", "larger"),
    [
        ({"command": "x" * MAX_STRING}, {"command": "x" * (MAX_STRING + 1)}),
        ({"command": "é" * (MAX_STRING // 2)}, {"command": "é" * (MAX_STRING // 2 + 1)}),
        ({"argv": ["x" * MAX_STRING] * 8}, {"argv": ["x" * MAX_STRING] * 9}),
        ({"argv": ["x", "x" * MAX_STRING]}, {"argv": ["x", "x" * (MAX_STRING + 1)]}),
        ({"env": {"A": "x" * (MAX_STRING - 2)}}, {"env": {"A": "x" * (MAX_STRING - 1)}}),
        (
            {"env": {f"V{n}": "x" * 130_000 for n in range(8)}},
            {"env": {f"V{n}": "x" * 130_000 for n in range(9)}},
        ),
        ({"stdin": "x" * MAX_STDIN}, {"stdin": "x" * (MAX_STDIN + 1)}),
    ],
    ids=["command", "bytes", "argv", "argument", "variable", "env", "stdin"],
)
def test_what_is_too_large_is_413(largest: dict[str, object], larger: dict[str, object]) -> None:
    no_command = {"command": None} if "argv" in largest else {}
    parsed(**no_command, **largest)
    status, told = refused_fields(**no_command, **larger)
    assert status == 413
    assert told.startswith(next(iter(larger)))


def test_a_body_that_is_too_large_is_not_read() -> None:
    assert refused(b"{" * (MAX_BODY + 1)) == (413, "The body must be 16777216 bytes or less.")
    data = base64.b64encode(bytes(MAX_STDIN)).decode()
    assert len(parsed(stdin_b64=data).stdin or b"") == MAX_STDIN


def test_a_server_that_keeps_less_lowers_the_default() -> None:
    assert parse(b'{"command": "ls"}', 1000).max_output_bytes == 1000
    assert parse(b'{"command": "ls"}', 2**40).max_output_bytes == 2**30
    assert refused(b'{"command": "ls", "max_output_bytes": 1001}', 1000)[1] == (
        "max_output_bytes must be 1000 or less, the server's exec.max_output."
    )


@given(
    st.binary(max_size=60) | st.from_regex(r'\{"(command|argv|env)": ?.{0,30}\}').map(str.encode)
)
def test_no_body_raises_anything_else(body: bytes) -> None:
    try:
        parse(body, CAP)
    except ExecError as error:
        told = error
    else:
        return
    assert told.status in (400, 413)
    assert told.message


def test_requests_that_mean_the_same_have_one_fingerprint() -> None:
    same = (
        parsed(env={"A": "1", "B": "2"}, stdin="a", timeout_ms=120_000),
        parsed(env={"B": "2", "A": "1"}, stdin_b64="YQ==", wait_ms=None),
    )
    assert fingerprint(same[0]) == fingerprint(same[1])
    assert re.fullmatch("[0-9a-f]{64}", fingerprint(same[0]))


def test_any_field_changes_the_fingerprint() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"command": "ls "},
        {"command": None, "argv": ["ls"]},
        {"cwd": "/repo"},
        {"env": {"A": "1"}},
        {"stdin": ""},
        {"timeout_ms": 1},
        {"kill_grace_ms": 1},
        {"output_grace_ms": 1},
        {"on_output_open": "kill"},
        {"wait_ms": 1},
        {"on_disconnect": "continue"},
        {"max_output_bytes": 1},
        {"on_output_limit": "drain"},
        {"head_bytes": 1},
        {"tail_bytes": 1},
        {"preview": {"cr": "keep"}},
        {"background": True},
    ]
    assert len({fingerprint(parsed(**change)) for change in changes}) == len(changes)


def test_a_key_is_short_and_visible() -> None:
    assert idempotency_key(None) is None
    assert idempotency_key(" a-1 ") == "a-1"
    for wrong in ("", " ", "é", "a\x01", "x" * 256):
        with pytest.raises(ExecError, match="Idempotency-Key must have 1 to 255 visible"):
            idempotency_key(wrong)
