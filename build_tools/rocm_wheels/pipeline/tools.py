"""The tools that projects are built with: resolved for each project, held to a lock, written into one.

The tools of torch's release line are for all; a requirement of the project itself on one of them decides, and
takes the line's version where it admits that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, log, shell
from rocm_wheels.models import project_names, release_lines
from rocm_wheels.models.lock import TORCH_PROJECT, Lock, LockedPatches, LockedTools
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import source_checks
from rocm_wheels.pipeline.build_environment import expand_requirements, list_included_files, read_requirements
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.request import WheelsRequest, select_projects
from rocm_wheels.sdk import build_environment, interpreters, resolve_packages
from rocm_wheels.sources import checkout_state, git

if TYPE_CHECKING:
    from rocm_wheels.sources import network
    from rocm_wheels.sources.lock import LockFile

_MARKER_PLATFORMS: Mapping[project_names.Platform, Mapping[str, str]] = {
    "linux": {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux"},
    "windows": {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"},
}


def make_marker_environment(version: str, platform: project_names.Platform) -> dict[str, str]:
    """Return what markers of requirements (PEP 508) are true of, for a Python and a platform."""
    plain = version.removesuffix("t")
    full = plain if plain.count(".") > 1 else f"{plain}.0"
    return {
        **{name: str(value) for name, value in default_environment().items()},
        **_MARKER_PLATFORMS[platform],
        "python_version": ".".join(plain.split(".")[:2]),
        "python_full_version": full,
        "implementation_version": full,
    }


def find_unmet_requirements(
    line_tools: Iterable[str],
    files: Sequence[Path],
    versions: Mapping[str, str],
    markers: Mapping[str, str],
) -> list[str]:
    """Return the requirements that packages (versions by name) do not meet: the files', then the line's."""
    own = _select_requirements(files, markers)
    named = {canonicalize_name(requirement.name) for requirement in own}
    tools = [tool for tool in map(Requirement, line_tools) if canonicalize_name(tool.name) not in named]
    constraints = [
        requirement
        for requirement in _select_requirements(files, markers, constraints=True)
        if canonicalize_name(requirement.name) in versions
    ]
    unusable = release_lines.list_unusable_tools("windows" if markers["sys_platform"] == "win32" else "linux")
    unmet = {
        str(requirement): None
        for requirement in (*own, *constraints, *tools)
        if canonicalize_name(requirement.name) not in unusable and not _is_met(requirement, versions)
    }
    return list(unmet)


def _select_requirements(
    files: Sequence[Path], markers: Mapping[str, str], *, constraints: bool = False
) -> list[Requirement]:
    return [
        requirement
        for requirement in read_requirements(files, constraints=constraints)
        if requirement.marker is None or requirement.marker.evaluate({**markers, "extra": ""})
    ]


def _is_met(requirement: Requirement, versions: Mapping[str, str]) -> bool:
    version = versions.get(canonicalize_name(requirement.name))
    if version is None:
        return False
    return not version or requirement.specifier.contains(version, prereleases=True)


def resolve_line_tools(
    line_tools: Sequence[str],
    target: resolve_packages.PackageTarget,
    source: interpreters.PackageSource,
    env: Mapping[str, str],
    *,
    cwd: Path,
    platform: project_names.Platform,
) -> resolve_packages.Resolution:
    """Return what the tools of a release line come to by themselves. Raises SdkError."""
    return resolve_packages.resolve_packages(
        line_tools, target, source, env, cwd=cwd, overrides=_list_overrides(platform)
    )


def resolve_project_tools(
    line_tools: Sequence[str],
    files: Sequence[Path],
    target: resolve_packages.PackageTarget,
    source: interpreters.PackageSource,
    env: Mapping[str, str],
    *,
    cwd: Path,
    version: str,
    platform: project_names.Platform,
    preferred: Mapping[str, str],
) -> resolve_packages.Resolution:
    """Return what the tools of a line and the requirements files of a project come to together.

    ``version`` is the Python's; ``preferred``: versions by name that are taken where they fit. SdkError.
    """
    own = _select_requirements(files, make_marker_environment(version, platform))
    named = {canonicalize_name(requirement.name) for requirement in own}
    tools = [tool for tool in line_tools if canonicalize_name(Requirement(tool).name) not in named]
    return resolve_packages.resolve_packages(
        [*expand_requirements(files), *tools],
        target,
        source,
        env,
        cwd=cwd,
        preferred=preferred,
        overrides=_list_overrides(platform),
    )


def _list_overrides(platform: project_names.Platform) -> list[str]:
    """Return the requirements by which packages that are no good on a platform are not installed."""
    return [f"{name}; sys_platform == 'none'" for name in release_lines.list_unusable_tools(platform)]


def check_locked_tools(facts: Facts) -> None:
    """Raise SdkError for a tree whose requirements are not met by the tools that the lock has for it."""
    tools = facts.locked_tools
    if tools is None or facts.locked is None:
        return
    markers = make_marker_environment(facts.python.version, facts.request.platform)
    for name, tree in facts.trees.items():
        packages = tools.projects.get(name, {})
        versions = {package: locked.version for package, locked in packages.items()}
        files = [tree.source / file for file in tree.files]
        if unmet := find_unmet_requirements(facts.tools, files, versions, markers):
            requirement = Requirement(unmet[0])
            version = versions.get(canonicalize_name(requirement.name))
            has = f"has {requirement.name} {version}" if version else f"has no {requirement.name}"
            update = shell.format_command(["rocm-wheels", "lock", "update", facts.locked.path, "tools"])
            raise errors.SdkError(
                f"{name} requires {', '.join(unmet)}, and {facts.locked.path} {has} for it"
                f" ({facts.python.tag})",
                tip=f"`{update}` resolves the tools again",
            )


@dataclass(frozen=True)
class ToolsRequest:
    """Tools to lock, for ``pythons`` as locks write them; ``sdk`` says where ROCm's packages come from.

    ``checkouts``: folder of checkouts that may have the commits; ``patches``: that of the patch sets.
    """

    pythons: tuple[str, ...]
    sdk: build_environment.EnvironmentSpec
    checkouts: Path | None
    patches: Path


def resolve_lock_tools(
    file: LockFile, request: ToolsRequest, env: Mapping[str, str], transport: network.Transport
) -> Lock:
    """Return a lock with what its projects are built with now, for the Pythons of a request.

    Of other Pythons it keeps what it has. Requirements are read in the locked commits, patched as a checkout
    is. Raises SourceError, SdkError, UsageError.
    """
    from rocm_wheels.sources import resolve_lock

    lock = file.lock
    projects = [load_project(name) for name in lock.projects]
    names = {p.name: p.build.requirements for p in projects if lock.platform in p.build.platforms}
    if lock.rocm is None:
        log.log_note(f"{file.path} names no version of ROCm: its packages are not locked")
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-tools-") as folder:
        trees = Path(folder).resolve()
        resolve_lock.write_locked_files(
            file, names, trees, list_included=list_included_files,
            checkouts=request.checkouts, patches=request.patches, env=env, transport=transport,
        )  # fmt: skip
        files = {name: [trees / name / path for path in paths] for name, paths in names.items()}
        tools = dict(lock.tools)
        for python in request.pythons:
            log.log_note(f"resolving the tools for Python {python}")
            tools[python] = _resolve_python_tools(lock, files, python, request.sdk, env, cwd=trees)
    return lock.replace_tools(tools)


def write_build_lock(
    request: WheelsRequest, path: Path, patches: Path, env: Mapping[str, str], transport: network.Transport
) -> WheelsRequest:
    """Lock what a build has its wheels from, write that to ``path``, and return the request that goes by it.

    Its trees as they were checked out, the ROCm that its options come to, and the tools. ``patches``: folder
    of the patch sets. Raises UsageError, SourceError for a tree that no lock can hold, SdkError.
    """
    from rocm_wheels.sources.lock import LockFile, write_lock

    if request.lock is not None or not request.install_rocm:
        raise errors.UsageError(
            "--write-lock locks what the build installs, and "
            + (
                "--lock says that already"
                if request.lock is not None
                else "without --install-rocm that is not ROCm"
            ),
            tip="`rocm-wheels lock update FILE tools` renews a lock"
            if request.lock is not None
            else "add --install-rocm, or leave --write-lock out",
        )
    projects = select_projects(request)
    versions = [build_environment.query_python_version(python, env) for python in request.interpreters]
    sdk = replace(request.sdk, python=request.interpreters[0]).with_absolute_paths()
    lock = _lock_trees(request, projects, env, transport)
    file = LockFile(path, lock)
    try:
        source_checks.compare_trees(file, request, projects, env)
    except errors.SourceError as error:
        error.tip = (
            "a lock names what others can fetch: take changes back, or make them a patch of the project"
        )
        raise
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-tools-") as folder:
        rocm = build_environment.resolve_rocm(
            sdk, resolve_packages.PackageTarget(sdk.python, platform=lock.platform), env, cwd=Path(folder)
        )
    _refuse_direct("rocm", rocm)
    pythons = tuple(dict.fromkeys(map(build_environment.shorten_python_version, versions)))
    lock = lock.model_copy(update={"rocm": rocm.packages["rocm"].version, "pythons": pythons})
    trees = (request.sources[project.name] for project in projects)
    checkouts = next((tree.parent for tree in trees), None)
    tools_request = ToolsRequest(pythons, sdk, checkouts, patches)
    write_lock(path, resolve_lock_tools(LockFile(path, lock), tools_request, env, transport))
    return replace(request, lock=path)


def _lock_trees(
    request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str], transport: network.Transport
) -> Lock:
    """Return the lock of the commits, submodules and patches that trees were checked out at. SourceError."""
    from rocm_wheels.sources import resolve_lock

    options, patches = {}, {}
    for project in projects:
        tree = request.sources[project.name]
        state = (
            checkout_state.read_state(git.find_git_directory(git.Git(tree, env)))
            if (tree / ".git").exists()
            else None
        )
        if state is None or state.operation is not None:
            raise errors.SourceError(
                f"{tree} was not checked out by rocm-wheels as a whole, so that a lock cannot say what it is",
                tip="check it out with `rocm-wheels checkout`, or leave --write-lock out",
            )
        options[project.name] = resolve_lock.ProjectOptions(
            state.ref, state.origin, state.upstream, "its checkout"
        )
        if state.patches:
            patches[project.name] = LockedPatches(name=state.patch_set, digest=state.patches)
    targets = () if request.per_target else request.chosen_targets or ()
    lock = resolve_lock.make_lock(
        resolve_lock.LockRequest(
            projects=tuple(projects),
            torch=load_project(TORCH_PROJECT),
            options=options,
            platform=request.platform,
            targets=targets,
            checkouts=request.sources[projects[0].name].parent,
        ),
        env=env,
        transport=transport,
    )
    locked = {
        name: project.model_copy(update={"patches": patches.get(name)})
        for name, project in lock.projects.items()
    }
    return lock.model_copy(update={"projects": locked})


def _resolve_python_tools(
    lock: Lock,
    files: Mapping[str, Sequence[Path]],
    python: str,
    sdk: build_environment.EnvironmentSpec,
    env: Mapping[str, str],
    *,
    cwd: Path,
) -> LockedTools:
    """Resolve ROCm, the tools of each project, and what their source distributions are built with."""
    target, source = _make_target(lock, python, sdk.python, env), sdk.tools_source
    line_tools = _list_line_tools(lock)
    line = resolve_line_tools(line_tools, target, source, env, cwd=cwd, platform=lock.platform)
    line_versions = {name: package.version for name, package in line.packages.items()}
    resolutions: dict[str, resolve_packages.Resolution] = {}
    for name, paths in files.items():
        resolutions[name] = resolve_project_tools(
            line_tools,
            [path for path in paths if path.is_file()],
            target,
            source,
            env,
            cwd=cwd,
            version=python,
            platform=lock.platform,
            preferred=line_versions,
        )
        _refuse_direct(name, resolutions[name])
    rocm = resolve_packages.Resolution({})
    if lock.rocm is not None:
        rocm = build_environment.resolve_rocm(replace(sdk, rocm_spec=f"=={lock.rocm}"), target, env, cwd=cwd)
        _refuse_direct("rocm", rocm)
    sdists = resolve_packages.Resolution(
        {}, {}, {n: url for r in (rocm, *resolutions.values()) for n, url in r.sdist_urls.items()}
    )
    return LockedTools(
        rocm_extras=sdk.all_extras if rocm.packages else (),
        rocm=rocm.packages,
        projects={name: resolution.packages for name, resolution in resolutions.items()},
        backends=resolve_packages.resolve_backends(sdists, target, source, env, cwd=cwd),
    )


def _make_target(
    lock: Lock, python: str, host: Path, env: Mapping[str, str]
) -> resolve_packages.PackageTarget:
    """Return for whom tools are resolved. A Python without the GIL must be there: uv cannot do without it."""
    if not python.endswith("t"):
        return resolve_packages.PackageTarget(host, python, lock.platform)
    return resolve_packages.PackageTarget(
        interpreters.find_interpreters([python], env)[0].path, platform=lock.platform
    )


def _list_line_tools(lock: Lock) -> tuple[str, ...]:
    """Return the tools of the release line of a lock's torch, of that which it names, or of the newest."""
    torch = lock.projects.get("pytorch")
    version = (torch.version if torch is not None else None) or lock.named_torch
    line = release_lines.get_newest_line_tools() if version is None else release_lines.get_line_tools(version)
    return line.list_requirements(lock.platform)


def _refuse_direct(name: str, resolution: resolve_packages.Resolution) -> None:
    """Raise SdkError for a package that is no file: nobody can say its digest."""
    if resolution.direct:
        requirement = shell.hide_credentials(next(iter(resolution.direct.values())))
        raise errors.SdkError(
            f"{name} requires {requirement}, which is no file with a digest and cannot be locked",
            tip="have a wheel of it in an index or a folder, and a requirement with its version",
        )
