"""Which directories and files are covered in a sandbox, so that no key can be read in it."""

from pathlib import Path

import pytest

from gateway.sidecar.hiding import Hidden, hide, root_of
from gateway.sidecar.refusal import RefusedError


def written(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("secret")
    return str(path)


def test_the_directory_of_a_key_is_covered_and_not_the_file_alone(tmp_path: Path) -> None:
    key, token = written(tmp_path / "keys/key"), written(tmp_path / "keys/token")
    assert hide([key, token], [str(tmp_path / "repo")]) == Hidden((str(tmp_path / "keys"),), ())


def test_a_directory_that_commands_need_is_not_covered_but_its_key_is(tmp_path: Path) -> None:
    key = written(tmp_path / "key")
    assert hide([key], [str(tmp_path / "a/repo")]) == Hidden((), (key,))
    assert hide([key], [str(tmp_path)]) == Hidden((), (key,))
    assert hide(["/etc/passwd"], []) == Hidden((), ("/etc/passwd",))


def test_where_a_link_leads_and_where_it_is_are_covered(tmp_path: Path) -> None:
    """As a mounted secret is renewed: another directory beside the first, and a link to it."""
    written(tmp_path / "keys/first/key")
    (tmp_path / "keys/now").symlink_to("first")
    (tmp_path / "keys/key").symlink_to("now/key")
    covered = hide([str(tmp_path / "keys/key")], [])
    assert covered == Hidden((str(tmp_path / "keys"), str(tmp_path / "keys/first")), ())


def test_what_is_not_there_cannot_be_covered(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for needed in ([], [str(keys)]):
        with pytest.raises(RefusedError) as refused:
            hide([str(keys / "key")], needed)
        assert (refused.value.status, "is not there" in refused.value.message) == (503, True)
    keys.mkdir()
    # Whatever comes into a directory that is covered is covered as well.
    assert hide([str(keys / "key")], []).directories == (str(keys),)


def test_the_root_that_a_path_lies_in(tmp_path: Path) -> None:
    root = str(tmp_path / "repo")
    assert root_of(f"{root}/x/key", ["/other", root]) == root
    assert root_of(root, [root]) == root
    assert root_of(f"{root}2/key", [root]) is None
    (tmp_path / "link").symlink_to(f"{root}/key")
    assert root_of(str(tmp_path / "link"), [root]) == root
