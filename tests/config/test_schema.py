"""The keys of each table against the model."""

from collections.abc import Collection

import msgspec
import pytest

from gateway import protocols
from gateway.config import schema
from gateway.config.model import Config, Exec, Limits, Log, Provider, Retry, Server, Timeouts

DERIVED = {"name", "explicit", "builtin", "unavailable", "tokens"}
"""What the loader adds: no keys of the file."""


@pytest.mark.parametrize(
    ("keys", "struct"),
    [
        (schema.SERVER, Server),
        (schema.LOG, Log),
        (schema.TIMEOUTS, Timeouts),
        (schema.RETRY, Retry),
        ({*schema.EXEC, *schema.EXEC_TABLES}, Exec),
        (schema.LIMITS, Limits),
        ({*schema.PROVIDER, *schema.PROVIDER_TABLES}, Provider),
        (schema.TABLES, Config),
    ],
)
def test_a_table_has_exactly_the_keys_of_its_struct(
    keys: Collection[str], struct: type[msgspec.Struct]
) -> None:
    assert set(keys) == set(struct.__struct_fields__) - DERIVED


@pytest.mark.parametrize(
    ("keys", "struct"),
    [
        (schema.SERVER, Server()),
        (schema.LOG, Log()),
        (schema.TIMEOUTS, Timeouts()),
        (schema.RETRY, Retry()),
        (schema.EXEC, Exec()),
        (schema.LIMITS, Limits()),
        (schema.PROVIDER, Provider(name="x", base_url="https://x")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else "keys",
)
def test_every_default_is_a_value_that_its_own_reader_accepts(
    keys: schema.Readers, struct: msgspec.Struct
) -> None:
    for key, reader in keys.items():
        default = getattr(struct, key)
        if default not in (None, {}):
            written = list(default) if isinstance(default, tuple) else default
            assert reader(written) == default, key


def test_each_known_protocol_can_be_configured() -> None:
    for name in ("auto", *protocols.NAMES):
        assert schema.PROVIDER["protocol"](name) == name


def test_a_key_of_two_tables_belongs_to_the_more_common_one() -> None:
    assert schema.HOMES["listen"] == "server"
    assert schema.HOMES["gap"] == "providers.NAME.timeouts"
