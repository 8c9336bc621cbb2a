"""The scripts of jobs under bash, and ``jobs submit`` of a real plan, with a Slurm that answers as seen."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
from faked_slurm import AUDIO, TORCH, TRITON, Arrays, Faked, Submitted, fake

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from tiny_projects import TAG, make_world

from rocm_wheels.executors import job_records, slurm_jobs

_ = fake  # a fixture


class Job:
    """A job's script, as Slurm starts it."""

    def __init__(self, fake: Faked, folder: Path, array: slurm_jobs.JobArray | None = None) -> None:
        self.fake, self.folder = fake, job_records.JobFolder(folder / "a plan.json")
        self.folder.plan.write_text("{}")
        self.folder.path.mkdir()
        script = folder / "script"
        array = array or slurm_jobs.JobArray("build-x", {0: "build-x"}, plain=True)
        script.write_text(
            slurm_jobs.make_job_script(
                self.folder,
                array,
                slurm_jobs.JobSize(2, None, None, 30),
                slurm_jobs.SlurmSite(("rocm-wheels",)),
            )
        )
        self.argv = ["bash", str(script)]

    def start(self, **env: str) -> subprocess.Popen[str]:
        given = {**os.environ, **self.fake.env, "SLURM_JOB_ID": "7", **env}
        return subprocess.Popen(
            self.argv, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, **env: str) -> tuple[int, str]:
        process = self.start(**env)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out


def test_a_job_notes_its_begin_and_does_its_step(fake: Faked, tmp_path: Path) -> None:
    job = Job(fake, tmp_path)
    job.folder.jobs_path("build-x").write_text("4\n")
    assert job.run(SLURM_RESTART_COUNT="2")[0] == 0
    begin = job.folder.read_begin("build-x")
    assert begin is not None
    assert (begin.job, begin.restart, begin.host) == ("7", 2, platform.node())
    step, judged = fake.calls()
    assert step == f"rocm-wheels run-step build-x --plan {job.folder.plan} MAX_JOBS=4"
    assert "--attempts 3 --network-delay 300s build-x --exit-code 0 --because  MAX" in judged
    fake.write(verdict="")  # nobody can judge it: the script says so itself
    fake.write(step="exit 12")
    assert job.run()[0] == 12
    end = job.folder.read_end("build-x")
    assert end is not None
    assert (end.kind, end.exit_code, end.again) == ("unknown", 12, False)
    job.folder.plan.unlink()
    code, out = job.run()
    assert (code, "does not see" in out) == (2, True)


@pytest.mark.parametrize(
    ("verdict", "state", "asked"),
    [
        ("stop", "RUNNING", []),
        ("again 0", "RUNNING", ["scontrol show job -o 7", "scontrol requeue 7"]),
        (
            "again 300",
            "RUNNING",
            [
                *("scontrol show job -o 7", "scontrol requeue 7"),
                "scontrol update JobId=7 StartTime=now+300",
            ],
        ),
        ("INFO: of a container\nagain 0", "RUNNING", ["scontrol show job -o 7", "scontrol requeue 7"]),
        ("again 0", "COMPLETING", ["scontrol show job -o 7"]),  # cancelled, or requeued by Slurm itself
    ],
)
def test_a_job_asks_for_another_turn(
    fake: Faked, tmp_path: Path, verdict: str, state: str, asked: list[str]
) -> None:
    fake.write(verdict=f"{verdict}\n", state=state, step="exit 12")
    assert Job(fake, tmp_path).run()[0] == (0 if len(asked) > 1 else 12)
    assert [call for call in fake.calls() if call.startswith("scontrol")] == asked


def test_a_job_near_its_limit_ends_its_step(fake: Faked, tmp_path: Path) -> None:
    fake.write(step="while :; do sleep 0.05; done")
    process = Job(fake, tmp_path).start()
    end = time.monotonic() + 60
    while not (fake.folder / "pid").exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--exit-code 130 --because time" in fake.calls()[-1]


def test_a_task_of_an_array_does_the_step_of_its_number(fake: Faked, tmp_path: Path) -> None:
    job = Job(fake, tmp_path, slurm_jobs.JobArray("build-x", {0: "build-x-cp310", 4: "build-x-cp314"}))
    fake.write(verdict="again 0\n", step="exit 12")
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_ID": "7"}  # the last task has the id of the whole array
    assert job.run(SLURM_ARRAY_TASK_ID="4", **task)[0] == 0
    step, judged, *asked = fake.calls()
    assert (step.split()[2], "300s build-x-cp314 --exit-code" in judged) == ("build-x-cp314", True)
    assert asked == ["scontrol show job -o 7_4", "scontrol requeue 7_4"]
    begin = job.folder.read_begin("build-x-cp314")
    assert begin is not None
    assert (begin.job, begin.id) == ("7_4", "7")
    code, out = job.run(SLURM_ARRAY_TASK_ID="3", **task)
    assert (code, "error: no step has the number 3" in out, fake.calls()) == (2, True, [])
    (job.folder.path / "build-x-cp310.begin.json.7_0.part").mkdir()  # as with a full disk
    code, out = job.run(SLURM_ARRAY_TASK_ID="0", **task)
    assert (code, "cannot write to" in out, fake.calls()) == (2, True, [])


def test_several_pythons_are_submitted_as_arrays(
    tmp_path: Path, fake: Faked, capfd: pytest.CaptureFixture[str]
) -> None:
    site = Arrays(tmp_path, fake, capfd)
    dry = site.submit("--dry-run", "--array-limit", "2")
    assert "sbatch --parsable --array=0-4%2 /" in dry.out
    assert "'--dependency=aftercorr:<install-tools>:<build-triton>,afterok:<probe-targets>'" in dry.out
    assert f"  3: rocm-wheels run-step build-triton-cp313 --plan {site.plan}\n" in dry.out
    assert "61 jobs would be submitted by 13 requests" in dry.err
    assert fake.calls() == []
    first = site.submit()
    assert "61 jobs submitted by 13 requests" in first.err
    assert len(fake.calls()) == 13
    (tmp_path / "p.slurm" / "jobs.json").unlink()  # cut off before it was written down
    assert ("0 jobs submitted" in site.submit().err, fake.calls()) == (True, [])
    assert site.states()["build-pytorch-cp313"] == "waiting"
    fake.write(silent="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    for name in ("submit", "status", "cancel"):
        silent = site.jobs(name)
        assert (silent.code, "Unable to contact slurm controller" in silent.err) == (2, True)
    known = json.loads((tmp_path / "p.slurm" / "jobs.json").read_text())
    assert (len(known["jobs"]), known["cancelled"]) == (61, [])
    (fake.folder / "silent").unlink()
    wrong = site.jobs("cancel", "--step", "build-tritn")
    assert (wrong.code, "has no step or array build-tritn; did you mean build-triton?" in wrong.err) == (
        2,
        True,
    )
    ended = site.jobs("cancel", "--step", "build-pytorch_vision", "--step", "build-apex-cp312")
    assert "build-apex-cp312, build-pytorch_vision-cp312, build-pytorch_vision-cp313" in ended.err
    assert fake.calls() == ["scancel 8_2 10"]
    assert site.jobs("cancel").code == 0
    assert fake.calls() == ["scancel 1 2 3 4 5 6 7 8 9 11 12 13"]
    assert {*site.states().values()} == {"cancelled"}
    fake.write(size="0")
    for words in ((), ("--no-array",)):
        assert "61 jobs would be submitted\n" in site.submit("--dry-run", *words).err


@pytest.mark.slow
def test_a_plan_is_submitted_once(tmp_path: Path, fake: Faked, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "world").mkdir()
    world = make_world(tmp_path / "world")
    site = Submitted(world, fake, capfd)
    dry = site.submit("--dry-run", "--partition", "debug", "--sbatch-option=--gres=gpu:1")
    assert f"'--dependency=afterok:<install-tools-{TAG}>:<{TRITON}>'" in dry.out
    assert "  #SBATCH --partition=debug\n  #SBATCH --gres=gpu:1\n" in dry.out
    assert (fake.calls(), (world.folder / "faked.slurm").exists()) == ([], False)
    fake.write(nodes="n1\nn2\n")
    refused = site.submit()
    if refused.code:  # where the temporary folder is this machine's alone
        assert "jobs on other nodes could not work" in refused.err
    fake.calls()
    (fake.folder / "queue").unlink(missing_ok=True)
    (fake.folder / "last").unlink(missing_ok=True)
    (world.folder / "faked.slurm" / "jobs.json").unlink(missing_ok=True)
    first = site.submit("--assume-shared", ROCM_WHEELS_RECORD="/nowhere", SBATCH_JOB_NAME="mine")
    assert first.code == 0, first.err
    sent = fake.calls()
    steps = [call.rsplit("/", 1)[1].removesuffix(".sbatch") for call in sent]
    packaged = {step: step.replace("build-", "repair-") for step in (TRITON, TORCH, AUDIO)}
    assert steps == [f"install-rocm-{TAG}", f"install-tools-{TAG}", *chain.from_iterable(packaged.items())]
    assert "--dependency=afterok:2:3 " in sent[4]
    (world.folder / "faked.slurm" / "jobs.json").unlink()  # cut off before it was written down
    again = site.submit("--assume-shared", SQUEUE_STATES="RUNNING")
    assert "0 jobs submitted" in again.err
    assert fake.calls() == []
    assert site.states()[TORCH] == "waiting"
    (world.sources / "pytorch" / "source.txt").write_text("two")
    stale = site.submit("--assume-shared")
    (world.sources / "pytorch" / "source.txt").write_text("one")
    assert (stale.code, "is older than what it was made of:" in stale.err) == (2, True)
    assert f"{TORCH}: inputs changed: sources (" in stale.err
    fake.write(queue="")  # all are gone, and have told nothing
    fake.write(refusal="sbatch: error: Batch job submission failed: Invalid qos specification\n")
    wrong = site.submit("--assume-shared")
    assert (wrong.code, "Invalid qos" in wrong.err, "tip: ask the site" in wrong.err) == (2, True, True)
