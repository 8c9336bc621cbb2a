"""Check the source trees of a run: are they those of its lock, and hipified since their last change?

Under a lock, trees, ROCm, targets and Python are what the lock says, or nothing is installed or built.
Sources that changed since they were hipified are hipified first by ``build``; a step of a plan refuses
them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels.core import errors, log, parallel, shell, tables
from rocm_wheels.models import gfx
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest
from rocm_wheels.sdk import build_environment
from rocm_wheels.sources import checkout_state, hipify, trees

if TYPE_CHECKING:
    from rocm_wheels.models.lock import Lock, LockedTools
    from rocm_wheels.sources.lock import LockFile


@dataclass(frozen=True)
class SourceLook:
    """A source tree that was looked at: its repositories, the root first, and what it holds."""

    parts: tuple[trees.TreePart, ...]
    identity: trees.TreeIdentity


def look_at_source(tree: Path, env: Mapping[str, str]) -> SourceLook:
    """Look at a tree. Raises SourceError when it is no checkout, or one that was cut."""
    parts = tuple(trees.list_repositories(trees.open_tree(tree, env)))
    return SourceLook(parts, trees.identify_parts(parts))


def look_at_sources(
    projects: Sequence[Project], sources: Mapping[str, Path], env: Mapping[str, str]
) -> dict[str, SourceLook]:
    """Look at the trees of projects side by side; of one that is no checkout a plan says so."""
    names = [project.name for project in projects if (sources[project.name] / ".git").exists()]
    looks = parallel.run_in_parallel(lambda name: look_at_source(sources[name], env), names, jobs=8)
    return dict(zip(names, looks, strict=True))


def find_stale_sources(
    projects: Sequence[Project],
    sources: Mapping[str, Path],
    env: Mapping[str, str],
    looks: Mapping[str, SourceLook] = MappingProxyType({}),
) -> list[Project]:
    """Return the projects whose trees changed since they were hipified.

    Raises SourceError for a tree that is hipified no more.
    """
    stale = []
    for project in projects:
        tree, look = sources[project.name], looks.get(project.name)
        if project.hipify.by != "script" or not (tree / ".git").exists():
            continue
        if look is None:
            state = hipify.check_hipify(project, trees.open_tree(tree, env))
        else:
            state = hipify.check_hipify(project, look.parts[0].git, look.identity.tree)
        if state == "no":
            raise errors.SourceError(
                f"{tree} is not hipified any more: it was, and then something else was checked out there",
                tip=f"`{_hipify_command(project, tree)}` translates it; or go back to what was hipified",
            )
        stale += [project] if state == "stale" else []
    return stale


def hipify_stale_sources(
    projects: Sequence[Project],
    sources: Mapping[str, Path],
    env: Mapping[str, str],
    looks: Mapping[str, SourceLook] = MappingProxyType({}),
) -> dict[str, SourceLook]:
    """Hipify what changed in the trees of projects; return those ``looks`` at them that still are true."""
    current = dict(looks)
    for project in find_stale_sources(projects, sources, env, looks):
        hipify.hipify_changes(project, sources[project.name], env=env, python=Path(sys.executable))
        current.pop(project.name, None)
    return current


def refuse_stale_source(project: Project, tree: Path, env: Mapping[str, str]) -> None:
    """Raise SourceError for a tree with changes that are not hipified: the build would not have them."""
    if find_stale_sources([project], {project.name: tree}, env):
        raise errors.SourceError(
            f"{tree} has changes that are not hipified: the build would not have them",
            tip=f"`{_hipify_command(project, tree)} --no-commit-hipify` translates them; then plan again",
        )


def _hipify_command(project: Project, tree: Path) -> str:
    """Return the command that hipifies a tree, wherever it is."""
    if tree.name == project.name:
        words = ["rocm-wheels", "sources", "hipify", project.distribution]
        return shell.format_command([*words, "--source-dir", str(tree.parent)])
    # only the script of the project takes a folder of another name
    word = "torch" if project.name == "pytorch" else project.name.removeprefix("pytorch_")
    return shell.format_command([f"repos/pytorch_{word}_repo.py", "hipify", "--checkout-dir", tree])


@dataclass(frozen=True)
class LockedBuild:
    """A lock that trees were compared with. ``digest`` is its SHA-256, ``identities`` are the trees then.

    ``looks`` at them are those of this very process. ``begun``: something was built since, which takes its
    time; a tree may have changed meanwhile.
    """

    path: Path
    digest: str
    lock: Lock
    identities: Mapping[str, trees.TreeIdentity]
    looks: Mapping[str, SourceLook] = field(default_factory=dict)
    begun: bool = False

    def refuse_change(self, name: str, tree: Path, identity: trees.TreeIdentity) -> None:
        """Raise SourceError when what a tree holds is no longer what was compared."""
        if self.begun and self.identities[name] != identity:
            raise errors.SourceError(
                f"{tree} was changed after it had been compared with {self.path}",
                tip="take the change back, then run the same command again; finished wheels are kept",
            )

    def get_tools(self, python_version: str) -> LockedTools | None:
        """Return what the lock has to build with a Python; ``None`` where it has no tools."""
        return self.lock.tools.get(build_environment.shorten_python_version(python_version))

    def lock_sdk(self, sdk: SdkRequest, python_version: str) -> SdkRequest:
        """Return the request of ROCm packages for a Python with the very packages that the lock has."""
        tools = self.get_tools(python_version)
        if tools is None or not tools.rocm or sdk.rocm_path is not None:
            return sdk
        return replace(
            sdk,
            extras=tools.rocm_extras,
            packages=tools.rocm,
            backends=tools.backends,
            held_by=str(self.path),
        )

    def check_rocm(self, version: str) -> None:
        """Raise UsageError when the ROCm packages found are of another version."""
        if self.lock.rocm is not None and Version(version) != Version(self.lock.rocm):
            raise errors.UsageError(
                f"ROCm {version} is installed, and {self.path} says {self.lock.rocm}",
                tip=f"take that one (--install-rocm, or --rocm-path), or make a lock with --rocm {version}",
            )


def apply_lock(
    request: WheelsRequest, path: Path, projects: Sequence[Project], env: Mapping[str, str]
) -> tuple[WheelsRequest, LockedBuild]:
    """Return the request with what the lock at ``path`` says, and the trees that were compared with it.

    Raises UsageError for options that contradict it, SourceError for trees that are not what it says.
    """
    from rocm_wheels.sources.lock import digest_lock, open_lock

    file = open_lock(path, request.platform)
    lock, specifier = file.lock, request.sdk.rocm_spec
    versions: dict[Path, str] = {}  # as locks write them
    for python in request.interpreters:
        whole = build_environment.query_python_version(python, env)
        versions[python] = build_environment.shorten_python_version(whole)
        if lock.pythons and versions[python] not in lock.pythons:
            raise errors.UsageError(
                f"{python} is Python {whole}, and {path} is for {', '.join(lock.pythons)}",
                tip="take one of those (--python), or make the lock with this one as well",
            )
    _ = request.sdk.requirement  # refuses what is no specifier
    if lock.rocm is not None:
        if not SpecifierSet(specifier).contains(lock.rocm, prereleases=True):
            raise errors.UsageError(
                f"--rocm {specifier!r} contradicts {path}, which says ROCm {lock.rocm}",
                tip="leave it out: the lock says which",
            )
        specifier = f"=={lock.rocm}"
    targets = _choose_targets(file, request)
    looks = compare_trees(file, request, projects, env)

    update = file.update_command("tools").removesuffix("`")
    if not lock.tools:
        log.log_note(
            f"{path} has no tools: ROCm's packages and build tools are taken as an index has them now"
            f" ({update}` locks them)"
        )
    for python, version in versions.items() if lock.tools else ():
        if (tools := lock.tools.get(version)) is None:
            raise errors.UsageError(
                f"{path} has tools for Python {', '.join(lock.tools)}, and {python} is {version}",
                tip=f"{update} --python {version}` locks them for this one as well",
            )
        missing = [extra for extra in request.sdk.extras if extra not in tools.rocm_extras]
        if tools.rocm and missing:
            raise errors.UsageError(
                f"--rocm-extras {','.join(missing)}: {path} has not the packages of this extra",
                tip=f"leave it out, or lock them: {update} --rocm-extras …`",
            )
    digest, count = digest_lock(lock), tables.format_count(len(looks), "source tree")
    log.log_note(f"lock {path}: {count} match{'es' if len(looks) == 1 else ''} the lock (sha256 {digest})")
    locked_request = replace(request, sdk=replace(request.sdk, rocm_spec=specifier), targets=targets)
    identities = {name: look.identity for name, look in looks.items()}
    return locked_request, LockedBuild(path, digest, lock, identities, looks)


def _choose_targets(file: LockFile, request: WheelsRequest) -> str | None:
    """Return the targets of the build: the lock's, where it says some."""
    if not file.lock.targets:
        return request.targets
    text, requested, option = ",".join(file.lock.targets), request.targets, gfx.TARGETS_OPTION
    locked = gfx.parse_targets(text, input_name=str(file.path))
    if requested is None and request.targets_variable:
        requested, option = request.targets_variable, gfx.TARGETS_VARIABLE
    if requested is not None and set(gfx.parse_targets(requested, input_name=option)) != set(locked):
        raise errors.UsageError(
            f"{option} {requested!r} contradicts {file.path}, which says {text}",
            tip="leave it out: the lock says which",
        )
    return text


def compare_trees(
    file: LockFile, request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str]
) -> dict[str, SourceLook]:
    """Return looks at the trees, compared with the lock side by side. Raises SourceError that names all."""
    names, sources, wrong = [project.name for project in projects], request.sources, dict[str, list[str]]()

    for name in file.lock.projects:  # not built, though nobody said that they shall not be
        built_here = request.platform in load_project(name).build.platforms
        if name not in names and request.chosen.get(name) is not False and built_here:
            wrong[name] = [f"there is no source tree {sources[name]} (name PROJECTs without it)"]
    compared = parallel.run_in_parallel(
        lambda name: _compare_tree(file, name, sources[name], env), names, jobs=len(names)
    )
    looks: dict[str, SourceLook] = {}
    for name, (faults, look) in zip(names, compared, strict=True):
        if name not in file.lock.projects:
            wrong[name] = ["it is not in the lock (name PROJECTs without it)"]
        elif look is None or faults:
            wrong[name] = faults
        else:
            looks[name] = look
    if not wrong:
        return looks
    listing = "".join(f"\n  {name}: {line}" for name in sorted(wrong) for line in wrong[name])
    folders: dict[Path, list[str]] = {}
    scripts = []
    for name in sorted(wrong.keys() & file.lock.projects.keys()):
        if sources[name].name == name:
            folders.setdefault(sources[name].parent, []).append(name)
        else:
            scripts.append(f"its script's checkout --lock {file.path} --checkout-dir {sources[name]}")
    command = ["rocm-wheels", "checkout", "--lock", str(file.path), "--source-dir"]
    ways = [f"`{shell.format_command([*command, str(folder), *held])}`" for folder, held in folders.items()]
    raise errors.SourceError(
        f"these are not what {file.path} says:{listing}",
        tip=" and ".join([*ways, *scripts]) or "leave out what is not in the lock, or make the lock with it",
    )


def _compare_tree(
    file: LockFile, name: str, tree: Path, env: Mapping[str, str]
) -> tuple[list[str], SourceLook | None]:
    """Say in what a tree is not what the lock says, or look at it."""
    from rocm_wheels.sources.lock import compare_with_lock

    if (locked := file.lock.projects.get(name)) is None:
        return [], None
    if not (tree / ".git").exists():
        return [f"{tree} is not a git checkout"], None
    parts = tuple(trees.list_repositories(trees.open_tree(tree, env)))
    state = checkout_state.read_state(parts[0].git_dir)
    faults = compare_with_lock(locked, state)
    if state is None or faults:
        return faults, None
    look = SourceLook(parts, trees.identify_parts(parts))
    if (look.identity.commit, look.identity.tree) != (state.left[""].head, state.identity):
        faults.append("it was changed since its checkout (its `status` says how)")
    if hipify.whose_build_env(load_project(name), tree) == "theirs":
        faults.append(f"its {hipify.BUILD_ENV_FILE} has not what the recipe says: remove it first")
    return faults, look
