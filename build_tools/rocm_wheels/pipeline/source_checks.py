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
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels.core import errors, log, parallel, shell, tables
from rocm_wheels.models import gfx, project_names
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


def hipify_stale_sources(
    projects: Sequence[Project],
    sources: Mapping[str, Path],
    env: Mapping[str, str],
    looks: Mapping[str, SourceLook],
) -> dict[str, SourceLook]:
    """Hipify what changed in the trees of projects; return those ``looks`` at them that still are true.

    Raises SourceError for a tree that is hipified no more.
    """
    current = dict(looks)
    for project in projects:
        if _is_stale(project, sources[project.name], env, looks.get(project.name)):
            hipify.hipify_changes(project, sources[project.name], env=env, python=Path(sys.executable))
            current.pop(project.name, None)
    return current


def note_stale_sources(
    projects: Sequence[Project],
    sources: Mapping[str, Path],
    env: Mapping[str, str],
    looks: Mapping[str, SourceLook],
) -> None:
    """Tell what a build will do to the trees first, or cannot."""
    for project in projects:
        tree = sources[project.name]
        if _is_stale(project, tree, env, looks.get(project.name)):
            log.log_note(f"{tree} has changes that are not hipified yet; `build` hipifies them first")


def refuse_stale_source(project: Project, tree: Path, env: Mapping[str, str]) -> None:
    """Raise SourceError for a tree with changes that are not hipified: the build would not have them."""
    if _is_stale(project, tree, env, None):
        raise errors.SourceError(
            f"{tree} has changes that are not hipified: the build would not have them",
            tip=f"`{_hipify_command(project, tree)} --no-commit-hipify` translates them; then plan again",
        )


def _is_stale(project: Project, tree: Path, env: Mapping[str, str], look: SourceLook | None) -> bool:
    """Tell whether something changed since a tree was hipified. SourceError: it is hipified no more."""
    if project.hipify.by != "script" or not (tree / ".git").exists():
        return False
    if look is None:
        state = hipify.check_hipify(project, trees.open_tree(tree, env))
    else:
        state = hipify.check_hipify(project, look.parts[0].git, look.identity.tree)
    if state == "no":
        raise errors.SourceError(
            f"{tree} is not hipified any more: it was, and then something else was checked out there",
            tip=f"`{_hipify_command(project, tree)}` translates it; or go back to what was hipified",
        )
    return state == "stale"


def _hipify_command(project: Project, tree: Path) -> str:
    """Return the command that hipifies a tree, wherever it is."""
    place: list[str | Path] = [f"--{project_names.get_option_name(project.name)}-dir", tree]
    if tree.name == project.name:
        place = [project.distribution, "--source-dir", tree.parent]
    return shell.format_command(["rocm-wheels", "sources", "hipify", *place])


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
    _refuse_other_python(file, request, env)
    spec, targets = _locked_rocm_specifier(file, request), _locked_targets(file, request)
    looks = compare_trees(file, request, projects, env)
    identities = {name: look.identity for name, look in looks.items()}
    digest = digest_lock(file.lock)
    _check_locked_pythons(file, request, env)
    trees_text = (
        f"{tables.format_count(len(identities), 'source tree')} match{'es' if len(identities) == 1 else ''}"
    )
    log.log_note(f"lock {path}: {trees_text} the lock (sha256 {digest})")
    locked_request = replace(request, sdk=replace(request.sdk, rocm_spec=spec), targets=targets)
    return locked_request, LockedBuild(path, digest, file.lock, identities, looks)


def _refuse_other_python(file: LockFile, request: WheelsRequest, env: Mapping[str, str]) -> None:
    pythons = file.lock.pythons
    if not pythons:
        return
    for python in request.interpreters:
        whole = build_environment.query_python_version(python, env)
        if build_environment.shorten_python_version(whole) not in pythons:
            raise errors.UsageError(
                f"{python} is Python {whole}, and {file.path} is for {', '.join(pythons)}",
                tip="take one of those (--python), or make the lock with this one as well",
            )


def _check_locked_pythons(file: LockFile, request: WheelsRequest, env: Mapping[str, str]) -> None:
    """Refuse a Python or an extra of ROCm that the lock has no packages for; note one without any."""
    update = file.update_command("tools")
    if not file.lock.tools:
        log.log_note(
            f"{file.path} has no tools: ROCm's packages and build tools are taken as an index has them now"
            f" ({update} locks them)"
        )
        return
    for python in request.interpreters:
        short = build_environment.shorten_python_version(build_environment.query_python_version(python, env))
        tools = file.lock.tools.get(short)
        if tools is None:
            raise errors.UsageError(
                f"{file.path} has tools for Python {', '.join(file.lock.tools)}, and {python} is {short}",
                tip=f"{update.removesuffix('`')} --python {short}` locks them for this one as well",
            )
        missing = [extra for extra in request.sdk.extras if tools.rocm and extra not in tools.rocm_extras]
        if missing:
            raise errors.UsageError(
                f"--rocm-extras {','.join(missing)}: {file.path} has not the packages of this extra",
                tip=f"leave it out, or lock them: {update.removesuffix('`')} --rocm-extras …`",
            )


def _locked_rocm_specifier(file: LockFile, request: WheelsRequest) -> str:
    """Return the version specifier of the ROCm packages: the lock's version, where it says one."""
    specifier, locked = request.sdk.rocm_spec, file.lock.rocm
    _ = request.sdk.requirement  # refuses what is no specifier
    if locked is None:
        return specifier
    if not SpecifierSet(specifier).contains(locked, prereleases=True):
        raise errors.UsageError(
            f"--rocm {specifier!r} contradicts {file.path}, which says ROCm {locked}",
            tip="leave it out: the lock says which",
        )
    return f"=={locked}"


def _locked_targets(file: LockFile, request: WheelsRequest) -> str | None:
    """Return the targets of the build: the lock's, where it says some."""
    if not file.lock.targets:
        return request.targets
    locked_text = ",".join(file.lock.targets)
    locked = gfx.parse_targets(locked_text, input_name=str(file.path))
    requested, option = request.targets, gfx.TARGETS_OPTION
    if requested is None and request.targets_variable:
        requested, option = request.targets_variable, gfx.TARGETS_VARIABLE
    if requested is not None and set(gfx.parse_targets(requested, input_name=option)) != set(locked):
        raise errors.UsageError(
            f"{option} {requested!r} contradicts {file.path}, which says {locked_text}",
            tip="leave it out: the lock says which",
        )
    return locked_text


def compare_trees(
    file: LockFile, request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str]
) -> dict[str, SourceLook]:
    """Return looks at the trees, compared with the lock side by side. Raises SourceError that names all."""
    names = [project.name for project in projects]
    wrong = {
        name: [f"there is no source tree {request.sources[name]} ({_exclude_option(name)} leaves it out)"]
        for name in _list_missing_projects(file.lock, request, names)
    }
    compared = parallel.run_in_parallel(
        lambda name: _compare_tree(file, name, request, env), names, jobs=len(names)
    )
    looks: dict[str, SourceLook] = {}
    for name, (faults, look) in zip(names, compared, strict=True):
        if faults:
            wrong[name] = faults
        elif look is not None:
            looks[name] = look
    if wrong:
        listing = "".join(f"\n  {name}: {line}" for name in sorted(wrong) for line in wrong[name])
        raise errors.SourceError(
            f"these are not what {file.path} says:{listing}", tip=_repair_command(file, request, wrong)
        )
    return looks


def _list_missing_projects(lock: Lock, request: WheelsRequest, names: Sequence[str]) -> list[str]:
    """Name the projects of the lock that are not built, though nobody said that they shall not be."""
    return [
        name
        for name in lock.projects
        if name not in names
        and request.chosen.get(name) is not False
        and request.platform in load_project(name).build.platforms
    ]


def _compare_tree(
    file: LockFile, name: str, request: WheelsRequest, env: Mapping[str, str]
) -> tuple[list[str], SourceLook | None]:
    """Say in what a tree is not what the lock says, or look at it."""
    from rocm_wheels.sources.lock import compare_with_lock

    tree, locked = request.sources[name], file.lock.projects.get(name)
    if locked is None:
        return [f"it is not in the lock ({_exclude_option(name)} leaves it out)"], None
    if not (tree / ".git").exists():
        return [f"{tree} is not a git checkout"], None
    parts = tuple(trees.list_repositories(trees.open_tree(tree, env)))
    state = checkout_state.read_state(parts[0].git_dir)
    if state is None or (faults := compare_with_lock(locked, state)):
        return compare_with_lock(locked, state), None
    look = SourceLook(parts, trees.identify_parts(parts))
    if (look.identity.commit, look.identity.tree) != (state.left[""].head, state.identity):
        faults.append("it was changed since its checkout (its `status` says how)")
    if hipify.is_foreign_build_env(tree, parts[0].git_dir):
        faults.append(f"its {hipify.BUILD_ENV_FILE} is not the one of its checkout")
    return faults, look


def _exclude_option(name: str) -> str:
    return f"--no-build-{project_names.get_option_name(name)}"


def _repair_command(file: LockFile, request: WheelsRequest, wrong: Mapping[str, object]) -> str:
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
        "`"
        + shell.format_command(
            ["rocm-wheels", "checkout", "--lock", file.path, "--source-dir", folder, *names]
        )
        + "`"
        for folder, names in folders.items()
    ]
    return " and ".join([*lines, *elsewhere]) or "leave out what is not in the lock, or make the lock with it"
