"""Results for people: what was counted, what failed and why, and what was skipped for which reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rocm_wheels.testing.results import OUTCOMES, Results, TestResult

_MAX_REASON_LINES = 6
_GPU_SEPARATOR = " @"


def format_smoke_table(results: Results) -> str:
    """Return the table for a terminal: a row a file of tests (and GPU), what is wrong, what was skipped."""
    grid = [("tests", *OUTCOMES, "seconds"), *_make_rows(results)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    padded = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in grid]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *cells[1:]]) for row, cells in zip(grid, padded, strict=True)
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    for test in results.bad:
        reason_lines = test.reason.splitlines()[:_MAX_REASON_LINES] or ["without a word"]
        lines += ["", f"{test.outcome}: {test.name}", *(f"  {line}" for line in reason_lines)]
    if skipped := _count_skips(results):
        lines += ["", "skipped:", *(f"  {number:4}  {why}" for why, number in skipped)]
    return "\n".join(
        [*lines, "", f"torch {results.torch} on {_describe_machine(results)}: {results.summarize()}"]
    )


def format_smoke_markdown(results: Results) -> str:
    """Return the table for a GitHub step summary."""
    head = ("tests", *OUTCOMES, "seconds")
    lines = [
        f"### Smoke tests of torch {results.torch} on {_describe_machine(results)}: {results.summarize()}",
        "",
    ]
    lines += [
        _format_row(head),
        _format_row(["---"] * len(head)),
        *(_format_row(row) for row in _make_rows(results)),
    ]
    for test in results.bad:
        reason = "\n".join(test.reason.splitlines()[:_MAX_REASON_LINES])
        lines += ["", f"**{test.outcome}** `{test.name}`", "", *_fence_text(reason)]
    if skipped := _count_skips(results):
        lines += ["", _format_row(("skipped", "why")), _format_row(("---", "---"))]
        lines += [_format_row((str(number), why)) for why, number in skipped]
    return "\n".join(lines) + "\n"


def _make_rows(results: Results) -> list[tuple[str, ...]]:
    groups: dict[str, list[TestResult]] = defaultdict(list)
    for item in results.tests:
        name, _, label = item.name.partition(_GPU_SEPARATOR)
        groups[name.partition("::")[0] + (f"{_GPU_SEPARATOR}{label}" if label else "")].append(item)
    rows = []
    for name, tests in groups.items():
        counts = Counter(item.outcome for item in tests)
        seconds = sum(item.seconds for item in tests)
        rows.append((name, *(str(counts[item] or "") for item in OUTCOMES), f"{seconds:.1f}"))
    return rows


def _count_skips(results: Results) -> list[tuple[str, int]]:
    reasons = Counter(
        test.reason.splitlines()[0] if test.reason else "without a reason"
        for test in results.tests
        if test.outcome == "skipped"
    )
    return reasons.most_common()


def _describe_machine(results: Results) -> str:
    return f"{' '.join(results.gfx) or 'no GPU'}, {results.host}"


def _format_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _fence_text(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence]
