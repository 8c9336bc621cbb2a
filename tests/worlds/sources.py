"""Git repositories of projects as upstream has them, and trees of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, run_program
from warm_python import warm_python

from rocm_wheels.models.project import load_project
from rocm_wheels.sources import network, pins, tree_status
from rocm_wheels.sources.checkout import CheckoutRequest, CheckoutResult, checkout_project
from rocm_wheels.sources.hipify import HipifyResult, hipify_changes, hipify_checkout
from rocm_wheels.sources.patches import SavedPatches, read_patch_set, save_patches

# ---- One world of sources for all tests: small repositories of the five projects, and checkouts of them.
#
# ``HISTORY`` says what is in the repositories. They are made once a session; who changes them takes a copy.
# Dates and names are fixed and submodule URLs relative: commits have the same ids wherever they are made.


CLONE = Path(__file__).resolve().parents[2]
COMPANIONS = ("apex", "pytorch_audio", "pytorch_vision", "triton")
ALL = ("apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton")
MIDDLE, DEEP = "third_party/middle", "third_party/middle/deep dir"
TRITON_PIN = ".ci/docker/ci_commit_pins/triton.txt"
GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
ODD = 'odd "näme"\nwith a line.cu'

# Rewrites everything, as torch's script does, also into a folder that git ignores
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


@dataclass(frozen=True)
class Commit:
    """A commit on a ref, on top of what is there, or of another ref (``start``).

    ``files`` are its changes (None removes), ``modules`` the submodules by path: repository and revision.
    """

    message: str
    files: Mapping[str, str | None]
    ref: str = "refs/heads/main"
    start: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)


def _companion(name: str, file: str, *texts: str) -> list[Commit]:
    return [Commit(f"{name} {number}", {file: text}) for number, text in enumerate(texts, start=1)]


# Repository → its commits. `root` is torch, `middle` its submodule, `inner` a submodule of that.
_FEATURE, _PULL = "refs/heads/feature", "refs/pull/7/head"
HISTORY: dict[str, list[Commit]] = {
    "inner": [
        Commit("inner 1", {"deep.cu": "cuda deep\n", "same.txt": "same\n"}),
        Commit("inner 2", {"deep.cu": "cuda deeper\n"}),
    ],
    "middle": [
        Commit(
            "middle 1",
            {
                "mid.cu": "cuda mid\n",
                "CMakeLists.txt": "use cuda\n",
                ".gitmodules": '[submodule "deep dir"]\n\tpath = deep dir\n\turl = ../inner\n',
            },
            modules={"deep dir": "inner:main~1"},
        ),
        Commit("middle 2", {}, modules={"deep dir": "inner:main"}),
    ],
    "audio": _companion("audio", "version.txt", "2.9.0\n", "2.9.1\n"),
    "vision": _companion("vision", "version.txt", "0.24.0\n", "0.24.1\n"),
    "apex": _companion("apex", "version.txt", "1.9.0\n", "1.10.0\n"),
    "triton": _companion(
        "triton", "python/triton/__init__.py", "__version__ = '3.4.0'\n", "__version__ = '3.5.0'\n"
    ),
    "root": [
        Commit(
            "root 1",
            {
                "a.cu": "cuda a\n",
                "b.cu": "cuda b\n",
                ODD: "cuda odd\n",
                "CMakeLists.txt": "find cuda\n",
                "plain.txt": "plain\n",
                "version.txt": "1.0\n",
                ".gitignore": "*.o\n/build/\n/ignored_hip/\n",
                "tools/amd_build/build_amd.py": HIPIFY,
                ".gitmodules": f'[submodule "{MIDDLE}"]\n\tpath = {MIDDLE}\n\turl = ../middle\n',
            },
            modules={MIDDLE: "middle:main~1"},
        ),
        Commit(
            "root 2", {"b.cu": None, "a.cu": "cuda a2\n", "c.cu": "cuda c\n"},
            ref=_FEATURE, start="refs/heads/main", modules={MIDDLE: "middle:main"},
        ),
        Commit("root 3, of a pull request", {"a.cu": "cuda a3\n"}, ref=_PULL, start=_FEATURE),
        Commit(
            "root with pins",
            {
                "related_commits": "ubuntu|pytorch|apex|release/x|{apex:main~1}|https://github.com/ROCm/apex\n"
                "ubuntu|pytorch|torchaudio|release/x|{audio:main~1}|https://github.com/pytorch/audio\n"
                "ubuntu|pytorch|torchvision|release/x|{vision:main~1}|https://github.com/pytorch/vision\n",
                TRITON_PIN: "{triton:main~1}\n",
            },
            ref="refs/heads/nightly", start="refs/heads/main",
        ),
    ],
}  # fmt: skip
_AUTHOR = "author Up Stream <up@stream.example> 1700000000 +0530\n"
_COMMITTER = "committer Up Stream <up@stream.example> 1700000100 -0330\n"


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
    """The repositories below ``folder``, and the environment of who uses them; ``url`` is torch's."""

    folder: Path
    env: dict[str, str] = field(repr=False)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def copy(self, folder: Path, *, github: bool = False) -> Upstream:
        """Return a copy with a HOME of its own, below a folder.

        With ``github``, URLs of github.com/pytorch and /ROCm lead here, by the user's git configuration.
        """
        repositories = Path(shutil.copytree(self.folder, folder / "repositories", symlinks=True))
        upstream = Upstream(repositories, isolated_environment(folder / "home"))
        if github:
            config = '[protocol "file"]\n\tallow = always\n'
            for owner in ("pytorch", "ROCm"):
                config += f'[url "{repositories.as_uri()}/"]\n\tinsteadOf = https://github.com/{owner}/\n'
            (folder / "home/.gitconfig").write_text(config)
        return upstream

    def git(self, where: str | Path, *arguments: str, **variables: str) -> str:
        """Run git with a fixed person and date; return what it printed."""
        return self._git(where, *arguments, **variables).strip()

    def _git(self, where: str | Path, *arguments: str, told: str = "", **variables: str) -> str:
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
            input=told,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def commit(self, where: str, message: str) -> str:
        """Commit everything; return the commit."""
        self.git(where, "add", "-A")
        self.git(where, "commit", "-q", "-m", message)
        return self.git(where, "rev-parse", "HEAD")

    def append(self, name: str, message: str) -> str:
        """Make a commit that changes a file of no interest; return it."""
        with (self.folder / name / "log.txt").open("a") as file:
            file.write(f"{message}\n")
        return self.commit(name, message)

    def make(self, name: str, history: list[Commit], known: dict[str, str]) -> None:
        """Make a repository; ``known`` are commits by ``repository:revision``, to which its own are added."""
        self.git("", "init", "-q", "-b", "main", "--template=", name)
        self._git(name, "fast-import", "--quiet", told="".join(_describe(one, known) for one in history))
        self.git(name, "reset", "-q", "--hard")
        log = self.git(name, "rev-list", "main").split()
        known |= {f"{name}:main{f'~{age}' if age else ''}": commit for age, commit in enumerate(log)}

    # -- programs, as a user starts them

    def start(self, folder: Path, *words: str | Path, **env: str) -> Ended:
        """Run Python in a folder; no traceback may come of it."""
        return run_program([*warm_python(), *words], cwd=folder, env={**self.env, **env})

    def checkout(self, folder: Path, *words: str | Path, **env: str) -> Ended:
        """Run `rocm-wheels checkout`."""
        return self.start(folder, "-m", "rocm_wheels", "checkout", *words, **env)

    def script(self, folder: Path, name: str, *words: str | Path, **env: str) -> Ended:
        """Run one of the scripts in repos/, with nothing but the script's own place to find the package."""
        return self.start(folder, CLONE / "repos" / name, *words, PYTHONPATH="", **env)

    def first_commits(self) -> dict[str, Any]:
        """Return a lock of all five at their first commits, torch with its submodules."""
        places = {"apex": "ROCm/apex", "triton": "ROCm/triton.git", "pytorch": "pytorch/pytorch.git"}
        places |= {"pytorch_audio": "pytorch/audio", "pytorch_vision": "pytorch/vision"}
        projects: dict[str, Any] = {}
        for name, place in places.items():
            revision = "main" if name == "pytorch" else "main~1"
            commit, tree = self.git(
                place.split("/")[1], "rev-parse", revision, f"{revision}^{{tree}}"
            ).split()
            projects[name] = {
                "origin": f"https://github.com/{place}",
                "ref": "v1" if name == "pytorch" else "main",
                "why": "options",
                "commit": commit,
                "tree": tree,
                "submodules": {},
            }
        middle, inner = (self.git(name, "rev-parse", "main~1") for name in ("middle", "inner"))
        projects["pytorch"]["submodules"] = {
            MIDDLE: {"origin": "https://github.com/pytorch/middle", "commit": middle},
            DEEP: {"origin": "https://github.com/pytorch/inner", "commit": inner},
        }
        return {"lock_version": "1", "platform": "linux", "projects": projects}


def _describe(commit: Commit, known: Mapping[str, str]) -> str:
    """Return a commit in the language of git's fast-import."""
    start = f"from {commit.start}\n" if commit.start else ""
    message = f"data {len(commit.message.encode()) + 1}\n{commit.message}\n"
    said = f"commit {commit.ref}\n{_AUTHOR}{_COMMITTER}{message}{start}"
    for name, text in commit.files.items():
        path = '"' + name.replace('"', '\\"').replace("\n", "\\n") + '"'
        if text is None:
            said += f"D {path}\n"
            continue
        pinned = re.sub(r"\{(\w+:[\w~]+)\}", lambda match: known[match[1]], text)
        said += f"M 644 inline {path}\ndata {len(pinned.encode())}\n{pinned}\n"
    for path, place in commit.modules.items():
        said += f'M 160000 {known[place]} "{path}"\n'
    return said


def make_upstream(folder: Path) -> Upstream:
    """Make all repositories: torch has the branches main, feature and nightly, tag v1, and a pull request."""
    up = Upstream(folder / "repositories", isolated_environment(folder / "home"))
    up.folder.mkdir(parents=True)
    known: dict[str, str] = {}
    for name, history in HISTORY.items():
        up.make(name, history, known)
    up.git("root", "tag", "-a", "v1", "-m", "one", "main")
    up.git("apex", "branch", "master", "main")
    for name in ("pytorch", "audio", "vision", "apex", "triton"):
        (up.folder / f"{name}.git").symlink_to(name.replace("pytorch", "root"))
    return up


@dataclass
class Tree:
    """One checkout of torch, through the functions that the commands call.

    ``origin`` is a server, if it is not the upstream's folder; ``patch_set`` may be that of several trees.
    ``template`` is a hipified checkout of main: a first checkout that is to be the same begins as its copy.
    """

    upstream: Upstream
    directory: Path
    patch_set: Path | None = None
    origin: str = ""
    transport: network.Transport = field(default_factory=network.Transport)
    hipifies: bool = True
    env: dict[str, str] = field(default_factory=dict, repr=False)
    template: Path | None = None

    def __post_init__(self) -> None:
        self.env = self.env or self.upstream.env

    def request(
        self, ref: str = "main", *, patch: bool = True, project: str = "pytorch", **options: object
    ) -> CheckoutRequest:
        """Return what a checkout is asked for; every option of a request can be given."""
        request = CheckoutRequest(
            load_project(project),
            self.directory,
            pins.Pin(self.origin or self.upstream.url, ref, "test"),
            hipify=self.hipifies,
            local_origin=not self.origin,
            transport=self.transport,
            patches=read_patch_set(self.patch_set) if patch and self.patch_set else None,
        )
        return replace(request, **options)  # type: ignore[arg-type]

    def checkout(self, ref: str = "main", **options: Any) -> CheckoutResult:
        alike = ref == "main" and options.keys() <= {"patch"}
        if self.template and alike and not self.directory.exists():
            shutil.copytree(self.template, self.directory, symlinks=True)
        return checkout_project(self.request(ref, **options), env=self.env, python=Path(sys.executable))

    def hipify(self, project: str = "pytorch", *, commit: bool = True) -> HipifyResult:
        return hipify_checkout(
            load_project(project), self.directory, commit=commit, env=self.env, python=Path(sys.executable)
        )

    def translate(self) -> set[str]:
        """Hipify what changed, as a build does before it begins; return the files that were written."""
        python = Path(sys.executable)
        return set(hipify_changes(load_project("pytorch"), self.directory, env=self.env, python=python))

    def save(self) -> SavedPatches:
        """Save the tree's commits to the patch set."""
        assert self.patch_set is not None
        return save_patches(load_project("pytorch"), self.directory, self.patch_set, env=self.env)

    def status(self) -> tree_status.TreeStatus:
        return tree_status.read_tree_status(load_project("pytorch"), self.directory, env=self.env)

    def git(self, *arguments: str, where: str = "", **variables: str) -> str:
        """Run git in the tree, or in a submodule."""
        return self.upstream.git(self.directory / where, *arguments, **variables)

    def commit(self, message: str, files: Mapping[str, str | bytes], where: str = "") -> str:
        """Write files and commit them, as a developer does."""
        write_files(self.directory / where, files)
        self.git("add", "-A", where=where)
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", message, where=where)
        return self.git("rev-parse", "HEAD", where=where)

    def patches(self) -> dict[str, bytes]:
        """Return the files of the patch set."""
        return content(self.patch_set) if self.patch_set else {}

    def is_clean(self) -> bool:
        return not self.git("status", "--porcelain", "--ignore-submodules=none", "-uall")

    def is_sound(self) -> bool:
        """Tell whether nothing is missing or changed, in the root and in every submodule."""
        check = "git fsck --connectivity-only --no-dangling && git status --porcelain"
        everywhere = ["git", "submodule", "--quiet", "foreach", "--recursive", check]
        for command in (["sh", "-c", check], everywhere):
            done = subprocess.run(
                command, cwd=self.directory, env=self.upstream.env, capture_output=True, check=False
            )
            if done.returncode or done.stdout:
                return False
        return True

    def packs(self, where: str = "") -> dict[str, int]:
        """Return the packs of a repository (``modules/<name>`` or the root's) and their inodes."""
        folder = self.directory / ".git" / where / "objects/pack"
        return {path.name: path.stat().st_ino for path in folder.glob("pack-*.pack")}

    def list_new_times(self, before: Mapping[str, int]) -> set[str]:
        """Return the files whose time is not what it was."""
        return {path for path, time in times(self.directory).items() if time != before.get(path)}

    def everything(self) -> tuple[object, ...]:
        """Return files, HEAD (and its branch), refs and state of the tree, submodules included."""
        facts: list[object] = [content(self.directory)]
        for module in ("", MIDDLE, DEEP):
            if (self.directory / module / ".git").exists():
                for words in (
                    ("rev-parse", "--symbolic-full-name", "HEAD"),
                    ("rev-parse", "HEAD"),
                    ("for-each-ref", "refs/tags", "refs/heads"),
                    ("status", "--porcelain", "-uall", "--ignore-submodules=none"),
                ):
                    facts.append(self.git(*words, where=module))
        state = self.directory / ".git/rocm-wheels/state.json"
        return (*facts, state.read_text() if state.exists() else None)


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def commit_files(folder: Path, files: Mapping[str, str | bytes], message: str) -> None:
    """Make a repository of these files alone, whatever a ``.gitignore`` among them says."""
    write_files(folder, files)
    dates = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    for command in (["init", "-q"], ["add", "-f", "."], ["commit", "-q", "-m", message]):
        subprocess.run([*GIT, *command], cwd=folder, env={**os.environ, **dates}, check=True)


def write_lock(path: Path, lock: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(lock, indent=1))
    return path


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but for git's own."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _list_files(folder)}


def times(folder: Path) -> dict[str, int]:
    """Return the time of every file below a folder but for git's own."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in _list_files(folder)}


def _list_files(folder: Path) -> list[Path]:
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".git" not in path.relative_to(folder).parts:
            files.append(path)
    return files
