"""The shape of the project: where tests stand, how long modules are, what files must not say."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import gateway

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gateway"
MODULES = sorted(PACKAGE.rglob("*.py"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

MIRRORED = ("streams", "protocols", "policy", "config")
MAX_LINES = 400


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "module",
    [m for m in MODULES if m.relative_to(PACKAGE).parts[0] in MIRRORED and m.stem != "__init__"],
    ids=name_of,
)
def test_each_module_that_decides_has_a_test_of_its_own(module: Path) -> None:
    mirror = ROOT / "tests" / module.relative_to(PACKAGE).with_name(f"test_{module.stem}.py")
    assert mirror.is_file(), f"{name_of(mirror)} is missing"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_each_module_says_in_its_first_line_what_it_is(module: Path) -> None:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    assert docstring, f"{name_of(module)} has no docstring"
    assert len(docstring.splitlines()[0]) > 20


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_no_module_is_longer_than_a_person_reads_at_once(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


def test_there_are_locks_for_running_testing_and_building() -> None:
    assert [lock.name for lock in LOCKS] == ["build.txt", "run.txt", "test.txt"]


@pytest.mark.parametrize("lock", LOCKS, ids=name_of)
def test_a_lock_names_no_address_and_every_package_has_a_hash(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert not re.search(r"://|^-|index-url|find-links|trusted-host", text, re.MULTILINE)
    pins = re.findall(
        r"^[a-z0-9][^ \n]*==[^ \n]+( \\\n    --hash=sha256:[0-9a-f]{64})?", text, re.M
    )
    assert len(pins) > 5
    assert all(pins)


def test_a_package_of_two_locks_has_one_version() -> None:
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", lock.read_text(), re.M):
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_everything_the_package_needs_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["speed"]):
        name = re.split(r"[<>=]", requirement)[0]
        assert re.search(rf"^{name}==", locked, re.MULTILINE), name


def test_the_changelog_knows_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{gateway.__version__}]" in changelog
