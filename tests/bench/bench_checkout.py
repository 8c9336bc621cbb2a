"""Checkouts of a tree shaped like PyTorch's: plain git beside ours, in one run, all over ``file://``.

Run by hand: ``python tests/bench/bench_checkout.py [--files N] [--submodules N] [--each N] [PEER]``; PEER
is ``external-builds/pytorch`` of a ROCm/TheRock checkout. Rows run in the order shown, each new tree goes
into a folder of its own. Two submodules hold one more each. Nothing is hipified where a row does not say
so, since git does not. A ratio compares a row with the row of git that stands last above it, of the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

CLONE = Path(__file__).resolve().parents[2]
DOOR = CLONE / "repos" / "pytorch_torch_repo.py"
LINES = 60  # of a file
ROUNDS = 5  # of a command that changes nothing; the median counts
HIPIFY = """\
import os
for folder, folders, files in os.walk("."):
    folders[:] = sorted(f for f in folders if f != ".git")
    for name in sorted(files):
        if name.endswith(".cu"):
            source = os.path.join(folder, name)
            with open(source) as file:
                text = file.read()
            with open(source[:-3] + ".hip", "w") as file:
                file.write(text.replace("cuda", "hip"))
"""


COMPANIONS = {  # repository: owner, name in torch's related_commits
    "audio": ("pytorch", "torchaudio"),
    "vision": ("pytorch", "torchvision"),
    "apex": ("ROCm", "apex"),
    "triton": ("ROCm", "triton"),
}

Tips = tuple[str, str]  # the commits of main and next


@dataclass(frozen=True)
class Shape:
    """Files in the root, submodules (two of them nested in others), files in each, commits before."""

    files: int
    submodules: int
    each: int
    commits: int = 20


def make_upstream(folder: Path, shape: Shape, env: dict[str, str]) -> str:
    """Make bare repositories with the branches ``main`` and ``next`` (2 % of files, five submodules moved).

    Torch pins four small companions, found where a git that asks GitHub is led to.
    """
    names = [f"module{number:02}" for number in range(shape.submodules)]
    inner = dict(zip(names[:2], names[-2:], strict=True)) if shape.submodules >= 4 else {}
    tips: dict[str, Tips] = {}
    for name in reversed(names):
        links = {inner[name]: tips[inner[name]]} if name in inner else {}
        tips[name] = _repository(folder, name, shape.each, shape.commits, env, links=links)
    outer = {name: tips[name] for name in names if name not in inner.values()}
    links = {
        name: tip if number < 5 else (tip[0], tip[0]) for number, (name, tip) in enumerate(outer.items())
    }
    pins = {name: _repository(folder, f"{name}.git", 500, 2, env)[0] for name in COMPANIONS}
    rows = [
        f"ubuntu|pytorch|{row}|main|{pins[name]}|https://github.com/{owner}/{name}.git"
        for name, (owner, row) in COMPANIONS.items()
    ]
    more = {
        "related_commits": "".join(f"{row}\n" for row in rows if "/triton" not in row),
        ".ci/docker/ci_commit_pins/triton.txt": f"{pins['triton']}\n",
        "tools/amd_build/build_amd.py": HIPIFY,
    }
    _repository(folder, "pytorch.git", shape.files, shape.commits, env, links=links, more=more)
    lines = '[protocol "file"]\n\tallow = always\n'
    for owner in ("pytorch", "ROCm"):
        lines += f'[url "{folder.as_uri()}/"]\n\tinsteadOf = https://github.com/{owner}/\n'
    Path(env["HOME"], ".gitconfig").write_text(lines)
    return (folder / "pytorch.git").as_uri()


def _repository(
    folder: Path,
    name: str,
    files: int,
    commits: int,
    env: dict[str, str],
    *,
    links: Mapping[str, Tips] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
) -> Tips:
    place = folder / name
    git(env, folder, "init", "-q", "--bare", "-b", "main", name)
    words = "".join(_history(name, files, commits, links, more))
    subprocess.run(["git", "fast-import", "--quiet"], input=words.encode(), cwd=place, env=env, check=True)
    git(env, place, "repack", "-qad")
    for branch in ("nightly", "master"):  # the recipes' own refs
        git(env, place, "branch", branch, "main")
    return git(env, place, "rev-parse", "main"), git(env, place, "rev-parse", "next")


def _history(
    name: str, files: int, commits: int, links: Mapping[str, Tips], more: Mapping[str, str]
) -> Iterator[str]:
    """Yield a `git fast-import` stream: the whole tree, commits of one file each, and ``next`` on top."""
    paths = [_path(number) for number in range(files)]
    modules = "".join(
        f'[submodule "{link}"]\n\tpath = third_party/{link}\n\turl = ../{link}\n' for link in links
    )
    for number in range(commits + 1):
        last = number == commits
        yield f"commit refs/heads/{'next' if last else 'main'}\n"
        yield f"committer Up Stream <up@stream.example> {1700000000 + number} +0000\n"
        yield _data(f"{name} {number}")
        yield "from refs/heads/main\n" if last else ""
        if number == 0:
            for path, text in {**more, ".gitmodules": modules, ".gitignore": "*.o\n"}.items():
                yield f"M 644 inline {path}\n{_data(text)}" if text else ""
        some = paths if number == 0 else paths[::50] if last else [paths[number % files]]
        for path in some:
            yield f"M 644 inline {path}\n{_data(_text(f'{name} {path}', number))}"
        if number in (0, commits):
            for link, tips in links.items():
                yield f"M 160000 {tips[last]} third_party/{link}\n"


def _path(number: int) -> str:
    kind = ".cu" if number % 40 == 0 else (".h", ".cpp", ".py", ".txt")[number % 4]
    return f"part{number % 20:02}/group{number // 20 % 15:02}/file{number:05}{kind}"


def _text(name: str, number: int) -> str:
    return "".join(f"{name} line {line} of version {number} uses cuda\n" for line in range(LINES))


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def git(env: dict[str, str], where: Path, *arguments: str) -> str:
    where.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["git", *arguments], cwd=where, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run(commands: list[list[str]], env: dict[str, str], folder: Path) -> float:
    begin = time.perf_counter()
    for argv in commands:
        ended = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(f"{' '.join(argv)} failed:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    return time.perf_counter() - begin


def rows(url: str, peer: Path | None) -> list[tuple[str, int, list[list[str]]]]:
    """Return (what, how often, commands), in the order in which they run."""

    def ours(ref: str, folder: str, *words: str) -> list[list[str]]:
        where = ["--checkout-dir", folder, "--origin", url, "--ref", ref]
        return [[sys.executable, str(DOOR), "checkout", *where, *words]]

    clone = ["git", "clone", "--quiet", "--recurse-submodules", "--branch", "main"]
    moved = ["-C", "clone", "submodule", "--quiet", "update", "--init", "--recursive"]
    mirror, plain = ("--mirror-dir", "mirrors"), "--no-hipify"
    every = [[sys.executable, "-m", "rocm_wheels", "checkout", "--all", "--source-dir", "five"]]
    theirs = []
    if peer is not None:
        script = [sys.executable, str(peer / "pytorch_torch_repo.py"), "checkout", "--no-commit-hipify"]
        script += ["--checkout-dir", "peer", "--origin", url]
        theirs = [
            ("TheRock's script, hipified", 1, [[*script, "--ref", "main"]]),
            ("TheRock's script, again", 1, [[*script, "--ref", "main"]]),
        ]
    return [
        ("git clone --recurse-submodules", 1, [[*clone, url, "clone"]]),
        ("git clone, --jobs 8", 1, [[*clone, "--jobs", "8", url, "clone-8"]]),
        ("checkout", 1, ours("main", "bare", plain)),
        ("checkout, cold mirror", 1, ours("main", "cold", plain, *mirror)),
        ("checkout, warm mirror", 1, ours("main", "warm", plain, *mirror)),
        (
            "git switch, submodule update",
            1,
            [["git", "-C", "clone", "switch", "-q", "next"], ["git", *moved]],
        ),
        ("checkout of another ref", 1, ours("next", "bare", plain)),
        ("another ref, warm mirror", 1, ours("next", "warm", plain, *mirror)),
        *theirs,
        ("checkout, hipified", 1, ours("main", "hipified")),
        ("another ref, hipified", 1, ours("next", "hipified")),
        ("nothing to do", ROUNDS, ours("next", "hipified")),
        ("five projects", 1, every),
        ("five projects, nothing to do", ROUNDS, every),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", type=Path, nargs="?")
    for name, default in (("files", 5000), ("submodules", 20), ("each", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHON"))}
        env |= {"HOME": str(folder / "home"), "PYTHONPATH": str(CLONE / "build_tools")}
        shape = Shape(given.files, given.submodules, given.each)
        url = make_upstream(folder / "upstream", shape, env)
        print(f"{shape.files} files and {shape.submodules} submodules of {shape.each}")
        git_seconds = 0.0
        for what, often, commands in rows(url, given.peer and given.peer.resolve()):
            seconds = statistics.median(run(commands, env, folder / "work") for _ in range(often))
            if what.startswith("git "):
                git_seconds = seconds
            print(f"{what:32} {seconds:7.2f} s  ratio {seconds / git_seconds:5.2f}", flush=True)


if __name__ == "__main__":
    main()
