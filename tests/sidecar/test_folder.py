"""The folder on the disk: who may read it, what is in it, and that nothing leads out of it."""

import os
from pathlib import Path

import pytest

from gateway.sidecar.folder import Folder, Meta, is_id, new_id
from gateway.sidecar.status import State, Status
from tests.sidecar.conftest import MakeSite
from tests.sidecar.support import modes


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "a" / "spill"))


def made(folder: Folder, output: bytes = b"0123456789") -> str:
    """A command as its shim makes it."""
    id_ = new_id()
    directory = Path(folder.directory(id_))
    directory.mkdir(mode=0o700)
    (directory / "output").write_bytes(output)
    return id_


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_everything_is_the_gateways_own_whatever_the_umask(
    umask: int, make_site: MakeSite
) -> None:
    before = os.umask(umask)
    try:
        site = await make_site()
        got = await site.run("umask; echo x >made; stat -c %a made")
        assert got.text == "0022\n644\n"
    finally:
        os.umask(before)
    found = modes(str(site.spill(got.id).parent))
    assert found == {".": 0o700, "output": 0o600, "status.json": 0o600, "meta.json": 0o600}
    assert modes(site.exec_.spill_dir)["."] == 0o700


def test_ids_cannot_be_guessed_and_are_no_paths() -> None:
    assert len({new_id() for _ in range(100)}) == 100
    assert is_id(new_id())
    for wrong in ("x_", "..", "x_" + "g" * 32, f"../{new_id()}", new_id() + "/", new_id()[:-1]):
        assert not is_id(wrong)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_folder_that_others_may_enter_is_refused_and_left_as_it_is(
    mode: int, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    spill.chmod(mode)
    with pytest.raises(ValueError, match=r"is open to other users: chmod 700"):
        Folder(str(spill))
    assert spill.stat().st_mode & 0o777 == mode


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: spill.stat().st_uid + 1)
    with pytest.raises(ValueError, match="belongs to another user"):
        Folder(str(spill))


def test_two_gateways_never_share_one(tmp_path: Path) -> None:
    first = Folder(str(tmp_path / "spill"))
    with pytest.raises(ValueError, match="in use by another gateway"):
        Folder(str(tmp_path / "spill"))
    first.close()
    Folder(str(tmp_path / "spill")).close()


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("")
    with pytest.raises(NotADirectoryError):
        Folder(str(tmp_path / "spill"))


def test_a_meta_is_there_before_the_command_and_goes_with_it(folder: Folder) -> None:
    ran, never = made(folder), new_id()
    for id_ in (ran, never):
        folder.announce(Meta(id=id_, owner="me", created_at=5.0, key="k", fingerprint="f"))
        folder.adopt(id_)
    assert sorted(os.listdir(folder.path)) == [ran]
    found = folder.look(ran)
    assert found is not None
    assert (found.meta.owner, found.meta.key, found.size) == ("me", "k", 10)


def test_a_meta_that_waited_when_the_gateway_died_is_found(folder: Folder) -> None:
    id_ = made(folder)
    folder.announce(Meta(id=id_, owner="me", created_at=5.0))
    [found] = folder.scan()
    assert (found.meta.id, found.meta.owner, found.status) == (id_, "me", None)


@pytest.mark.parametrize("broken", ["{", "{}", '{"id": "x_other", "owner": "me", "created_at": 1}'])
def test_a_broken_record_belongs_to_nobody(broken: str, folder: Folder) -> None:
    id_ = made(folder)
    for name in ("meta.json", "status.json"):
        Path(folder.directory(id_), name).write_text(broken)
    [found] = folder.scan()
    assert (found.meta.id, found.meta.owner, found.status) == (id_, "", None)


def test_pieces_of_an_output(folder: Folder) -> None:
    id_ = made(folder)
    assert folder.pieces(id_, 10, 3, 2) == (b"012", b"89")
    assert folder.pieces(id_, 6, 3, 2) == (b"012", b"45")
    assert folder.pieces(id_, 4, 3, 9) == (b"012", b"3")
    assert folder.pieces(id_, 10, 0, 0) == (b"", b"")


@pytest.mark.parametrize("name", ["output", "status.json", "meta.json"])
def test_links_are_not_followed(name: str, folder: Folder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"id": "x", "owner": "thief", "created_at": 1}')
    id_ = made(folder)
    path = Path(folder.directory(id_), name)
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    found = folder.look(id_)
    assert found is not None
    assert (found.meta.owner, found.status) == ("", None)
    if name == "output":
        assert found.size == 0
        with pytest.raises(OSError):  # noqa: PT011 - which one is the kernel's business
            folder.open_output(id_)
    folder.save(Status(id=id_, state=State.INTERRUPTED))
    folder.remove(id_)
    assert secret.read_text().startswith('{"id"')
    assert not os.path.lexists(folder.directory(id_))


def test_a_fifo_in_the_place_of_an_output_holds_nothing_up(folder: Folder) -> None:
    id_ = made(folder)
    path = Path(folder.directory(id_), "output")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="Invalid argument"):
        folder.open_output(id_)


def test_removing_touches_nothing_but_a_commands_own(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "output").write_text("kept")
    link, file = new_id(), new_id()
    Path(folder.directory(link)).symlink_to(outside)
    Path(folder.directory(file)).write_text("kept")
    for id_ in (link, file, new_id()):
        folder.remove(id_)
    assert (outside / "output").read_text() == "kept"
    for wrong in ("..", ".", "../outside", str(outside)):
        with pytest.raises(ValueError, match="no id"):
            folder.remove(wrong)


def test_free_bytes_are_those_of_its_disk(folder: Folder) -> None:
    found = os.statvfs(folder.path)
    assert abs(folder.free_bytes() - found.f_bavail * found.f_frsize) < 1 << 30
