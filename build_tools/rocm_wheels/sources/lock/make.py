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
from rocm_wheels.model.names import option_name
from rocm_wheels.model.project import Platform, Project
from rocm_wheels.sources.lock.resolve import Wanted, reads_torch, resolve
from rocm_wheels.sources.network.transport import Transport
from rocm_wheels.sources.patches.sets import PatchSet, choose_set
from rocm_wheels.sources.pins.choose import Pin, Spelling, choose_pin

if TYPE_CHECKING:
    from rocm_wheels.model.line_facts import Line


@dataclass(frozen=True)
class Wish:
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
    sets, ``None`` for a lock without patches. ``wishes`` are by project.
    """

    projects: tuple[Project, ...]
    torch: Project
    wishes: Mapping[str, Wish]
    platform: Platform
    line: Line | None = None
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
        check_rocm(request.rocm, request.line)
    if request.line is not None:
        released = (*request.line.pythons.values, *request.line.free_threaded.values)
        others = [python for python in pythons if released and python not in released]
        if others:
            log.warn(
                f"release line {request.line.name} was not released for Python {', '.join(others)}, "
                f"but for {', '.join(released)}"
            )
        pythons = pythons or released
    if request.names_torch and request.torch not in request.projects:
        raise UsageError(
            f"--name-torch: {request.torch.name} is not among the projects",
            tip="lock it, too, or leave this out",
        )
    wanted = [_wanted(project, request) for project in request.projects]
    own = next((one for one in wanted if one.project.name == request.torch.name), None)
    if own is None:
        own = _wanted(request.torch, request)
        if request.torch.name in request.wishes and not any(one.reads_torch for one in wanted):
            raise UsageError(
                f"{spelling(request.torch.name).ref} would have no effect: {request.torch.name} is not among "
                "the projects, and none of them needs its pins",
                tip="leave it out",
            )
    found = resolve(
        wanted, own, platform=request.platform, checkouts=request.checkouts, env=env, transport=transport
    )
    return Lock(
        platform=request.platform,
        line=request.line.name if request.line is not None else None,
        rocm=request.rocm,
        targets=request.targets,
        pythons=pythons,
        local_version=request.local_version,
        named_torch=found.projects[request.torch.name].version if request.names_torch else None,
        projects=found.projects,
    )


def spelling(project: str) -> Spelling:
    """Return what the options about a project are called."""
    option = option_name(project)
    return Spelling(
        f"--{option}-ref", f"--{option}-origin", "name a torch that pins it (see --pytorch-ref, --line)"
    )


def check_rocm(rocm: str, line: Line | None) -> None:
    """Warn of a version of ROCm that a line was not released with. Raises UsageError for what is none."""
    try:
        version = Version(rocm)
    except InvalidVersion:
        raise UsageError(
            f"--rocm-version {rocm!r} is not a version (PEP 440)", tip="for example: 7.10.0a20260501"
        ) from None
    if line is None or not line.rocm.all():
        return
    released = line.rocm.all()
    if (version.major, version.minor) not in {(v.major, v.minor) for v in map(Version, released)}:
        log.warn(f"release line {line.name} was released with ROCm {', '.join(released)}, not with {rocm}")


def _wanted(project: Project, request: LockRequest) -> Wanted:
    wish = request.wishes.get(project.name, Wish())
    patches = partial(_patch_set, project, request)
    if wish.commit is not None:
        pin = Pin(wish.origin or "", wish.ref or wish.commit, wish.why, wish.commit)
        return Wanted(project, lambda _torch: pin, False, patches)
    all_said = wish.ref is not None and wish.origin is not None
    return Wanted(
        project,
        lambda torch: choose_pin(
            project,
            platform=request.platform,
            origin=wish.origin,
            ref=wish.ref,
            torch_dir=torch,
            line=None if all_said else request.line,
            spelling=spelling(project.name),
        ),
        wish.ref is None and reads_torch(project, request.platform),
        patches,
    )


def _patch_set(project: Project, request: LockRequest, ref: str) -> PatchSet | None:
    if request.patches is None:
        return None
    line = request.line.name if request.line is not None else None
    return choose_set(project.name, ref, request.patches, line=line)
