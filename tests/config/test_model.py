"""The structs and their defaults."""

import msgspec
import pytest

from gateway.config.model import GiB, KiB, MiB, Provider, Retry, Server, Timeouts


def provider(**keys: object) -> Provider:
    return msgspec.convert({"name": "x", "base_url": "https://x", **keys}, Provider)


def test_a_setting_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        Server().listen = "127.0.0.1:1"  # type: ignore[misc]


def test_bodies_have_no_limit_by_default() -> None:
    assert Server().max_body is None


def test_the_units_are_binary() -> None:
    assert (KiB, MiB, GiB) == (1024, 1024**2, 1024**3)


def test_every_default_deadline_that_ends_a_silent_line_is_below_the_clients_own_300_seconds() -> (
    None
):
    timeouts = Timeouts()
    assert max(timeouts.first_event, timeouts.gap, Retry().deadline) < 300


def test_holding_to_the_finish_has_bounds_of_its_own() -> None:
    held = provider(hold="finish")
    assert held.held_bytes("finish") == 16 * MiB
    assert held.held_keepalive("finish") == 15
    assert held.held_bytes("first_content") == 1 * MiB
    assert held.held_keepalive("first_content") == 45


def test_a_bound_that_was_set_holds_whatever_is_held() -> None:
    held = provider(
        hold_max_bytes=7, hold_keepalive=3.0, explicit={"hold_max_bytes", "hold_keepalive"}
    )
    assert held.held_bytes("finish") == held.held_bytes("first_event") == 7
    assert held.held_keepalive("finish") == held.held_keepalive("first_event") == 3


def test_no_provider_can_change_the_model_map_of_another() -> None:
    with pytest.raises(TypeError):
        Provider(name="x", base_url="https://x").model_map["a"] = "b"  # type: ignore[index]
