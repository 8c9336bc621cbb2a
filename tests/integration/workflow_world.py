"""The miniature as a machine of GitHub sees it, and runs of our workflows on it: one whole night, and others.

What is built is the night's alone: other runs take over what it left behind (``Runner.served``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uv
from imitated_gpus import imitate_gpu
from workflow_actions import ACTIONS, At, Services, pythons_here, workspace_of
from workflow_runner import Ran, Runner

from rocm_wheels.demo import miniature
from rocm_wheels.models import ci, gfx

CLONE = Path(__file__).resolve().parents[2]
MINIATURE = CLONE / "tests" / "miniature"
FAMILIES = ("gfx94X-dcgpu", "gfx1151")  # one target each: what compiles is most of the work
ROCM = "7.1.0+miniature"
# the branches of the line that the lock asks for; what else there is, torch's own files name
BRANCHES = {"pytorch": "release/2.13", "triton": "release/internal/3.8.x"}
ON_THE_MACHINE = {"ROCM_WHEELS_BUILD_IMAGE": "none"}  # as a repository says that it builds in no image
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
    made = miniature.make_repositories(
        MINIATURE, folder / "upstream", hipify=miniature.fetch_hipify(real, env=env), env=env
    )
    for name, branch in BRANCHES.items():
        git("-C", folder / "upstream" / f"{name}.git", "branch", branch, made[name].branch)
    lines = ['[protocol "file"]\n\tallow = always\n']
    for name, place in ELSEWHERE.items():
        lines.append(f'[url "{made[name].url}"]\n\tinsteadOf = https://github.com/{place}.git\n')
    (folder / "gitconfig").write_text("".join(lines))
    miniature.make_artifacts(
        MINIATURE / "rocm", folder / "artifacts", version=ROCM,
        targets=[one for name in FAMILIES for one in gfx.get_gfx_families()[name]], env=env,
    )  # fmt: skip
    packages = folder / "packages"
    made_of = ("--artifact-dir", folder / "artifacts", "--output-dir", packages)
    ours(CLONE / "build_tools" / "build_python_packages.py", *made_of)
    ours("-m", "rocm_wheels", "index", "build", folder / "index", *sorted((packages / "dist").iterdir()))
    return env


LEFT_OUT = ("repos/apex.yaml", "repos/pytorch_vision.yaml")


@dataclass
class Night:
    """A night that ran: what of it there is to look at, and what other runs go on with."""

    runner: Runner
    pythons: list[str]
    projects: list[str]
    store: Path
    given: dict[str, Any]
    others: list[Runner] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.store.parent

    def ran(self, job: str) -> Ran:
        return self.runner.jobs[f"nightly.yml/line[0]/{job}"]

    def run(
        self,
        name: str,
        given: Mapping[str, Any] | None = None,
        *,
        event: str = "workflow_dispatch",
        about: Mapping[str, Any] | None = None,
        history: Path | None = None,
        served: Mapping[str, Ran] | None = None,
        after: Runner | None = None,
        artifacts: Sequence[str] = ("",),
        only: str = "",
        machines: Collection[str] = (),
        env: Mapping[str, str] | None = None,
        attests: bool = False,
        store: str | None = None,
        imitated: Collection[str] = (),
    ) -> Runner:
        """Run another workflow on the hosted machines of the night, ``only`` with the Python that it names.

        Other ``machines`` build, or take jobs that want a GPU and have none. Jobs that are ``served`` did
        what they did before, and this one goes on with the artifacts of the run that it comes ``after``.
        The repository ``attests`` its results. Machines with GPUs are ``imitated``, by label.
        """
        mine = self.runner.services
        here = {python: path for python, path in mine.pythons.items() if only in {"", python}}
        run = f"run-{len(self.others)}"
        services = Services(mine.folder, CLONE, here, mine.left_out, history, run, mine.warm)
        services.caches.update(mine.caches)
        kept = after.services.artifacts if after else {}
        services.artifacts |= {name: kept[name] for name in kept if name.startswith(tuple(artifacts))}
        said = {"STORE": self.store if store is None else store, "EVIDENCE_SIGNED": "true" if attests else ""}
        variables = {f"ROCM_WHEELS_{name}": str(value) for name, value in said.items()} | ON_THE_MACHINE
        runner = Runner(
            self.runner.folder,
            services,
            {"ubuntu-24.04", *machines},
            {**self.runner.env, **(env or {})},
            variables,
            event=event,
            about=about or {},
            served=served or {},
            imitated=dict.fromkeys(imitated, imitate_gpu),
        )
        self.others.append(runner)
        runner.start(name, given or {})
        return runner

    def set_up_tests(self, python: str) -> None:
        """Have the machine of a Python as a job before left it: with the environment of the tests.

        It is made by uv, from what its cache has; the job itself would have pip download all of it.
        """
        mine = self.runner.services
        at = At(mine, workspace_of(mine, python), [], {})
        ACTIONS["actions/checkout"](at, {"persist-credentials": False})
        words = [mine.pythons[python], at.workspace / "build_tools" / "quickstart.py", "setup", "--tests"]
        subprocess.run(words, env=self.runner.env, check=True, capture_output=True)

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
    return {"ubuntu-24.04", *(one.label for one in ci.load_ci_table().platforms["linux"].builders)}


def list_testers(family: str) -> list[str]:
    """The labels of the machines with GPUs of a family."""
    on = ci.load_ci_table().families[family].get_platform("linux")
    assert on is not None
    return [runner.label for runner in (*on.runners, *on.several_gpus)]


def two_pythons(here: dict[str, Path]) -> list[str]:
    """The running Python, and another of the night that is on this machine."""
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted = [one for one in ("3.12", "3.11", "3.13", "3.10", "3.14") if one in here]
    known = ci.load_ci_table().triggers["nightly"].pythons
    return [one for one in dict.fromkeys([running, *wanted]) if one in known][:2]


def run_night(folder: Path, *, whole: bool) -> Night:
    """Run the nightly workflow of two families and one Python; a ``whole`` one of two, and all projects."""
    env = make_world(folder / "world")
    here = pythons_here()
    pythons = two_pythons(here)[: 2 if whole else 1]
    here.setdefault("3.12", next(iter(here.values())))  # what the tool itself runs with, where it is not here
    projects = ["torch", "triton", "torchaudio", *(["torchvision", "apex"] if whole else [])]
    left_out = () if whole else LEFT_OUT
    services = Services(folder / "github", CLONE, here, left_out, warm=not whole)
    store = folder / "store"
    store.mkdir()
    given: dict[str, Any] = {
        "lines": "2.13",
        "families": " ".join(FAMILIES),
        "pythons": " ".join(pythons),
        "platform": "linux",
        "rocm_version": ROCM,
        "rocm_index": (folder / "world" / "index").as_uri() + "/",
        "store": str(store),
        "suites": "default",
        "promote": True,
    }
    # machines of the first family are gone; what those of the second do, is imitated
    alive = dict.fromkeys(list_testers(FAMILIES[1]), imitate_gpu)
    runner = Runner(CLONE / ".github" / "workflows", services, labels(), env, ON_THE_MACHINE, imitated=alive)
    made = Night(runner, pythons, projects, store, given)
    runner.start("nightly.yml", given)
    return made


class History:
    """A repository with our files as they are, and commits that change some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        git("init", "-q", "--bare", "-b", "main", folder)
        git("-C", folder, "config", "pack.window", "0")  # what is small takes longer
        words = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
        listed = subprocess.run(words, cwd=CLONE, capture_output=True, check=True).stdout.split(b"\0")
        there = b"\0".join(name for name in listed if name and (CLONE / os.fsdecode(name)).is_file())
        self._git("--work-tree", CLONE, "update-index", "--add", "-z", "--stdin", given=there)
        self.base = self._git("commit-tree", self._git("write-tree"), "-m", "ours")

    def commit(self, files: Mapping[str, str], *parents: str) -> str:
        """Make a commit on others, with the files of the first of them and these; it becomes the newest."""
        self._git("read-tree", parents[0])
        for name, text in files.items():
            blob = self._git("hash-object", "-w", "--stdin", given=text.encode())
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
        above = [word for one in parents for word in ("-p", one)]
        made = self._git("commit-tree", self._git("write-tree"), *above, "-m", "a change")
        self._git("update-ref", "refs/heads/main", made)
        return made

    def pull_request(self, files: Mapping[str, str]) -> None:
        """Have as newest what GitHub builds: the change, merged into a base that has gone on meanwhile."""
        head = self.commit(files, self.base)
        moved = self.commit({"build_tools/rocm_wheels/of_others.py": ""}, self.base)
        self.commit(files, moved, head)

    def _git(self, *words: str | Path, given: bytes = b"") -> str:
        who = {
            f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        argv = ["git", "--git-dir", str(self.folder), "-c", "core.compression=0", *map(str, words)]
        env = {**os.environ, **who}
        return (
            subprocess.run(argv, input=given, env=env, capture_output=True, check=True)
            .stdout.decode()
            .strip()
        )
