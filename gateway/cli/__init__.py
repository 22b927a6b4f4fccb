"""The command `gateway`: reads arguments and files, and hands over; serves nothing itself.

Exit codes: 0 fine, 1 failed while running, 2 bad usage or configuration; `sh` and `exec` have
those of the command. What the user did wrong is told in sentences on standard error, never in a
traceback.

Nothing is imported before it is needed: `gateway sh` is started with every command of an agent.
"""

from __future__ import annotations

import os
import sys

from gateway import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.config import Config

FAILED = 1
BAD_USAGE = 2

SIM_LISTEN = "127.0.0.1:8485"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (that of the process by default) and return the exit code.

    ``SystemExit`` leaves it where argparse wants it: for ``--help``, ``--version`` and bad usage.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["sh"]:
        from gateway.cli import sh

        return sh.main(words[1:])
    if words[:1] == ["exec"]:
        from gateway.cli import exec_command

        return exec_command.main(words[1:])
    return _main(words)


def _main(words: Sequence[str]) -> int:
    from gateway.config import ConfigError

    arguments = _parser().parse_args(words)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ConfigError as error:
        sys.stderr.writelines(f"gateway: {fault}\n" for fault in error.faults)
        return BAD_USAGE
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of the output has left; the interpreter must not complain about it at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="gateway",
        description="A reverse proxy for coding agents that knows how each LLM stream ended.",
    )
    parser.add_argument("--version", action="version", version=f"gateway {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the gateway")
    _add_config(serve)
    _add_listen(serve, "default: server.listen of the config, else 127.0.0.1:8484")
    serve.set_defaults(run=_serve)

    check = commands.add_parser("check", help="check the config and print the settings in force")
    _add_config(check)
    check.set_defaults(run=_check)

    sim = commands.add_parser("sim", help="run the simulated provider alone")
    _add_listen(sim, f"default: {SIM_LISTEN}")
    sim.set_defaults(run=_sim)

    rehearse = commands.add_parser(
        "try", help="show one broken stream, direct and through the gateway; needs no key"
    )
    rehearse.set_defaults(run=_try)

    # They read their own arguments.
    commands.add_parser("exec", help="run a command at the endpoint for shell commands")
    commands.add_parser("sh", help="the same, in the form of a shell, for agents")
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML, see config.example.toml; without one: the built-in providers",
    )


def _add_listen(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--listen", metavar="ADDR", help=f"host:port or unix:/path ({default})")


def _serve(arguments: argparse.Namespace) -> int:
    from gateway.config import with_listen

    def read() -> Config:
        config = _configuration(arguments.config)
        return config if arguments.listen is None else with_listen(config, arguments.listen)

    config = read()
    from gateway import app

    return app.serve(config, read)


def _check(arguments: argparse.Namespace) -> int:
    from gateway.config import render

    sys.stdout.write(render(_configuration(arguments.config)))
    return 0


def _sim(arguments: argparse.Namespace) -> int:
    from gateway.config import ConfigError, parse_address

    try:
        address = parse_address(arguments.listen or SIM_LISTEN)
    except ValueError as error:
        raise ConfigError([f"--listen {error}."]) from None
    from gateway import app

    return app.simulate(str(address))


def _try(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - every command takes them
    from gateway import app

    return app.rehearse()


def _configuration(path: Path | None) -> Config:
    """The configuration in the file at ``path``, the default one without; raises ConfigError."""
    from gateway.config import ConfigError, load

    if path is None:
        return load("", os.environ, _read_file)
    try:
        # A byte order mark, which editors of some systems put there, is no fault.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError([f"{path} is not UTF-8 text, as TOML must be."]) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([f"{path} cannot be read: {reason}."]) from None
    try:
        return load(text, os.environ, _read_file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {fault}" for fault in error.faults) from None


def _read_file(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
