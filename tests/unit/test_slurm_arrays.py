"""Arrays of jobs: which steps are together, what each waits for, and what of it is submitted again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from planned_runs import make_facts, settled

from rocm_wheels.core import errors
from rocm_wheels.executors import executor, job_records, slurm, slurm_jobs
from rocm_wheels.pipeline import run_record
from rocm_wheels.pipeline.step import BuildCell, Plan, Step

TAGS = ("cp310", "cp311", "cp312", "cp313", "cp314")
SMALL = slurm_jobs.JobSize(2, None, None, 30)
NO_NETWORK = job_records.JobEnd(
    "4_1", 0, "n1", "x", 11, "network", "no route to host", again=True, failures=1
)


def five_pythons(folder: Path, targets: str = "gfx942,gfx1100,gfx1201") -> Plan:
    """Five projects for five Pythons, in a set of wheels for each target."""
    served = targets.split(",")
    facts = make_facts(
        folder, tags=TAGS, targets=targets, served=served, rocm=False, per_target=len(served) > 1
    )
    return Plan(settled(facts)[1], ())


def submitted(
    plan: Plan, arrays: list[slurm_jobs.JobArray], found: Mapping[str, executor.StepState]
) -> list[tuple[str, str, str]]:
    """Return what sbatch would be asked for: the array, its tasks, what they wait for. Ids count from 100."""
    every = {step.id: executor.StepState(step.id, "not submitted") for step in plan} | dict(found)
    known = {one.step.id: one for one in executor.decide_steps(slurm_jobs.arrange_plan(plan, arrays), every)}
    jobs, said = slurm.list_queued_jobs(known.values()), []
    for array in arrays:
        wanted = [known[step] for step in array.steps if known[step].submits]
        for part in slurm_jobs.split_array(array, wanted, {step.id: SMALL for step in plan}, jobs, 300):
            waits = slurm_jobs.make_dependency(
                array, part.steps[0], jobs, slurm_jobs.list_conflicting_jobs(array, known.values(), jobs)
            )
            said.append((array.name, part.array_expression(None), waits))
            jobs |= part.assign_jobs(99 + len(said))
    return said


def test_steps_of_several_pythons_are_an_array(tmp_path: Path) -> None:
    plan = five_pythons(tmp_path)
    said = submitted(plan, slurm_jobs.group_arrays(plan), {})
    known = {one[0]: one for one in said}
    assert (len(known), len(said) * 4 < len(plan.steps)) == (len(said), True)
    assert [*known.values()][:6] == [
        ("install-rocm", "0-4", ""),
        ("install-tools", "0-4", "aftercorr:100,afterany:100"),
        ("probe-targets", "", "afterok:100_0,afterany:100"),
        ("build-triton", "0-4%1", "aftercorr:101,afterok:102"),
        ("repair-triton", "0-4", "aftercorr:103"),
        ("build-pytorch-gfx942", "0-4%1", "aftercorr:101:103,afterok:102"),
    ]
    assert known["build-apex-gfx942"][1:] == ("0-4%1", "aftercorr:101:105,afterok:102")
    _, tasks, waits = known["build-pytorch-gfx1100"]
    assert (tasks, waits.split(",")[:2]) == ("0-4%1", ["aftercorr:101:103", "afterok:102"])
    assert waits.split(",")[2].startswith("afterany:105:107:")  # they have another torch in the environments
    plain = slurm_jobs.group_arrays(plan, 1)  # MaxArraySize=1: the number 0 alone
    assert ({one.plain for one in plain}, len(submitted(plan, plain, {}))) == ({True}, len(plan.steps))
    assert slurm_jobs.group_arrays(plan, 5) == slurm_jobs.group_arrays(plan)
    assert {one.plain for one in slurm_jobs.group_arrays(plan, 4)} == {True}


def test_what_nobody_need_wait_for_runs_side_by_side_as_far_as_is_allowed(tmp_path: Path) -> None:
    plan = five_pythons(tmp_path, "gfx942")
    tools = next(one for one in slurm_jobs.group_arrays(plan) if one.name == "install-tools")
    every = tuple(plan.steps[name] for name in tools.steps)
    known = executor.decide_steps(
        plan, {step.id: executor.StepState(step.id, "not submitted") for step in plan}
    )
    wanted = [one for one in known if one.step.id in tools.steps]
    (part,) = slurm_jobs.split_array(tools, wanted, {step.id: SMALL for step in plan}, {}, 300)
    assert [part.array_expression(limit) for limit in (None, 2, 5, 9)] == ["0-4", "0-4%2", "0-4", "0-4"]
    assert replace(part, steps=(every[1], every[3])).array_expression(1) == "1,3%1"


def test_tasks_that_were_lost_are_submitted_again_and_those_that_waited_for_them(tmp_path: Path) -> None:
    plan = five_pythons(tmp_path, "gfx942")
    found: dict[str, executor.StepState] = {}
    arrays = slurm_jobs.group_arrays(plan)
    for number, array in enumerate(arrays, 1):
        for step in array.steps:
            state = "done" if number <= 3 else "waiting"
            found[step] = executor.StepState(step, state, job_records.Job(number, array.task_number(step)))  # type: ignore[arg-type]
    before = [step for array in arrays[:3] for step in array.steps]
    plan = replace(plan, steps={**plan.steps, **{n: replace(plan.steps[n], verdict="skip") for n in before}})
    assert submitted(plan, arrays, found) == []

    def is_now(step: str, state: str) -> None:
        found[step] = replace(found[step], state=state)  # type: ignore[arg-type]

    done = replace(plan.steps["build-triton-cp310"], verdict="skip")
    plan = replace(plan, steps={**plan.steps, done.id: done})
    is_now(done.id, "done")
    is_now("build-triton-cp311", "lost")
    is_now("build-triton-cp312", "running")
    is_now("build-pytorch-cp310", "running")
    assert [one.name for one in arrays[3:6]] == ["build-triton", "repair-triton", "build-pytorch"]
    again = submitted(plan, arrays, found)
    assert again[:3] == [
        ("build-triton", "1", "afterany:4"),  # in one tree with what is left of the old array
        ("repair-triton", "1", "aftercorr:100"),
        ("build-pytorch", "1", "aftercorr:100,afterany:6"),
    ]
    found["build-triton-cp311"] = replace(found["build-triton-cp311"], state="again", end=NO_NETWORK)
    is_now("build-triton-cp313", "lost")  # it need not wait for the network of another
    assert [one[:2] for one in submitted(plan, arrays, found)][:2] == [
        ("build-triton", "3"),
        ("build-triton", "1"),
    ]
    is_now("build-triton-cp311", "lost")
    found["build-apex-cp312"] = executor.StepState("build-apex-cp312", "not submitted")
    again = submitted(plan, arrays, found)
    assert again[0] == ("build-triton", "1,3%1", "afterany:4")
    assert [one for one in again if one[0] == "build-apex"] == [
        ("build-apex", "1,3%1", "aftercorr:102,afterany:8"),
        ("build-apex", "2", "aftercorr:6,afterany:8:104"),
    ]


def test_nothing_begins_in_a_tree_where_what_is_behind_it_is_at_work(tmp_path: Path) -> None:
    plan = five_pythons(tmp_path, "gfx942,gfx1100")
    arrays = slurm_jobs.group_arrays(plan)
    found = {step.id: executor.StepState(step.id, "done", job_records.Job(1)) for step in plan}
    plan = replace(plan, steps={name: replace(step, verdict="skip") for name, step in plan.steps.items()})
    again = "build-pytorch-cp310-gfx942"
    plan = replace(plan, steps={**plan.steps, again: replace(plan.steps[again], verdict="run")})
    later = "build-pytorch-cp312-gfx1100"
    found[later] = executor.StepState(later, "running", job_records.Job(9, 2))
    assert submitted(plan, arrays, found) == [("build-pytorch-gfx942", "0", "afterany:9")]


@pytest.mark.parametrize("size", [1001, 0])
def test_what_came_between_in_a_tree_may_be_done_already(tmp_path: Path, size: int) -> None:
    plan = five_pythons(tmp_path)
    arrays = slurm_jobs.group_arrays(plan, size)
    found = {step.id: executor.StepState(step.id, "done", job_records.Job(1)) for step in plan}
    again, running = "build-pytorch-cp310-gfx942", "build-pytorch_vision-cp310-gfx1201"
    late = "build-pytorch-cp314-gfx1201"
    steps = {
        name: replace(step, verdict="run" if name in (again, running, late) else "skip")
        for name, step in plan.steps.items()
    }
    found[again] = executor.StepState(again, "failed", job_records.Job(1), "as it was told to be tried again")
    found[late] = executor.StepState(late, "waiting", job_records.Job(8))  # in the same tree
    found[running] = executor.StepState(
        running, "running", job_records.Job(9)
    )  # with another torch in the same environment
    every = executor.decide_steps(
        slurm_jobs.arrange_plan(replace(plan, steps=steps), arrays), found, retry_failed=True
    )
    known = {one.step.id: one for one in every}
    assert [known[name].action for name in (again, running, late)] == ["submit", "leave", "renew"]
    array = next(one for one in arrays if again in one.steps)
    assert slurm_jobs.list_conflicting_jobs(array, every, slurm.list_queued_jobs(every)) == [
        job_records.Job(9)
    ]


def test_whoever_reads_the_queue_knows_what_a_task_does(tmp_path: Path) -> None:
    plan, folder = five_pythons(tmp_path, "gfx942"), job_records.JobFolder(tmp_path / "plan.json")
    folder.plan.write_text("{}")
    known, prefix = slurm_jobs.map_job_names(folder, plan), folder.job_prefix()
    assert known[f"{prefix}build-pytorch", 3] == known[f"{prefix}build-pytorch-cp313", None]
    assert {*known.values()} == {*plan.steps}
    assert (f"{prefix}build-pytorch", None) not in known
    for size in (0, 2, 4, 1001):
        for array in slurm_jobs.group_arrays(plan, size):
            for step in array.steps:
                assert known[f"{prefix}{array.name}", array.task_number(step)] == step


def test_arrays_that_would_wait_for_one_another_are_none() -> None:
    def step(name: str, project: str, tag: str, *after: str, behind: str = "") -> Step:
        return Step(name, "build", BuildCell(tag), project, after, (behind,) if behind else (), verdict="run")

    steps = [step("a1", "a", "cp1"), step("b1", "b", "cp1", "a1"), step("a2", "a", "cp2", behind="b1")]
    steps += [step("b2", "b", "cp2", "a2"), step("c1", "c", "cp1", "b1"), step("c2", "c", "cp2", "b2")]
    plan = Plan({one.id: one for one in steps}, ())
    assert [one.name for one in slurm_jobs.group_arrays(plan)] == ["a1", "b1", "a2", "b2", "build-c"]
    circle = {"a1": replace(steps[0], after=("b1",)), "b1": steps[1]}
    with pytest.raises(errors.DataError, match="steps wait for one another: "):
        slurm_jobs.group_arrays(Plan(circle, ()))
    own = replace(steps[2], id="a2", after=("a1",), behind=())
    assert [one.name for one in slurm_jobs.group_arrays(Plan({"a1": steps[0], "a2": own}, ()))] == [
        "a1",
        "a2",
    ]


def test_jobs_are_named_as_shortly_as_can_be() -> None:
    queued = [
        job_records.Job(5, 0),
        job_records.Job(5, 1),
        job_records.Job(5, 2),
        job_records.Job(6),
        job_records.Job(7, 3),
        job_records.Job(10, 0),
    ]
    assert slurm_jobs.shorten_jobs(queued, queued) == ["5", "6", "7", "10"]
    assert slurm_jobs.shorten_jobs(
        [job_records.Job(10, 0), job_records.Job(5, 2), job_records.Job(6)], queued
    ) == ["5_2", "6", "10"]
    assert slurm_jobs.shorten_jobs([job_records.Job("<build-x>", 0), job_records.Job(5, 2)], queued) == [
        "5_2",
        "<build-x>",
    ]  # --dry-run


def test_a_script_of_an_array_finds_its_step(tmp_path: Path) -> None:
    folder = job_records.JobFolder(tmp_path / "100% mine" / "plan.json")
    folder.path.mkdir(parents=True)
    folder.plan.write_text("{}")
    array = slurm_jobs.JobArray("build-x", {0: "build-x-cp310", 3: "build-x-cp313"}, one_by_one=True)
    lines = slurm_jobs.make_directives(folder, array, SMALL, slurm_jobs.SlurmSite(("rocm-wheels",)))
    assert f'--output="{folder.path}/build-x.'.replace("%", "%%") + '%a.log"' in lines
    assert "  3) step=build-x-cp313 ;;" in slurm_jobs.make_job_script(
        folder, array, SMALL, slurm_jobs.SlurmSite(("rocm-wheels",))
    )
    folder.link_logs(array.name, array.tasks)
    folder.link_logs(array.name, array.tasks)
    folder.task_log_path("build-x", 3).write_text("what Slurm says\n")
    assert folder.log_path("build-x-cp313").read_text() == "what Slurm says\n"
    (folder.path / "build-y.0.log").mkdir()
    with pytest.raises(
        errors.UsageError, match=r"build-y\.0\.log cannot be a link to y\.log: Is a directory"
    ):
        folder.link_logs("build-y", {0: "y"})


@pytest.mark.parametrize(
    ("code", "line", "kind"),
    [
        # as the programs print them
        (
            12,
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.",
            "memory",
        ),
        (12, "c++: fatal error: Killed signal terminated program cc1plus", "memory"),
        (12, "clang++: error: unable to execute command: Killed", "memory"),
        (12, "LLVM ERROR: out of memory", "memory"),
        (12, "virtual memory exhausted: Cannot allocate memory", "memory"),
        (12, "fatal error: error writing to /tmp/x.s: No space left on device", "failed"),
        (12, "x.cpp:3:10: fatal error: 'net.h' file not found", "compile"),
        (10, "fatal: unable to access 'https://x/': Could not resolve host: x", "network"),
        (10, "error: RPC failed; curl 56 GnuTLS recv error (-54): Error in the pull function.", "network"),
        (11, "error: Failed to fetch: `https://x/simple/`: operation timed out", "network"),
        (11, "error: No solution found when resolving dependencies", "failed"),
        (2, "/shared/work/trees/pytorch is in use by process 12 (step build-pytorch-cp311)", "busy"),
        (2, "build-a needs build-b, which has not run yet", "failed"),
    ],
)
def test_an_end_is_classified_by_what_programs_say(code: int, line: str, kind: str) -> None:
    message = "" if code == 12 else line
    assert job_records.classify_end(code, "", job_records.StepOutput(message, (line,)))[0] == kind


def test_a_tree_that_is_in_use_is_waited_for(tmp_path: Path) -> None:
    folder = job_records.JobFolder(tmp_path / "plan.json")
    folder.path.mkdir()
    begin, tries = job_records.JobBegin("7_1", 0, "n1", "2026-01-01T00:00:00Z"), []
    for _ in range(50):
        end = job_records.count_end(
            folder, "b", begin, code=2, kind="busy", reason="x", jobs=None, attempts=1, now=None
        )
        folder.write_end("b", end)
        tries.append((end.again, end.failures, job_records.compute_delay(end, 300)))
    assert (tries[0], tries[48], tries[49]) == ((True, 0, 60), (True, 0, 60), (False, 0, 60))


def test_the_run_of_a_job_is_found_whatever_the_clocks_of_nodes_say(tmp_path: Path) -> None:
    folder = job_records.JobFolder(tmp_path / "plan.json")
    folder.path.mkdir()
    for hour, job, message in ((15, "9.0", "Could not resolve host: x"), (12, "9.1", "no such target")):
        now = datetime(2026, 1, 1, hour, tzinfo=timezone.utc)  # the first attempt, on a node that is fast
        record = replace(
            run_record.create_run_record(tmp_path / "runs", now), moment=lambda now=now: (now, 1.0)
        )
        record.write("run-begun", run=record.folder.name, slurm_job=job)
        record.write("step-begun", step="b", jobs=8)
        record.write("step-ended", step="b", outcome="failed", message=message, exit_code=11)
    begin = {"job": "7_2", "id": "9", "restart": 1, "host": "n2", "began": "2026-01-01T11:59:59Z"}
    (folder.path / "b.begin.json").write_text(json.dumps(begin))
    end = job_records.judge_end(folder, "b", tmp_path / "runs", code=11, because="", attempts=3)
    assert (end.job, end.kind, end.reason) == ("7_2", "failed", "no such target")
    for minute in range(40):  # what others began while it was at work
        run_record.create_run_record(
            tmp_path / "runs", datetime(2026, 1, 1, 16, minute, tzinfo=timezone.utc)
        ).write("run-begun")
    end = job_records.judge_end(folder, "b", tmp_path / "runs", code=11, because="", attempts=3)
    assert (end.kind, end.reason) == ("failed", "no such target")
    (folder.path / "b.begin.json").write_text(json.dumps({**begin, "restart": 2}))  # it came to no run
    end = job_records.judge_end(folder, "b", tmp_path / "runs", code=2, because="", attempts=3)
    assert end.reason == "run-step ended with exit code 2"
