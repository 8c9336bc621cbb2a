"""A plan as a workflow that Snakemake's own plugin runs on a real Slurm of one node.

Skipped where Slurm, Snakemake or the plugin is not installed (``uv tool install snakemake --with
snakemake-executor-plugin-slurm``); ``test_snakemake`` has the same workflows run by this machine.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess

import pytest
from machines import Cluster, cluster, missing
from projects import World, wait_until
from runs import AUDIO, SMOKE, TORCH, TRITON, has_wheel, start, write_workflow

_ = cluster  # fixture

if missing() or shutil.which("snakemake") is None:
    pytest.skip("no Slurm (apt-get install slurm-wlm munge) or no snakemake", allow_module_level=True)
_HELP = ["snakemake", "--executor", "slurm", "--help"]
if subprocess.run(_HELP, capture_output=True, check=False).returncode:
    pytest.skip("no snakemake-executor-plugin-slurm", allow_module_level=True)

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow]
OUT_OF_MEMORY = """
note("runs " + os.environ["MAX_JOBS"])
if os.environ["MAX_JOBS"] != "1":
    print("g++: fatal error: Killed signal terminated program cc1plus", flush=True)
    sys.exit(1)
"""


def list_jobs(cluster: Cluster) -> list[tuple[str, dict[str, str]]]:
    """Return the rule of every job that Slurm has had, and what `scontrol show job` says of it."""
    jobs = []
    for line in cluster.ask("scontrol", "show", "job", "-o").splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        jobs.append((fields["Comment"].removeprefix("rule_"), fields))
    return jobs


def test_a_plan_is_done_by_slurm_out_of_memory_and_cancelled_on_the_way(
    world: World, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**cluster.env, "PATH": f"{cluster.programs}:{world.env['PATH']}"}.items():
        monkeypatch.setitem(world.env, name, value)
    snakefile = write_workflow(world, "--test", "smoke")
    triton, torch, audio, smoke = (name.replace("-", "_") for name in (TRITON, TORCH, AUDIO, SMOKE))
    words = ["--executor", "slurm", "--jobs", "4", "--max-threads", "2", "--retries", "1"]
    words += ["--default-resources", "slurm_partition=cpu", "--set-resources", f"{smoke}:slurm_partition=gpu"]
    words += ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"]
    world.disturb("triton", OUT_OF_MEMORY)
    world.disturb("pytorch", "note('hangs')\ntime.sleep(600)")

    # triton is out of memory once; then somebody stops Snakemake, which takes its jobs back
    process = start(world, snakefile, *words)
    calls = world.place / "calls"
    wait_until(lambda: "pytorch hangs" in calls.read_text().splitlines(), calls, 400)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=200)
    assert process.returncode != 0, out
    wait_until(lambda: not cluster.jobs() and not world.processes(), "the end of all jobs")
    runs = [call for call in world.calls() if call.startswith("triton")]
    assert runs == ["triton begun", "triton runs 2", "triton begun", "triton runs 1", "triton done"]
    assert not has_wheel(world, "torch")

    # the same command goes on, up to the tests, for which no GPU is here
    world.disturb("pytorch")
    process = start(world, snakefile, *words, "--retries", "0", "--rerun-incomplete")
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 1, out
    assert has_wheel(world, "torchaudio") and "triton begun" not in world.calls()
    text, jobs = snakefile.read_text(), list_jobs(cluster)
    states = [(name, fields["JobState"]) for name, fields in jobs if name in (triton, torch, audio, smoke)]
    assert states == [
        *((triton, "FAILED"), (triton, "COMPLETED"), (torch, "CANCELLED")),
        *((torch, "COMPLETED"), (audio, "COMPLETED"), (smoke, "FAILED")),
    ]
    for name, fields in jobs:
        stated = re.search(rf"rule {name}:.*?mem_mb=.*? (\d+) \* threads", text, re.DOTALL)
        assert stated
        memory = fields["MinMemoryNode"]  # 3.50G, or 3500M
        mebibytes = float(memory[:-1]) * {"M": 1, "G": 1024}[memory[-1]]
        assert mebibytes == pytest.approx(1024 + 2 * int(stated[1]), rel=0.01)
        assert fields["NumCPUs"] == "2" and fields["TimeLimit"] >= "00:30:00"
        assert fields["Partition"] == ("gpu" if name == smoke else "cpu")
        assert ("gpu:1" in fields.get("TresPerJob", "")) == (name == smoke)
    logs = list((snakefile.parent / ".snakemake" / "slurm_logs").glob(f"rule_{smoke}/*.log"))
    assert [SMOKE in log.read_text() for log in logs] == [True]
