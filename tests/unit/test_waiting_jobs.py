"""Which jobs of a run are waited for, and which labels no machine answers to."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "build_tools"))
from find_waiting_jobs import RunJob, find_dead_labels, list_awaited_jobs, parse_job

NOW = datetime(2026, 11, 26, 9, 17, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def job(names: str, label: str, status: str, hours: float = 2, *, taken: bool | None = None) -> RunJob:
    document = {
        "name": names,
        "labels": [label],
        "status": status,
        "created_at": f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}",
        "runner_name": "a-1" if (status != "queued" if taken is None else taken) else None,
    }
    return parse_job(document)


@pytest.mark.parametrize(
    ("jobs", "dead", "awaited"),
    [
        ([job("l / a / r / smoke", "gfx1", "queued")], ["gfx1"], 0),
        ([job("l / a / r / smoke", "gfx1", "queued", 0.5)], [], 1),  # it may come
        # one machine for two rows: it answers, and takes the other in its turn
        ([job("l / a / r / smoke", "gfx1", "queued"), job("l / a / q / smoke", "gfx1", "completed")], [], 1),
        ([job("l / a / r / smoke", "gfx1", "in_progress")], [], 1),
        # a job that was ended before a machine took it tells nothing of the machine
        ([job("l / a / r / smoke", "gfx1", "completed", taken=False), job("l / a / q / x", "gfx1", "queued")],
         ["gfx1"], 0),
        ([job("l / a / r / results / add", "ubuntu", "waiting", taken=False)], [], 1),  # for an approval
        ([job("l / b / r / smoke", "gfx1", "in_progress")], [], 0),  # of another set
        ([job("l / a / r / gate / gate", "ubuntu", "queued", 0.1)], [], 0),  # it asks as we do
    ],
)  # fmt: skip
def test_jobs_of_a_set_are_awaited_as_long_as_a_machine_may_end_them(
    jobs: list[RunJob], dead: list[str], awaited: int
) -> None:
    found = find_dead_labels(jobs, NOW, HOUR)
    assert [entry.label for entry in found] == dead
    assert len(list_awaited_jobs(jobs, found, "a")) == awaited
