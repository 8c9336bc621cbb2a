"""Results of torch's tests for people: what came of each file, what is wrong, known, or not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.shell import format_command
from rocm_wheels.testing.torch_tests.records import BadTest, CountedOutcome, FileResult, TorchResults

_OUTCOME_COLUMNS: tuple[CountedOutcome, ...] = (
    "passed",
    "failed",
    "crashed",
    "timeout",
    "missing",
    "known",
    "skipped",
    "left_out",
)
_COLUMN_WORDS: dict[CountedOutcome, str] = {"left_out": "left out"}
_LINES, _NAMES = 3, 30


def summarize_torch_results(results: TorchResults) -> str:
    """Count all tests: ``30123 passed, 2 failed, 5 known``; known are failures that are no news."""
    parts = [
        f"{results.counts[outcome]} {_COLUMN_WORDS.get(outcome, outcome)}"
        for outcome in _OUTCOME_COLUMNS
        if results.counts.get(outcome)
    ]
    return ", ".join(parts) or "no tests"


def format_torch_table(results: TorchResults) -> str:
    """Return the table for a terminal."""
    head = ("file", *(_COLUMN_WORDS.get(item, item) for item in _OUTCOME_COLUMNS), "seconds")
    grid = [head, *(_make_row(part) for part in results.parts)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(head))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in grid]
    lines.insert(1, "-" * max(map(len, lines)))
    for part in results.parts:
        if part.fault:
            lines += ["", f"{part.name} did not end well: {_cut_first_line(part.fault)}"]
        lines += [line for item in part.bad[:_NAMES] for line in ("", *_format_bad_test(item))]
        if len(part.bad) > _NAMES:
            lines += ["", f"and {len(part.bad) - _NAMES} others of {part.name}: see results.json"]
    lines += _format_list("known failures, which are none of these wheels", _list_known_failures(results))
    lines += _format_list(
        "known to fail, and passed: their rows in data/torch_tests.yaml may go",
        [name for part in results.parts for name in part.again],
    )
    lines += _format_list(
        "files that the suite leaves out", [f"{item}: {why}" for item, why in results.left_out.items()]
    )
    if unfinished := [part.name for part in results.parts if not part.complete]:
        lines += ["", f"not run to the end: {', '.join(unfinished)}; the same command carries on"]
    return "\n".join(
        [
            *lines,
            "",
            f"torch {results.of.torch} on {results.gfx or 'the CPU'}: {summarize_torch_results(results)}",
        ]
    )


def format_torch_markdown(results: TorchResults) -> str:
    """Return the table for a GitHub step summary."""
    head = ("file", *(_COLUMN_WORDS.get(item, item) for item in _OUTCOME_COLUMNS), "seconds")
    where = results.gfx or "the CPU"
    lines = [f"### Torch's own tests: {results.of.torch} on {where}: {summarize_torch_results(results)}", ""]
    lines += [
        _format_cells(head),
        _format_cells(["---"] * len(head)),
        *(_format_cells(_make_row(part)) for part in results.parts),
    ]
    bad = [item for part in results.parts for item in part.bad]
    lines += [f"\n**{item.outcome}** `{item.name}`: {_cut_first_line(item.reason)}" for item in bad[:_NAMES]]
    return "\n".join(lines) + "\n"


def describe_next_command(results: TorchResults, folder: Path) -> str:
    """Return what is to be typed to hand the results in as evidence."""
    if not results.files:
        return "the results name no wheel, so they are evidence for none: --wheels says what is installed"
    if not results.counts:
        return "no evidence: no test was run"
    words = ["rocm-wheels", "evidence", "add", "STORE", "--set", "ID", "--from", str(folder)]
    line = f"evidence: {format_command(words)}"
    return f"a gate takes them for no whole run: {results.of.doubt}\n{line}" if results.of.doubt else line


def _make_row(part: FileResult) -> tuple[str, ...]:
    name = part.name if part.complete else f"{part.name} (not done)"
    return (
        name,
        *(str(part.counts.get(outcome) or "") for outcome in _OUTCOME_COLUMNS),
        f"{part.seconds:.1f}",
    )


def _format_bad_test(test: BadTest) -> list[str]:
    return [f"{test.outcome}: {test.name}", *(f"  {line}" for line in test.reason.splitlines()[:_LINES])]


def _list_known_failures(results: TorchResults) -> list[str]:
    return [f"{test.name}: {test.reason}" for part in results.parts for test in part.known]


def _format_list(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {len(names) - _NAMES} others"] if len(names) > _NAMES else []
    return ["", f"{title}:", *(f"  {name}" for name in names[:_NAMES]), *more]


def _format_cells(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _cut_first_line(text: str) -> str:
    return text.partition("\n")[0]
