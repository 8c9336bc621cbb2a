"""Arrays of jobs on a real Slurm of one node: a plan for several Pythons, with tasks that are killed or lost.

Skipped where Slurm is not installed, or no second Python is; ``test_slurm_faked`` holds the same logic to
recorded answers.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import COMPILE_ERROR, OUT_OF_MEMORY, SLOW_ONCE, Cluster, Site, cluster, missing
from tiny_projects import TAG, World, made_world, world

_ = made_world, world, cluster  # fixtures
pytestmark = pytest.mark.slow


def other_pythons() -> list[tuple[str, str]]:
    """Return ABI tags and interpreters of Pythons that run beside ours: those of pyenv, or on PATH."""
    found = {}
    places = [*Path.home().glob(".pyenv/versions/3.1*/bin"), *map(Path, os.environ["PATH"].split(":"))]
    for minor in (10, 12, 13, 14):
        for place in places:
            python = place / f"python3.{minor}"
            if f"cp3{minor}" in (TAG, *found) or not python.exists():
                continue
            if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
                found[f"cp3{minor}"] = str(python)  # a shim of pyenv is there for Pythons that are not
    return sorted(found.items())[:2]


OTHERS = other_pythons()
if missing() or not OTHERS:
    pytest.skip("no Slurm, or no second Python", allow_module_level=True)
TAGS = (TAG, *(tag for tag, _ in OTHERS))
ONE_ONLY = f"if sys.version_info[1] == {OTHERS[0][0][3:]}:\n"


def for_one(code: str) -> str:
    """Return what disturbs one Python alone."""
    return ONE_ONLY + "".join(f"    {line}\n" for line in code.strip().splitlines())


@pytest.fixture
def site(world: World, cluster: Cluster) -> Iterator[Site]:
    """A fresh plan for several Pythons; no job is left afterwards."""
    import shutil
    import sys

    shutil.rmtree(world.folder / "plan.slurm", ignore_errors=True)
    pythons = [sys.executable, *(python for _, python in OTHERS)]
    made = Site(world, cluster, *(word for python in pythons for word in ("--python", python)))
    yield made
    cluster.ask("scancel", *map(str, cluster.jobs()))
    made.until(lambda: not cluster.jobs(), "an empty queue")


def steps(project: str) -> list[str]:
    return [f"build-{project}-{tag}" for tag in TAGS]


def test_an_array_is_done_while_its_tasks_are_killed_starved_and_lost(site: Site) -> None:
    site.world.disturb("triton", for_one(OUT_OF_MEMORY))
    site.world.disturb("pytorch", for_one(SLOW_ONCE))
    first = site.submit(MAX_JOBS="4")
    assert first.code == 0, first.err
    arrays = {one["job"].split("_")[0] for one in site.status().values() if one["job"]}
    assert f" jobs submitted by {len(arrays)} requests" in first.err
    assert "0 jobs submitted" in site.submit().err
    site.until((site.world.place / "seen").exists, "torch at work", 240)
    slow = steps("pytorch")[1]
    job = site.status()[slow]["job"]
    waiting = site.world.start(
        "jobs", "submit", str(site.plan), "--cpus", "1", "--wait", "--poll", "0.3s", **site.cluster.env
    )
    pids = site.cluster.processes_of(job)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    _, err = waiting.communicate(timeout=240)
    assert waiting.returncode == 0, err
    found = site.status()
    assert {one["state"] for one in found.values()} == {"done"}
    (was, _), (now, task) = job.split("_"), found[slow]["job"].split("_")
    assert (int(now) > int(was), task, found[slow]["end"]["failures"]) == (True, "1", 1)
    starved = found[steps("triton")[1]]["end"]
    assert (starved["failures"], starved["jobs"], starved["restart"]) == (1, 2, 1)
    assert "== " + slow in site.log(slow)
    assert site.world.calls().count("pytorch begun") == len(TAGS) + 1


def test_a_task_that_fails_stops_those_of_its_python_alone(site: Site) -> None:
    site.world.disturb("triton", for_one(COMPILE_ERROR))
    ended = site.submit("--wait", "--poll", "0.3s")
    assert ended.code == 12
    found = {step: one["state"] for step, one in site.status().items()}
    for project in ("triton", "pytorch", "pytorch_audio"):
        wanted = ["done"] * len(TAGS)
        wanted[1] = "failed" if project == "triton" else "blocked"
        assert [found[step] for step in steps(project)] == wanted
    site.world.disturb("triton")
    again = site.submit("--retry-failed", "--wait", "--poll", "0.3s")
    assert again.code == 0, again.err
    assert "3 jobs submitted" in again.err


def test_a_task_goes_on_after_its_node_went_down_and_is_cancelled_alone(site: Site) -> None:
    site.world.disturb("triton", for_one(SLOW_ONCE))
    assert site.submit().code == 0
    site.until((site.world.place / "seen").exists, "triton at work", 240)
    slow = steps("triton")[1]
    job = site.status()[slow]["job"]
    site.cluster.cut_power(job)
    site.cluster.ask("scontrol", "update", f"NodeName={site.cluster.host}", "State=DOWN", "Reason=test")
    site.cluster.start_node()
    site.cluster.ask("scontrol", "update", f"NodeName={site.cluster.host}", "State=RESUME")
    cancelled = site.jobs("cancel", "--step", steps("pytorch_audio")[0])
    assert f"cancelled: {steps('pytorch_audio')[0]}\n" in cancelled.err
    wrong = site.jobs("cancel", "--step", "build-torch")
    assert (wrong.code, "no step or array build-torch; did you mean" in wrong.err) == (2, True)
    site.until(lambda: site.status()[steps("pytorch")[1]]["state"] == "done", "torch", 240)
    site.until(lambda: not site.cluster.jobs(), "an empty queue", 120)
    found = site.status()
    assert (found[slow]["job"], found[slow]["end"]["restart"]) == (job, 1)
    assert [found[step]["state"] for step in steps("pytorch_audio")] == ["cancelled", "done", "done"][
        : len(TAGS)
    ]


def test_an_array_that_is_cancelled_is_taken_up_again(site: Site) -> None:
    site.world.disturb("triton", for_one(SLOW_ONCE))
    assert site.submit().code == 0
    site.until((site.world.place / "seen").exists, "triton at work", 240)
    assert site.jobs("cancel").code == 0
    site.until(lambda: not site.cluster.jobs(), "an empty queue")
    assert site.status()[steps("triton")[1]]["state"] == "cancelled"
    site.until(lambda: not site.world.processes(), "the end of all processes")
    ended = site.submit("--no-array", "--wait", "--poll", "0.3s")
    assert ended.code == 0, ended.err
    assert {one["state"] for one in site.status().values()} == {"done"}
