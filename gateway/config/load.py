"""From TOML text to a :class:`Config`, or to every fault in it; opens no file by itself."""

from __future__ import annotations

import re
import tomllib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.config import fallback, schema, sidecar
from gateway.config.credentials import ReadFile, Secret, read_text, resolve
from gateway.config.errors import ConfigError
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
from gateway.config.tables import Table, quoted
from gateway.config.values import listen
from gateway.policy.routing import RESERVED_NAMES, nearest_name

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
_CERTIFICATE = "-----BEGIN"


def load(text: str, environ: Mapping[str, str], read_file: ReadFile) -> Config:
    """The configuration that ``text`` describes; the empty text is the default one.

    ``environ`` and ``read_file`` are asked for what ``env:NAME``, ``file:/path`` and ``ca_file``
    name. Raises :class:`ConfigError` with all faults.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"This is not valid TOML: {error}."]) from None
    loader = _Loader(document, environ, read_file)
    config = loader.config()
    if loader.faults:
        raise ConfigError(loader.faults)
    return config


def with_listen(config: Config, address: str) -> Config:
    """``config`` with another address to listen on, as the command line may ask for.

    Raises :class:`ConfigError`.
    """
    try:
        server = msgspec.structs.replace(config.server, listen=listen(address))
    except ValueError as error:
        raise ConfigError([f"--listen {error}."]) from None
    faults = tuple(sidecar.faults(config.exec, server.listen))
    if faults:
        raise ConfigError(faults)
    return msgspec.structs.replace(config, server=server)


class _Loader:
    """Reads one document; every part adds its faults to the same list and goes on."""

    def __init__(
        self, document: dict[str, Any], environ: Mapping[str, str], read_file: ReadFile
    ) -> None:
        self.faults: list[str] = []
        self._root = Table("", document, self.faults)
        self._environ = environ
        self._read_file = read_file
        self._broken: set[str] = set()

    def config(self) -> Config:
        """What the document says, or something like it where ``faults`` is not empty at the end."""
        self._root.refuse_unknown(schema.TABLES, schema.HOMES)
        server = Server(**self._plain("server", schema.SERVER))
        log = Log(**self._plain("log", schema.LOG))
        available, unavailable = self._providers(self._root.table("providers"))
        self._check_default(server, available, unavailable)
        fallback.check(available, unavailable, self._broken, self.faults)
        exec_ = self._exec(self._root.table("exec"), server)
        return Config(
            server=server,
            log=log,
            providers=MappingProxyType(available),
            unavailable=MappingProxyType(unavailable),
            exec=exec_,
        )

    def _plain(self, name: str, readers: schema.Readers) -> dict[str, Any]:
        table = self._root.table(name)
        table.refuse_unknown(readers, schema.HOMES)
        return table.read(readers)

    def _providers(self, tables: Table) -> tuple[dict[str, Provider], dict[str, str]]:
        available: dict[str, Provider] = {}
        unavailable: dict[str, str] = {}
        for name, preset in PRESETS.items():
            if name in tables.raw:
                available |= self._provider(name, tables.table(name), preset)
            elif preset.missing:
                unavailable[name] = preset.missing
            else:
                available[name] = _provider(name, preset, {}, frozenset())
        for name in tables.raw:
            if name not in PRESETS:
                available |= self._provider(name, tables.table(name), None)
        return available, unavailable

    def _provider(self, name: str, table: Table, preset: Preset | None) -> dict[str, Provider]:
        """The provider of one table under its name; nothing if the table has a fault."""
        before = len(self.faults)
        if preset is None:
            self._check_name(name, table)
        table.refuse_unknown((*schema.PROVIDER, *schema.PROVIDER_TABLES), schema.HOMES)
        values = table.read(schema.PROVIDER)
        self._resolve_files(table, values)
        if "base_url" not in table.raw and (preset is None or preset.missing):
            table.fault("base_url", _missing_base_url(name, preset))
        values["timeouts"] = self._timeouts(table.table("timeouts"))
        for key, readers, struct in (
            ("retry", schema.RETRY, Retry),
            ("circuit", schema.CIRCUIT, Circuit),
        ):
            inner = table.table(key)
            inner.refuse_unknown(readers, schema.HOMES)
            values[key] = struct(**inner.read(readers))
        if len(self.faults) > before:
            self._broken.add(name)
            return {}
        explicit = frozenset(table.raw)
        return {name: _provider(name, preset, values, explicit)}

    def _check_name(self, name: str, table: Table) -> None:
        if not _NAME.fullmatch(name):
            self.faults.append(
                f"{table.path} cannot be asked for under that name: use letters, digits, - and _ "
                "only, and not more than 63 of them."
            )
        elif name in RESERVED_NAMES:
            self.faults.append(
                f"{table.path} cannot be asked for under that name, for /{name} is the gateway's "
                "own: name it otherwise."
            )

    def _resolve_files(self, table: Table, values: dict[str, Any]) -> None:
        """Put the secret in the place of its reference, and look into the CA file."""
        if "api_key" in values:
            secret = self._secret(table, "api_key", values.pop("api_key"))
            if secret is not None:
                values["api_key"] = secret
        if "ca_file" in values:
            try:
                certificates = read_text(values["ca_file"], self._read_file)
            except ValueError as error:
                table.fault("ca_file", str(error))
                return
            if _CERTIFICATE not in certificates:
                path = values["ca_file"]
                table.fault("ca_file", f"names the file {path}, which holds no certificate in PEM")

    def _secret(self, table: Table, key: str, reference: str) -> Secret | None:
        try:
            return resolve(reference, self._environ, self._read_file)
        except ValueError as error:
            table.fault(key, str(error))
            return None

    def _timeouts(self, table: Table) -> Timeouts:
        table.refuse_unknown(schema.TIMEOUTS, schema.HOMES)
        timeouts = Timeouts(**table.read(schema.TIMEOUTS))
        if "gap" not in table.raw:
            return timeouts
        # Who asks for a short gap means it, heartbeats or not.
        capped = min(timeouts.gap, timeouts.gap_alive)
        return msgspec.structs.replace(timeouts, gap_alive=capped)

    def _check_default(
        self, server: Server, available: Mapping[str, Provider], unavailable: Mapping[str, str]
    ) -> None:
        name = server.default_provider
        if name is None or name in available or name in self._broken:
            return
        if name in unavailable:
            rest = f"names {name}, which cannot be used yet: {unavailable[name]}"
        else:
            guess = nearest_name(name, available)
            hint = f"did you mean {guess}" if guess else f"add a table [providers.{quoted(name)}]"
            rest = f"names {quoted(name)}, which is no provider: {hint}"
        self.faults.append(f"server.default_provider {rest}.")

    def _exec(self, table: Table, server: Server) -> Exec:
        table.refuse_unknown((*schema.EXEC, *schema.EXEC_TABLES), schema.HOMES)
        values = table.read(schema.EXEC)
        limits = table.table("limits")
        limits.refuse_unknown(schema.LIMITS, schema.HOMES)
        values["limits"] = Limits(**limits.read(schema.LIMITS))
        if values.get("enabled"):
            # Only then: a table that is switched off may name files that are not there.
            try:
                values["tokens"] = sidecar.tokens(
                    values.get("token", ()), self._environ, self._read_file
                )
            except ValueError as error:
                table.fault("token", str(error))
        exec_ = Exec(**values)
        self.faults.extend(sidecar.faults(exec_, server.listen, set(table.raw) - set(values)))
        return exec_


def _provider(
    name: str,
    preset: Preset | None,
    values: Mapping[str, Any],
    explicit: frozenset[str],
) -> Provider:
    """The preset, if there is one, with the user's values over it."""
    defaults: dict[str, Any] = {}
    if preset is not None:
        defaults = {"base_url": preset.base_url, "builtin": preset.builtin, **preset.keys}
        if "base_url" in values:
            defaults["builtin"] = None
    return Provider(name=name, explicit=explicit, **{**defaults, **values})


def _missing_base_url(name: str, preset: Preset | None) -> str:
    if preset is not None:
        return f"is not set: {preset.missing}"
    guess = nearest_name(name, PRESETS)
    hint = f"; or did you mean the built-in provider {guess}?" if guess else ""
    return f'is not set: give the URL of the provider, such as "https://api.example.com"{hint}'
