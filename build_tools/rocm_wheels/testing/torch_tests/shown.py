"""Results of torch's tests for people: what came of each file, what is wrong, known, or not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.shell import shell_line
from rocm_wheels.testing.torch_tests.records import BadTest, Counted, PartResult, TorchResults

_COLUMNS: tuple[Counted, ...] = (
    "passed",
    "failed",
    "crashed",
    "timeout",
    "missing",
    "known",
    "skipped",
    "left_out",
)
_WORDS: dict[Counted, str] = {"left_out": "left out"}
_LINES, _NAMES = 3, 30


def summary(results: TorchResults) -> str:
    """Count all tests: ``30123 passed, 2 failed, 5 known``; known are failures that are no news."""
    said = [f"{results.counts[one]} {_WORDS.get(one, one)}" for one in _COLUMNS if results.counts.get(one)]
    return ", ".join(said) or "no tests"


def text_table(results: TorchResults) -> str:
    """Return the table for a terminal."""
    head = ("file", *(_WORDS.get(one, one) for one in _COLUMNS), "seconds")
    grid = [head, *(_row(part) for part in results.parts)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(head))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in grid]
    lines.insert(1, "-" * max(map(len, lines)))
    for part in results.parts:
        if part.fault:
            lines += ["", f"{part.name} did not end well: {_cut(part.fault)}"]
        lines += [line for one in part.bad[:_NAMES] for line in ("", *_bad(one))]
        if len(part.bad) > _NAMES:
            lines += ["", f"and {len(part.bad) - _NAMES} others of {part.name}: see results.json"]
    lines += _listed("known failures, which are none of these wheels", _known(results))
    lines += _listed(
        "known to fail, and passed: their rows in data/torch_tests.yaml may go",
        [name for part in results.parts for name in part.again],
    )
    lines += _listed(
        "files that the suite leaves out", [f"{one}: {why}" for one, why in results.left_out.items()]
    )
    if waiting := [part.name for part in results.parts if not part.complete]:
        lines += ["", f"not run to the end: {', '.join(waiting)}; the same command carries on"]
    return "\n".join(
        [*lines, "", f"torch {results.of.torch} on {results.gfx or 'the CPU'}: {summary(results)}"]
    )


def markdown_table(results: TorchResults) -> str:
    """Return the table for a GitHub step summary."""
    head = ("file", *(_WORDS.get(one, one) for one in _COLUMNS), "seconds")
    where = results.gfx or "the CPU"
    lines = [f"### Torch's own tests: {results.of.torch} on {where}: {summary(results)}", ""]
    lines += [_cells(head), _cells(["---"] * len(head)), *(_cells(_row(part)) for part in results.parts)]
    bad = [one for part in results.parts for one in part.bad]
    lines += [f"\n**{one.outcome}** `{one.name}`: {_cut(one.reason)}" for one in bad[:_NAMES]]
    return "\n".join(lines) + "\n"


def next_line(results: TorchResults, folder: Path) -> str:
    """Return what is to be typed to hand the results in as evidence."""
    if not results.files:
        return "the results name no wheel, so they are evidence for none: --wheels says what is installed"
    if not results.counts:
        return "no evidence: no test was run"
    words = ["rocm-wheels", "evidence", "add", "STORE", "--set", "ID", "--from", str(folder)]
    line = f"evidence: {shell_line(words)}"
    return f"a gate takes them for no whole run: {results.of.doubt}\n{line}" if results.of.doubt else line


def _row(part: PartResult) -> tuple[str, ...]:
    name = part.name if part.complete else f"{part.name} (not done)"
    return (name, *(str(part.counts.get(one) or "") for one in _COLUMNS), f"{part.seconds:.1f}")


def _bad(one: BadTest) -> list[str]:
    return [f"{one.outcome}: {one.name}", *(f"  {line}" for line in one.reason.splitlines()[:_LINES])]


def _known(results: TorchResults) -> list[str]:
    return [f"{one.name}: {one.reason}" for part in results.parts for one in part.known]


def _listed(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {len(names) - _NAMES} others"] if len(names) > _NAMES else []
    return ["", f"{title}:", *(f"  {name}" for name in names[:_NAMES]), *more]


def _cells(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _cut(text: str) -> str:
    return text.partition("\n")[0]
