"""Slurm's programs as they answer, written down and answered from files; plans that are submitted to them."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from planned_runs import make_facts, settled
from programs import Ended
from tiny_projects import TAG, World

from rocm_wheels.cli import boundary
from rocm_wheels.cli.jobs import jobs_group
from rocm_wheels.executors import slurm
from rocm_wheels.pipeline import plan, step

TRITON, TORCH, AUDIO = (f"build-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio"))

# as Slurm 22.05.8 answers
FAKES = {
    "sbatch": """
echo "sbatch $*" >> "$FAKE/calls"
[ ! -e "$FAKE/refusal" ] || { cat "$FAKE/refusal" >&2; exit 1; }
id=$(( $(cat "$FAKE/last" 2> /dev/null || echo 0) + 1 ))
echo $id > "$FAKE/last"
for script; do :; done
name=${SBATCH_JOB_NAME-$(sed -n 's/^#SBATCH --job-name=//p' "$script")}
tasks=$(printf '%s\\n' "$@" | sed -n 's/^--array=\\(.*\\)/_[\\1]/p')
echo "$id$tasks|PENDING|Dependency|$name" >> "$FAKE/queue"
echo $id
""",
    "squeue": """
[ ! -e "$FAKE/silent" ] || { cat "$FAKE/silent" >&2; exit 1; }
[ -n "${SQUEUE_STATES-}" ] || cat "$FAKE/queue" 2> /dev/null; exit 0
""",
    "scancel": """
echo "scancel $*" >> "$FAKE/calls"
[ ! -e "$FAKE/silent" ] || { cat "$FAKE/silent" >&2; exit 1; }
for id; do sed -i "/^$id[|_]/d" "$FAKE/queue"; done
""",
    "sinfo": """
case "$*" in *--Node*) cat "$FAKE/nodes";; *) echo 'debug*|2|4000|20000|2:00:00|up|1';; esac
""",
    "scontrol": """
[ "$2" != config ] || { echo "MaxArraySize            = $(cat "$FAKE/size")"; exit; }
echo "scontrol $*" >> "$FAKE/calls"
[ "$1" != show ] || echo "JobId=7 JobName=x UserId=u(0) JobState=$(cat "$FAKE/state") Reason=None"
""",
    "rocm-wheels": """
echo "rocm-wheels $* MAX_JOBS=${MAX_JOBS-}" >> "$FAKE/calls"
case "$1" in
  run-step) trap 'exit 130' TERM; echo $$ > "$FAKE/pid"; . "$FAKE/step";;
  jobs) cat "$FAKE/verdict";;
esac
""",
}


class Faked:
    """A folder of programs that write down what they are asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name, text in FAKES.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}")
            (folder / "bin" / name).chmod(0o755)
        for name, text in {"state": "RUNNING", "verdict": "stop\n", "step": "exit 0", "size": "1001"}.items():
            (folder / name).write_text(text)
        (folder / "nodes").write_text(platform.node().split(".")[0])
        self.env = {"FAKE": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def calls(self) -> list[str]:
        """Return what was asked since the last question."""
        path = self.folder / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found


@pytest.fixture
def fake(tmp_path: Path) -> Faked:
    """A faked Slurm."""
    return Faked(tmp_path / "fake")


class Submitted:
    """A plan of tiny projects and the faked Slurm. Commands run in this process: a start takes longer."""

    def __init__(self, world: World, fake: Faked, capfd: pytest.CaptureFixture[str]) -> None:
        self.world, self.fake, self.plan, self.said = world, fake, world.folder / "faked.json", capfd
        made = world.run(*world.words("-o", str(self.plan), command="plan"))
        assert made.code == 0, made.err

    def submit(self, *words: str, **env: str) -> Ended:
        return self.jobs("submit", *words, **env)

    def jobs(self, subcommand: str, *words: str, **env: str) -> Ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.world.folder)
            for name in set(os.environ) - set(self.world.env):
                patch.delenv(name)
            for name, value in {**self.world.env, **self.fake.env, **env}.items():
                patch.setenv(name, value)
            self.said.readouterr()
            code = boundary.run_command(jobs_group, [subcommand, str(self.plan), *words])
            return Ended(code, *self.said.readouterr())

    def states(self) -> dict[str, Any]:
        return {one["step"]: one["state"] for one in json.loads(self.jobs("status", "--json").out)}


class Arrays(Submitted):
    """A plan for five Pythons, which is taken to be what could be planned now."""

    def __init__(self, folder: Path, fake: Faked, capfd: pytest.CaptureFixture[str]) -> None:
        facts = make_facts(folder, tags=[f"cp31{n}" for n in range(5)], targets="gfx942", rocm=False)
        self.steps = settled(facts)[1]
        self.world, self.fake, self.plan, self.said = World(folder, {}), fake, folder / "p.json", capfd
        plan.write_plan(self.plan, plan.PlanFile(facts.request, step.Plan(self.steps, ("gfx942",)), {}))

    def jobs(self, subcommand: str, *words: str, **env: str) -> Ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slurm.SlurmExecutor, "settle_plan", lambda submission: submission.file.plan)
            return super().jobs(subcommand, *words, **env)
