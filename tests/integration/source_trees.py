"""Small upstream repositories with a submodule in a submodule, and a hipify that rewrites everything.

Dates and names are fixed, submodule URLs are relative: commits have the same ids wherever
they are made.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ODD = 'odd "näme"\nwith a line.cu'

HIPIFY = """\
import os, sys
from pathlib import Path
root = Path(__file__).resolve().parents[2]
if (root / "fail-hipify").exists():
    sys.exit("hipify: boom")
for folder, folders, files in os.walk(root):
    folders[:] = sorted(f for f in folders if f not in (".git", "build", "hip", "ignored_hip"))
    for name in sorted(files):
        if name.endswith(".cu"):
            source = Path(folder, name)
            text = source.read_text().replace("cuda", "hip")
            for target in (Path(folder, "hip"), root / "ignored_hip"):
                target.mkdir(exist_ok=True)
                (target / (name[:-3] + ".hip")).write_text(text)
        elif name == "CMakeLists.txt":
            source = Path(folder, name)
            source.write_text(source.read_text().replace("cuda", "hip"))
print("hipified")
"""


def isolated_environment(home: Path) -> dict[str, str]:
    """Return an environment with a HOME of its own and nobody's git configuration."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def enter(patch: pytest.MonkeyPatch, folder: Path, env: Mapping[str, str]) -> None:
    """Have this process be in a folder, and in an environment: for commands that are run in it."""
    patch.chdir(folder)
    for name in os.environ.keys() - env.keys():
        patch.delenv(name)
    for name, value in env.items():
        patch.setenv(name, value)


@dataclass(frozen=True)
class Upstream:
    """The three repositories; ``url`` is the outermost's."""

    folder: Path
    env: dict[str, str]

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def git(self, where: str | Path, *arguments: str, **variables: str) -> str:
        """Run git with a fixed person and date; return what it printed."""
        person = {
            "GIT_AUTHOR_NAME": "Up Stream",
            "GIT_AUTHOR_EMAIL": "up@stream.example",
            "GIT_AUTHOR_DATE": "1700000000 +0530",
            "GIT_COMMITTER_NAME": "Up Stream",
            "GIT_COMMITTER_EMAIL": "up@stream.example",
            "GIT_COMMITTER_DATE": "1700000100 -0330",
        }
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=self.folder / where,
            env={**self.env, **person, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout.strip()

    def commit(self, where: str, message: str) -> str:
        """Commit everything; return the commit."""
        self.git(where, "add", "-A")
        self.git(where, "commit", "-q", "-m", message)
        return self.git(where, "rev-parse", "HEAD")


def make_upstream(folder: Path, env: dict[str, str]) -> Upstream:
    """Make ``inner`` in ``middle`` in ``root``: branches main and feature, tags v1 (annotated), pull 7."""
    up = Upstream(folder, env)
    folder.mkdir(parents=True)
    for name in ("inner", "middle", "root"):
        up.git("", "init", "-q", "-b", "main", name)
    _write(folder / "inner", {"deep.cu": "cuda deep\n", "same.txt": "same\n"})
    up.commit("inner", "inner 1")
    _write(folder / "middle", {"mid.cu": "cuda mid\n", "CMakeLists.txt": "use cuda\n"})
    up.git("middle", "submodule", "--quiet", "add", "../inner", "deep dir")
    up.commit("middle", "middle 1")
    _write(
        folder / "root",
        {
            "a.cu": "cuda a\n",
            "b.cu": "cuda b\n",
            ODD: "cuda odd\n",
            "CMakeLists.txt": "find cuda\n",
            "plain.txt": "plain\n",
            "version.txt": "1.0\n",
            ".gitignore": "*.o\n/build/\n/ignored_hip/\n",
            "tools/amd_build/build_amd.py": HIPIFY,
        },
    )
    up.git("root", "submodule", "--quiet", "add", "../middle", "third_party/middle")
    up.commit("root", "root 1")
    up.git("root", "tag", "-a", "v1", "-m", "one")
    up.git("root", "checkout", "-q", "-b", "feature")
    _write(folder / "inner", {"deep.cu": "cuda deeper\n"})
    inner = up.commit("inner", "inner 2")
    up.git("middle/deep dir", "fetch", "-q")
    up.git("middle/deep dir", "checkout", "-q", inner)
    middle = up.commit("middle", "middle 2")
    up.git("root/third_party/middle", "fetch", "-q")
    up.git("root/third_party/middle", "checkout", "-q", middle)
    (folder / "root/b.cu").unlink()
    _write(folder / "root", {"a.cu": "cuda a2\n", "c.cu": "cuda c\n"})
    up.commit("root", "root 2")
    _write(folder / "root", {"a.cu": "cuda a3\n"})
    pull = up.commit("root", "root 3, of a pull request")
    up.git("root", "update-ref", "refs/pull/7/head", pull)
    up.git("root", "reset", "-q", "--hard", "HEAD^")
    up.git("root", "checkout", "-q", "main")
    return up


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but for git's own."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


def times(folder: Path) -> dict[str, int]:
    """Return the time of every file below a folder but for git's own."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
