"""``build --lock``: trees, ROCm, targets and Python are those of a lock, or nothing is installed or built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels import log, parallel
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.gfx import OPTION, VARIABLE, parse_targets
from rocm_wheels.model.names import option_name
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.sdk.environment_spec import python_version
from rocm_wheels.shell import shell_line
from rocm_wheels.sources import build_env
from rocm_wheels.sources.git import Git, git_directory
from rocm_wheels.sources.identity import TreeIdentity, tree_identity
from rocm_wheels.sources.state import read_state

if TYPE_CHECKING:  # what reads a lock is imported where there is one
    from rocm_wheels.model.lock import Lock
    from rocm_wheels.sources.lock.follow import LockFile


@dataclass(frozen=True)
class LockedBuild:
    """A lock that trees were compared with. ``digest`` is its SHA-256, ``identities`` are the trees then.

    ``begun``: something was built since, which takes its time; a tree may have changed meanwhile.
    """

    path: Path
    digest: str
    lock: Lock
    identities: Mapping[str, TreeIdentity]
    begun: bool = False

    def identity(self, name: str, tree: Path, env: Mapping[str, str]) -> TreeIdentity:
        """Return what a tree holds. Raises SourceError when that is no longer what was compared."""
        known = self.identities[name]
        if self.begun and tree_identity(tree, env=env) != known:
            raise SourceError(
                f"{tree} was changed after it had been compared with {self.path}",
                tip="take the change back, then run the same command again; finished wheels are kept",
            )
        return known

    def check_rocm(self, version: str) -> None:
        """Raise UsageError when the ROCm packages found are of another version."""
        if self.lock.rocm is not None and Version(version) != Version(self.lock.rocm):
            raise UsageError(
                f"ROCm {version} is installed, and {self.path} says {self.lock.rocm}",
                tip=f"install that one (--install-rocm), or make a lock with --rocm-version {version}",
            )


def under_lock(
    request: WheelsRequest, path: Path, projects: Sequence[Project], env: Mapping[str, str]
) -> tuple[WheelsRequest, LockedBuild]:
    """Return the request with what the lock at ``path`` says, and the trees that were compared with it.

    Raises UsageError for options that contradict it, SourceError for trees that are not what it says.
    """
    from rocm_wheels.sources.lock.file import lock_digest
    from rocm_wheels.sources.lock.follow import open_lock

    file = open_lock(path, request.platform)
    _refuse_other_python(file, request, env)
    spec, targets = _rocm(file, request), _targets(file, request)
    identities = _compare(file, request, projects, env)
    digest = lock_digest(file.lock)
    log.note(f"lock {path}: {len(identities)} trees are what it says (sha256 {digest})")
    wanted = replace(request, sdk=replace(request.sdk, rocm_spec=spec), targets=targets)
    return wanted, LockedBuild(path, digest, file.lock, identities)


def _refuse_other_python(file: LockFile, request: WheelsRequest, env: Mapping[str, str]) -> None:
    pythons = file.lock.pythons
    if not pythons:
        return
    for python in request.interpreters:
        whole = python_version(python, env)
        short = ".".join(whole.split(".")[:2]) + ("t" if whole.endswith("t") else "")
        if short not in pythons:
            raise UsageError(
                f"{python} is Python {whole}, and {file.path} is for {', '.join(pythons)}",
                tip="take one of those (--python), or make the lock with this one as well",
            )


def _rocm(file: LockFile, request: WheelsRequest) -> str:
    """Return the version specifier of the ROCm packages: the lock's version, where it says one."""
    given, locked = request.sdk.rocm_spec, file.lock.rocm
    _ = request.sdk.requirement  # refuses what is no specifier
    if locked is None:
        return given
    if not SpecifierSet(given).contains(locked, prereleases=True):
        raise UsageError(
            f"--rocm-sdk-version {given!r} contradicts {file.path}, which says ROCm {locked}",
            tip="leave it out: the lock says which",
        )
    return f"=={locked}"


def _targets(file: LockFile, request: WheelsRequest) -> str | None:
    """Return the targets of the build: the lock's, where it says some."""
    if not file.lock.targets:
        return request.targets
    said = ",".join(file.lock.targets)
    locked = parse_targets(said, what=str(file.path))
    given, what = request.targets, OPTION
    if given is None and request.targets_variable:
        given, what = request.targets_variable, VARIABLE
    if given is not None and set(parse_targets(given, what=what)) != set(locked):
        raise UsageError(
            f"{what} {given!r} contradicts {file.path}, which says {said}",
            tip="leave it out: the lock says which",
        )
    return said


def _compare(
    file: LockFile, request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str]
) -> dict[str, TreeIdentity]:
    """Return what the trees hold, compared with the lock side by side. Raises SourceError that names all."""
    names = [project.name for project in projects]
    wrong = {
        name: [f"there is no source tree {request.sources[name]} ({_without(name)} leaves it out)"]
        for name in _missing(file.lock, request, names)
    }
    looked = parallel.each(lambda name: _look(file, name, request, env), names, jobs=len(names))
    identities: dict[str, TreeIdentity] = {}
    for name, (found, identity) in zip(names, looked, strict=True):
        if found:
            wrong[name] = found
        elif identity is not None:
            identities[name] = identity
    if wrong:
        said = "".join(f"\n  {name}: {line}" for name in sorted(wrong) for line in wrong[name])
        raise SourceError(f"these are not what {file.path} says:{said}", tip=_way_back(file, request, wrong))
    return identities


def _missing(lock: Lock, request: WheelsRequest, names: Sequence[str]) -> list[str]:
    """Name the projects of the lock that are not built, though nobody said that they shall not be."""
    return [
        name
        for name in lock.projects
        if name not in names
        and request.chosen.get(name) is not False
        and request.platform in load_project(name).build.platforms
    ]


def _look(
    file: LockFile, name: str, request: WheelsRequest, env: Mapping[str, str]
) -> tuple[list[str], TreeIdentity | None]:
    """Say in what a tree is not what the lock says, or what it holds."""
    from rocm_wheels.sources.lock.follow import differences

    tree, locked = request.sources[name], file.lock.projects.get(name)
    if locked is None:
        return [f"it is not in the lock ({_without(name)} leaves it out)"], None
    if not (tree / ".git").exists():
        return [f"{tree} is not a git checkout"], None
    place = git_directory(Git(tree, env))
    state = read_state(place)
    if state is None or (found := differences(locked, state)):
        return differences(locked, state), None
    identity = tree_identity(tree, env=env)
    if (identity.commit, identity.tree) != (state.left[""].head, state.identity):
        found.append("it was changed since its checkout (its `status` says how)")
    if build_env.is_somebodys(tree, place):
        found.append(f"its {build_env.FILE_NAME} is not the one of its checkout")
    return found, identity


def _without(name: str) -> str:
    return f"--no-build-{option_name(name)}"


def _way_back(file: LockFile, request: WheelsRequest, wrong: Mapping[str, object]) -> str:
    """Return the command that puts the trees right."""
    folders: dict[Path, list[str]] = {}
    elsewhere = []
    for name in sorted(wrong):
        tree = request.sources[name]
        if name not in file.lock.projects:
            continue
        if tree.name == name:
            folders.setdefault(tree.parent, []).append(name)
        else:
            elsewhere.append(f"its script's checkout --lock {file.path} --checkout-dir {tree}")
    lines = [
        "`" + shell_line(["rocm-wheels", "checkout", "--lock", file.path, "--repo", folder, *names]) + "`"
        for folder, names in folders.items()
    ]
    return " and ".join([*lines, *elsewhere]) or "leave out what is not in the lock, or make the lock with it"
