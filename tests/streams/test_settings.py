"""The settings of a stream are values with the defaults that are documented."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.streams.events import Hold
from gateway.streams.limits import Limits
from gateway.streams.settings import Settings


def test_the_defaults_are_those_that_users_are_told() -> None:
    settings = Settings()

    assert settings.limits == Limits(
        first_event=280, gap=290, gap_alive=600, silent_phase=900, linger=2
    )
    assert settings.hold is Hold.FIRST_CONTENT
    assert settings.hold_max_bytes == 1024 * 1024
    assert settings.max_event == 8 * 1024 * 1024
    assert settings.hold_max is None
    assert not settings.finish_optional
    assert settings.known
    assert not settings.observe


def test_settings_are_shared_by_streams_and_so_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().observe = True  # type: ignore[misc]
