"""Jobs of a cluster: how Slurm's answers are read, what an end means, what is submitted, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import pytest
from planned_runs import make_facts, settled

from rocm_wheels.cli import boundary
from rocm_wheels.cli.jobs import jobs_group
from rocm_wheels.core import errors
from rocm_wheels.executors import executor, job_records, slurm, slurm_cluster, slurm_jobs
from rocm_wheels.pipeline import estimates, run_record
from rocm_wheels.pipeline.plan import PlanFile, write_plan
from rocm_wheels.pipeline.step import BuildCell, Plan, Step

LOGS = Path(__file__).parents[1] / "data" / "build_logs"
# recorded: Slurm 22.05.8, squeue -h -o %i|%T|%r|%j and sinfo -h -e -o %P|%c|%m|%d|%l|%a|%D
QUEUE = """\
1|RUNNING|None|rw-test a
2|PENDING|Dependency|rw-0a|b
9|PENDING|DependencyNeverSatisfied|rw-test a
10|COMPLETING|None|x
11_[1,3-9:2%1]|PENDING|JobArrayTaskLimit|an array
11_0|RUNNING|None|an array
12+0|RUNNING|None|several in one
"""
NODES = """\
CLUSTER: one
debug*|2|4000|20000|2:00:00|up|1
debug*|64|1|0|2:00:00|up|3
small|2|4000|20000|2:00|up|1
long|128|512000|0|infinite|up|4
old|8|16000|0|1-00:00:00|down|2
none|8|16000|0|1-00:00:00|up|0
"""


@pytest.fixture
def folder(tmp_path: Path) -> job_records.JobFolder:
    """A plan's folder."""
    made = job_records.JobFolder(tmp_path / "plan.json")
    made.plan.write_text("{}")
    made.path.mkdir()
    return made


def three() -> Plan:
    """b needs a; c is behind b."""
    cell = BuildCell("cp312")
    steps = [
        Step("a", "install-tools", cell, verdict="run"),
        Step("b", "build", cell, "triton", after=("a",), verdict="known later"),
        Step("c", "build", cell, "pytorch", after=("a",), behind=("b",), verdict="known later"),
    ]
    return Plan({step.id: step for step in steps}, ("gfx942",))


def alone(step: str) -> slurm_jobs.JobArray:
    """A step as a plain job."""
    return slurm_jobs.JobArray(step, {0: step}, plain=True)


def test_what_slurm_prints_is_read() -> None:
    queue = slurm_cluster.parse_queue(QUEUE)
    assert [(str(one.job), one.is_running, one.is_ending, one.is_unsatisfiable) for one in queue] == [
        ("1", True, False, False),
        ("2", False, False, False),
        ("9", False, False, True),
        ("10", False, True, False),
        *((f"11_{number}", False, False, False) for number in (1, 3, 5, 7, 9)),
        ("11_0", True, False, False),
    ]
    assert queue[1].name == "rw-0a|b"
    known = slurm_cluster.parse_partitions(NODES)
    assert known == [
        slurm_cluster.Partition("debug", True, 2, 4000, 20000, 120, 4),
        slurm_cluster.Partition("small", False, 2, 4000, 20000, 2, 1),
        slurm_cluster.Partition("long", False, 128, 512000, None, None, 4),
    ]
    assert slurm_cluster.choose_partition(known, None) is known[0]
    assert slurm_cluster.choose_partition(known, "long,debug") is known[2]
    with pytest.raises(errors.UsageError, match="no partition lnog has nodes that are up; did you mean long"):
        slurm_cluster.choose_partition(known, "lnog")
    limits = {"2:00:00": 120, "30:00": 30, "1-12:00:00": 2160, "infinite": None, "n/a": None, "0:30": 0}
    assert {text: slurm_cluster.parse_time_limit(text) for text in limits} == limits


@pytest.mark.parametrize(
    ("log", "code", "because", "kind"),
    [
        ("gcc_out_of_memory.log", 12, "", "memory"),
        ("clang_hip_host.log", 12, "", "compile"),
        ("ld_missing_library.log", 12, "", "compile"),
        ("gcc_disk_full.log", 12, "", "failed"),
        ("cmake_missing_package.log", 12, "", "failed"),
        ("clang_hip_host.log", 12, "time", "time"),
        ("clang_hip_host.log", 130, "", "signal"),
        ("clang_hip_host.log", 130, "signal", "signal"),
        ("clang_hip_host.log", 0, "time", "done"),
        (None, 137, "", "memory"),
        (None, 2, "", "failed"),
    ],
)
def test_an_end_is_classified_by_code_and_log(log: str | None, code: int, because: str, kind: str) -> None:
    lines = (LOGS / log).read_text().splitlines() if log else []
    assert job_records.classify_end(code, because, job_records.StepOutput("", tuple(lines)))[0] == kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("uv failed with exit code 2:\n  | error: Failed to fetch: dns error: failed to lookup", "network"),
        ("uv failed:\n  | Caused by: error sending request for url (https://x/)", "network"),
        ("curl: (6) Could not resolve host: repo.amd.com", "network"),
        ("HTTP status server error (503 Service Unavailable) for url", "network"),
        ("rocm==9 was not found; the other index timed out", "failed"),
        ("uv failed: 404 Not Found", "failed"),
    ],
)
def test_a_network_may_come_back(message: str, kind: str) -> None:
    assert job_records.classify_end(11, "", job_records.StepOutput(message))[0] == kind


def test_an_error_of_a_compiler_is_none_of_the_network() -> None:
    said = job_records.StepOutput(
        "building torch failed", ("net.cpp:3:1: error: 'x' timed out was not declared",)
    )
    assert job_records.classify_end(12, "", said) == ("compile", "net.cpp:3: 'x' timed out was not declared")


def test_attempts_are_bounded_and_each_runs_fewer_compilers(folder: job_records.JobFolder) -> None:
    begin, ends = job_records.JobBegin("7", 0, "n1", "2026-01-01T00:00:00Z"), []
    for jobs in (16, 8, 4):
        end = job_records.count_end(
            folder, "b", begin, code=12, kind="memory", reason="x", jobs=jobs, attempts=3, now=None
        )
        folder.write_end("b", end)
        ends.append((end.again, end.failures, end.jobs))
    assert ends == [(True, 1, 8), (True, 2, 4), (False, 3, 4)]
    assert folder.jobs_path("b").read_text() == "4\n"
    assert folder.read_end("b") == end
    assert "attempts: 3" in end.reason
    folder.forget_step("b")
    assert (folder.read_end("b"), folder.jobs_path("b").exists()) == (None, False)
    one = job_records.count_end(
        folder, "b", begin, code=12, kind="memory", reason="x", jobs=1, attempts=3, now=None
    )
    assert (one.again, "one compiler at a time is the least" in one.reason) == (False, True)
    ends = []
    for _ in range(3):
        end = job_records.count_end(
            folder, "c", begin, code=11, kind="network", reason="x", jobs=None, attempts=9, now=None
        )
        folder.write_end("c", end)
        ends.append(job_records.compute_delay(end, 300))
    assert ends == [300, 600, 1200]
    time = job_records.count_end(
        folder, "c", begin, code=130, kind="time", reason="x", jobs=None, attempts=3, now=None
    )
    assert (time.again, time.failures, time.interruptions, job_records.compute_delay(time, 300)) == (
        True,
        3,
        1,
        0,
    )


def test_an_end_without_a_run_is_judged_by_what_the_job_printed(
    folder: job_records.JobFolder, tmp_path: Path
) -> None:
    first = "== a: job 6 on n1, restart 0, now\nerror: Could not resolve host: x\n"
    folder.log_path("a").write_text(
        first + "== a: job 7 on n1, restart 0, now\nerror: no such plan\ntip: make it\n"
    )
    (folder.path / "a.begin.json").write_text(
        json.dumps({"job": 7, "restart": 0, "host": "n1", "began": "2026-01-01T00:00:00Z"})
    )
    end = job_records.judge_end(folder, "a", tmp_path / "runs", code=2, because="", attempts=3)
    assert (end.kind, end.reason, end.job, end.again) == ("failed", "no such plan", "7", False)
    with folder.log_path("a").open("a") as log:
        log.write("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch cgroup.\n")
    assert job_records.judge_lost_job(folder, "a", tmp_path, "7", attempts=3).kind == "memory"
    assert (
        "gone from the queue before it began"
        in job_records.judge_lost_job(folder, "a", tmp_path, "8", attempts=1).reason
    )


def test_an_end_is_judged_by_the_run_of_the_job_and_no_earlier_one(
    folder: job_records.JobFolder, tmp_path: Path
) -> None:
    record = run_record.create_run_record(tmp_path / "runs", datetime(2026, 1, 1, 12, tzinfo=timezone.utc))
    record = replace(record, moment=lambda: (datetime(2026, 1, 1, 12, tzinfo=timezone.utc), 1.0))
    log = record.folder / "b.log"
    log.write_text((LOGS / "gcc_out_of_memory.log").read_text())
    record.write("run-begun", run=record.folder.name, host="a container")
    record.write("step-begun", step="b", jobs=8, log=log)
    record.write("step-ended", step="b", outcome="failed", message="building triton failed", exit_code=12)
    begin = {"job": 7, "restart": 0, "host": "n1", "began": "2026-01-01T11:59:59Z"}
    (folder.path / "b.begin.json").write_text(json.dumps(begin))
    end = job_records.judge_end(folder, "b", tmp_path / "runs", code=12, because="", attempts=3)
    assert (end.kind, end.again, end.jobs) == ("memory", True, 4)
    killed = job_records.judge_lost_job(folder, "b", tmp_path / "runs", "7", attempts=3)
    assert (killed.kind, killed.jobs) == ("lost", None)
    (folder.path / "b.begin.json").write_text(json.dumps({**begin, "began": "2026-01-01T12:00:01Z"}))
    end = job_records.judge_end(folder, "b", tmp_path / "runs", code=2, because="", attempts=3)
    assert (end.kind, end.reason) == ("failed", "run-step ended with exit code 2")


def test_states_come_from_the_queue_and_then_from_records(folder: job_records.JobFolder) -> None:
    plan, ledger = three(), job_records.JobLedger("d", {"a": job_records.Job(1), "b": job_records.Job(2)})
    names = {step: f"{folder.job_prefix()}{step}" for step in plan.steps}
    queue = slurm_cluster.parse_queue(
        f"2|PENDING|Dependency|{names['b']}\n3|PENDING|Priority|{names['c']}\n4|RUNNING|None|x"
    )
    ledger = slurm_jobs.adopt_jobs(folder, plan, ledger, queue)
    assert dict(ledger.jobs) == {"a": job_records.Job(1), "b": job_records.Job(2), "c": job_records.Job(3)}
    found = slurm_jobs.find_step_states(folder, plan, ledger, queue)
    assert [one.state for one in found.values()] == ["lost", "waiting", "waiting"]
    record = {"job": 1, "restart": 1, "host": "n1", "began": "2026-01-01T00:00:00Z"}
    (folder.path / "a.begin.json").write_text(json.dumps(record))
    done = job_records.JobEnd("1", 0, "n1", "x", 12, "compile", "no such type", False, 1)
    folder.write_end("a", done)  # of the time before: it began once more
    assert slurm_jobs.find_step_states(folder, plan, ledger, queue)["a"].state == "lost"
    folder.write_end("a", replace(done, restart=1))
    found = slurm_jobs.find_step_states(folder, plan, ledger, [])
    assert [one.state for one in found.values()] == ["failed", "blocked", "blocked"]
    assert found["c"].why == "needs a, which failed"
    (folder.path / "a.begin.json").write_text(json.dumps({**record, "began": "soon"}))
    assert folder.read_begin("a") is None
    (folder.path / "a.begin.json").write_text(json.dumps(record))
    (folder.path / "a.end.json").write_text('{"job": 1, "rest')
    assert slurm_jobs.find_step_states(folder, plan, ledger, [])["a"].state == "lost"
    folder.write_end("a", replace(done, restart=1, kind="signal", again=True))
    assert slurm_jobs.find_step_states(folder, plan, ledger, [])["a"].state == "cancelled"


def test_nothing_is_submitted_twice_and_nothing_that_cannot_go_well() -> None:
    def actions(
        retry_failed: bool = False, but_cancelled: bool = False, **known: executor.StepState
    ) -> list[str]:
        plan = three()
        found = {step.id: known.get(step.id, executor.StepState(step.id, "not submitted")) for step in plan}
        return [
            one.action
            for one in executor.decide_steps(
                plan, found, retry_failed=retry_failed, but_cancelled=but_cancelled
            )
        ]

    waiting, running = (
        executor.StepState("b", "waiting", job_records.Job(2)),
        executor.StepState("a", "running", job_records.Job(1)),
    )
    failed = executor.StepState("a", "failed", job_records.Job(1), "no such type")
    assert actions() == ["submit"] * 3
    assert actions(a=running, b=waiting) == ["leave", "leave", "submit"]
    assert actions(a=executor.StepState("a", "lost", job_records.Job(1)), b=waiting) == [
        "submit",
        "renew",
        "submit",
    ]
    assert actions(
        a=running,
        b=executor.StepState("b", "lost", job_records.Job(2)),
        c=executor.StepState("c", "waiting", job_records.Job(3)),
    ) == [*("leave", "submit", "renew")]
    assert actions(a=failed) == ["stopped", "held back", "held back"]
    assert actions(retry_failed=True, a=failed) == ["submit"] * 3
    cancelled = executor.StepState("a", "cancelled", job_records.Job(1))
    assert actions(a=cancelled) == ["submit"] * 3
    assert actions(but_cancelled=True, a=cancelled) == ["stopped", "held back", "held back"]
    stuck = executor.StepState("a", "waiting", job_records.Job(1), "DependencyNeverSatisfied")
    assert actions(a=stuck) == ["renew", "submit", "submit"]
    behind_it = executor.StepState("b", "waiting", job_records.Job(2), "DependencyNeverSatisfied")
    assert actions(a=failed, b=behind_it) == ["stopped", "leave", "held back"]
    assert actions(retry_failed=True, a=failed, b=behind_it) == ["submit", "renew", "submit"]
    array = alone("c")
    assert (
        slurm_jobs.make_dependency(
            array, three().steps["c"], {"a": job_records.Job(1), "b": job_records.Job(2)}
        )
        == "afterok:1,afterany:2"
    )
    assert slurm_jobs.make_dependency(array, three().steps["c"], {"b": job_records.Job(2)}) == "afterany:2"
    assert slurm_jobs.make_dependency(array, three().steps["c"], {}) == ""


def test_jobs_ask_for_what_their_steps_take_and_no_more_than_nodes_have(tmp_path: Path) -> None:
    _, steps = settled(make_facts(tmp_path))
    plan = Plan(steps, ("gfx942", "gfx1100"))
    torch, tools = steps["build-pytorch-cp312"], steps["install-tools-cp312"]
    large = slurm_cluster.Partition("large", True, 128, 512 * 1024, 2000000, None, 4)
    free = slurm_jobs.size_job(torch, plan, estimates.History(), large, None)
    assert (free.cpus, free.notes) == (32, ())
    assert (free.memory or 0) == int(32 * 4 * 1.25 + 1) * 1024
    assert free.minutes > 2 * 60 * (33 + 8) / 32
    small = slurm_jobs.size_job(
        torch, plan, estimates.History(), slurm_cluster.Partition("small", True, 8, 16000, None, 60, 4), None
    )
    assert (small.cpus, small.memory, small.disk, small.minutes, len(small.notes)) == (8, 16000, None, 60, 3)
    unknown = slurm_jobs.size_job(
        torch, plan, estimates.History(), slurm_cluster.Partition("old", True, 8, None, None, None, 4), 4
    )
    assert (unknown.cpus, unknown.memory) == (4, None)
    assert slurm_jobs.size_job(tools, plan, estimates.History(), None, None).cpus == 2


def test_only_tests_ask_for_a_gpu_in_the_words_of_the_site(
    folder: job_records.JobFolder, tmp_path: Path
) -> None:
    facts = make_facts(tmp_path, targets="gfx942", tests=("smoke", "torch"))
    plan = Plan(settled(facts)[1], ("gfx942",))
    sizes = {step.id: slurm_jobs.size_job(step, plan, estimates.History(), None, None) for step in plan}
    tests = {"test-smoke-cp312", "test-torch-cp312"}
    assert {name for name, size in sizes.items() if size.gpu} == tests
    assert plan.steps["test-torch-cp312"].after[-1] == "test-smoke-cp312"
    packaged = {step.id for step in plan if step.kind == "repair"}
    assert packaged <= {*plan.steps["test-smoke-cp312"].after}
    for site, shown in (
        (slurm_jobs.SlurmSite(("rocm-wheels",)), ["--gres=gpu:1"]),
        (
            slurm_jobs.SlurmSite(
                ("rocm-wheels",), partition="cpu", gpu_options=("--gpus=mi250:1", "--partition=gpu")
            ),
            ["--gpus=mi250:1", "--partition=gpu"],
        ),
    ):
        lines = slurm_jobs.make_directives(folder, alone("test-smoke-cp312"), sizes["test-smoke-cp312"], site)
        assert lines[-len(shown) :] == shown, "behind all others: later ones win"
        lines = slurm_jobs.make_directives(folder, alone("build-torch"), sizes["build-pytorch-cp312"], site)
        assert not any(line.startswith(("--gres", "--gpus")) for line in lines)
    with pytest.raises(errors.UsageError, match="--gpu-option"):
        slurm_jobs.SlurmSite(("rocm-wheels",), gpu_options=("gpu:1",)).check_options()
    on_cpu = make_facts(tmp_path, targets="gfx942", tests=("smoke",), test_on_cpu=True)
    assert not any(step.needs_gpu for step in settled(on_cpu)[1].values())


def test_scripts_hold_options_as_sbatch_reads_them(folder: job_records.JobFolder) -> None:
    odd = job_records.JobFolder(folder.plan.parent / "é 100%" / "my plan.json")
    odd.plan.parent.mkdir()
    odd.plan.write_text("{}")
    site = slurm_jobs.SlurmSite(
        ("rocm-wheels",), "cpu", "me", "low", "intel&ib", ("--mem=64G",), ("apptainer", "exec", "x y.sif"), 5
    )
    site.check_options()
    lines = slurm_jobs.make_directives(odd, alone("build-x"), slurm_jobs.JobSize(8, 1000, 2000, 90), site)
    assert f'--output="{odd.path}/build-x.log"'.replace("%", "%%") in lines
    assert lines[-1] == "--mem=64G"
    assert {"--requeue", "--mem=1000M", "--tmp=2000M", "--time=90", "--cpus-per-task=8"} < {*lines}
    assert '--constraint="intel&ib"' in lines
    text = slurm_jobs.make_job_script(odd, alone("build-x"), slurm_jobs.JobSize(8, None, None, 90), site)
    assert f"""apptainer exec 'x y.sif' rocm-wheels run-step "$step" --plan '{odd.plan}' &""" in text
    assert '--attempts 5 --network-delay 300s "$step"' in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"options": ("gres=gpu",)}, "is no option of sbatch"),
        ({"options": ("--mem=1G\n#SBATCH --x",)}, "is no option of sbatch"),
        ({"options": ("--array=1-4",)}, "every job has a --array of its own"),
        ({"options": ("-o x",)}, "every job has a --output of its own"),
        ({"options": ("--arr=1-4",)}, "every job has a --array of its own"),
        ({"options": ("--mem=64G --array=1-4",)}, "every job has a --array of its own"),
        ({"options": ("--comment='a",)}, "No closing quotation"),
        ({"options": ("# --mem=1G",)}, "is no option of sbatch"),
        ({"options": ("-M other",)}, "the queue of another cluster would not be looked at"),
        ({"partition": "a\\b"}, "is no name"),
        ({"options": ("--no-requeue",)}, "every job has a --no-requeue of its own"),
        ({"options": ("--export=ALL,GH_TOKEN=abcdefgh",)}, "it has a secret in it"),
        ({"prefix": ("env", "GH_TOKEN=abcdefgh")}, "--container-prefix has a secret in it"),
        ({"partition": 'a"b'}, "--partition 'a\"b' is no name"),
        ({"account": " "}, "--account ' ' is no name"),
    ],
)
def test_wrong_options_are_told(words: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        replace(slurm_jobs.SlurmSite(("rocm-wheels",)), **words).check_options()  # type: ignore[arg-type]


def test_no_variable_of_the_user_wins_over_a_script(folder: job_records.JobFolder) -> None:
    site = slurm_jobs.SlurmSite(("rocm-wheels",), "cpu", options=("--comment='a --b'", "--gres=gpu:1"))
    site.check_options()
    named = [
        "JOB_NAME",
        "ARRAY_INX",
        "NO_REQUEUE",
        "SIGNAL",
        "WAIT",
        "EXPORT",
        "TIMELIMIT",
        "PARTITION",
        "GRES",
    ]
    ours = {f"SBATCH_{one}": "x" for one in named} | {"SLURM_RESTART_COUNT": "3"}
    kept = {"SBATCH_RESERVATION": "r", "SBATCH_QOS": "low", "SBATCH_MEM_PER_NODE": "1G", "HOME": "/h"}
    assert (
        slurm_jobs.make_job_environment(
            slurm_jobs.make_job_script(folder, alone("a"), slurm_jobs.JobSize(2, None, None, 30), site),
            ours | kept,
        )
        == kept
    )
    kept.pop("SBATCH_MEM_PER_NODE")
    given = {**ours, **kept, "SBATCH_MEM_PER_CPU": "1G"}
    assert (
        slurm_jobs.make_job_environment(
            slurm_jobs.make_job_script(folder, alone("a"), slurm_jobs.JobSize(2, 100, None, 30), site), given
        )
        == kept
    )


def test_a_damaged_ledger_is_told(folder: job_records.JobFolder) -> None:
    known = job_records.JobLedger(
        "d", {"a": job_records.Job(1), "b": job_records.Job(2, 3)}, frozenset({"a"})
    )
    folder.write_ledger(known)
    assert folder.read_ledger() == known
    for damage in ("", "[]", '{"format": 2}', '{"format": 1, "plan": "x", "jobs": {"a": "x"}}'):
        (folder.path / "jobs.json").write_text(damage)
        with pytest.raises(errors.DataError, match="does not say which jobs were submitted"):
            folder.read_ledger()


def test_folders_that_no_other_machine_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mounts").write_text(
        "overlay / overlay rw 0 0\ns:/a /home nfs4 rw,vers=4.2 0 0\ns:/b /old\\040home nfs rw,nolock 0 0\n"
        "x@tcp:/s /scratch lustre rw,flock 0 0\ny@tcp:/s /fast lustre rw 0 0\n/dev/sda /data ext4 rw 0 0\n"
    )
    monkeypatch.setattr("psutil.PROCFS_PATH", str(tmp_path))
    mounts = slurm.list_mounts()

    def said(path: str) -> tuple[int, str]:
        found = slurm.inspect_places({"work directory": Path(path)}, mounts)
        return len(found.errors), " ".join([*found.errors, *found.warnings])

    assert said("/tmp/x") == (1, "work directory /tmp/x is on overlay: no other machine has it")
    assert said("/home/me/x") == said("/scratch/x") == (0, "")
    assert "nolock" in said("/old home/x")[1]
    assert "without the mount option flock" in said("/fast/x")[1]
    assert (
        "cannot determine from here whether the nodes share: work directory /data/x (ext4)"
        in said("/data/x")[1]
    )


def test_plans_that_slurm_cannot_do_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = make_facts(tmp_path)
    _, steps = settled(facts)
    path, nowhere = tmp_path / "plan.json", {"PATH": "/nowhere"}
    write_plan(path, PlanFile(replace(facts.request, platform="windows"), Plan(steps, ()), {}))
    with pytest.raises(errors.UsageError, match="is a plan for windows, and Slurm's nodes run Linux"):
        slurm.SlurmExecutor.from_plan(path, slurm_jobs.SlurmSite(("rocm-wheels",)), {})
    write_plan(path, PlanFile(facts.request, Plan(steps, ()), {}))
    with pytest.raises(errors.UsageError, match="SBATCH_CLUSTERS=b: squeue does not read it"):
        slurm.SlurmExecutor.from_plan(path, slurm_jobs.SlurmSite(("rocm-wheels",)), {"SBATCH_CLUSTERS": "b"})
    for several in ("a,b", "all"):
        with pytest.raises(
            errors.UsageError, match=f"SLURM_CLUSTERS={several}: jobs of one cluster cannot wait"
        ):
            slurm.SlurmExecutor.from_plan(
                path, slurm_jobs.SlurmSite(("rocm-wheels",)), {"SLURM_CLUSTERS": several}
            )
    submission = slurm.SlurmExecutor.from_plan(path, slurm_jobs.SlurmSite(("rocm-wheels",)), nowhere)
    with pytest.raises(errors.UsageError, match="there is no sbatch on PATH"):
        submission.submit()
    with pytest.raises(errors.UsageError, match="there is no squeue on PATH"):
        submission.read_states()
    assert not submission.folder.path.exists()
    for words, message in (
        ([str(path), "--dry-run", "--wait"], "--wait has no effect with --dry-run"),
        ([str(path), "--poll", "1s"], "--poll has an effect with --wait alone"),
        ([str(path), "--no-array", "--array-limit", "2"], "--array-limit has no effect with --no-array"),
        ([str(tmp_path / "none.json")], "none.json"),
        ([str(path), "--container-prefix", "a 'b"], "--container-prefix: No closing quotation"),
        ([str(path), "--attempts", "0"], "0 is not in the range"),
        ([str(path.rename(tmp_path / "a.slurm")), "--dry-run"], "is called as the folder of its own jobs"),
    ):
        assert boundary.run_command(jobs_group, ["submit", *words]) == 2
        assert message in capsys.readouterr().err


def test_waiting_outlasts_a_controller_and_submits_again_what_was_lost() -> None:
    lost_one, running = (
        executor.StepState("a", "lost", job_records.Job(1)),
        executor.StepState("a", "running", job_records.Job(2)),
    )
    looks: list[executor.StepState | errors.UsageError] = [
        *(
            executor.StepState("a", "waiting", job_records.Job(1)),
            executor.ExecutorUnreachableError("squeue: Unable to contact slurm controller"),
        ),
        *(lost_one, running, executor.StepState("a", "done", job_records.Job(2))),
    ]
    seen: list[str] = []

    class Stub:
        def read_states(self) -> dict[str, executor.StepState]:
            found = looks.pop(0)
            if isinstance(found, errors.UsageError):
                raise found
            return {"a": found}

        def submit(self, *, but_cancelled: bool) -> list[executor.Decision]:
            seen.append(f"submit {but_cancelled}")
            return [executor.Decision(three().steps["a"], "submit", "", lost_one)]

    stub = cast("executor.Executor", Stub())
    found = executor.wait_for_jobs(stub, every=3, pause=lambda seconds: seen.append(f"{seconds}"))
    assert (found["a"].state, seen) == ("done", ["3", "3", "submit True", "3", "3"])
    executor.refuse_undone(stub, found)
    looks.append(executor.ExecutorUnreachableError("squeue: no"))
    with pytest.raises(
        executor.ExecutorUnreachableError, match="squeue: no"
    ):  # at once: nobody has ever answered
        executor.wait_for_jobs(stub, every=3, pause=lambda _: None)
