"""Summarize the reports of tests in folders: JUnit XML of any runner, and the records of ours.

A report that is not whole, a shard without one and a folder that holds none are never a pass.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from rocm_wheels.core import errors, junit, tables
from rocm_wheels.models.test_results import Results
from rocm_wheels.testing import results

_SHARD_FOLDER = re.compile(r"test-reports-(?P<config>.+)-(?P<shard>\d+)-(?P<shards>\d+)")
_MOST_ROWS = 1000


@dataclass(frozen=True)
class SummaryRow:
    """A test that is bad, or (without ``test``) a report that is not whole or not there.

    ``where`` is the file of the tests, or of the report; ``shard`` is "" in a folder of one run. ``count``:
    how many tests ended by the same error, the first of which it names.
    """

    config: str
    shard: str
    where: str
    test: str
    outcome: str
    reason: str
    count: int = 1


def read_reports(folder: Path) -> list[SummaryRow]:
    """Return what is bad in the reports of a run. Raises DataError for a record that is none of ours.

    Where a record of ours is, it stands for the JUnit files beside and below it.
    """
    return _list_bad(folder, _read_records(folder))


def _read_records(folder: Path) -> dict[Path, Results]:
    return {file: results.read_results(file) for file in sorted(folder.rglob(results.RESULTS_FILE))}


def _list_bad(
    folder: Path, records: Mapping[Path, Results], config: str = "", shard: str = ""
) -> list[SummaryRow]:
    row = partial(SummaryRow, config, shard)
    rows = []
    for record, document in records.items():
        bad = [test for test in document.tests if test.verdict in results.BAD_VERDICTS]
        for test, others in results.group_failures(bad):
            reason = f"{_cut(test.detail)} {results.describe_others(others)}".strip()
            rows.append(row(test.name.partition("::")[0], test.name, test.outcome, reason, 1 + others))
        if document.lost_gpu:
            rows.append(row(record.name, "", "not whole", f"lost {document.lost_gpu}"))
    recorded = {record.parent for record in records}
    reports = [file for file in sorted(folder.rglob("*.xml")) if not recorded & {*file.parents}]
    for file in reports:
        report, name = junit.read_junit_report(file), file.relative_to(folder).as_posix()
        if report.fault:
            rows.append(row(name, "", "not whole", report.fault))
        for test_name, reason in report.reasons.items():
            rows.append(row(name, test_name, "failed", _cut(reason)))
        failures = sum(report.counts[state] for state in ("failed", "crashed", "timeout"))
        unnamed = failures - len(report.reasons)
        if unnamed > 0:
            rows.append(row(name, "", "failed", tables.format_count(unnamed, "other test")))
    if not records and not reports:
        rows.append(row(folder.name, "", "missing", "there is no report"))
    return list(dict.fromkeys(rows))


def read_shards(folder: Path) -> tuple[list[SummaryRow], list[str]]:
    """Return what is bad in all shards (``test-reports-CONFIG-SHARD-SHARDS``), and folders of other names.

    A shard that has no folder is a row, and so are records of ours that do not fit together: of another
    shard, or of files that were shared out otherwise. Raises UsageError where no folder is one of a shard.
    """
    shards: dict[tuple[str, int], dict[int, Path]] = defaultdict(dict)
    others = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if match := _SHARD_FOLDER.fullmatch(path.name):
            shards[match["config"], int(match["shards"])][int(match["shard"])] = path
        else:
            others.append(path.name)
    if not shards:
        raise errors.UsageError(
            f"{folder} has no folder test-reports-CONFIG-SHARD-SHARDS", tip="--reports-dir takes one of a run"
        )
    rows = []
    for (config, count), paths in sorted(shards.items()):
        plans: dict[str, set[str]] = defaultdict(set)
        for number in sorted({*range(1, count + 1), *paths}):
            name = f"{number}/{count}"
            if number not in paths:
                rows.append(SummaryRow(config, name, "", "", "missing", "the shard left no report"))
                continue
            records = _read_records(paths[number])
            rows += _list_bad(paths[number], records, config, name)
            for record, document in records.items():
                if suite := document.suite:
                    plans[suite.name].add(suite.plan)
                    if (suite.shard, suite.shards) != (number, count):
                        why = f"it is of shard {suite.shard}/{suite.shards}"
                        rows.append(SummaryRow(config, name, record.name, "", "not whole", why))
        why = "its files were shared out in several ways: some may be in no shard"
        rows += [
            SummaryRow(config, "", suite_name, "", "not whole", why)
            for suite_name, digests in plans.items()
            if len(digests) > 1
        ]
    return rows, others


def format_summary_markdown(rows: list[SummaryRow], heading: str, *, combined: bool) -> str:
    """Return the table for a step summary; ``combined``: with a column each for suite and shard."""
    failed = sum(row.count for row in rows if row.test)
    faults = sum(not row.test for row in rows)
    parts = [f"{tables.format_count(failed, 'test')} failed"] if failed else []
    parts += [f"{tables.format_count(faults, 'report')} missing or not whole"] if faults else []
    title = ", ".join(parts) or "All tests passed"
    lines = [f"### {title}{f' — {heading}' if heading else ''}{'' if rows else ' :white_check_mark:'}", ""]
    if rows:
        header = ("config", "shard", "where", "test", "outcome", "reason")
        table = [astuple(row)[: len(header)] for row in rows[:_MOST_ROWS]]
        columns = slice(0 if combined else 2, None)
        shown = tables.format_markdown_table(header[columns], [cells[columns] for cells in table])
        lines.append(shown.rstrip())
    if len(rows) > _MOST_ROWS:
        lines.append(f"\nand {tables.format_count(len(rows) - _MOST_ROWS, 'other')}")
    return "\n".join(lines) + "\n"


def _cut(reason: str) -> str:
    return reason.partition("\n")[0][:100]
