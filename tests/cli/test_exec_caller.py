"""Where the endpoint is, and its token: options, then variables, then the file."""

from pathlib import Path

import pytest

from gateway.cli import exec_caller
from gateway.cli.exec_wire import CallError

TOKEN = "f" * 40


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "of config"
    path.write_text(f" {TOKEN}\n", encoding="utf-8")
    return str(path)


def config(folder: Path, text: str) -> str:
    path = folder / "g.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_options_win_over_variables_and_those_over_the_file(
    tmp_path: Path, token_file: str
) -> None:
    file = config(
        tmp_path,
        f'exec = {{ enabled = true, listen = "127.0.0.1:3", token = "file:{token_file}" }}',
    )
    other = tmp_path / "other"
    other.write_text("o" * 40, encoding="utf-8")
    environ = {"GATEWAY_EXEC_ENDPOINT": "127.0.0.1:2", "GATEWAY_EXEC_TOKEN_FILE": str(other)}

    place = exec_caller.find(environ, "127.0.0.1:1", token_file, file)
    assert (place.endpoint.address, place.token) == ("127.0.0.1:1", TOKEN)
    place = exec_caller.find(environ, None, None, file)
    assert (place.endpoint.address, place.token) == ("127.0.0.1:2", "o" * 40)
    place = exec_caller.find({"GATEWAY_EXEC_CONFIG": file})
    assert (place.endpoint.address, place.token) == ("127.0.0.1:3", TOKEN)
    place = exec_caller.find({}, None, token_file)
    assert place.endpoint.address == "unix:/run/gateway/exec.sock"


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:5", "127.0.0.1:5"),
        ("[::]:5", "[::1]:5"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("host:5", "host:5"),
    ],
)
def test_a_listener_on_every_address_is_reached_on_this_machine(
    listen: str, address: str, tmp_path: Path, token_file: str
) -> None:
    file = config(
        tmp_path, f'[exec]\nenabled = true\nlisten = "{listen}"\ntoken = ["file:{token_file}"]'
    )
    assert exec_caller.find({}, config=file).endpoint.address == address


def test_the_file_may_name_a_variable_which_no_command_gets(tmp_path: Path) -> None:
    file = config(
        tmp_path, 'providers.x.api_key = "env:NOT_SET"\nexec = { enabled = true, token = "env:T" }'
    )
    environ = {"T": TOKEN, "OTHER": "x", "GATEWAY_EXEC_CONFIG": file}
    place = exec_caller.find(environ)
    assert place.token == TOKEN
    assert exec_caller.environment(environ, place, "/bin/sh") == ({"OTHER": "x"}, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not enable [exec]"),
        ("[exec]\nenabled = true", "has no exec.token"),
        ('[exec]\nenabled = true\ntoken = "env:NOT_SET"', "not to be had in this environment"),
        ('[exec]\nenabled = true\ntoken = "file:/no/such"', "/no/such cannot be read"),
        ("[exec]\nenabled = true\ntoken = 5", "not to be had in this environment"),
        ("exec = 5", "does not enable [exec]"),
        ("[exec", "is not valid TOML"),
    ],
)
def test_a_file_without_a_token_is_told_in_one_sentence(
    text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CallError) as failed:
        exec_caller.find({}, config=config(tmp_path, text))
    assert words in failed.value.sentence


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"\xff" * 40])
def test_a_token_file_without_a_token_is_told_and_not_shown(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(CallError) as failed:
        exec_caller.find({}, token_file=str(path))
    assert failed.value.sentence == f"The token file {path} holds no token."


def test_without_any_token_it_is_told_how_to_name_one() -> None:
    with pytest.raises(CallError) as failed:
        exec_caller.find({})
    assert "GATEWAY_EXEC_TOKEN_FILE" in failed.value.sentence


@pytest.mark.parametrize("address", ["x", "host:", ":1", "host:port", "/run/x.sock"])
def test_what_is_no_address_is_told(address: str, token_file: str) -> None:
    with pytest.raises(CallError) as failed:
        exec_caller.find({}, address, token_file)
    assert "is no address" in failed.value.sentence


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "Nothing listens on 127.0.0.1:1"),
        ("unix:/no/such/socket", "Nothing listens on unix:/no/such/socket"),
        ("unix:/" + "x" * 200, "cannot be reached"),
    ],
)
def test_an_endpoint_that_is_not_there_is_told(address: str, words: str, token_file: str) -> None:
    with pytest.raises(CallError) as failed:
        exec_caller.find({}, address, token_file).endpoint.connect()
    assert words in failed.value.sentence
    assert failed.value.unreached
