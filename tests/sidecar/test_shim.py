"""What a shim prepares for its command."""

import os

import pytest

from gateway.sidecar import shim


def test_the_output_belongs_to_the_user_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ``echo x > /dev/stderr`` is forbidden to it. Another user can be had by root alone."""
    given: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda *owner: given.append(owner))
    read, write = shim.open_pipe((1234, 5678))
    assert given == [(read, 1234, 5678)]
    assert os.fstat(read).st_ino == os.fstat(write).st_ino
    own = shim.open_pipe(None)
    assert len(given) == 1
    for descriptor in (read, write, *own):
        os.close(descriptor)
