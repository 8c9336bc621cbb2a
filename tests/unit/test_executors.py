"""An executor is one file and one row: the command that submits asks nothing of Slurm."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from planned_runs import make_facts, settled

import rocm_wheels.cli.jobs
from rocm_wheels.cli import boundary
from rocm_wheels.executors import executor
from rocm_wheels.pipeline.plan import PlanFile, write_plan
from rocm_wheels.pipeline.step import Plan

# runs each step at once, in this process: a pod of a cluster would do the same elsewhere
POD_EXECUTOR = """
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.executors.executor import Decision, ExecutorOption, Preview, StepState, decide_steps
from rocm_wheels.executors.job_records import Job, JobFolder
from rocm_wheels.pipeline.plan import read_plan

@dataclass
class PodExecutor:
    folder: JobFolder
    namespace: str
    file: object

    options = (ExecutorOption("namespace", "Namespace of the pods.", variable="POD_NAMESPACE"),)

    @classmethod
    def open_plan(cls, plan, options, env):
        return cls(JobFolder(plan, "pods"), options["namespace"] or "default", read_plan(plan))

    def read_states(self):
        pods = self.folder.path / self.namespace
        done = {step.id for step in self.file.plan if step.verdict == "skip" or (pods / step.id).exists()}
        return {
            step.id: StepState(step.id, "done" if step.id in done else "not submitted")
            for step in self.file.plan
        }

    def preview(self, *, retry_failed):
        decisions = decide_steps(self.file.plan, self.read_states(), retry_failed=retry_failed)
        pods = [f"pod {decision.step.id}" for decision in decisions if decision.submits]
        return Preview(decisions, pods, len(pods))

    def submit(self, *, retry_failed=False, but_cancelled=False):
        decisions = self.preview(retry_failed=retry_failed).decisions
        for decision in decisions:
            if decision.submits:
                pod = self.folder.path / self.namespace / decision.step.id
                pod.parent.mkdir(parents=True, exist_ok=True)
                pod.write_text("done")
        return decisions

    def cancel(self, names=()):
        return sorted(names)

    def judge_job(self, step, code, because):
        return "stop"

    def log_path(self, step):
        return self.folder.log_path(step)
"""


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "pod_executor.py").write_text(POD_EXECUTOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setitem(executor.EXECUTORS, "pods", "pod_executor:PodExecutor")
        yield importlib.reload(rocm_wheels.cli.jobs)
    importlib.reload(rocm_wheels.cli.jobs)


def make_plan(folder: Path) -> Path:
    facts = make_facts(folder)
    _, steps = settled(facts)
    write_plan(folder / "plan.json", PlanFile(facts.request, Plan(steps, ()), {}))
    return folder / "plan.json"


def test_a_new_executor_is_one_file_and_one_row(
    tmp_path: Path, submit: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(make_plan(tmp_path))

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        name, *rest = words
        assert boundary.run_command(submit.jobs_group, [name, plan, "--executor", "pods", *rest]) == code
        captured = capsys.readouterr()
        return captured.out, captured.err

    def count_states(*words: str) -> Mapping[str, int]:
        states = [step["state"] for step in json.loads(run(*words, "--json")[0])]
        return {state: states.count(state) for state in states}

    count = count_states("status")["not submitted"]
    dry = run("submit", "--dry-run", "--namespace", "wheels")
    assert dry[0].count("pod ") == count and f"{count} jobs would be submitted" in dry[1]
    assert not (tmp_path / "plan.pods").exists()
    assert [*count_states("submit", "--namespace", "wheels", "--wait")] == ["done"]
    assert len([*(tmp_path / "plan.pods" / "wheels").iterdir()]) == count
    assert "cancelled: build-triton" in run("cancel", "--step", "build-triton")[1]
    assert "--partition is no option of the executor pods" in run("submit", "--partition", "x", code=2)[1]
    assert boundary.run_command(submit.jobs_group, ["submit", plan, "--namespace", "x"]) == 2
    assert "--namespace is no option of the executor slurm" in capsys.readouterr().err
