"""The table in docs/retries.md is the one of the code's own docstring, row by row."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.policy import retry

PAGE = Path(__file__).parents[2] / "docs" / "retries.md"

Rows = list[tuple[str, str]]


def rows_of_docstring(text: str) -> Rows:
    """The rows of a table in reStructuredText with two columns, its head first."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("====")]
    first, head, last = rules
    right = lines[first].index(" =") + 1
    table = lines[first + 1 : head] + lines[head + 1 : last]
    return [(line[:right].strip(), line[right:].strip()) for line in table]


def rows_of_page(text: str) -> Rows:
    """The same of the only table in Markdown; code is marked as in reStructuredText."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert re.fullmatch(r"-+", rows[1][0])
    return [
        (left.replace("`", "``"), right.replace("`", "``")) for left, right in rows[:1] + rows[2:]
    ]


def as_markdown(rows: Rows) -> str:
    """What the page should hold."""
    cells = [f"| {left} | {right} |".replace("``", "`") for left, right in rows]
    return "\n".join((cells[0], "|---|---|", *cells[1:]))


def test_the_page_has_the_table_of_the_code() -> None:
    rows = rows_of_docstring(retry.__doc__ or "")
    assert len(rows) > 10
    found = rows_of_page(PAGE.read_text(encoding="utf-8"))
    assert found == rows, f"docs/retries.md has to hold this table:\n{as_markdown(rows)}"


def test_a_row_that_differs_is_noticed() -> None:
    rows = rows_of_docstring(retry.__doc__ or "")
    assert rows_of_page(as_markdown(rows)) == rows
    assert rows_of_page(as_markdown(rows).replace("never", "always")) != rows
