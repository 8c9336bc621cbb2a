"""``repair``: make a built wheel fit for machines other than the builder's; every wheel goes through it.

The platform tag is what symbol versions allow, so what it is on this machine follows from its compiler's
libstdc++. Libraries of what the wheel requires (ROCm in the build environment, wheels of this run) stay
outside. What cannot be repaired ends the run with exit code 13, unless ``--no-repair`` keeps wheels as they
were built, which the record says.
"""

from __future__ import annotations

import hashlib
import os
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rocm_wheels.core import errors, files, log
from rocm_wheels.models import project
from rocm_wheels.pipeline import build_environment, packaging
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.request import RepairSettings
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun

REPAIR_VERSION = "1"
_FAULT_TIP = (
    "--library-dir names a folder to graft a library from, --exclude one that users have; "
    "--no-repair keeps wheels as they were built"
)


def settle_repair(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with what decides the tag, and what is in and outside the wheel."""
    settings = planner.facts.request.repair
    inputs |= {"repair": "no", "step": REPAIR_VERSION}
    if settings.enabled:
        inputs["repair"] = _describe_settings(settings, project.load_project(str(step.project)))
        inputs["auditwheel"] = _find_version("auditwheel")
        inputs["ROCm packages"] = planner.ready.content
    return packaging.settle_packaging(planner, step, inputs, "rocm-wheels wheel repair")


def _describe_settings(settings: RepairSettings, recipe: project.Project) -> str:
    """Return all that was asked for, with a digest of what lies in the folders to graft from."""
    parts = [f"for {settings.platform}"] if settings.platform else []
    parts += ["strip"] if settings.strip else []
    parts += ["clear-exec-stack"] if settings.clear_exec_stack else []
    parts += [f"exclude {name}" for name in sorted({*settings.excludes, *recipe.repair.exclude})]
    for folder in settings.library_dirs:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name) if folder.is_dir() else []
        listing = "".join(
            f"{e.name} {e.stat().st_size} {e.stat().st_mtime_ns}\n" for e in entries if e.is_file()
        )
        digest = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()
        parts.append(f"libraries of {folder} {digest[:12]}")
    return ", ".join(parts) or "yes"


def _find_version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"  # it is asked for when the step runs


def run_repair(step_run: StepRun) -> bool:
    """Repair the wheel, or with ``--no-repair`` take it as it is. Raises PackageError."""
    settings = step_run.facts.request.repair
    return packaging.run_packaging(
        step_run, partial(_repair_wheel, step_run) if settings.enabled else _copy_wheel
    )


def _copy_wheel(wheel: Path, folder: Path) -> packaging.PackagedFiles:
    log.log_note(f"{wheel.name} stays as it was built: --no-repair")
    from rocm_wheels.wheels import statement

    files.copy_atomically(wheel, folder / wheel.name)
    statement.copy_statement(wheel, folder / wheel.name)
    return packaging.PackagedFiles(folder / wheel.name, note="NOT REPAIRED (--no-repair)")


def _repair_wheel(step_run: StepRun, wheel: Path, folder: Path) -> packaging.PackagedFiles:
    from rocm_wheels.package import repair
    from rocm_wheels.wheels import required_packages

    ready, facts = step_run.ready, step_run.facts
    settings = facts.request.repair
    with build_environment.hold_environment(
        ready, facts.workspace, purpose=step_run.step.id
    ):  # another step may install now
        offers = required_packages.PackagePool.collect(
            [wheel, *_find_needed_wheels(step_run)], [], None, facts.env, site_packages=ready.site_packages
        )
        prefix = ready.sdk.prefix
        libraries = prefix.libraries if prefix is not None else ()
        request = repair.RepairRequest(
            platform=settings.platform,
            excludes=dict.fromkeys(settings.excludes, "--exclude"),
            installed=dict.fromkeys(libraries, f"ROCm {ready.sdk.version} in {ready.sdk.root}"),
            library_dirs=settings.library_dirs,
            clear_exec_stack=settings.clear_exec_stack,
            strip=settings.strip,
        )
        (plan,) = repair.plan_repairs([wheel], offers, request)
    step_run.append_log("repair", plan.describe())
    try:
        (repaired,) = repair.write_repairs([plan], folder, facts.env)
    except errors.PackageError as fault:
        fault.tip = fault.tip or _FAULT_TIP
        raise
    for line in plan.describe():
        log.log_note(line)
    done = [f"{graft.library} grafted" for graft in plan.grafts]
    done += [line for change in plan.changes for line in change.describe()]
    return packaging.PackagedFiles(
        repaired.path,
        debug_archive=repaired.debug_archive,
        note="; ".join(done),
        rewritten=bool(plan.changes or plan.grafts),
    )


def _find_needed_wheels(step_run: StepRun) -> list[Path]:
    """Return the wheels that the project was built against, of this run or given."""
    planner, facts = step_run.planner, step_run.facts
    build = planner.steps[step_run.step.after[0]]
    wheels: list[Path] = []
    for name in project.load_project(str(build.project)).build.after:
        if facts.builds_project(name):
            stamp = facts.done[planner.find_build_step(build, name)].stamp
            wheels.append(Path(stamp.outputs[0].path))
        elif (provided := facts.python.provided.get(name)) and provided.wheel is not None:
            wheels.append(provided.wheel)
    return wheels
