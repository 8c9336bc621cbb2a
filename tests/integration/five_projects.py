"""Upstream of all five projects over ``file://``, and ``rocm-wheels`` started as a user of it does."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from source_trees import Upstream, isolated_environment, make_upstream
from warm_python import warm_python

CLONE = Path(__file__).resolve().parents[2]
COMPANIONS = ("apex", "pytorch_audio", "pytorch_vision", "triton")
ALL = ("apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class World:
    """Upstream of five projects; ``base`` is where https://github.com/… leads to."""

    upstream: Upstream
    env: dict[str, str]

    @property
    def base(self) -> Path:
        return self.upstream.folder

    def run(self, folder: Path, *words: str | Path, **env: str) -> Said:
        """Run `rocm-wheels checkout`."""
        return self.start(folder, "-m", "rocm_wheels", "checkout", *words, **env)

    def door(self, folder: Path, door: str, *words: str | Path) -> Said:
        """Run a door's `checkout`."""
        return self.start(folder, CLONE / "repos" / door, "checkout", *words)

    def start(self, folder: Path, *words: str | Path, **env: str) -> Said:
        """Run Python in a folder; no traceback may come of it."""
        argv = [*warm_python(), *map(str, words)]
        done = subprocess.run(
            argv,
            cwd=folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def head(self, tree: Path, name: str = "HEAD") -> str:
        return self.upstream.git(tree, "rev-parse", name)


def make_world(folder: Path) -> World:
    env = isolated_environment(folder / "home")
    env["PYTHONPATH"] = str(CLONE / "build_tools")
    upstream = make_upstream(folder / "upstream", env)
    base, git = upstream.folder, upstream.git
    config = '[protocol "file"]\n\tallow = always\n'
    for owner in ("pytorch", "ROCm"):
        config += f'[url "{base.as_uri()}/"]\n\tinsteadOf = https://github.com/{owner}/\n'
    (folder / "home/.gitconfig").write_text(config)
    pins = {}
    for name in ("audio", "vision", "apex", "triton"):
        git("", "init", "-q", "-b", "master", name)
        (base / name / "version.txt").write_text(f"{name} 1.0\n")
        pins[name] = upstream.commit(name, f"{name} 1")
        (base / name / "version.txt").write_text(f"{name} 2.0\n")
        upstream.commit(name, f"{name} 2")
        git("", "config", "-f", f"{name}/.git/config", "uploadpack.allowAnySHA1InWant", "true")
    git("root", "checkout", "-q", "-b", "nightly")
    rows = {"apex": "ROCm/apex", "torchaudio": "pytorch/audio", "torchvision": "pytorch/vision"}
    text = "".join(
        f"ubuntu|pytorch|{name}|release/x|{pins[place.split('/')[1]]}|https://github.com/{place}\n"
        for name, place in rows.items()
    )
    (base / "root/related_commits").write_text(text)
    pin = base / "root/.ci/docker/ci_commit_pins/triton.txt"
    pin.parent.mkdir(parents=True)
    pin.write_text(f"{pins['triton']}\n")
    upstream.commit("root", "root with pins")
    for name, place in {"pytorch": "root", "triton": "triton"}.items():
        (base / f"{name}.git").symlink_to(place)
    return World(upstream, env)


def first_commits(world: World) -> dict[str, Any]:
    """A lock of all five at their first commits, torch with its submodules."""
    git, base = world.upstream.git, world.base
    places = {"apex": "ROCm/apex", "triton": "ROCm/triton.git", "pytorch": "pytorch/pytorch.git"}
    places |= {"pytorch_audio": "pytorch/audio", "pytorch_vision": "pytorch/vision"}
    projects: dict[str, Any] = {}
    for name, place in places.items():
        folder = base / place.split("/")[1]
        commit = git(folder, "rev-parse", "main" if name == "pytorch" else "master^")
        projects[name] = {
            "origin": f"https://github.com/{place}",
            "ref": "v1" if name == "pytorch" else "master",
            "why": "options",
            "commit": commit,
            "tree": git(folder, "rev-parse", f"{commit}^{{tree}}"),
            "submodules": {},
        }
    middle = git("root", "rev-parse", "main:third_party/middle")
    inner = git("middle", "rev-parse", f"{middle}:deep dir")
    projects["pytorch"]["submodules"] = {
        "third_party/middle": {"origin": "https://github.com/pytorch/middle", "commit": middle},
        "third_party/middle/deep dir": {"origin": "https://github.com/pytorch/inner", "commit": inner},
    }
    return {"lock_version": "1", "platform": "linux", "projects": projects}


def write_lock(path: Path, lock: dict[str, Any]) -> Path:
    path.write_text(json.dumps(lock, indent=1))
    return path
