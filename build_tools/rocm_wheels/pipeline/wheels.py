"""A run of ``build``: environment, SDK, then every project in order, each checked before it counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from rocm_wheels import log
from rocm_wheels.compile.cache import find_compiler_cache
from rocm_wheels.compile.hooks.triton import triton_build_environment
from rocm_wheels.compile.sdk_tree import look_at_sdk, sdk_warnings
from rocm_wheels.errors import RocmWheelsError, UsageError
from rocm_wheels.model.gfx import base_target, choose_targets, parse_targets
from rocm_wheels.model.lines import line_of, newest_line
from rocm_wheels.model.project import Project
from rocm_wheels.model.versions import base_version, version_suffix
from rocm_wheels.pipeline.built import Built
from rocm_wheels.pipeline.collect import wheels_of
from rocm_wheels.pipeline.environment import find_rocm, install_rocm
from rocm_wheels.pipeline.inputs import Setting
from rocm_wheels.pipeline.locked import LockedBuild, under_lock
from rocm_wheels.pipeline.project import ProjectStep
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest, select
from rocm_wheels.pipeline.summary import Row
from rocm_wheels.pipeline.variants import check_targets, stamp_run
from rocm_wheels.sdk.ask import RocmSdk
from rocm_wheels.sources.git import outside_repositories
from rocm_wheels.sources.hold import held
from rocm_wheels.workspace import WAIT, Workspace, exclusive


@dataclass(frozen=True)
class Summary:
    """What a run came to: a row a project, and the error that ended it, if any."""

    rows: tuple[Row, ...]
    failure: RocmWheelsError | KeyboardInterrupt | None
    seconds: float


def build_wheels(request: WheelsRequest, env: Mapping[str, str]) -> Summary:
    """Build what is asked for and return a row a project, also when something failed.

    The first failure ends the run; the rows before it are finished wheels, those after it
    say ``not built``. Errors before the first project is reached are raised.
    """
    begin = time.monotonic()
    projects = select(request)
    check(request, projects)
    env = outside_repositories(env)
    if not request.sdk.current_env:
        env = _isolated(env)
    locked = None
    if request.lock is not None:
        request, locked = under_lock(request, request.lock, projects, env)
    with exclusive(request.work, what="build", tip=f"{WAIT}, or give this run another --work-dir"):
        setting = prepare(request, projects, env, locked)
        rows: list[Row] = []
        built: dict[str, Built] = {}
        for position, project in enumerate(projects):
            started = time.monotonic()
            try:
                with held(request.sources[project.name], what=f"build of {project.name}", env=env):
                    built[project.name] = ProjectStep(project, setting, dict(built)).run()
            except (RocmWheelsError, KeyboardInterrupt) as failure:
                outcome = "failed" if isinstance(failure, RocmWheelsError) else "interrupted"
                note = "an earlier wheel is still in the output" if _earlier(project, setting) else ""
                rows.append(Row(project.name, outcome, seconds=time.monotonic() - started, note=note))
                rows.extend(Row(later.name, "not built") for later in projects[position + 1 :])
                return Summary(tuple(rows), failure, time.monotonic() - begin)
            rows.append(_row(built[project.name], time.monotonic() - started, setting))
            if setting.locked is not None and not built[project.name].again:
                setting = replace(setting, locked=replace(setting.locked, begun=True))
        if request.packaging == "variant":
            try:
                rows = stamp_run(rows, built, setting)
            except RocmWheelsError as failure:  # the plain wheels are there, and count
                return Summary(tuple(rows), failure, time.monotonic() - begin)
    return Summary(tuple(rows), None, time.monotonic() - begin)


def _row(built: Built, seconds: float, setting: Setting) -> Row:
    return replace(built.row(seconds), lock=setting.locked.digest if setting.locked else "")


def _isolated(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment without what would put other packages before those of a build environment."""
    strangers = [name for name in ("PYTHONPATH", "PYTHONHOME") if env.get(name)]
    if strangers:
        log.note(f"{' and '.join(strangers)}: not for the build environment (--current-env takes them)")
    return {name: value for name, value in env.items() if name not in strangers}


def check(request: WheelsRequest, projects: Sequence[Project]) -> None:
    """Refuse what cannot be right before anything is installed. Raises UsageError."""
    for project in projects:
        tree = request.sources[project.name].resolve()
        for folder, option in ((request.output, "--output-dir"), (request.work, "--work-dir")):
            if folder.resolve().is_relative_to(tree):
                raise UsageError(
                    f"{option} {folder} is inside the source tree of {project.name}, {tree}",
                    tip="choose a folder outside: what is put there would count as changed sources",
                )
    for text, what in (
        (request.targets, "--pytorch-rocm-arch"),
        (request.targets_variable, "PYTORCH_ROCM_ARCH"),
    ):
        if text:
            parse_targets(text, what=what)
    version_suffix("0", request.version_suffix)


def prepare(
    request: WheelsRequest,
    projects: Sequence[Project],
    env: Mapping[str, str],
    locked: LockedBuild | None = None,
) -> Setting:
    """Find or make the build environment, ask the SDK once, and settle what holds for all projects."""
    workspace = Workspace(request.work)
    cache = None
    if request.cache is not None:
        cache = find_compiler_cache(request.cache, env, wrap_device=request.cache_wraps_device)
        if cache.caution:
            log.warn(cache.caution)
    if not request.install_rocm and (unused := _only_for_installing(request.sdk)):
        log.note(f"{', '.join(unused)}: of no effect on ROCm packages, which are taken as installed")
    ready = (install_rocm if request.install_rocm else find_rocm)(request.sdk, workspace, env)
    if locked is not None:
        locked.check_rocm(ready.sdk.version)
    sdk = look_at_sdk(
        version=ready.sdk.version, root=ready.sdk.root, cmake=ready.sdk.cmake, bin=ready.sdk.bin
    )
    for text in sdk_warnings(sdk):
        log.warn(text)
    chosen = choose_targets(request.targets, request.targets_variable, ready.sdk.targets)
    source = str(locked.path) if locked is not None and locked.lock.targets else chosen.source
    _check_targets(chosen.targets, ready.sdk, source)
    if request.packaging == "variant":
        check_targets(chosen.targets)
    log.note(f"ROCm {sdk.version} at {sdk.root}; targets {', '.join(chosen.targets)} (from {source})")
    return Setting(
        request=request,
        workspace=workspace,
        ready=ready,
        sdk=sdk,
        targets=chosen.targets,
        cache=cache,
        tools=_tools(request),
        triton_environment=_triton(request, projects),
        env=env,
        run=datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S"),
        locked=locked,
    )


def _earlier(project: Project, setting: Setting) -> bool:
    """Tell whether the output has a wheel of the project: of an earlier build, if this one failed."""
    return bool(wheels_of(setting.request.output, project.distribution, setting.ready.python_tag))


def _only_for_installing(request: SdkRequest) -> list[str]:
    """Name the options given that say where ROCm packages would come from."""
    given = {
        "--index-url": request.index_url,
        "--find-links": request.find_links,
        "--rocm-extras": request.extras,
    }
    return [option for option, value in given.items() if value]


def _tools(request: WheelsRequest) -> tuple[str, ...]:
    """Return the requirements of the build environment by torch's release line: cmake, ninja, …"""
    torch = request.sources["pytorch"]
    if not torch.is_dir():
        return newest_line().requirements(request.platform)
    version = base_version(torch)
    line = line_of(version)
    if not line.exact:
        log.warn(
            f"torch {version} is newer than every release line known; its tools are those of {line.torch}"
        )
    return line.requirements(request.platform)


def _triton(request: WheelsRequest, projects: Sequence[Project]) -> Mapping[str, str]:
    """Return what triton's checkout left for its build, when triton takes part."""
    if not any(project.name == "triton" for project in projects):
        return {}
    return triton_build_environment(request.sources["triton"])


def _check_targets(targets: Sequence[str], sdk: RocmSdk, source: str) -> None:
    """Refuse targets that the installed ROCm packages have no device libraries for."""
    missing = [target for target in targets if base_target(target) not in sdk.targets]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} (from {source}) is not among the targets of the installed ROCm "
            f"{sdk.version}: {', '.join(sdk.targets)}",
            tip=f"install its device packages: --install-rocm --rocm-extras device-{base_target(missing[0])}",
        )
