"""Plans in arrays that are submitted again while jobs end, vanish or are submitted by others; Slurm faked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faked_slurm import Arrays, Faked, Submitted, fake
from programs import Ended

from rocm_wheels.executors import executor, job_records, slurm, slurm_cluster, slurm_jobs
from rocm_wheels.pipeline.step import Plan

_ = fake  # a fixture
TRITON, TORCH = "build-triton-cp311", "build-pytorch-cp311"


class Again(Arrays):
    """A plan for five Pythons that is in the queue: five requests, one for each of its arrays."""

    def __init__(self, folder: Path, fake: Faked, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, fake, capfd)
        self.up_to_date: list[set[str]] = [set()]  # at each planning; the last stays
        assert self.submit().code == 0
        calls = [line.rsplit("/", 1)[1].removesuffix(".sbatch") for line in fake.calls()]
        self.ids = {name: number for number, name in enumerate(calls, 1)}

    def planned(self, submission: slurm.SlurmExecutor) -> Plan:
        done = self.up_to_date.pop(0) if len(self.up_to_date) > 1 else self.up_to_date[0]
        plan = submission.file.plan
        skipped = {name: replace(plan.steps[name], verdict="skip") for name in done}
        return replace(plan, steps={**plan.steps, **skipped})

    def jobs(self, subcommand: str, *words: str, **env: str) -> Ended:
        def now(submission: slurm.SlurmExecutor) -> Plan:
            return self.planned(submission)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slurm.SlurmExecutor, "settle_plan", now)
            return Submitted.jobs(self, subcommand, *words, **env)

    def changes_queue(self, change: Callable[[str], str]) -> None:
        path = self.fake.folder / "queue"
        path.write_text("".join(change(line) for line in path.read_text().splitlines(keepends=True)))

    def without(self, *arrays: str) -> Callable[[str], str]:
        gone = tuple(f"{self.ids[name]}_[" for name in arrays)
        return lambda line: "" if line.startswith(gone) else line

    def ended(self, step: str, job: str, code: int | None = 0) -> None:
        """Write what a job tells of its end; of none: its begin alone."""
        folder = self.plan.parent / "p.slurm"
        told = {"job": job, "restart": 0, "host": "n1"}
        (folder / f"{step}.begin.json").write_text(json.dumps({**told, "began": "2026-01-01T00:00:00Z"}))
        if code is not None:
            end = {**told, "ended": "x", "exit_code": code, "kind": "done", "reason": "", "again": False}
            (folder / f"{step}.end.json").write_text(json.dumps({**end, "failures": 0, "interruptions": 0}))


@pytest.fixture
def site(tmp_path: Path, fake: Faked, capfd: pytest.CaptureFixture[str]) -> Again:
    """A plan in the queue."""
    return Again(tmp_path, fake, capfd)


def test_a_task_that_is_gone_is_shown_and_submitted_with_what_waits_for_it(site: Again) -> None:
    old = site.ids["build-triton"]
    site.changes_queue(lambda line: line.replace(f"{old}_[0-4%1]", f"{old}_[0,2-4%1]"))
    dry = site.submit("--dry-run")
    assert dry.code == 0, dry.err
    assert f"sbatch --parsable --array=1 --dependency=aftercorr:{site.ids['install-tools']}," in dry.out
    assert "aftercorr:" in dry.out.split("build-pytorch.sbatch")[0]
    assert f":{site.ids['install-tools']}:<build-triton>," in dry.out
    assert f"{TORCH}: would be submitted (it waits for another job of {TRITON})" in dry.err
    assert site.submit().code == 0
    taken, first, *_ = site.fake.calls()
    waiting = {f"{site.ids[step]}_1" for step in ("repair-triton", "build-pytorch", "repair-pytorch")}
    assert (taken.split()[0], f"afterany:{old} " in first) == ("scancel", True)
    assert waiting <= {*taken.split()[1:]}


def test_arrays_and_jobs_without_one_know_each_other(site: Again) -> None:
    assert ("0 jobs submitted" in site.submit("--no-array").err, site.fake.calls()) == (True, [])
    old, torch = site.ids["build-triton"], site.ids["build-pytorch"]
    site.changes_queue(lambda line: line.replace(f"{old}_[0-4%1]", f"{old}_[0,2-4%1]"))
    assert site.submit("--no-array").code == 0
    taken, first, *more = site.fake.calls()
    assert {f"{torch}_1", f"{old}_2"} < {*taken.split()}
    assert f"--dependency=afterok:{site.ids['install-tools']}_1:" in first
    assert (f",afterany:{old} " in first, "build-triton-cp311.sbatch" in first) == (True, True)
    second = next(call for call in more if "build-pytorch-cp311.sbatch" in call)
    assert f":{len(site.ids) + 1},afterany:{torch} " in second
    assert ("0 jobs submitted" in site.submit().err, site.fake.calls()) == (True, [])


def test_what_was_done_while_it_was_planned_is_not_submitted_again(site: Again) -> None:
    names = ("install-rocm", "install-tools", "probe-targets", "build-triton")
    done = {name for name in site.steps if name.startswith(names)}
    site.changes_queue(site.without(*(name for name in names if name != "probe-targets")))
    site.changes_queue(lambda line: "" if "probe-targets" in line else line)
    known = json.loads((site.plan.parent / "p.slurm" / "jobs.json").read_text())["jobs"]
    for step in done:
        site.ended(step, known[step])
    site.up_to_date = [done - {TRITON}, done]
    again = site.submit()
    assert ("0 jobs submitted" in again.err, site.fake.calls()) == (True, [])


def test_what_was_lost_at_its_very_end_is_done(site: Again) -> None:
    (site.fake.folder / "queue").write_text("")
    known = json.loads((site.plan.parent / "p.slurm" / "jobs.json").read_text())["jobs"]
    for step in site.steps:
        site.ended(step, known[step], None if step == TORCH else 0)
    site.up_to_date = [{*site.steps}]
    assert site.states()[TORCH] == "lost"
    ended = site.submit("--wait", "--poll", "0.1s")
    assert (ended.code, site.states()[TORCH], site.fake.calls()) == (0, "done", [])


def test_jobs_that_slurm_itself_has_taken_back_need_not_be_cancelled(site: Again) -> None:
    site.changes_queue(site.without("build-triton"))
    scancel = site.fake.folder / "bin" / "scancel"
    said = "scancel: error: Kill job error on job id 5_0: Invalid job id specified"  # as newer ones end
    scancel.write_text(f"{scancel.read_text()}\necho '{said}' >&2; exit 1\n")
    refused = site.submit()  # the faked one knows whole arrays alone: they stay in the queue
    assert (refused.code, "Invalid job id specified" in refused.err) == (2, True)
    scancel.write_text(f"#!/bin/bash\n: > $FAKE/queue\necho '{said}' >&2; exit 1\n")
    assert site.submit().code == 0
    assert "waiting" in site.states()[TRITON]


def test_what_others_submit_while_the_queue_is_asked_is_not_lost(
    site: Again, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = slurm.SlurmExecutor.from_plan(site.plan, slurm_jobs.SlurmSite(("rocm-wheels",)), {})
    folder = submission.folder
    before = job_records.JobLedger(folder.compute_digest(), {TRITON: job_records.Job(4, 1)})
    folder.write_ledger(before)

    def asked(env: Any) -> list[slurm_cluster.QueuedJob]:
        folder.write_ledger(
            replace(before, jobs={TRITON: job_records.Job(4, 1), TORCH: job_records.Job(99, 1)})
        )
        return [
            slurm_cluster.QueuedJob(
                job_records.Job(4, 1), "PENDING", "Priority", f"{folder.job_prefix()}build-triton"
            )
        ]

    monkeypatch.setattr(slurm_cluster, "query_queue", asked)
    found = submission.read_states()
    assert (found[TRITON].state, found[TORCH].state) == ("waiting", "not submitted")
    monkeypatch.setattr(slurm, "_LOCK_SECONDS", 0.01)
    refused = pytest.raises(executor.ExecutorUnreachableError, match="is in use by")  # --wait asks again
    with submission.hold_lock("submit"), refused, submission.hold_lock("submit"):
        pass
