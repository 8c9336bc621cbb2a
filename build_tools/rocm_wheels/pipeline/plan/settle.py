"""Settling a step: its inputs from the facts, and whether it runs. Pure: the same facts, the same answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.compile.cache.trust import CACHE_TEST_VERSION
from rocm_wheels.compile.frontend import front_end_command
from rocm_wheels.compile.probe import PROBE_VERSION
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.estimates import estimate
from rocm_wheels.pipeline.facts.gather import Facts
from rocm_wheels.pipeline.facts.layers import layer_of
from rocm_wheels.pipeline.plan.building import configured_by
from rocm_wheels.pipeline.plan.graph import Graph
from rocm_wheels.pipeline.plan.planner import NothingLeft, Planner
from rocm_wheels.pipeline.plan.step import SERVES_FEWER, Input, KnownAfter, Step
from rocm_wheels.pipeline.provenance import part_digest
from rocm_wheels.pipeline.stamps import Stamp, changed, why_run
from rocm_wheels.sdk.uv import install_line
from rocm_wheels.shell import environment_changes, shell_line, shown_environment

TOOLS_VERSION = "2"
VARIANT_VERSION = "1"


def _install_rocm(planner: Planner, step: Step) -> Step:
    known = planner.python(step)
    request = planner.facts.request.sdk_for(known.python)
    return replace(
        step,
        inputs=known.inputs,
        command=install_line([request.requirement], request.source),
        verdict="run" if known.why_install else "skip",
        why=known.why_install or "up to date",
    )


def _install_tools(planner: Planner, step: Step) -> Step:
    facts, ready = planner.facts, planner.python(step).ready
    made_by = KnownAfter(f"install-rocm-{step.cell.tag}")
    inputs: dict[str, Input] = {
        "ROCm packages": planner.rocm(step),
        "environment": made_by if ready is None else str(ready.environment.prefix),
        "step": TOOLS_VERSION,
    }
    needed: list[str] = []
    for one in planner.python(step).provided.values():
        if one.wheel is not None and one.requires:
            inputs[f"requirements of {one.project}"] = ", ".join(one.requires)
            needed += one.requires
    lines = [install_line(needed)] if needed else []
    for name, tree in facts.trees.items():
        words: list[str] = []
        inputs[f"tools of {name}"] = " ".join(facts.tools)
        for file, digest in tree.files.items():
            inputs[f"{file} of {name}"] = digest
            words += ["--requirement", str(tree.source / file)]
        lines += [install_line(facts.tools), *([install_line(words)] if words else [])]
    return _judged(planner, step, inputs, command=" && ".join(dict.fromkeys(lines)))


def _probe(planner: Planner, step: Step) -> Step:
    targets = _all_asked(planner, step)
    said: Input = targets if isinstance(targets, KnownAfter) else ",".join(targets)
    inputs: dict[str, Input] = {
        "ROCm packages": planner.rocm(step),
        "targets": said,
        "step": PROBE_VERSION,
        "when a target does not compile": "it is dropped"
        if planner.facts.request.drop_bad_targets
        else "the run ends",
    }
    return _judged(planner, step, inputs, command="hipcc, once for each target")


def _check_cache(planner: Planner, step: Step) -> Step:
    cache = planner.facts.cache
    assert cache is not None
    targets = _all_asked(planner, step)
    inputs: dict[str, Input] = {
        "ROCm packages": planner.rocm(step),
        "program": str(cache.program),
        "version": planner.facts.cache_version,
        "settings": ", ".join(planner.facts.cache_settings.splitlines()),
        "target": targets if isinstance(targets, KnownAfter) else targets[0],
        "step": CACHE_TEST_VERSION,
    }
    return _judged(planner, step, inputs, command=f"{cache.kind} before hipcc, on a file of its own")


def _all_asked(planner: Planner, step: Step) -> tuple[str, ...] | KnownAfter:
    found: dict[str, None] = {}
    for name in planner.graph.sets:
        one = planner.asked_targets(name, step.cell.tag)
        if isinstance(one, KnownAfter):
            return one
        found.update(dict.fromkeys(one))
    return tuple(found)


def _build(planner: Planner, step: Step) -> Step:
    facts, project = planner.facts, load_project(str(step.project))
    planned = planner.planned_build(step)
    targets = planner.targets(step.cell)
    count = 1 if isinstance(targets, KnownAfter) else len(targets)
    step = replace(
        step,
        estimate=estimate(
            project.name, count if project.has_device_code else 1, facts.machine, facts.history
        ),
    )
    if isinstance(planned, KnownAfter):
        identity = facts.trees[project.name].identity
        known: dict[str, Input] = {"commit": identity.commit, "sources": identity.tree}
        if not isinstance(targets, KnownAfter) and project.has_device_code:
            known["PYTORCH_ROCM_ARCH"] = ";".join(targets)
        known["everything else"] = planned
        for pin in project.build.pins:
            if isinstance(version := planner.version_of(step, pin.project), KnownAfter):
                known[f"version of {pin.project}"] = version
        return _judged(planner, step, known)
    request = planned.request
    command = front_end_command(
        request, request.folder, python=_python_of(planner, step), out_dir=facts.workspace.fresh / step.id
    )
    step = _judged(planner, step, dict(planned.inputs), command=shell_line(command, cwd=request.folder))
    step = replace(
        step, environment=shown_environment(environment_changes(planned.base, planned.environment))
    )
    return step if step.verdict == "run" else _again(planner, step)


def _configure(planner: Planner, step: Step) -> Step:
    planned = planner.planned_build(step)
    if isinstance(planned, KnownAfter):
        return _judged(planner, step, {"everything else": planned})
    request = planned.request
    command = front_end_command(
        request,
        request.folder,
        python=_python_of(planner, step),
        out_dir=planner.facts.workspace.fresh / step.id,
    )
    known: dict[str, Input] = {**configured_by(planned.inputs)}
    return _judged(planner, step, known, command=shell_line(command, cwd=request.folder))


def _python_of(planner: Planner, step: Step) -> Path:
    ready = planner.python(step).ready
    assert ready is not None
    return layer_of(str(step.project), ready, planner.facts.workspace).python


def _again(planner: Planner, step: Step) -> Step:
    """Look whether a current wheel is where this run wants it, with what it wants in it."""
    request, stamp = planner.facts.request, planner.facts.done[step.id].stamp
    if request.clean:
        return replace(step, verdict="run", why="--clean")
    if request.verify and not stamp.facts.get("verified"):
        return replace(step, verdict="run", why="it was not verified")
    why = _elsewhere(planner, step) or _other_lock(planner, step)
    # bringing it there costs nothing of what building it would
    return replace(step, verdict="run", why=why, brought=True, estimate=None) if why else step


def _elsewhere(planner: Planner, step: Step) -> str:
    there = {Path(output.path).parent for output in planner.facts.done[step.id].stamp.outputs}
    wanted = planner.graph.folders(step, planner.facts.request.output)
    missing = [str(folder) for folder in wanted if folder not in there]
    return f"the wheel is not in {', '.join(missing)} yet" if missing else ""


def _other_lock(planner: Planner, step: Step) -> str:
    locked, stamp = planner.facts.locked, planner.facts.done[step.id].stamp
    if locked is None or stamp.facts["lock"] == part_digest(locked.lock, str(step.project)):
        return ""
    return "the lock in the wheel is another one"


def _variant(planner: Planner, step: Step) -> Step:
    needed, targets = step.after[0], planner.targets(step.cell)
    ready = planner.python(step).ready
    current = planner.is_current(needed)
    done = planner.facts.done[needed].stamp if current else None
    rocm: Input = KnownAfter(f"install-rocm-{step.cell.tag}") if ready is None else ready.sdk.version
    folders = planner.graph.folders(step, planner.facts.request.output)
    inputs: dict[str, Input] = {
        "wheel": done.outputs[0].sha256 if done else KnownAfter(needed),
        "targets": targets if isinstance(targets, KnownAfter) else ",".join(targets),
        "ROCm": rocm,
        "output folder": ", ".join(map(str, folders)),
        "step": VARIANT_VERSION,
    }
    return _judged(planner, step, inputs, command="rocm-wheels stamp")


def _judged(planner: Planner, step: Step, inputs: Mapping[str, Input], command: str = "") -> Step:
    """Say whether a step runs, from its inputs as far as they are known and what it did last."""
    step = replace(step, inputs=inputs, command=command)
    done = planner.facts.done.get(step.id)
    if done is None:
        return replace(step, verdict="run", why=_NEVER.get(step.kind, "not done yet"))
    then, known = replace(last_time(step, done.stamp), outputs=()), step.known_inputs
    if step.fingerprint is None:
        differing = changed(then, known) or ((done.fault,) if done.fault else ())
        if differing:
            return replace(step, verdict="run", why=differing[0])
        return replace(step, verdict="known later", why=str(step.waits_for))
    if why := why_run(then, known) or done.fault:  # faults of outputs were looked up with the facts
        return replace(step, verdict="run", why=why)
    return replace(step, verdict="skip", why="up to date")


def last_time(step: Step, stamp: Stamp) -> Stamp:
    """Return a stamp with those of its inputs that a step, as far as it is known, is compared with."""
    if step.fingerprint is not None and step.kind not in SERVES_FEWER:
        return stamp
    known = step.known_inputs
    return replace(stamp, inputs={name: value for name, value in stamp.inputs.items() if name in known})


_NEVER = {"build": "not built yet"}
_KINDS: Mapping[str, Callable[[Planner, Step], Step]] = {
    "install-rocm": _install_rocm,
    "install-tools": _install_tools,
    "probe-targets": _probe,
    "check-cache": _check_cache,
    "configure": _configure,
    "build": _build,
    "variant": _variant,
}


def settle(planner: Planner, name: str) -> Step:
    """Return a step with all that is known of it now. Raises UsageError for targets that cannot be built."""
    step = planner.graph.steps[name]
    try:
        return _KINDS[step.kind](planner, step)
    except NothingLeft as nothing:
        return replace(step, verdict="left out", why=nothing.message)


def make_plan(graph: Graph, facts: Facts) -> dict[str, Step]:
    """Settle all steps, in their order."""
    settled: dict[str, Step] = {}
    for name in graph.steps:
        settled[name] = settle(Planner(graph, facts, settled), name)
    return settled


def targets_of_run(graph: Graph, facts: Facts, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return every target of a run, as far as they are known."""
    planner = Planner(graph, facts, {step.id: step for step in steps})
    found: dict[str, None] = {}
    for step in steps:
        targets = planner.targets(step.cell) if step.kind == "build" and step.verdict != "left out" else ()
        if not isinstance(targets, KnownAfter):
            found.update(dict.fromkeys(targets))
    return tuple(found)
