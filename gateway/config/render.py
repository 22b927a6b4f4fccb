"""The settings in force, as TOML that loads again; shows where a key stands and never the key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from gateway.config import schema, values
from gateway.config.address import parse_address
from gateway.config.credentials import Secret
from gateway.config.model import Config, Provider, Timeouts
from gateway.config.presets import PRESETS, Preset
from gateway.config.sizes import format_size
from gateway.config.tables import quoted

_SIZES = (values.size, values.size_above_0, values.size_or_unlimited, values.memory)


def render(config: Config) -> str:
    """Every setting in force, and below it, as comments, the built-in providers.

    A provider has a table of its own here if it has one in the configuration; the others are as
    their presets make them.
    """
    return "\n".join((*_settings(config), *_builtin(config))) + "\n"


def _settings(config: Config) -> Iterator[str]:
    yield from _table("server", schema.SERVER, config.server)
    yield from _table("log", schema.LOG, config.log)
    for provider in config.providers.values():
        if provider.explicit or provider.name not in PRESETS:
            path = f"providers.{quoted(provider.name)}"
            yield from _table(path, schema.PROVIDER, provider)
            yield from _table(f"{path}.timeouts", schema.TIMEOUTS, provider.timeouts)
            yield from _table(f"{path}.retry", schema.RETRY, provider.retry)
            yield from _table(f"{path}.circuit", schema.CIRCUIT, provider.circuit)
    yield from _table("exec", schema.EXEC, config.exec)
    yield from _table("exec.limits", schema.LIMITS, config.exec.limits)


def _table(path: str, readers: schema.Readers, struct: object) -> Iterator[str]:
    yield f"[{path}]"
    for key, reader in readers.items():
        value = _in_force(struct, key)
        if reader in _SIZES:
            value = format_size(value if isinstance(value, int) else None)
        if value not in (None, "", {}):
            mark = "#" if _depends(struct, key) else ""
            yield f"{mark}{key} = {_toml(value)}"
    yield ""


def _in_force(struct: object, key: str) -> object:
    if isinstance(struct, Provider):
        if key == "hold_max_bytes":
            return struct.held_bytes(struct.hold)
        if key == "hold_keepalive":
            return struct.held_keepalive(struct.hold)
        if key == "proxy":
            return _without_login(struct.proxy)
    return getattr(struct, key)


def _depends(struct: object, key: str) -> bool:
    """Whether ``key`` was not set and means more once it is: then it stays a comment.

    A ``gap`` that is set bounds ``gap_alive``; the bounds of what is held depend on ``hold``.
    """
    if isinstance(struct, Timeouts):
        return key == "gap" and struct.gap < struct.gap_alive
    if isinstance(struct, Provider):
        return key in ("hold_max_bytes", "hold_keepalive") and key not in struct.explicit
    return False


def _without_login(proxy: str) -> str:
    url = urlsplit(proxy)
    if url.username is None and url.password is None:
        return proxy
    return url._replace(netloc="***@" + url.netloc.rpartition("@")[2]).geturl()


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_toml(k)} = {_toml(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    text = value.reference if isinstance(value, Secret) else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _builtin(config: Config) -> Iterator[str]:
    here = parse_address(config.server.listen).url or "http://HOST:PORT"
    rows = [("NAME", "REQUESTS GO TO", "BASE URL FOR AGENTS", "FOR")]
    for preset in PRESETS.values():
        name, target = preset.name, _target(config, preset)
        for who, path in preset.agents.items():
            rows.append((name, target, here + path, who))
            name = target = ""
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    yield "# Built-in providers"
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        yield f"# {'  '.join(cells)}  {row[3]}"
    for preset in PRESETS.values():
        note = config.unavailable.get(preset.name, preset.note)
        if note:
            yield f"# {preset.name}: {note}."


def _target(config: Config, preset: Preset) -> str:
    if preset.name in config.unavailable:
        return "(base_url is not set)"
    return config.providers[preset.name].base_url or "(built in)"
