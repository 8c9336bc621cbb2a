"""``repair``: make a built wheel fit for machines other than the builder's; every wheel goes through it.

The platform tag is what symbol versions allow, so what it is on this machine follows from its compiler's
libstdc++. Libraries of what the wheel requires (ROCm in the build environment, wheels of this run) stay
outside; what nothing has is taken in from the folders of the recipe and of ``ROCM_WHEELS_LIBRARY_DIRS``.
What cannot be repaired ends the run with exit code 13, unless ``--plat none`` keeps wheels as they were
built, which the record says.

It also writes into the wheel what it was made of, in the same pass: the lock and the bill of materials; and
beside it how it was built. None of that is an input of its build: another lock of the same sources builds
nothing again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rocm_wheels.core import errors, log
from rocm_wheels.models import project
from rocm_wheels.pipeline import build_environment, packaging
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun

REPAIR_VERSION = "2"
_LIBRARY_DIRS = "ROCM_WHEELS_LIBRARY_DIRS"
_FAULT_TIP = (
    f"{_LIBRARY_DIRS} names folders to graft from, `repair.exclude` of the recipe libraries that users have;"
    " --plat none keeps wheels as they were built, for `rocm-wheels wheel repair` and its options"
)


def settle_repair(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with what decides the tag, and what is in and outside the wheel."""
    facts, request, (build,) = planner.facts, planner.facts.request, step.after
    inputs |= {"repair": "no", "step": REPAIR_VERSION}
    if request.repair:
        parts = [f"for {request.platform_tag}"] if request.platform_tag else []
        recipe = project.load_project(str(step.project)).repair
        parts += [f"exclude {name}" for name in sorted(recipe.exclude)]
        parts += [f"graft from {folder}" for folder in (*recipe.library_dirs, *_list_named_dirs(facts.env))]
        inputs["repair"] = ", ".join(parts) or "yes"
        inputs["auditwheel"] = _find_version("auditwheel")
        inputs["ROCm packages"] = planner.ready.content
    if facts.locked is not None:
        from rocm_wheels.package import sbom

        inputs["lock"] = sbom.digest_lock_part(facts.locked.lock, str(step.project))
    if planner.is_current(build):
        built = facts.done[build].stamp.facts
        made_of = json.dumps([built["parts"], built["commit"], built["changed"]], sort_keys=True)
        digest = inputs["bill of materials"] = hashlib.sha256(made_of.encode()).hexdigest()
        before = facts.done[step.id].stamp.inputs if step.id in facts.done else {}
        # a run without a lock leaves the wheel the one of its sources
        if facts.locked is None and "lock" in before and before["bill of materials"] == digest:
            inputs["lock"] = before["lock"]
    return packaging.settle_packaging(planner, step, inputs, "rocm-wheels wheel repair")


def _list_named_dirs(env: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(folder).absolute() for folder in env.get(_LIBRARY_DIRS, "").split(os.pathsep) if folder)


def list_library_dirs(recipe: project.RepairRecipe, source: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders to graft from, the first that has a library goes: of the build, of the variable."""
    left_by_build = {folder for pattern in recipe.library_dirs for folder in source.glob(pattern)}
    return (*sorted(left_by_build), *_list_named_dirs(env))


def _find_version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"  # it is asked for when the step runs


def run_repair(step_run: StepRun) -> None:
    """Repair the wheel, unless ``--plat none``, and write what it was made of. Raises PackageError."""
    packaging.run_packaging(step_run, partial(_repair_wheel, step_run))


def _repair_wheel(step_run: StepRun, wheel: Path, folder: Path) -> packaging.PackagedFiles:
    from rocm_wheels.package import repair, sbom
    from rocm_wheels.pipeline import build_statement
    from rocm_wheels.sources import lock
    from rocm_wheels.wheels import required_packages
    from rocm_wheels.wheels.rewrite import rewrite_wheel
    from rocm_wheels.wheels.sbom import WheelParts

    ready, facts = step_run.ready, step_run.facts
    built = facts.done[step_run.step.after[0]].stamp.facts
    name, digest, text = str(step_run.step.project), step_run.known_inputs.get("lock", ""), ""
    if facts.locked is not None:
        text = sbom.extract_lock_part(facts.locked.lock, name)
    elif digest:
        text = facts.done[step_run.step.id].stamp.facts["lock_text"]
    locked = lock.parse_lock(text, name="the lock of an earlier run") if text else None
    sources = sbom.list_source_parts(name, locked, built["commit"], built["changed"])
    parts = replace(TypeAdapter(WheelParts).validate_python(built["parts"]), sources=sources)
    addition = sbom.make_provenance_edit(text.encode() if text else None, parts)

    def finish(path: Path, **described: Any) -> packaging.PackagedFiles:
        return packaging.PackagedFiles(
            path,
            facts={"lock": digest, "lock_text": text},
            write_statement=lambda sha256: build_statement.write_build_statement(
                path,
                sha256,
                built["predicate"],
                sources,
                lock={"sha256": digest} if digest else None,
                repair=facts.request.repair,
                **{"platform-tag": facts.request.platform_tag},
            ),
            **described,
        )

    if not facts.request.repair:
        log.log_note(f"{wheel.name} stays as it was built: --plat none")
        return finish(rewrite_wheel(wheel, folder, addition), note="NOT REPAIRED (--plat none)")
    with build_environment.hold_environment(
        ready, facts.workspace, purpose=step_run.step.id
    ):  # another step may install now
        offers = required_packages.PackagePool.collect(
            [wheel, *_find_needed_wheels(step_run)], [], None, facts.env, site_packages=ready.site_packages
        )
        prefix = ready.sdk.prefix
        libraries = prefix.libraries if prefix is not None else ()
        request = repair.RepairRequest(
            platform=facts.request.platform_tag,
            installed=dict.fromkeys(libraries, f"ROCm {ready.sdk.version} in {ready.sdk.root}"),
            library_dirs=list_library_dirs(
                project.load_project(name).repair, facts.trees[name].source, facts.env
            ),
        )
        (plan,) = repair.plan_repairs([wheel], offers, request)
    step_run.append_log("repair", plan.describe())
    try:
        (path,) = repair.write_repairs([plan], folder, facts.env, addition=addition)
    except errors.PackageError as fault:
        fault.tip = fault.tip or _FAULT_TIP
        raise
    for line in plan.describe():
        log.log_note(line)
    done = [f"{graft.library} grafted" for graft in plan.grafts]
    done += [line for change in plan.changes for line in change.describe()]
    rewritten = bool(plan.changes or plan.grafts)
    return finish(path, note="; ".join(done), rewritten=rewritten)


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
