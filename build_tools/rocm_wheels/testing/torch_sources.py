"""Torch's sources: whether their tests are those of the installed torch, and what these need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, log
from rocm_wheels.models import torch_tests
from rocm_wheels.sources import checkout_state
from rocm_wheels.sources.git import Git, find_git_directory
from rocm_wheels.sources.lock import parse_lock
from rocm_wheels.testing import installed_torch

_REQUIREMENTS_FILE = ".ci/docker/requirements-ci.txt"
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


def find_torch_lock(target: installed_torch.TargetPython) -> Path | None:
    """Return the lock that the installed torch was built from, None where it has none inside.

    Raises UsageError where torch is no installed distribution.
    """
    torch = target.find("torch")
    if torch is None:
        raise errors.UsageError(
            f"the torch of {target.python} is no installed distribution", tip="install its wheel"
        )
    lock = torch.place / _LOCK_NAME
    return lock if lock.is_file() else None


def find_torch_commit(target: installed_torch.TargetPython) -> str:
    """Return the commit that the installed torch was built from, "" where it does not say.

    A wheel of ours has its lock inside: what torch itself names is what hipify committed there.
    """
    if lock := find_torch_lock(target):
        locked = parse_lock(lock.read_text(encoding="utf-8"), name=str(lock)).projects.get(TORCH_PROJECT)
        if locked is not None:
            return locked.commit
    torch = target.find("torch")
    file = torch.place.parent / "torch" / "version.py" if torch else None
    match = _GIT_VERSION_LINE.search(file.read_text(encoding="utf-8")) if file and file.is_file() else None
    return match[1] if match else ""


def inspect_test_sources(
    folder: Path, target: installed_torch.TargetPython, env: Mapping[str, str], *, allow_other: bool
) -> TorchTestSources:
    """Return what a folder of sources is of. ``allow_other``: also where that is another torch.

    Raises DataError for a folder that has no tests of torch, UsageError for tests of another torch.
    """
    if not (folder / "test").is_dir() or not (folder / "version.txt").is_file():
        raise errors.DataError(
            f"{folder} is no checkout of torch: it has no test/ or no version.txt",
            tip="name its folder: --pytorch-dir DIR, or have it checked out: --lock sources.lock.json",
        )
    version = (folder / "version.txt").read_text(encoding="utf-8").strip()
    commit, changed = _read_source_commit(folder, env)
    installed, doubt = find_torch_commit(target), ""
    if commit and installed and commit != installed:
        doubt = (
            f"the tests are of {commit[:12]} ({version}), "
            f"and torch {target.torch_version} was built from {installed[:12]}"
        )
    elif not commit or not installed:
        try:
            is_same = Version(version).release == Version(target.torch_version).release
        except InvalidVersion:
            is_same = False
        if not is_same:
            doubt = f"the tests are of torch {version}, and {target.torch_version} is installed"
    if doubt and not allow_other:
        raise errors.UsageError(f"{folder} is not what is installed: {doubt}", tip=_ALLOW_TIP)
    if doubt:
        log.log_warning(f"{doubt}: what fails may be the fault of that alone")
    elif not commit or not installed:
        origin = folder if not commit else f"torch {target.torch_version}"
        doubt = f"only versions are compared: {origin} does not say of which commit it is"
        log.log_warning(doubt)
    elif changed:
        doubt = f"files of {folder}/test were changed: {changed}"
        log.log_warning(doubt)
    return TorchTestSources(folder, commit, version, doubt)


def _read_source_commit(folder: Path, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the commit of a folder and which of its tests somebody changed; "" for no repository.

    A checkout of ours is of the upstream commit that we brought there, until somebody commits on top of it.
    """
    if not (folder / ".git").exists():
        return "", ""
    git = Git(folder, env)
    state = checkout_state.read_state(find_git_directory(git))
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


def read_test_requirements(sources: TorchTestSources, target: installed_torch.TargetPython) -> list[str]:
    """Return what the tests of a commit need in a Python, beside the torch that is installed there.

    They are lines of a file for ``pip install -r``; each requirement (PEP 508) of the list that is left out
    is a comment behind them, which says why. torch stays as it
    is, and of its ROCm the part ``devel`` comes with it: some tests compile extensions. Raises DataError
    for a list that is not there, or is none.
    """
    file = sources.folder / _REQUIREMENTS_FILE
    if not file.is_file():
        raise errors.DataError(
            f"{sources.folder} has no {_REQUIREMENTS_FILE}, which says what its tests need"
        )
    environment = {
        "python_version": target.python_version,
        "python_full_version": f"{target.python_version}.0",
    }
    reasons = {
        canonicalize_name(name): row.reason
        for row in torch_tests.load_torch_tests().left_out_requirements
        if not row.pythons or target.python_version in row.pythons
        for name in row.names
    }
    lines, without = [], []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not (line := text.partition(" #")[0].strip()) or line.startswith("#"):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as cause:
            raise errors.DataError(f"{file}:{number}: {line} is no requirement: {cause}") from None
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        requirement.marker = None
        if reason := reasons.get(canonicalize_name(requirement.name)):
            without.append(f"# left out: {requirement}: {reason}")
        else:
            lines.append(str(requirement))
    for project, name in (("torch", "torch"), ("rocm", "rocm[devel]")):
        if distribution := target.find(project):
            lines.append(f"{name}=={distribution.version}")
    return lines + without
