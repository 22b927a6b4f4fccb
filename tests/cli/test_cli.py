"""The command line: what is handed over, what is printed, and the exit codes."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gateway
from gateway.cli import main


class App:
    """Takes the place of the app and notes what it was asked for."""

    def __init__(self, code: int = 0, error: BaseException | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.code = code
        self.error = error

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "App":
        functions = {
            "serve": lambda config, _: self.answer("serve", config),
            "simulate": lambda listen: self.answer("simulate", listen),
            "rehearse": lambda: self.answer("rehearse", None),
        }
        monkeypatch.setattr(gateway, "app", SimpleNamespace(**functions), raising=False)
        return self

    def answer(self, name: str, value: object) -> int:
        self.asked.append((name, value))
        if self.error is not None:
            raise self.error
        return self.code


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    return App().install(monkeypatch)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "my config.toml"
    file.write_text('[server]\nlisten = "127.0.0.1:1111"\n', encoding="utf-8")
    return file


def test_serve_needs_no_file(app: App) -> None:
    assert main(["serve"]) == 0
    [(name, config)] = app.asked
    assert (name, config.server.listen) == ("serve", "127.0.0.1:8484")


def test_serve_reads_the_file_and_the_address_of_the_command_line_wins(
    app: App, config_file: Path
) -> None:
    main(["serve", "--config", str(config_file)])
    main(["serve", "--config", str(config_file), "--listen", "127.0.0.1:2222"])
    assert [config.server.listen for _, config in app.asked] == ["127.0.0.1:1111", "127.0.0.1:2222"]


def test_sim_has_an_address_of_its_own_unless_one_is_given(app: App) -> None:
    main(["sim"])
    main(["sim", "--listen", "unix:/run/sim.sock"])
    assert app.asked == [("simulate", "127.0.0.1:8485"), ("simulate", "unix:/run/sim.sock")]


def test_try_needs_nothing(app: App) -> None:
    assert main(["try"]) == 0
    assert app.asked == [("rehearse", None)]


@pytest.mark.parametrize("command", ["serve", "sim", "try"])
def test_the_exit_code_is_that_of_the_app(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    App(code=1).install(monkeypatch)
    assert main([command]) == 1


def test_an_interrupt_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    App(error=KeyboardInterrupt()).install(monkeypatch)
    assert main(["try"]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["serve", "sim"])
def test_a_bad_address_is_told_in_one_sentence(
    command: str, app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--listen", "8484"]) == 2
    assert app.asked == []
    error = capsys.readouterr().err
    assert error.startswith("gateway: --listen must be an address such as ")
    assert error.count("\n") == 1


def test_check_prints_the_settings_in_force(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(config_file)]) == 0
    output = capsys.readouterr()
    assert 'listen = "127.0.0.1:1111"' in output.out
    assert "http://127.0.0.1:1111/openai/v1" in output.out
    assert output.err == ""


def test_check_never_prints_a_key(
    config_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-live-0123456789")
    key = config_file.with_name("key")
    key.write_text("sk-file-0123456789\n", encoding="utf-8")
    config_file.write_text(
        f'providers.openai.api_key = "env:MY_KEY"\nproviders.groq.api_key = "file:{key}"\n',
        encoding="utf-8",
    )
    assert main(["check", "--config", str(config_file)]) == 0
    output = capsys.readouterr().out
    assert "sk-live" not in output
    assert "sk-file" not in output
    assert "env:MY_KEY" in output


@pytest.mark.parametrize("command", ["check", "serve"])
def test_each_fault_is_one_line_with_the_file_and_the_key(
    command: str, app: App, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text("server.lisen = 1\nlog.level = 2\n", encoding="utf-8")
    assert main([command, "--config", str(config_file)]) == 2
    assert app.asked == []
    output = capsys.readouterr()
    assert output.out == ""
    first, second = output.err.splitlines()
    assert first.startswith(f"gateway: {config_file}: server.lisen is not a known key: did you ")
    assert second.startswith(f"gateway: {config_file}: log.level must be one of ")


def test_serve_hands_the_sidecar_over_and_check_hides_its_token(
    app: App, config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = config_file.with_name("token")
    token.write_text("t" * 32, encoding="utf-8")
    config_file.write_text(
        f'exec = {{ enabled = true, token = "file:{token}", allowed_roots = ["/repo"] }}',
        encoding="utf-8",
    )
    assert main(["check", "--config", str(config_file)]) == 0
    assert "t" * 32 not in capsys.readouterr().out
    assert main(["serve", "--config", str(config_file)]) == 0
    [(name, config)] = app.asked
    assert (name, config.exec.enabled) == ("serve", True)
    token.unlink()
    assert main(["serve", "--config", str(config_file)]) == 2
    assert "exec.token names the file" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_fault(config_file: Path) -> None:
    config_file.write_bytes(b"\xef\xbb\xbf" + config_file.read_bytes())
    assert main(["check", "--config", str(config_file)]) == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.toml", "cannot be read: No such file or directory."),
        (".", "cannot be read: Is a directory."),
        ("latin.toml", "is not UTF-8 text, as TOML must be."),
        ("x" * 300, "cannot be read: File name too long."),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_one_sentence(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    path = tmp_path / name
    assert main(["check", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"gateway: {path} {words}\n"


@pytest.mark.parametrize("arguments", [[], ["run"], ["serve", "extra"], ["check", "--listen", "x"]])
def test_bad_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: gateway" in capsys.readouterr().err


def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"gateway {gateway.__version__}\n"


def test_a_reader_that_has_left_causes_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "check"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
