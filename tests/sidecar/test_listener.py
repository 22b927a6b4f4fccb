"""Who may reach the socket."""

import os
import socket
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.config import Address
from gateway.sidecar import listener
from gateway.sidecar.runner import SidecarError
from tests.sidecar.conftest import MakeSite
from tests.sidecar.site import token
from tests.sidecar.support import exists


def unix(path: Path) -> Address:
    return Address(path=str(path))


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_unix_socket_is_its_users_alone_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with listener.bind(unix(tmp_path / "new" / "exec.sock")):
            assert stat.S_IMODE((tmp_path / "new" / "exec.sock").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    finally:
        assert os.umask(before) == umask


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(SidecarError, match=r"exec\.listen: the directory"):
        listener.bind(unix(tmp_path / "open" / "exec.sock"))
    (tmp_path / "open").chmod(mode | stat.S_ISVTX)
    listener.bind(unix(tmp_path / "open" / "exec.sock")).close()


def test_a_socket_of_the_dead_is_removed_and_one_of_the_living_is_not(tmp_path: Path) -> None:
    address = unix(tmp_path / "exec.sock")
    listener.bind(address).close()
    with listener.bind(address) as living:
        living.listen()
        with pytest.raises(SidecarError, match="in use by another program"):
            listener.bind(address)
    (tmp_path / "file").write_text("kept")
    with pytest.raises(SidecarError, match="is no socket"):
        listener.bind(unix(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "kept"


def test_what_cannot_be_bound_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SidecarError, match=rf"127\.0\.0\.1:{port}\) is in use"):
            listener.bind(Address(host="127.0.0.1", port=port))
    with pytest.raises(SidecarError, match="No such file or directory"):
        listener.bind(unix(tmp_path / "a" / "b" / "exec.sock"))
    with pytest.raises(SidecarError, match=r"is not possible \(AF_UNIX path too long\)"):
        listener.bind(unix(tmp_path / ("x" * 120)))


async def over_unix(path: str, **more: Any) -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(path)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post("http://any.test/v1/exec", **more) as response,
    ):
        return response.status, await response.json()


async def test_a_unix_socket_takes_any_host_but_no_stranger(
    make_site: MakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "s" / "exec.sock")
    site = await make_site(listen=f"unix:{path}")
    headers = {"Authorization": f"Bearer {token()}"}
    status, told = await over_unix(path, json={"command": "echo hi"}, headers=headers)
    assert (status, told["text"]) == (200, "hi\n")
    status, told = await over_unix(path, json={"command": "touch ran"})
    assert status == 401
    # Another user than the one at the other end, and not root.
    monkeypatch.setattr(listener, "_CREDENTIALS", Foreign())
    status, told = await over_unix(path, json={"command": "touch ran"}, headers=headers)
    assert (status, told["error"]["code"]) == (403, "forbidden")
    assert not (site.repo / "ran").exists()
    await site.close()
    assert not exists(path)


class Foreign:
    """What the kernel would say of somebody else."""

    size = 12

    def unpack(self, data: bytes) -> tuple[int, int, int]:
        assert len(data) == self.size
        return 1, 4_000_000, 4_000_000
