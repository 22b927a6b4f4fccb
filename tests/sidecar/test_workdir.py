"""Where commands may start: what a name leads to counts, and not the name."""

import os
from pathlib import Path

import pytest

from gateway.sidecar.refusal import RefusedError
from gateway.sidecar.workdir import asked_for, open_within, real_roots


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "deep").mkdir(parents=True)
    (tmp_path / "rooted").mkdir()
    return tmp_path / "root"


def status_of(path: Path, root: Path) -> tuple[int, str | None]:
    with pytest.raises(RefusedError) as refused:
        open_within(str(path), [str(root)])
    failure = refused.value.spawn_error
    return refused.value.status, None if failure is None else failure.name


def test_a_directory_within_is_opened_by_its_real_name(root: Path) -> None:
    (root / "link").symlink_to(root / "deep")
    for path in (root / "deep", root / "link"):
        descriptor, real = open_within(str(path), [str(root)])
        assert real == str(root / "deep")
        assert os.path.samestat(os.fstat(descriptor), os.stat(real))
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)


def test_a_root_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    descriptor, real = open_within(str(tmp_path / "alias" / "deep"), [str(tmp_path / "alias")])
    os.close(descriptor)
    assert real == str(root / "deep")


def test_what_leads_out_is_403(root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    (root / "near").symlink_to(tmp_path / "rooted")
    (root / "up").symlink_to("..")
    for name in ("out", "near", "up", "out/rooted"):
        assert status_of(root / name, root) == (403, None)


def test_what_cannot_be_opened_is_422_with_its_errno(root: Path) -> None:
    (root / "file").write_text("")
    (root / "loop").symlink_to("loop")
    assert status_of(root / "none", root) == (422, "ENOENT")
    assert status_of(root / "file", root) == (422, "ENOTDIR")
    assert status_of(root / "loop", root) == (422, "ELOOP")


def test_no_descriptor_is_left_of_a_refusal(root: Path) -> None:
    (root / "out").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        status_of(root / "out", root)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_that_was_swapped_after_the_check_is_not_the_one_that_is_used(
    root: Path, tmp_path: Path
) -> None:
    descriptor, _ = open_within(str(root / "deep"), [str(root)])
    (root / "deep").rename(root / "moved")
    (root / "deep").symlink_to(tmp_path)
    assert os.path.samestat(os.fstat(descriptor), os.stat(root / "moved"))
    os.close(descriptor)


def test_roots_that_are_not_there_allow_nothing(root: Path) -> None:
    assert real_roots([str(root), str(root / "none")]) == [str(root)]
    with pytest.raises(RefusedError):
        open_within(str(root), [str(root / "none")])


@pytest.mark.parametrize(("cwd", "status"), [("/etc", 403), ("rel", 400), ("/root/../etc", 400)])
def test_the_text_is_looked_at_first(cwd: str, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        asked_for(cwd, ["/root"])
    assert refused.value.status == status
    assert asked_for(None, ["/root", "/other"]) == "/root"
