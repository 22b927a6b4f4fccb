"""What the pages for people name does exist: tests, metrics, error codes, files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gateway.errors import STATUS, Code
from gateway.observe.snapshot import FAMILIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += [
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "deploy/README.md",
    ROOT / "bench/README.md",
]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_requirement_names_tests_and_commands_that_exist() -> None:
    lines = text_of("docs/requirements.md").splitlines()
    rows = [line for line in lines if line[:2] == "| " and not line.startswith("| asked for")]
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        commands = re.findall(r"`python -m ([\w.]+)`", row)
        assert named or commands, row
        for file, test in named:
            assert test in functions(ROOT / file), f"{file}::{test}"
        for module in commands:
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_metric_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = {family.name for family in FAMILIES} | set(Code)
    assert set(re.findall(r"`?\b(gateway_[a-z]\w+)\b(?!\.)", text)) <= known
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_table_of_errors_has_each_code_that_is_used_with_its_status() -> None:
    told: dict[str, int] = {}
    for codes, statuses in re.findall(
        r"^\| (`[a-z_`, ]+`) \| ([\d, ]+) \|", text_of("README.md"), re.M
    ):
        told |= zip(
            re.findall(r"[a-z_]+", codes), map(int, re.findall(r"\d+", statuses)), strict=True
        )
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "gateway").rglob("*.py")
        if path.name != "errors.py"
    )
    raised = {
        code for code in Code if re.search(rf"\(\s*(Origin\.\w+,\s*)?Code\.{code.name},", source)
    }
    assert {Code.STALLED, Code.UNAVAILABLE, Code.DRAINING, Code.INTERNAL} <= raised
    assert raised <= told.keys()
    assert told == {code: STATUS[Code(code)] for code in told}
