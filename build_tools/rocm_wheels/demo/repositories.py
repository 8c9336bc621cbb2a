"""The miniature's sources as git repositories that can be cloned over ``file://``.

Author, dates, modes and line ends are fixed: the same input gives the same commits on any
machine and any day. (PyTorch's ``related_commits`` names the other repositories by URL, so its
commit also depends on the folder that they are in.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels.demo.folders import list_files, fingerprint_folders, make_folder
from rocm_wheels.errors import SourceError
from rocm_wheels.process import capture_output

_AUTHOR = "The miniature <miniature@rocm-wheels.invalid>"
_DATE = "1767225600 +0000"  # 2026-01-01
_RECORD = "repositories.json"
_LAYOUT = 2  # raise it when this module changes what it makes from the same sources
# In the order in which they are made: PyTorch names the commits of all others.
_BRANCHES = {
    "minigemm": "main",
    "triton": "main",
    "audio": "nightly",
    "vision": "nightly",
    "apex": "master",
    "pytorch": "nightly",
}
_RELATED = {"apex": "apex", "vision": "torchvision", "audio": "torchaudio"}
_SUBMODULE = "third_party/minigemm"
# Links, which cannot lie here: a checkout on Windows may write files instead.
_LINKS = {"apex": {"apex/csrc": "../csrc", "apex/op_builder": "../op_builder"}}
# What a public server allows: to ask for a commit by its name, and for a part of the history.
_SERVED = "[uploadpack]\n\tallowReachableSHA1InWant = true\n\tallowFilter = true\n"


@dataclass(frozen=True)
class DemoRepository:
    """A bare repository: its ``file://`` URL, its one branch, and the full SHA at its tip."""

    url: str
    branch: str
    commit: str


def make_repositories(
    source: Path, dest: Path, *, hipify: Path, env: Mapping[str, str]
) -> dict[str, DemoRepository]:
    """Make ``dest/<name>.git`` for each source tree and return them by name.

    ``source`` is ``tests/miniature``; ``hipify`` the folder of ``fetch_hipify``, which becomes
    ``torch/utils/hipify`` of pytorch. Made whole or not at all, and not again from the same
    input. Raises SourceError when git fails.
    """
    dest = dest.resolve()
    made_of = fingerprint_folders(
        [*(source / name for name in _BRANCHES), hipify], str(_LAYOUT), dest.as_uri()
    )

    def fill(folder: Path) -> None:
        repositories: dict[str, DemoRepository] = {}
        for name, branch in _BRANCHES.items():
            files = _read_files(source / name)
            modules = {}
            if name == "pytorch":
                files |= {f"torch/utils/hipify/{path}": text for path, text in _read_files(hipify).items()}
                files |= _make_pin_files(repositories)
                modules = {_SUBMODULE: repositories["minigemm"].commit}
            tree = _CommitTree(files, _LINKS.get(name, {}), modules)
            commit = _import_commit(folder / f"{name}.git", branch, tree, env)
            repositories[name] = DemoRepository(f"{dest.as_uri()}/{name}.git", branch, commit)
        record = {name: asdict(repository) for name, repository in repositories.items()}
        (folder / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    make_folder(dest, made_of, fill)
    record = json.loads((dest / _RECORD).read_text(encoding="utf-8"))
    return {name: DemoRepository(**fields) for name, fields in record.items()}


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return path → content of a tree of text files; ends of lines as on Linux, whatever git made of them."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes().replace(b"\r\n", b"\n")
        for path in list_files(folder)
        if path.parent != folder or path.name != ".made-from"
    }


def _make_pin_files(repositories: Mapping[str, DemoRepository]) -> dict[str, bytes]:
    """Return the files of pytorch that name commits: ``related_commits`` and Triton's pin."""
    rows = (
        f"ubuntu|pytorch|{project}|{repositories[name].branch}|{repositories[name].commit}|{repositories[name].url}\n"
        for name, project in _RELATED.items()
    )
    return {
        "related_commits": "".join(rows).encode(),
        ".ci/docker/ci_commit_pins/triton.txt": f"{repositories['triton'].commit}\n".encode(),
    }


@dataclass(frozen=True)
class _CommitTree:
    """What a commit has: contents of files, targets of links, commits of submodules."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    modules: Mapping[str, str]


def _import_commit(folder: Path, branch: str, tree: _CommitTree, env: Mapping[str, str]) -> str:
    """Make a bare repository with one commit; return its SHA."""
    clean = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    description, tip = f"making the repository {folder.name}", "git 2.28 or newer is needed"
    start = ["git", "init", "--quiet", "--bare", "--template=", f"--initial-branch={branch}", str(folder)]
    capture_output(start, env=clean, check=SourceError, description=description, tip=tip)
    with (folder / "config").open("a", encoding="utf-8") as config:
        config.write(_SERVED)
    person = f"{_AUTHOR} {_DATE}"
    stream = [
        f"commit refs/heads/{branch}\nmark :1\nauthor {person}\ncommitter {person}\n".encode(),
        _format_data(f"The small {folder.stem}\n".encode()),
    ]
    for path, content in sorted(tree.files.items()):
        mode = "100755" if content.startswith(b"#!") else "100644"
        stream += [f"M {mode} inline {path}\n".encode(), _format_data(content)]
    for path, target in sorted(tree.links.items()):
        stream += [f"M 120000 inline {path}\n".encode(), _format_data(target.encode())]
    stream += [f"M 160000 {commit} {path}\n".encode() for path, commit in sorted(tree.modules.items())]
    stream.append(b"get-mark :1\ndone\n")
    load = ["git", "-C", str(folder), "fast-import", "--quiet", "--done"]
    return capture_output(
        load, env=clean, stdin=b"".join(stream), check=SourceError, description=description, tip=tip
    )


def _format_data(content: bytes) -> bytes:
    """Write a block as ``git fast-import`` reads it."""
    return b"data %d\n%b\n" % (len(content), content)
