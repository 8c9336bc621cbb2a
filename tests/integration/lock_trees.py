"""A torch, an audio and a triton upstream: torch has nested submodules and pins the two others."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from source_trees import Upstream, isolated_environment, make_upstream
from warm_python import warm_python

PIN = ".ci/docker/ci_commit_pins/triton.txt"


@dataclass(frozen=True)
class Servers:
    """The upstreams (torch is called ``root``), and a folder to work in."""

    up: Upstream
    work: Path

    def run(self, *words: str | Path, code: int = 0, **variables: str) -> tuple[str, str]:
        """Run ``rocm-wheels`` in the folder; return what it printed and what it said."""
        done = subprocess.run(
            [*warm_python(), "-m", "rocm_wheels", *map(str, words)],
            cwd=self.work,
            env={**self.up.env, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def lock(self, *words: str | Path, code: int = 0, **variables: str) -> str:
        """Lock torch of branch main and what it pins; return what was said."""
        return "".join(self.run("lock", *self.torch(), *words, code=code, **variables))

    def torch(self, ref: str = "main") -> list[str]:
        """The options of a lock of three projects."""
        projects = [word for name in ("pytorch", "pytorch_audio", "triton") for word in ("--project", name)]
        return [
            *projects,
            "--pytorch-origin",
            self.up.url,
            "--pytorch-ref",
            ref,
            "--source-dir",
            str(self.work),
        ]

    def read(self, name: str = "set.lock") -> dict[str, Any]:
        """Return a lock as JSON."""
        found: dict[str, Any] = json.loads((self.work / name).read_text())
        return found

    def pin(self, branch: str = "main") -> str:
        """Have torch pin the tips of the two others; return its commit."""
        url, up = (self.up.folder / "audio").as_uri(), self.up
        audio, triton = (up.git(name, "rev-parse", "main") for name in ("audio", "triton"))
        up.git("root", "checkout", "-q", branch)
        (up.root / PIN).parent.mkdir(parents=True, exist_ok=True)
        (up.root / PIN).write_text(f"{triton}\n")
        (up.root / "related_commits").write_text(f"ubuntu|pytorch|torchaudio|main|{audio}|{url}\n")
        return up.commit("root", "pin the others")

    def change(self, name: str, message: str) -> str:
        """Make a commit; return it."""
        with (self.up.folder / name / "log.txt").open("a") as file:
            file.write(f"{message}\n")
        return self.up.commit(name, message)


def make_servers(folder: Path) -> Servers:
    """Make the three upstreams below a folder."""
    up = make_upstream(folder / "servers", isolated_environment(folder / "home"))
    for name, file, text in (
        ("audio", "version.txt", "2.9.1\n"),
        ("triton", "python/triton/__init__.py", "__version__ = '3.5.0'\n"),
    ):
        up.git("", "init", "-q", "-b", "main", name)
        (up.folder / name / file).parent.mkdir(parents=True, exist_ok=True)
        (up.folder / name / file).write_text(text)
        up.commit(name, f"{name} 1")
    work = folder / "work"
    work.mkdir()
    servers = Servers(up, work)
    # no test asks a server of the world: git is told where the recipes' repositories are
    for url, name in (("ROCm/triton", "triton"), ("pytorch/audio", "audio")):
        place = f"url.{(up.folder / name).as_uri()}.insteadOf"
        up.git("", "config", "--global", place, f"https://github.com/{url}.git")
    servers.pin()
    return servers
