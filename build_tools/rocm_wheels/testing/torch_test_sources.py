"""Test sources: of which commit they are, and whether the installed torch was built from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rocm_wheels.core import DataError, UsageError, hash_file, log_warning
from rocm_wheels.sources import Git, find_git_directory, parse_lock, read_state
from rocm_wheels.testing.installed_torch import TargetDistribution, TargetPython

TORCH_PROJECT = "pytorch"  # its name in locks
_LOCK_NAME = "sources.lock.json"  # package/provenance.py writes it into wheels
# what pytest and run_test.py go by
_SETTINGS_FILES = ("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml")
_COMPARED_PATHS = ("test", "tools/testing", *_SETTINGS_FILES)
_GIT_VERSION_LINE = re.compile(r"git_version\s*=\s*['\"]([0-9a-f]{40})['\"]")
_ALLOW_TIP = "take the sources of its commit (--lock), or say that it is meant: --allow-version-mismatch"


@dataclass(frozen=True)
class TorchTestSources:
    """A folder with torch's sources. ``commit`` is upstream's, "" where nobody says it.

    ``doubt`` says why they may not be those of the installed torch; "" where they are known to be.
    """

    __test__ = False  # pytest takes classes of this name for tests

    folder: Path
    commit: str
    version: str
    doubt: str = ""

    @property
    def tests(self) -> Path:
        """The folder of the tests."""
        return self.folder / "test"


def find_torch_commit(target: TargetPython) -> str:
    """Return the commit that the installed torch was built from, "" where it does not say.

    A wheel of ours has its lock inside: what torch itself names is what hipify committed there.
    """
    torch = _find_torch(target)
    lock = torch.place / _LOCK_NAME
    if lock.is_file():
        locked = parse_lock(lock.read_text(encoding="utf-8"), name=str(lock)).projects.get(TORCH_PROJECT)
        if locked is not None:
            return locked.commit
    file = torch.place.parent / "torch" / "version.py"
    match = _GIT_VERSION_LINE.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    return match[1] if match else ""


def find_torch_folder(target: TargetPython) -> Path | None:
    """Return the folder that ``import torch`` is to find, None where it is not beside its metadata."""
    folders = [
        distribution.place.parent / "torch"
        for distribution in target.installed
        if distribution.name == "torch"
    ]
    return next((folder for folder in folders if (folder / "__init__.py").is_file()), None)


def digest_torch_record(target: TargetPython) -> str:
    """Return the digest of what the installer wrote down of torch, "" for nothing; of each build another."""
    records = [
        distribution.place / "RECORD" for distribution in target.installed if distribution.name == "torch"
    ]
    return next((hash_file(record) for record in records if record.is_file()), "")


def has_torch_lock(target: TargetPython) -> bool:
    """Tell whether the installed torch holds the lock that it was built from."""
    return (_find_torch(target).place / _LOCK_NAME).is_file()


def find_torch_lock(target: TargetPython) -> Path:
    """Return the lock inside the installed torch. Raises UsageError where there is none."""
    lock = _find_torch(target).place / _LOCK_NAME
    if not lock.is_file():
        raise UsageError(
            f"torch {target.torch_version} has no lock inside: nothing says which tests are its own",
            tip="name the lock that it was built from: --lock sources.lock.json; or a folder: --pytorch-dir",
        )
    return lock


def inspect_test_sources(
    folder: Path, target: TargetPython, env: Mapping[str, str], *, allow_other: bool
) -> TorchTestSources:
    """Return what a folder of sources is of. ``allow_other``: also where that is another torch.

    Raises DataError for a folder that has no tests of torch, UsageError for tests of another torch.
    """
    if not (folder / "test").is_dir() or not (folder / "version.txt").is_file():
        raise DataError(
            f"{folder} is no checkout of torch: it has no test/ or no version.txt",
            tip="name its folder: --pytorch-dir DIR, or have it checked out: --lock sources.lock.json",
        )
    version = (folder / "version.txt").read_text(encoding="utf-8").strip()
    commit, changed = _read_source_commit(folder, env)
    sources = TorchTestSources(folder, commit, version)
    installed = find_torch_commit(target)
    doubt = _describe_doubt(sources, target, installed)
    if doubt and not allow_other:
        raise UsageError(f"{folder} is not what is installed: {doubt}", tip=_ALLOW_TIP)
    if doubt:
        log_warning(f"{doubt}: what fails may be the fault of that alone")
    elif not commit or not installed:
        origin = folder if not commit else f"torch {target.torch_version}"
        doubt = f"only versions are compared: {origin} does not say of which commit it is"
        log_warning(doubt)
    elif changed:
        doubt = f"files of {folder}/test were changed: {changed}"
        log_warning(doubt)
    return TorchTestSources(folder, commit, version, doubt)


def _describe_doubt(sources: TorchTestSources, target: TargetPython, installed: str) -> str:
    """Say in what sources and the installed torch differ, "" where in nothing that both tell."""
    if sources.commit and installed:
        if sources.commit == installed:
            return ""
        return (
            f"the tests are of {sources.commit[:12]} ({sources.version}), "
            f"and torch {target.torch_version} was built from {installed[:12]}"
        )
    source_release, other = _parse_release(sources.version), _parse_release(target.torch_version)
    if source_release is None or other is None or source_release != other:
        return f"the tests are of torch {sources.version}, and {target.torch_version} is installed"
    return ""


def _read_source_commit(folder: Path, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the commit of a folder and which of its tests somebody changed; "" for no repository.

    A checkout of ours is of the upstream commit that we brought there, until somebody commits on top of it.
    """
    if not (folder / ".git").exists():
        return "", ""
    git = Git(folder, env)
    state = read_state(find_git_directory(git))
    head = git.text("rev-parse", "HEAD")
    ours = state is not None and "" in state.left and state.left[""].head == head
    commit = state.upstream if state is not None and ours else head
    question = (
        "status",
        "--porcelain",
        "--untracked-files=all",
        "--ignore-submodules",
        "--",
        *_COMPARED_PATHS,
    )
    lines = git.text(*question).splitlines()
    changed = [line[3:] for line in lines if line[:2] != "??" or Path(line[3:]).name in _SETTINGS_FILES]
    return commit, ", ".join(changed[:3])


def _parse_release(text: str) -> tuple[int, ...] | None:
    try:
        return Version(text).release
    except InvalidVersion:
        return None


def _find_torch(target: TargetPython) -> TargetDistribution:
    distribution = next((candidate for candidate in target.installed if candidate.name == "torch"), None)
    if distribution is None:
        raise UsageError(
            f"the torch of {target.python} is no installed distribution", tip="install its wheel"
        )
    return distribution
