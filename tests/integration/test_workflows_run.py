"""The nightly of two families × two Pythons, run from its workflow files on the miniature, job by job.

The Pythons are those that are on this machine, at most two. Of the projects torch and triton are built, which
is half of the work: in a copy of the clone without the other recipes, as somebody has it who needs no more.
With ROCM_WHEELS_WHOLE_NIGHT set, all of them are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv
from workflow_actions import Services, pythons_here
from workflow_runner import Runner

from rocm_wheels.demo.artifacts import make_artifacts
from rocm_wheels.demo.hipify_source import fetch_hipify
from rocm_wheels.demo.repositories import make_repositories
from rocm_wheels.model.ci import ci_table
from rocm_wheels.model.gfx import gfx_families

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the miniature is built on Linux alone"),
]
CLONE = Path(__file__).resolve().parents[2]
MINIATURE = CLONE / "tests" / "miniature"
FAMILIES = ("gfx94X-dcgpu", "gfx1151")  # one target each: what compiles is most of the work
ROCM = "7.1.0+miniature"
# the branches of the line that the lock asks for; what else there is, torch's own files name
BRANCHES = {"pytorch": "release/2.13", "triton": "release/internal/3.8.x"}
ELSEWHERE = {"pytorch": "ROCm/pytorch", "triton": "ROCm/triton", "minigemm": "ROCm/minigemm"}


def git(*words: str | Path) -> None:
    subprocess.run(["git", *map(str, words)], check=True, capture_output=True)


def environment(folder: Path) -> dict[str, str]:
    """A machine with a HOME of its own, on which the repositories of the line are those of the miniature."""
    names = ("PYTHON", "VIRTUAL_ENV", "XDG_", "GITHUB_", "ROCM_", "GIT_", "PYTEST_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    cache = base.get("UV_CACHE_DIR") or str(Path(base.get("HOME", "/root")) / ".cache" / "uv")
    tools = [str(Path(sys.executable).parent / name) for name in ("ccache",)]
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for tool in [*tools, str(uv.find_uv_bin())]:
        if Path(tool).exists():
            (programs / Path(tool).name).symlink_to(tool)
    path = [one for one in base["PATH"].split(os.pathsep) if one != str(Path(sys.executable).parent)]
    pypi = next(filter(None, map(base.get, ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"))), "https://pypi.org/simple")
    return {
        **base,
        # the miniature's compiler is a package of PyPI; AMD's index has all that its ROCm requires
        "UV_EXTRA_INDEX_URL": pypi,
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "HOME": str(folder / "home"),
        "PATH": os.pathsep.join([str(programs), *path]),
        "UV_CACHE_DIR": cache,
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
    }


def ours(*words: str | Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(CLONE / "build_tools")}
    argv = [sys.executable, *map(str, words)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def make_world(folder: Path) -> dict[str, str]:
    env = environment(folder)
    (folder / "home").mkdir()
    real = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocm-wheels"
    made = make_repositories(MINIATURE, folder / "upstream", hipify=fetch_hipify(real, env=env), env=env)
    for name, branch in BRANCHES.items():
        git("-C", folder / "upstream" / f"{name}.git", "branch", branch, made[name].branch)
    lines = ['[protocol "file"]\n\tallow = always\n']
    for name, place in ELSEWHERE.items():
        lines.append(f'[url "{made[name].url}"]\n\tinsteadOf = https://github.com/{place}.git\n')
    (folder / "gitconfig").write_text("".join(lines))
    make_artifacts(
        MINIATURE / "rocm", folder / "artifacts", version=ROCM,
        targets=[one for name in FAMILIES for one in gfx_families()[name]], env=env,
    )  # fmt: skip
    packages = folder / "packages"
    made_of = ("--artifact-dir", folder / "artifacts", "--dest-dir", packages)
    ours(CLONE / "build_tools" / "build_python_packages.py", *made_of)
    ours("-m", "rocm_wheels", "index", "add", folder / "index", *sorted((packages / "dist").iterdir()))
    return env


LEFT_OUT = ("repos/apex.yaml", "repos/pytorch_audio.yaml", "repos/pytorch_vision.yaml")


@dataclass
class Night:
    """A night that ran: what of it there is to look at."""

    runner: Runner
    pythons: list[str]
    projects: list[str]
    store: Path
    result: str = ""

    def tags(self) -> list[str]:
        return [f"cp{python.replace('.', '')}-2.13-linux" for python in self.pythons]

    def failures(self) -> str:
        return "\n".join(
            f"{place}: {name}: {said[-3000:]}"
            for place, ran in self.runner.jobs.items()
            for name, outcome, said in ran.steps
            if outcome == "failure"
        )


def labels() -> set[str]:
    """The machines that there are: hosted ones, and those that build. None has a GPU."""
    return {"ubuntu-24.04", *(one.label for one in ci_table().platforms["linux"].builders)}


def two_pythons(here: dict[str, Path]) -> list[str]:
    """The running Python, and another of the night that is on this machine."""
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted = [one for one in ("3.12", "3.11", "3.13", "3.10", "3.14") if one in here]
    known = ci_table().triggers["nightly"].pythons
    return [one for one in dict.fromkeys([running, *wanted]) if one in known][:2]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night")
    env = make_world(folder / "world")
    here = pythons_here()
    pythons = two_pythons(here)
    here.setdefault("3.12", next(iter(here.values())))  # what the tool itself runs with, where it is not here
    whole = bool(os.environ.get("ROCM_WHEELS_WHOLE_NIGHT"))
    projects = ["torch", "triton", *(["torchaudio", "torchvision", "apex"] if whole else [])]
    services = Services(folder / "github", CLONE, here, left_out=() if whole else LEFT_OUT)
    runner = Runner(CLONE / ".github" / "workflows", services, labels(), env)
    made = Night(runner, pythons, projects, folder / "store")
    made.store.mkdir()
    given = {
        "lines": "2.13",
        "families": " ".join(FAMILIES),
        "pythons": " ".join(pythons),
        "platform": "linux",
        "rocm_version": ROCM,
        "rocm_index": (folder / "world" / "index").as_uri() + "/",
        "store": str(made.store),
    }
    begin = time.monotonic()
    made.result = runner.start("nightly.yml", given)
    took = time.monotonic() - begin
    cells = f"{' and '.join(FAMILIES)} × Python {' and '.join(pythons)}"
    print(f"\n{cells}: {len(runner.jobs)} jobs in {took:.0f} s")
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def said(night: Night, job: str, step: str) -> str:
    return night.runner.jobs[f"nightly.yml/line[0]/{job}"].said(step)


def test_jobs_run_as_the_workflow_says(night: Night) -> None:
    """One lock and one checkout; what has no device code once a Python; a cell that goes first."""
    cells = len(FAMILIES) * len(night.pythons)
    results = {place.removeprefix("nightly.yml/"): ran.result for place, ran in night.runner.jobs.items()}
    wanted = {
        "plan": "success",
        "line[0]/build/lock": "success",
        "line[0]/build/sources[0]": "success",
        **{f"line[0]/build/shared[{number}]": "success" for number in range(len(night.pythons))},
        "line[0]/build/first[0]": "success",
        **{f"line[0]/build/others[{number}]": "success" for number in range(cells - 1)},
        "line[0]/build": "success",
    }
    assert {name: results.get(name) for name in wanted} == wanted, night.failures()
    assert [name for name in results if "/build/" in name and name not in wanted] == []
    of_cells = {f"wheels-{family}-{tag}" for family in FAMILIES for tag in night.tags()}
    shared = {f"shared-{tag}" for tag in night.tags()}
    once = {"lock-2.13-linux", "sources-2.13-linux"}
    assert set(night.runner.services.artifacts) == of_cells | shared | once
    # the first cell found no cache and saved one; all others found it
    asked = [one for one in night.runner.services.asked if one.startswith("cache")]
    assert len([one for one in asked if "cache: ccache-2.13-linux-4711-1 for" in one]) == cells - 1
    assert not [one for one in asked if "not saved" in one]


def test_every_wheel_is_of_the_one_lock(night: Night) -> None:
    lock = json.loads((night.runner.services.artifacts["lock-2.13-linux"] / "sources.lock.json").read_text())
    assert lock["rocm"] == ROCM and lock["pythons"] == sorted(night.pythons)
    for family in FAMILIES:
        (document,) = (night.store / "v2-staging" / family / "sets").glob("*/set.json")
        staged = json.loads(document.read_text())
        assert len(staged["files"]) == len(night.projects) * len(night.pythons)
        code = {target for file in staged["files"] for target in file.get("targets", ())}
        assert code == set(gfx_families()[family])


def test_a_set_that_nobody_tested_on_a_gpu_is_blocked(night: Night) -> None:
    """Machines with GPUs are not here: their jobs fail, as after a day; the gate says what is missing."""
    jobs = night.runner.jobs
    assert jobs["nightly.yml/line[0]/family[0]/stage"].result == "success", night.failures()
    for number in range(len(night.pythons)):
        assert jobs[f"nightly.yml/line[0]/family[0]/test[{number}]"].result == "failure"
    assert "no machine has the label linux-gfx942" in said(night, "family[0]/test[0]", "runner")
    gate = said(night, "family[0]/gate", "gate")
    assert "exit code 15" in gate and "1 of 5 rules hold it" in gate
    assert "FAIL      smoke on gfx942  no evidence that the smoke tests pass" in gate
    assert jobs["nightly.yml/line[0]/family[0]/promote"].result == "skipped"
    assert not list((night.store / "v2").glob(f"{FAMILIES[0]}/**/*.whl"))


def test_a_family_that_is_a_named_exception_is_shown_as_untested(night: Night) -> None:
    jobs = night.runner.jobs
    assert jobs["nightly.yml/line[0]/family[1]/gate"].result == "success", night.failures()
    assert jobs["nightly.yml/line[0]/family[1]/promote"].result == "success", night.failures()
    assert "untested" in said(night, "family[1]/gate", "gate")
    assert list((night.store / "v2").glob(f"{FAMILIES[1]}/**/torch-*.whl"))
    assert night.result == "failure"  # tests without a machine, and a gate that blocks
