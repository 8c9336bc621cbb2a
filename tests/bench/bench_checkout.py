"""Checkouts of a tree shaped like PyTorch's: plain git beside ours, in one run, all over ``file://``.

Run by hand: ``python tests/bench/bench_checkout.py [--files N] [--submodules N] [--nested N] [--each N]
[--rounds N] [--pytorch FOLDER] [--peer PEER]``; PEER is ``external-builds/pytorch`` of ROCm/TheRock.
The tree has as many files, folders, .cu files and submodules as PyTorch 2.6 (its submodules are smaller).
Rows run in the order shown, each new tree goes into a folder of its own; a ratio compares a row with the row
of git that stands last above it, of the same run. Nothing is hipified where a row does not say so.

The first checkout is measured by turns, beside ``git clone --jobs 8``, each into a folder of its own.
Going to another ref as well: whole commands, from main to next and back, with all commits here.
Five submodules move, with those that are nested in them. Git's side is ``git switch`` (or, as ours asks the
server for the ref, ``git fetch`` and ``git checkout``) and ``git submodule update --init --recursive``.
``--pytorch``: the unpacked sources of PyTorch, on which its ``build_amd.py`` alone and our ``hipify`` are
measured by turns. Ratios by turns are of the medians of seconds, and of the least times of processors.
``--turns-only`` leaves out all that is not measured by turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import clock
from peer_lines import check_lines

CLONE = Path(__file__).resolve().parents[2]
DOOR = CLONE / "repos" / "pytorch_torch_repo.py"
MAKE_HIPIFIED = [sys.executable, str(DOOR), "hipify", "--checkout-dir", "."]
CLONE_MAIN = ["git", "clone", "--quiet", "--recurse-submodules", "--branch", "main"]
MOVED = ("git clone --recurse-submodules", "git clone, --jobs 8", "checkout", "checkout, hipified")
LINES = 60  # of a file
ROUNDS = 5  # of what is repeated
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
    """Files in the root, submodules in all, those of them nested in others, files in each, commits before."""

    files: int
    submodules: int
    nested: int
    each: int
    commits: int = 20


def make_upstream(folder: Path, shape: Shape, env: dict[str, str]) -> str:
    """Make bare repositories with the branches ``main`` and ``next`` (2 % of files, five submodules moved).

    Torch pins four small companions, found where a git that asks GitHub is led to.
    """
    names = [f"module{number:02}" for number in range(shape.submodules)]
    holders, held = names[: len(names) // 6], names[len(names) - shape.nested :]
    inner: dict[str, list[str]] = {name: held[number :: len(holders)] for number, name in enumerate(holders)}
    tips: dict[str, Tips] = {}
    for name in reversed(names):
        links = {below: tips[below] for below in inner.get(name, ())}
        tips[name] = _repository(folder, name, shape.each, shape.commits, env, links=links)
    outer = {name: tips[name] for name in names if name not in held}
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
    return f"part{number // 140:03}/group{number // 14 % 10}/file{number:05}{kind}"


def _text(name: str, number: int) -> str:
    return "".join(f"{name} line {line} of version {number} uses cuda\n" for line in range(LINES))


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def git(env: dict[str, str], where: Path, *arguments: str) -> str:
    where.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["git", *arguments], cwd=where, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run(commands: list[list[str]], env: dict[str, str], folder: Path) -> clock.Spent:
    """Run commands one after the other."""
    return clock.add_up(clock.run(argv, env, folder) for argv in commands)


def rows(url: str, peer: Path | None) -> list[tuple[str, int, list[list[str]]]]:
    """Return (what, how often, commands), in the order in which they run."""

    def ours(ref: str, folder: str, *words: str) -> list[list[str]]:
        where = ["--checkout-dir", folder, "--origin", url, "--ref", ref]
        return [[sys.executable, str(DOOR), "checkout", *where, *words]]

    plain, mirrored = "--no-hipify", ["env", "ROCM_WHEELS_MIRROR_DIR=mirrors"]
    every = [[sys.executable, "-m", "rocm_wheels", "checkout", "--all", "--source-dir", "five"]]
    theirs = []
    if peer is not None:
        script = [sys.executable, str(peer / "pytorch_torch_repo.py"), "checkout", "--no-commit-hipify"]
        script += ["--checkout-dir", "peer", "--gitrepo-origin", url]
        theirs = [
            ("TheRock's script, hipified", 1, [[*script, "--repo-hashtag", "main"]]),
            ("TheRock's script, again", 1, [[*script, "--repo-hashtag", "main"]]),
        ]
    return [
        ("git clone --recurse-submodules", 1, [[*CLONE_MAIN, url, "clone"]]),
        ("git clone, --jobs 8", 1, [[*CLONE_MAIN, "--jobs", "8", url, "clone-8"]]),
        ("checkout", 1, ours("main", "bare", plain)),
        ("checkout, cold mirror", 1, [[*mirrored, *words] for words in ours("main", "cold", plain)]),
        ("checkout, warm mirror", 1, [[*mirrored, *words] for words in ours("main", "warm", plain)]),
        *theirs,
        ("checkout, hipified", 1, ours("main", "hipified")),
        ("nothing to do", ROUNDS, ours("main", "hipified")),
        ("five projects", 1, every),
        ("five projects, nothing to do", ROUNDS, every),
    ]


def list_firsts(url: str, folder: str) -> dict[str, list[list[str]]]:
    """Return by name what makes a tree in a folder."""
    where = ["--checkout-dir", f"{folder}/ours", "--origin", url, "--ref", "main"]
    return {
        "git clone, --jobs 8": [[*CLONE_MAIN, "--jobs", "8", url, f"{folder}/git"]],
        "first checkout": [[sys.executable, str(DOOR), "checkout", *where, "--no-hipify"]],
    }


def measure_firsts(url: str, env: dict[str, str], folder: Path, rounds: int) -> None:
    """Make trees by turns, which go again."""
    measured: dict[str, list[clock.Spent]] = {}
    for number in range(rounds):
        for what, commands in list_firsts(url, f"turn-{number}").items():
            measured.setdefault(what, []).append(run(commands, env, folder))
        shutil.rmtree(folder / f"turn-{number}")
    print_turns(measured)


def list_moves(url: str, ref: str) -> dict[str, list[list[str]]]:
    """Return by name what brings a tree to a ref."""
    update = ["git", "-C", "clone", "submodule", "--quiet", "update", "--init", "--recursive"]
    fetched = [["git", "-C", "clone-8", "fetch", "-q", "origin", ref]]
    fetched += [
        ["git", "-C", "clone-8", "checkout", "-q", "FETCH_HEAD"],
        [*update[:2], "clone-8", *update[3:]],
    ]
    door = [sys.executable, str(DOOR), "checkout", "--origin", url, "--ref", ref, "--checkout-dir"]
    return {
        "git switch, submodule update": [["git", "-C", "clone", "switch", "-q", ref], update],
        "git fetch, checkout, submodule update": fetched,
        "checkout of another ref": [[*door, "bare", "--no-hipify"]],
        "another ref, hipified": [[*door, "hipified"]],
    }


def measure_moves(url: str, env: dict[str, str], folder: Path, rounds: int) -> None:
    """Go to next and back by turns; print medians, and ratios of processor time to both rows of git."""
    measured: dict[str, list[clock.Spent]] = {}
    for number in range(2 * rounds + 2):
        for what, commands in list_moves(url, ("next", "main")[number % 2]).items():
            timing = run(commands, env, folder)
            if number >= 2:  # before, not all commits are here
                measured.setdefault(what, []).append(timing)
    print_turns(measured)


def measure_hipify(sources: Path, env: dict[str, str], folder: Path, rounds: int) -> None:
    """Hipify fresh clones of PyTorch's sources by its own script, and by ours."""
    shutil.copytree(sources, folder / "pytorch", symlinks=True)
    person = ("-c", "user.name=Up Stream", "-c", "user.email=up@stream.example")
    for words in (("init", "-q"), ("add", "-A", "-f"), (*person, "commit", "-q", "-m", "PyTorch")):
        git(env, folder / "pytorch", *words)
    script = [[sys.executable, "tools/amd_build/build_amd.py"]]
    ours = [MAKE_HIPIFIED]
    measured: dict[str, list[clock.Spent]] = {}
    for _ in range(rounds):
        for what, commands in (("git clone, build_amd.py alone", script), ("hipify", ours)):
            git(env, folder, "clone", "-q", "pytorch", "translated")
            measured.setdefault(what, []).append(run(commands, env, folder / "translated"))
            shutil.rmtree(folder / "translated")
    print_turns(measured)


def print_turns(measured: dict[str, list[clock.Spent]]) -> None:
    least = {what: min(spent.processor for spent in several) for what, several in measured.items()}
    medians = {what: clock.find_medians(several) for what, several in measured.items()}
    others = [what for what in measured if what.startswith("git ")]
    for what, median in medians.items():
        ratios = [f"{median.clock / medians[other].clock:5.2f}," for other in others]
        ratios += [f"{least[what] / least[other]:5.2f}" for other in others]
        print(
            f"{what:38} {median.clock:7.2f} s; of processor {median.processor:6.3f} s, "
            f"at least {least[what]:6.3f} s; ratios {' '.join(ratios)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--check", action="store_true", help="only check the command lines")
    parser.add_argument("--turns-only", action="store_true", help="only what is measured by turns")
    parser.add_argument("--pytorch", type=Path)
    numbers = (("files", 15_000), ("submodules", 58), ("nested", 20), ("each", 200), ("rounds", ROUNDS))
    for name, default in numbers:
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    if given.check:
        url = "file:///upstream/pytorch.git"
        check_lines(line for *_, lines in rows(url, given.peer) for line in lines)
        check_lines(line for lines in list_firsts(url, "turn-0").values() for line in lines)
        check_lines(line for lines in list_moves(url, "next").values() for line in lines)
        check_lines([MAKE_HIPIFIED])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHON"))}
        env |= {"HOME": str(folder / "home"), "PYTHONPATH": str(CLONE / "build_tools")}
        shape = Shape(given.files, given.submodules, given.nested, given.each)
        url = make_upstream(folder / "upstream", shape, env)
        print(f"{shape.files} files and {shape.submodules} submodules of {shape.each}")
        base = clock.Spent(0, 0, 0)
        for what, often, commands in rows(url, given.peer and given.peer.resolve()):
            if given.turns_only and what not in MOVED:
                continue
            median = clock.find_medians(run(commands, env, folder / "work") for _ in range(often))
            base = median if what.startswith("git ") else base
            line = f"{what:36} {median.clock:7.2f} s {median.clock / base.clock:5.2f}; of processor "
            print(f"{line}{median.processor:6.3f} s {median.processor / base.processor:5.2f}", flush=True)
        measure_firsts(url, env, folder / "work", given.rounds)
        measure_moves(url, env, folder / "work", given.rounds)
        if given.pytorch is not None:
            measure_hipify(given.pytorch.resolve(), env, folder / "work", given.rounds)


if __name__ == "__main__":
    main()
