"""Plans on a real Slurm of one node, with jobs that are killed, starved, told to end, or lost.

Where Slurm is not installed, this is skipped; ``test_slurm_faked`` holds the same logic to recorded answers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator

import pytest
from slurm_cluster import COMPILE_ERROR, NETWORK, OUT_OF_MEMORY, SLOW_ONCE, Cluster, Site, cluster, missing
from tiny_projects import TAG, World, made_world, world

_ = made_world, world, cluster  # fixtures

if "slurmctld" in missing():
    pytest.skip("no slurmctld (Debian: apt-get install slurm-wlm munge)", allow_module_level=True)

pytestmark = pytest.mark.slow
TRITON, TORCH, AUDIO = (f"build-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio"))


@pytest.fixture
def site(world: World, cluster: Cluster) -> Iterator[Site]:
    """A fresh plan; no job is left afterwards."""
    import shutil

    shutil.rmtree(world.folder / "plan.slurm", ignore_errors=True)
    made = Site(world, cluster)
    yield made
    cluster.ask("scancel", *map(str, cluster.jobs()))
    made.until(lambda: not cluster.jobs(), "an empty queue")


def test_a_plan_is_done_out_of_memory_and_network_included(site: Site) -> None:
    site.world.disturb("triton", OUT_OF_MEMORY)
    site.world.disturb("pytorch", NETWORK)
    ended = site.submit("--wait", "--poll", "0.3s", MAX_JOBS="4")
    assert ended.code == 0, ended.err
    assert set(site.states()) == {"done"}
    end = site.status()[TRITON]["end"]
    assert (end["failures"], end["jobs"], end["restart"]) == (1, 2, 1)
    assert "ran out of memory" in ended.err
    assert site.status()[TORCH]["end"]["failures"] == 1
    assert "network" in site.log(TORCH)
    calls = site.world.calls()
    assert calls.count("pytorch_audio begun") == 1
    again = site.submit()
    assert "0 jobs submitted" in again.err
    assert site.world.calls() == []


def test_a_compile_error_stops_what_needs_it_and_nothing_is_submitted_twice(site: Site) -> None:
    site.world.disturb("pytorch", COMPILE_ERROR)
    first = site.submit()
    assert f"{AUDIO}: submitted, job " in first.err
    second = site.submit()
    assert "0 jobs submitted" in second.err
    ended = site.submit("--wait", "--poll", "0.3s")
    assert ended.code == 12
    assert f"{TORCH}: failed, x.cpp:1: no such thing" in ended.err
    assert f"{AUDIO}: blocked, needs {TORCH}, which failed" in ended.err
    refused = site.submit()
    assert (refused.code, "0 jobs submitted" in refused.err) == (2, True)
    site.world.disturb("pytorch")
    assert site.submit("--retry-failed", "--wait", "--poll", "0.3s").code == 0
    assert set(site.states()) == {"done"}


@pytest.mark.parametrize("words", [("--signal=TERM", "--full"), ("--signal=USR1", "--batch")])
def test_a_job_that_is_told_to_end_goes_on_in_another(site: Site, words: tuple[str, str]) -> None:
    site.world.disturb("triton", SLOW_ONCE)
    waiting = site.world.start(
        "jobs", "submit", str(site.plan), "--cpus", "1", "--wait", "--poll", "0.3s", **site.cluster.env
    )
    site.until((site.world.place / "seen").exists, "triton at work")
    job = site.status()[TRITON]["job"]
    site.cluster.ask("scancel", *words, str(job))
    _, err = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, err
    end = site.status()[TRITON]["end"]
    assert (end["job"], end["restart"], end["interruptions"], end["failures"]) == (job, 1, 1, 0)
    assert set(site.states()) == {"done"}


def test_a_job_that_is_gone_without_a_word_is_submitted_again(site: Site) -> None:
    site.world.disturb("triton", SLOW_ONCE)
    waiting = site.world.start(
        "jobs", "submit", str(site.plan), "--cpus", "1", "--wait", "--poll", "0.3s", **site.cluster.env
    )
    site.until((site.world.place / "seen").exists, "triton at work")
    job = site.status()[TRITON]["job"]
    for pid in site.cluster.processes_of(job):
        os.kill(pid, signal.SIGKILL)
    _, err = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, err
    assert f"{TRITON}: lost" in err
    end = site.status()[TRITON]["end"]
    assert (int(end["job"]) > int(job), end["failures"]) == (True, 1)
    assert set(site.states()) == {"done"}


def test_a_node_that_goes_down_costs_no_step(site: Site) -> None:
    site.world.disturb("triton", SLOW_ONCE)
    assert site.submit().code == 0
    site.until((site.world.place / "seen").exists, "triton at work")
    job = site.status()[TRITON]["job"]
    site.cluster.cut_power(job)
    site.cluster.ask("scontrol", "update", f"NodeName={site.cluster.host}", "State=DOWN", "Reason=test")
    site.cluster.start_node()
    site.cluster.ask("scontrol", "update", f"NodeName={site.cluster.host}", "State=RESUME")
    ended = site.submit("--wait", "--poll", "0.3s")
    assert ended.code == 0, ended.err
    end = site.status()[TRITON]["end"]
    assert (end["job"], end["restart"], end["exit_code"]) == (job, 1, 0)
    assert set(site.states()) == {"done"}


def test_cancelled_jobs_stay_cancelled_until_they_are_submitted_again(site: Site) -> None:
    site.world.disturb("triton", SLOW_ONCE)
    assert site.submit().code == 0
    site.until((site.world.place / "seen").exists, "triton at work")
    cancelled = site.jobs("cancel")
    assert all(step in cancelled.err for step in (TRITON, TORCH, AUDIO))
    site.until(lambda: not site.cluster.jobs(), "an empty queue")
    states = site.states()
    assert states[:2] == ["done", "done"] and set(states[2:]) == {"cancelled"}
    site.until(lambda: not site.world.processes(), "the end of all processes")
    ended = site.submit("--wait", "--poll", "0.3s")
    assert ended.code == 0, ended.err
    assert set(site.states()) == {"done"}


def test_wrong_words_are_told_as_slurm_tells_them(site: Site) -> None:
    for words, message in (
        (["--partition", "debgu"], "no partition debgu has nodes that are up; did you mean debug?"),
        (["--constraint", "gpu"], "Invalid feature specification"),
        (["--sbatch-option=--mem=900G"], "Requested node configuration is not available"),
    ):
        ended = site.submit(*words)
        assert (ended.code, message in ended.err) == (2, True), ended.err
        assert "tip: " in ended.err
    assert site.cluster.jobs() == {}


def test_tests_ask_for_a_gpu_and_go_on_after_they_were_cancelled(world: World, cluster: Cluster) -> None:
    smoke = f"test-smoke-{TAG}"
    for name in ("plan.slurm", "work/tests"):
        shutil.rmtree(world.folder / name, ignore_errors=True)
    site = Site(world, cluster, "--test", "smoke")
    shown = site.submit("--dry-run").out.split("\nsbatch ")
    assert [smoke in job for job in shown if "--gres=gpu:1" in job] == [True]
    site.submit("--gpu-option=--gres=gpu:1", "--gpu-option=--nice=7")
    job = str(site.status()[smoke]["job"])
    assert "gpu:1" in cluster.ask("scontrol", "show", "job", "-o", job)
    assert "gpu" not in cluster.ask("scontrol", "show", "job", "-o", str(site.status()[TRITON]["job"]))
    assert site.jobs("cancel", "--step", smoke).code == 0
    ended = site.submit("--wait", "--poll", "0.3s", PYTEST_ADDOPTS="-k test_torch_starts")
    assert ended.code == 12 and f"{smoke}: failed" in ended.err, "no GPU is on this node"
    results = json.loads((world.work / "tests" / smoke / "results.json").read_text())
    assert results["counts"]["passed"] == 1, "torch starts, and nothing was tested on a GPU"
    site = Site(world, cluster, "--test", "smoke", "--test-on-cpu")
    ended = site.submit("--wait", "--poll", "0.3s", PYTEST_ADDOPTS="-k test_torch_starts")
    assert ended.code == 0, ended.err
    assert site.status()[smoke]["state"] == "done" and "triton begun" not in world.calls()[1:]
