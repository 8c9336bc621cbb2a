"""A new lock: which projects, from where, by options, torch's pins, a release line and recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from rocm_wheels import log
from rocm_wheels.errors import UsageError
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.names import get_option_name
from rocm_wheels.model.project import Platform, Project
from rocm_wheels.sources.lock.resolve import ProjectToLock, may_read_torch, resolve_projects
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet, choose_patch_set
from rocm_wheels.sources.pins.choose import Pin, OptionNames, choose_pin

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import TorchLine


@dataclass(frozen=True)
class ProjectOptions:
    """What the options say of a project: a ref, a repository (``None``: nothing).

    ``commit`` is what the ref stands for where ``why`` (a manifest) says so; both others are said then, too.
    """

    ref: str | None = None
    origin: str | None = None
    commit: str | None = None
    why: str = ""


@dataclass(frozen=True)
class LockRequest:
    """A lock to make of ``projects``; ``torch`` is the recipe of the one that pins the others.

    ``checkouts``: folder of checkouts that may have the commits. ``patches``: folder of the patch
    sets, ``None`` for a lock without patches. ``options`` are by project.
    """

    projects: tuple[Project, ...]
    torch: Project
    options: Mapping[str, ProjectOptions]
    platform: Platform
    line: TorchLine | None = None
    rocm: str | None = None
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    local_version: str | None = None
    names_torch: bool = False
    checkouts: Path | None = None
    patches: Path | None = None


def make_lock(request: LockRequest, *, env: Mapping[str, str], transport: Transport) -> Lock:
    """Resolve every ref of a request, once. Raises UsageError, DataError, SourceError."""
    pythons = request.pythons
    if request.rocm is not None:
        check_rocm_version(request.rocm, request.line)
    if request.line is not None:
        released = (*request.line.pythons.values, *request.line.free_threaded.values)
        others = [python for python in pythons if released and python not in released]
        if others:
            log.log_warning(
                f"release line {request.line.name} was not released for Python {', '.join(others)}, "
                f"but for {', '.join(released)}"
            )
        pythons = pythons or released
    if request.names_torch and request.torch not in request.projects:
        raise UsageError(
            f"--name-torch: {request.torch.name} is not among the projects",
            tip="lock it, too, or leave this out",
        )
    items = [_plan_project(project, request) for project in request.projects]
    torch_item = next((item for item in items if item.project.name == request.torch.name), None)
    if torch_item is None:
        torch_item = _plan_project(request.torch, request)
        if request.torch.name in request.options and not any(item.reads_torch for item in items):
            raise UsageError(
                f"{name_options(request.torch.name).ref} would have no effect: {request.torch.name} is not among "
                "the projects, and none of them needs its pins",
                tip="leave it out",
            )
    resolved = resolve_projects(
        items,
        torch_item,
        platform=request.platform,
        checkouts=request.checkouts,
        env=env,
        transport=transport,
    )
    return Lock(
        platform=request.platform,
        line=request.line.name if request.line is not None else None,
        rocm=request.rocm,
        targets=request.targets,
        pythons=pythons,
        local_version=request.local_version,
        named_torch=resolved.projects[request.torch.name].version if request.names_torch else None,
        projects=resolved.projects,
    )


def name_options(project: str) -> OptionNames:
    """Return what the options about a project are called."""
    option = get_option_name(project)
    return OptionNames(
        f"--{option}-ref", f"--{option}-origin", "name a torch that pins it (see --pytorch-ref, --line)"
    )


def check_rocm_version(rocm: str, line: TorchLine | None) -> None:
    """Warn of a version of ROCm that a line was not released with. Raises UsageError for what is none."""
    try:
        version = Version(rocm)
    except InvalidVersion:
        raise UsageError(
            f"--rocm-version {rocm!r} is not a version (PEP 440)", tip="for example: 7.10.0a20260501"
        ) from None
    if line is None or not line.rocm.list_versions():
        return
    released = line.rocm.list_versions()
    if (version.major, version.minor) not in {(v.major, v.minor) for v in map(Version, released)}:
        log.log_warning(
            f"release line {line.name} was released with ROCm {', '.join(released)}, not with {rocm}"
        )


def _plan_project(project: Project, request: LockRequest) -> ProjectToLock:
    options = request.options.get(project.name, ProjectOptions())
    patches = partial(_choose_project_patches, project, request)
    if options.commit is not None:
        pin = Pin(options.origin or "", options.ref or options.commit, options.why, options.commit)
        return ProjectToLock(project, lambda _torch: pin, False, patches)
    complete = options.ref is not None and options.origin is not None
    return ProjectToLock(
        project,
        lambda torch: choose_pin(
            project,
            platform=request.platform,
            origin=options.origin,
            ref=options.ref,
            torch_dir=torch,
            line=None if complete else request.line,
            option_names=name_options(project.name),
        ),
        options.ref is None and may_read_torch(project, request.platform),
        patches,
    )


def _choose_project_patches(project: Project, request: LockRequest, ref: str) -> PatchSet | None:
    if request.patches is None:
        return None
    line = request.line.name if request.line is not None else None
    return choose_patch_set(project.name, ref, request.patches, line=line)
