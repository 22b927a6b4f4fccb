"""The table in docs/retries.md is the one of the code's own docstring, row by row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.policy import retry
from gateway.protocols import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """The same of the first table in Markdown; code is marked as in reStructuredText."""
    first = text[text.index("|") :].partition("\n\n")[0]
    lines = [line for line in first.splitlines() if line.startswith("|")]
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


def typed_errors() -> Iterator[tuple[str, str, bool]]:
    """Protocol, error type, and whether the page says that it is tried again."""
    page = (
        PAGE.read_text(encoding="utf-8").partition("## Which error types")[2].partition("\n## ")[0]
    )
    for line in page.splitlines():
        if line.startswith("| `"):
            names, again, never = (re.findall("`([^`]+)`", cell) for cell in line.split("|")[1:4])
            for protocol in names:
                yield from ((protocol, kind, True) for kind in again)
                yield from ((protocol, kind, False) for kind in never)


@pytest.mark.parametrize(("protocol", "kind", "again"), list(typed_errors()))
def test_each_error_type_of_the_page_is_judged_as_it_says(
    protocol: str, kind: str, again: bool
) -> None:
    reader = BY_NAME[protocol].reader(1)
    inner = {"message": "m", "status" if protocol == "gemini" else "type": kind, "code": kind}
    if protocol == "gemini":
        del inner["code"]
    data = msgspec.json.encode({"type": "error", "error": inner})
    reader.read(b"error", data)
    assert reader.facts.error is not None
    assert reader.facts.error.retryable is again
