#!/usr/bin/env python3
"""Say which jobs of a run on GitHub have not ended, and which wait for machines that do not come.

find_waiting_jobs.py (--run ID | --workflow FILE) [--within JOB] [--patience TIME] [--outputs]

A label is dead where a job has been queued for longer than --patience and no machine has taken any job
with that label in these runs. Nobody is waited for there: GitHub ends such jobs after a day. The token in
GITHUB_TOKEN needs `actions: read`.
"""

from __future__ import annotations

if __name__ == "__main__":  # before imports that the Python which runs this may lack
    import _script

    _script.run("find_waiting_jobs:find_waiting_jobs")

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import click
import requests

from rocm_wheels.ci import set_outputs
from rocm_wheels.cli.boundary import read_environment
from rocm_wheels.cli.command import command, option
from rocm_wheels.cli.options import Duration
from rocm_wheels.core import (
    ReleaseError,
    RetryingSession,
    RetryPolicy,
    UsageError,
    format_count,
    format_duration,
)

_PAGE = 100  # the most that GitHub lists at once
_UNFINISHED = ("in_progress", "queued")  # states of a run whose jobs may wait
_GATE = "gate"  # jobs that ask a gate wait for the others, and not for each other


@dataclass(frozen=True)
class RunJob:
    """A job of a run: ``names`` are those of the jobs that call each other, its own last."""

    names: tuple[str, ...]
    labels: tuple[str, ...]
    status: str
    created: datetime
    taken: bool

    def __str__(self) -> str:
        """Return it as GitHub shows it."""
        return " / ".join(self.names)


@dataclass(frozen=True)
class DeadLabel:
    """A label that no machine answers to: how many jobs wait for it, and since when."""

    label: str
    jobs: int
    since: datetime


def parse_job(document: Mapping[str, Any]) -> RunJob:
    """Return a job of GitHub's answer. A machine has taken it once its runner has a name."""
    created = datetime.fromisoformat(str(document["created_at"]).replace("Z", "+00:00"))
    names = tuple(part.strip() for part in str(document["name"]).split(" / "))
    return RunJob(
        names, tuple(document["labels"]), document["status"], created, bool(document["runner_name"])
    )


def find_dead_labels(jobs: Sequence[RunJob], now: datetime, patience: timedelta) -> list[DeadLabel]:
    """Return the labels with a job that waits for longer than is usual, of which no job was ever taken."""
    served = {label for job in jobs if job.taken for label in job.labels}
    waiting: dict[str, list[RunJob]] = {}
    for job in jobs:
        if job.status == "queued":
            for label in set(job.labels) - served:
                waiting.setdefault(label, []).append(job)
    dead = []
    for label, queued in waiting.items():
        since = min(job.created for job in queued)
        if now - since > patience:
            dead.append(DeadLabel(label, len(queued), since))
    return dead


def list_awaited_jobs(jobs: Sequence[RunJob], dead: Sequence[DeadLabel], within: str) -> list[RunJob]:
    """Return the jobs below one, or all, that have not ended and that a machine may still end."""
    dead_labels = {entry.label for entry in dead}
    return [
        job
        for job in jobs
        if job.status != "completed"
        and (not within or within in job.names[:-1])
        and _GATE not in job.names
        and not (job.status == "queued" and dead_labels.intersection(job.labels))
    ]


class ActionsApi:
    """What GitHub tells of the runs of a repository. Raises ReleaseError where it refuses."""

    def __init__(self, env: Mapping[str, str]) -> None:
        missing = [name for name in ("GITHUB_TOKEN", "GITHUB_REPOSITORY") if not env.get(name)]
        if missing:
            tip = "they are there in a step of a workflow; GITHUB_TOKEN: ${{ github.token }}"
            raise UsageError(f"{' and '.join(missing)} not set", tip=tip)
        api = env.get("GITHUB_API_URL") or "https://api.github.com"
        self._base = f"{api}/repos/{env['GITHUB_REPOSITORY']}/actions"
        self._session = RetryingSession(RetryPolicy(4, first_wait=1))
        self._session.headers["Authorization"] = f"Bearer {env['GITHUB_TOKEN']}"
        self._session.headers["Accept"] = "application/vnd.github+json"

    def list_jobs(self, run: str) -> list[RunJob]:
        """Return all jobs of the last attempt of a run."""
        return [parse_job(job) for job in self._list(f"runs/{run}/jobs", "jobs")]

    def list_unfinished_runs(self, workflow: str) -> list[str]:
        """Return the ids of the runs of a workflow that have not ended."""
        runs = [
            str(run["id"])
            for status in _UNFINISHED
            for run in self._list(f"workflows/{workflow}/runs", "workflow_runs", status=status)
        ]
        return list(dict.fromkeys(runs))

    def _list(self, path: str, key: str, **query: str) -> Iterator[Mapping[str, Any]]:
        page = 1
        while True:
            url = f"{self._base}/{path}"
            parameters = {**query, "per_page": str(_PAGE), "page": str(page)}
            try:
                answer = self._session.get(url, params=parameters, timeout=60)
            except requests.RequestException as failure:
                raise ReleaseError(
                    f"GitHub does not answer at {url}: {type(failure).__name__}", tip="run the job again"
                ) from failure
            if answer.status_code != 200:
                tip = "the job needs the permission `actions: read`" if answer.status_code == 403 else None
                raise ReleaseError(f"GitHub answers {answer.status_code} to {url}", tip=tip)
            entries = answer.json()[key]
            yield from entries
            if len(entries) < _PAGE:
                return
            page += 1


def describe_dead_label(entry: DeadLabel, now: datetime) -> str:
    """Return what people have to know of it."""
    waiting = format_duration((now - entry.since).total_seconds())
    jobs = format_count(entry.jobs, "job")
    verb = "waits" if entry.jobs == 1 else "wait"
    return f"no machine answers to {entry.label}: {jobs} {verb} for it, since {waiting}"


@command("find_waiting_jobs", help=__doc__)
@option("--run", metavar="ID", help="The jobs of this run.")
@option("--workflow", metavar="FILE", help="The jobs of all runs of this workflow that have not ended.")
@option("--within", default="", metavar="JOB", help="Wait only for jobs that this one calls.")
@option(
    "--patience",
    type=Duration(),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How long a job may be queued before its label is dead, where no machine took another.",
)
@option(
    "--outputs",
    is_flag=True,
    help="Set `settled` (true: nothing is awaited) and `dead` (labels, by spaces) as outputs of the step.",
)
@option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def find_waiting_jobs(  # noqa: PLR0917 - click passes them by name
    run: str | None, workflow: str | None, within: str, patience: float, outputs: bool, as_json: bool
) -> None:
    """Read the jobs, say which wait."""
    if (run is None) == (workflow is None):
        raise UsageError("--run or --workflow says whose jobs", tip="give one of them")
    env = read_environment()
    api = ActionsApi(env)
    runs = [run] if run is not None else api.list_unfinished_runs(str(workflow))
    jobs = [job for name in runs for job in api.list_jobs(name)]
    now = datetime.now(timezone.utc)
    dead = find_dead_labels(jobs, now, timedelta(seconds=patience))
    awaited = list_awaited_jobs(jobs, dead, within)
    notes = [describe_dead_label(entry, now) for entry in dead]
    if outputs:
        labels = " ".join(entry.label for entry in dead)
        set_outputs(env, {"settled": "false" if awaited else "true", "dead": labels})
    if page := env.get("GITHUB_STEP_SUMMARY"):
        with open(page, "a", encoding="utf-8") as file:
            file.writelines(f"- {note}\n" for note in notes)
    if as_json:
        document = {"awaited": [str(job) for job in awaited], "dead": [entry.label for entry in dead]}
        click.echo(json.dumps(document, indent=1))
        return
    for note in notes:
        click.echo(f"::warning title=no machine::{note}" if env.get("GITHUB_ACTIONS") else note)
    for job in awaited:
        click.echo(f"{job.status}: {job} ({', '.join(job.labels)})")
    if not awaited:
        click.echo("nothing is awaited")
