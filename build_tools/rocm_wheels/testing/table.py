"""Results for people: what was counted, what failed and why, and what was skipped for which reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rocm_wheels.testing.results import OUTCOMES, Results, TestResult

_SHOWN_LINES = 6
_OF = " @"


def text_table(results: Results) -> str:
    """Return the table for a terminal: a row a file of tests (and GPU), what is wrong, what was skipped."""
    grid = [("tests", *OUTCOMES, "seconds"), *_rows(results)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    padded = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in grid]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *cells[1:]]) for row, cells in zip(grid, padded, strict=True)
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    for one in results.bad:
        said = one.reason.splitlines()[:_SHOWN_LINES] or ["without a word"]
        lines += ["", f"{one.outcome}: {one.name}", *(f"  {line}" for line in said)]
    if skipped := _skips(results):
        lines += ["", "skipped:", *(f"  {number:4}  {why}" for why, number in skipped)]
    return "\n".join([*lines, "", f"torch {results.torch} on {_where(results)}: {results.summary()}"])


def markdown_table(results: Results) -> str:
    """Return the table for a GitHub step summary."""
    head = ("tests", *OUTCOMES, "seconds")
    lines = [f"### Smoke tests of torch {results.torch} on {_where(results)}: {results.summary()}", ""]
    lines += [_row(head), _row(["---"] * len(head)), *(_row(row) for row in _rows(results))]
    for one in results.bad:
        said = "\n".join(one.reason.splitlines()[:_SHOWN_LINES])
        lines += ["", f"**{one.outcome}** `{one.name}`", "", *_fenced(said)]
    if skipped := _skips(results):
        lines += ["", _row(("skipped", "why")), _row(("---", "---"))]
        lines += [_row((str(number), why)) for why, number in skipped]
    return "\n".join(lines) + "\n"


def _rows(results: Results) -> list[tuple[str, ...]]:
    groups: dict[str, list[TestResult]] = defaultdict(list)
    for one in results.tests:
        name, _, label = one.name.partition(_OF)
        groups[name.partition("::")[0] + (f"{_OF}{label}" if label else "")].append(one)
    rows = []
    for name, tests in groups.items():
        counts = Counter(one.outcome for one in tests)
        seconds = sum(one.seconds for one in tests)
        rows.append((name, *(str(counts[one] or "") for one in OUTCOMES), f"{seconds:.1f}"))
    return rows


def _skips(results: Results) -> list[tuple[str, int]]:
    reasons = Counter(
        one.reason.splitlines()[0] if one.reason else "without a reason"
        for one in results.tests
        if one.outcome == "skipped"
    )
    return reasons.most_common()


def _where(results: Results) -> str:
    return f"{' '.join(results.gfx) or 'no GPU'}, {results.host}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _fenced(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence]
