"""The tools that projects are built with: resolved for each project, held to a lock, written into one.

The tools of torch's release line are for all; a requirement of the project itself on one of them decides, and
takes the line's version where it admits that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.core import errors, log, shell
from rocm_wheels.models import release_lines
from rocm_wheels.models.lock import TORCH_PROJECT, Lock, LockedTools
from rocm_wheels.models.project import load_project
from rocm_wheels.models.project_names import Platform
from rocm_wheels.pipeline.build_environment import (
    PYPROJECT,
    list_included_files,
    list_required_names,
    parse_requirements,
    read_build_requirements,
    read_requirement_files,
)
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.sdk import build_environment, interpreters, resolve_packages

if TYPE_CHECKING:
    from rocm_wheels.sources import network
    from rocm_wheels.sources.lock import LockFile

_MARKER_PLATFORMS: Mapping[Platform, Mapping[str, str]] = {
    "linux": {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux"},
    "windows": {"sys_platform": "win32", "os_name": "nt", "platform_system": "Windows"},
}


def _select_requirements(lines: Iterable[str], version: str, platform: Platform) -> list[Requirement]:
    """Return those of requirements whose markers (PEP 508) are true of a Python and a platform."""
    plain = version.removesuffix("t")
    full = plain if plain.count(".") > 1 else f"{plain}.0"
    markers = {
        **{name: str(value) for name, value in default_environment().items()},
        **_MARKER_PLATFORMS[platform],
        "python_version": ".".join(plain.split(".")[:2]),
        "python_full_version": full,
        "implementation_version": full,
        "extra": "",
    }
    return [
        each for each in parse_requirements(lines) if each.marker is None or each.marker.evaluate(markers)
    ]


def find_unmet_requirements(
    line_tools: Sequence[str],
    files: Sequence[Path],
    versions: Mapping[str, str],
    *,
    version: str,
    platform: Platform,
) -> list[str]:
    """Return the requirements that packages (versions by name) do not meet: the files', then the line's.

    ``version``: the Python's.
    """
    read = read_requirement_files(files)
    required = _select_requirements(read.requirements, version, platform)
    named = {canonicalize_name(each.name) for each in required}
    constraints = _select_requirements(read.constraints, version, platform)
    required += [each for each in constraints if canonicalize_name(each.name) in versions]
    required += [tool for tool in map(Requirement, line_tools) if canonicalize_name(tool.name) not in named]
    unusable, unmet = release_lines.list_unusable_tools(platform), dict[str, None]()
    for requirement in required:
        name = canonicalize_name(requirement.name)
        held = versions.get(name)  # empty: of a package that states none
        is_met = held is not None and (not held or requirement.specifier.contains(held, prereleases=True))
        if not is_met and name not in unusable:
            unmet[str(requirement)] = None
    return list(unmet)


@dataclass(frozen=True)
class ToolsResolver:
    """Asks an index what the tools of a release line come to, for a Python of a ``version``."""

    line_tools: tuple[str, ...]
    target: resolve_packages.PackageTarget
    source: interpreters.PackageSource
    env: Mapping[str, str]
    cwd: Path
    version: str
    platform: Platform

    def resolve(
        self, files: Sequence[Path] = (), preferred: Mapping[str, str] = MappingProxyType({})
    ) -> resolve_packages.Resolution:
        """Return what the tools of the line and the requirements files of a project come to together.

        ``preferred``: versions by name that are taken where they fit. Raises SdkError.
        """
        own = _select_requirements(read_requirement_files(files).requirements, self.version, self.platform)
        named = {canonicalize_name(requirement.name) for requirement in own}
        words: list[str | Path] = []
        for file in files:  # an installer takes requirements files as they are
            words += read_build_requirements(file) if file.name == PYPROJECT else [file]
        words += [tool for tool in self.line_tools if named.isdisjoint(list_required_names([tool]))]
        unusable = release_lines.list_unusable_tools(self.platform)
        overrides = [f"{name}; sys_platform == 'none'" for name in unusable]  # that one is not installed
        return resolve_packages.resolve_packages(
            words,
            self.target,
            self.source,
            self.env,
            cwd=self.cwd,
            preferred=preferred,
            overrides=overrides,
        )


def check_locked_tools(facts: Facts) -> None:
    """Raise SdkError for a tree whose requirements are not met by the tools that the lock has for it."""
    tools, locked = facts.locked_tools, facts.locked
    for name, tree in facts.trees.items() if tools is not None else ():
        assert tools is not None and locked is not None
        versions = {package: entry.version for package, entry in tools.projects.get(name, {}).items()}
        unmet = find_unmet_requirements(
            facts.tools,
            [tree.source / file for file in tree.files],
            versions,
            version=facts.python.version,
            platform=facts.request.platform,
        )
        if unmet:
            first = Requirement(unmet[0]).name
            held = versions.get(canonicalize_name(first))
            has = f"has {first} {held}" if held else f"has no {first}"
            update = shell.format_command(["rocm-wheels", "lock", "update", locked.path, "tools"])
            raise errors.SdkError(
                f"{name} requires {', '.join(unmet)}, and {locked.path} {has} for it ({facts.python.tag})",
                tip=f"`{update}` resolves the tools again",
            )


# -- into a lock --------------------------------------------------------------------------------------------


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
    target = resolve_packages.PackageTarget(sdk.python, python, lock.platform)
    if python.endswith("t"):  # a Python without the GIL must be there: uv cannot do without it
        found = interpreters.find_interpreters([python], env)[0].path
        target = resolve_packages.PackageTarget(found, platform=lock.platform)
    # the release line of the lock's torch, of that which it names, or the newest
    torch = lock.projects.get(TORCH_PROJECT)
    version = (torch.version if torch is not None else None) or lock.named_torch
    line = release_lines.get_newest_line_tools() if version is None else release_lines.get_line_tools(version)
    line_tools = line.list_requirements(lock.platform)
    resolver = ToolsResolver(line_tools, target, sdk.tools_source, env, cwd, python, lock.platform)
    preferred = {name: package.version for name, package in resolver.resolve().packages.items()}
    resolutions: dict[str, resolve_packages.Resolution] = {}
    for name, paths in files.items():
        resolutions[name] = resolver.resolve([path for path in paths if path.is_file()], preferred)
        _refuse_direct(name, resolutions[name])
    rocm = resolve_packages.Resolution({})
    if lock.rocm is not None:
        rocm = build_environment.resolve_rocm(replace(sdk, rocm_spec=f"=={lock.rocm}"), target, env, cwd=cwd)
        _refuse_direct("rocm", rocm)
    urls = {name: url for each in (rocm, *resolutions.values()) for name, url in each.sdist_urls.items()}
    sdists = resolve_packages.Resolution({}, {}, urls)
    return LockedTools(
        rocm_extras=sdk.all_extras if rocm.packages else (),
        rocm=rocm.packages,
        projects={name: resolution.packages for name, resolution in resolutions.items()},
        backends=resolve_packages.resolve_backends(sdists, target, sdk.tools_source, env, cwd=cwd),
    )


def _refuse_direct(name: str, resolution: resolve_packages.Resolution) -> None:
    """Raise SdkError for a package that is no file: nobody can say its digest."""
    if resolution.direct:
        requirement = shell.hide_credentials(next(iter(resolution.direct.values())))
        raise errors.SdkError(
            f"{name} requires {requirement}, which is no file with a digest and cannot be locked",
            tip="have a wheel of it in an index or a folder, and a requirement with its version",
        )
