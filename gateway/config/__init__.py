"""What the user wants: frozen structs, their TOML form, the built-in providers; does no I/O.

The map::

    model         the structs, with every default
    schema        which keys each table has, and the reader of each
    values        readers of single values; the sentences for wrong ones
    sizes         "64MiB"
    address       "127.0.0.1:8484", "unix:/path"
    credentials   "env:NAME", "file:/path", and the key that is never shown
    tables        one table and the faults found in it
    presets       the built-in providers, as data
    fallback      whether fallbacks can work
    sidecar       whether the sidecar may start
    load          TOML text to Config, or every fault as a sentence
    render        Config to TOML, keys redacted

A key is added in ``model`` (with its default), in ``schema`` and in ``config.example.toml``; tests
hold the three together.
"""

from gateway.config.address import Address, parse_address
from gateway.config.credentials import ReadFile, Secret
from gateway.config.errors import ConfigError
from gateway.config.load import load, with_listen
from gateway.config.model import (
    Circuit,
    Config,
    Exec,
    Limits,
    Log,
    Provider,
    Retry,
    Server,
    Timeouts,
)
from gateway.config.presets import PRESETS, Preset
from gateway.config.render import render

__all__ = [
    "PRESETS",
    "Address",
    "Circuit",
    "Config",
    "ConfigError",
    "Exec",
    "Limits",
    "Log",
    "Preset",
    "Provider",
    "ReadFile",
    "Retry",
    "Secret",
    "Server",
    "Timeouts",
    "load",
    "parse_address",
    "render",
    "with_listen",
]
