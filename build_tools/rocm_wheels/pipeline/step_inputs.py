"""Settle a step: its inputs from the facts, and whether it runs.

Pure: the same facts, the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.compile import CACHE_TEST_VERSION, PROBE_VERSION, make_front_end_command
from rocm_wheels.core import compare_environments, format_command, redact_environment
from rocm_wheels.models import load_project
from rocm_wheels.package import digest_lock_part
from rocm_wheels.pipeline.build_environment import find_project_layer
from rocm_wheels.pipeline.build_inputs import select_configure_inputs
from rocm_wheels.pipeline.estimates import estimate_step
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.outputs import NO_EARLIER_RESULT, StepStamp, explain_run
from rocm_wheels.pipeline.planner import NoTargetsLeft, Planner
from rocm_wheels.pipeline.step import KINDS_SERVING_FEWER, KnownAfter, Step, StepInput
from rocm_wheels.pipeline.step_graph import StepGraph
from rocm_wheels.sdk import format_install_command

TOOLS_VERSION = "2"
VARIANT_VERSION = "1"


def _settle_install_rocm(planner: Planner, step: Step) -> Step:
    python_facts = planner.python_facts(step)
    request = planner.facts.request.sdk_for(python_facts.python)
    return replace(
        step,
        inputs=python_facts.inputs,
        command=format_install_command([request.requirement], request.source),
        verdict="run" if python_facts.why_install else "skip",
        why=python_facts.why_install or "up to date",
    )


def _settle_install_tools(planner: Planner, step: Step) -> Step:
    facts, ready = planner.facts, planner.python_facts(step).ready
    made_by = KnownAfter(f"install-rocm-{step.cell.tag}")
    inputs: dict[str, StepInput] = {
        "ROCm packages": planner.rocm_input(step),
        "environment": made_by if ready is None else str(ready.environment.prefix),
        "step": TOOLS_VERSION,
    }
    needed: list[str] = []
    for provided in planner.python_facts(step).provided.values():
        if provided.wheel is not None and provided.requires:
            inputs[f"requirements of {provided.project}"] = ", ".join(provided.requires)
            needed += provided.requires
    lines = [format_install_command(needed)] if needed else []
    for name, tree in facts.trees.items():
        words: list[str] = []
        inputs[f"tools of {name}"] = " ".join(facts.tools)
        for file, digest in tree.files.items():
            inputs[f"{file} of {name}"] = digest
            words += ["--requirement", str(tree.source / file)]
        lines += [format_install_command(facts.tools), *([format_install_command(words)] if words else [])]
    return _decide_verdict(planner, step, inputs, command=" && ".join(dict.fromkeys(lines)))


def _settle_probe(planner: Planner, step: Step) -> Step:
    targets = _list_requested_targets(planner, step)
    targets_input: StepInput = targets if isinstance(targets, KnownAfter) else ",".join(targets)
    inputs: dict[str, StepInput] = {
        "ROCm packages": planner.rocm_input(step),
        "targets": targets_input,
        "step": PROBE_VERSION,
        "when a target does not compile": "it is dropped"
        if planner.facts.request.drop_bad_targets
        else "the run ends",
    }
    return _decide_verdict(planner, step, inputs, command="hipcc, once for each target")


def _settle_check_cache(planner: Planner, step: Step) -> Step:
    cache = planner.facts.cache
    assert cache is not None
    targets = _list_requested_targets(planner, step)
    inputs: dict[str, StepInput] = {
        "ROCm packages": planner.rocm_input(step),
        "program": str(cache.program),
        "version": planner.facts.cache_version,
        "settings": ", ".join(planner.facts.cache_settings.splitlines()),
        "target": targets if isinstance(targets, KnownAfter) else targets[0],
        "step": CACHE_TEST_VERSION,
    }
    return _decide_verdict(planner, step, inputs, command=f"{cache.kind} before hipcc, on a file of its own")


def _list_requested_targets(planner: Planner, step: Step) -> tuple[str, ...] | KnownAfter:
    requested: dict[str, None] = {}
    for name in planner.graph.sets:
        set_targets = planner.requested_targets(name, step.cell.tag)
        if isinstance(set_targets, KnownAfter):
            return set_targets
        requested.update(dict.fromkeys(set_targets))
    return tuple(requested)


def _settle_build(planner: Planner, step: Step) -> Step:
    facts, project = planner.facts, load_project(str(step.project))
    planned = planner.plan_step_build(step)
    targets = planner.find_targets(step.cell)
    count = 1 if isinstance(targets, KnownAfter) else len(targets)
    step = replace(
        step,
        estimate=estimate_step(
            project.name, count if project.has_device_code else 1, facts.machine, facts.history
        ),
    )
    if isinstance(planned, KnownAfter):
        identity = facts.trees[project.name].identity
        inputs: dict[str, StepInput] = {"commit": identity.commit, "sources": identity.tree}
        if not isinstance(targets, KnownAfter) and project.has_device_code:
            inputs["PYTORCH_ROCM_ARCH"] = ";".join(targets)
        inputs["everything else"] = planned
        for pin in project.build.pins:
            if isinstance(version := planner.find_wheel_version(step, pin.project), KnownAfter):
                inputs[f"version of {pin.project}"] = version
        return _decide_verdict(planner, step, inputs)
    request = planned.request
    command = make_front_end_command(
        request,
        request.folder,
        python=_build_python(planner, step),
        out_dir=facts.workspace.fresh_wheels / step.id,
    )
    step = _decide_verdict(
        planner, step, dict(planned.inputs), command=format_command(command, cwd=request.folder)
    )
    step = replace(
        step, environment=redact_environment(compare_environments(planned.base, planned.environment))
    )
    return step if step.verdict == "run" else _check_current_wheel(planner, step)


def _settle_configure(planner: Planner, step: Step) -> Step:
    planned = planner.plan_step_build(step)
    if isinstance(planned, KnownAfter):
        return _decide_verdict(planner, step, {"everything else": planned})
    request = planned.request
    command = make_front_end_command(
        request,
        request.folder,
        python=_build_python(planner, step),
        out_dir=planner.facts.workspace.fresh_wheels / step.id,
    )
    inputs: dict[str, StepInput] = {**select_configure_inputs(planned.inputs)}
    return _decide_verdict(planner, step, inputs, command=format_command(command, cwd=request.folder))


def _build_python(planner: Planner, step: Step) -> Path:
    ready = planner.python_facts(step).ready
    assert ready is not None
    return find_project_layer(str(step.project), ready, planner.facts.workspace).python


def _check_current_wheel(planner: Planner, step: Step) -> Step:
    """Look whether a current wheel is where this run wants it, with what it wants in it."""
    request, stamp = planner.facts.request, planner.facts.done[step.id].stamp
    if request.clean:
        return replace(step, verdict="run", why="--clean")
    if request.verify and not stamp.facts.get("verified"):
        return replace(step, verdict="run", why="not verified")
    why = _why_elsewhere(planner, step) or _why_other_lock(planner, step)
    # bringing it there costs nothing of what building it would
    return replace(step, verdict="run", why=why, brought=True, estimate=None) if why else step


def _why_elsewhere(planner: Planner, step: Step) -> str:
    present_folders = {Path(output.path).parent for output in planner.facts.done[step.id].stamp.outputs}
    wanted_folders = planner.graph.output_folders(step, planner.facts.request.output)
    missing = [str(folder) for folder in wanted_folders if folder not in present_folders]
    return f"the wheel is missing in {', '.join(missing)}" if missing else ""


def _why_other_lock(planner: Planner, step: Step) -> str:
    locked, stamp = planner.facts.locked, planner.facts.done[step.id].stamp
    if locked is None or stamp.facts["lock"] == digest_lock_part(locked.lock, str(step.project)):
        return ""
    return "the wheel records another lock"


def _settle_variant(planner: Planner, step: Step) -> Step:
    needed, targets = step.after[0], planner.find_targets(step.cell)
    ready = planner.python_facts(step).ready
    current = planner.is_current(needed)
    done = planner.facts.done[needed].stamp if current else None
    rocm: StepInput = KnownAfter(f"install-rocm-{step.cell.tag}") if ready is None else ready.sdk.version
    folders = planner.graph.output_folders(step, planner.facts.request.output)
    inputs: dict[str, StepInput] = {
        "wheel": done.outputs[0].sha256 if done else KnownAfter(needed),
        "targets": targets if isinstance(targets, KnownAfter) else ",".join(targets),
        "ROCm": rocm,
        "output folder": ", ".join(map(str, folders)),
        "step": VARIANT_VERSION,
    }
    return _decide_verdict(planner, step, inputs, command="rocm-wheels stamp")


def _decide_verdict(planner: Planner, step: Step, inputs: Mapping[str, StepInput], command: str = "") -> Step:
    """Say whether a step runs, from its inputs as far as they are known and what it did last."""
    step = replace(step, inputs=inputs, command=command)
    done = planner.facts.done.get(step.id)
    if done is None:
        return replace(step, verdict="run", why=NO_EARLIER_RESULT)
    last_stamp, known_inputs = replace(make_comparable_stamp(step, done.stamp), outputs=()), step.known_inputs
    why = explain_run(last_stamp, known_inputs) or done.fault  # its outputs were looked at with the facts
    if why:
        return replace(step, verdict="run", why=why)
    if step.fingerprint is None:
        return replace(step, verdict="known later", why=str(step.waits_for))
    return replace(step, verdict="skip", why="up to date")


def make_comparable_stamp(step: Step, stamp: StepStamp) -> StepStamp:
    """Return a stamp with those of its inputs that a step, as far as it is known, is compared with."""
    if step.fingerprint is not None and step.kind not in KINDS_SERVING_FEWER:
        return stamp
    known_inputs = step.known_inputs
    return replace(
        stamp, inputs={name: value for name, value in stamp.inputs.items() if name in known_inputs}
    )


_SETTLERS: Mapping[str, Callable[[Planner, Step], Step]] = {
    "install-rocm": _settle_install_rocm,
    "install-tools": _settle_install_tools,
    "probe-targets": _settle_probe,
    "check-cache": _settle_check_cache,
    "configure": _settle_configure,
    "build": _settle_build,
    "variant": _settle_variant,
}


def settle_step(planner: Planner, name: str) -> Step:
    """Return a step with all that is known of it now. Raises UsageError for targets that cannot be built."""
    step = planner.graph.steps[name]
    try:
        return _SETTLERS[step.kind](planner, step)
    except NoTargetsLeft as nothing:
        return replace(step, verdict="left out", why=nothing.message)


def settle_all_steps(graph: StepGraph, facts: Facts) -> dict[str, Step]:
    """Settle all steps, in their order."""
    settled: dict[str, Step] = {}
    for name in graph.steps:
        settled[name] = settle_step(Planner(graph, facts, settled), name)
    return settled


def list_run_targets(graph: StepGraph, facts: Facts, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return every target of a run, as far as they are known."""
    planner = Planner(graph, facts, {step.id: step for step in steps})
    run_targets: dict[str, None] = {}
    for step in steps:
        targets = (
            planner.find_targets(step.cell) if step.kind == "build" and step.verdict != "left out" else ()
        )
        if not isinstance(targets, KnownAfter):
            run_targets.update(dict.fromkeys(targets))
    return tuple(run_targets)
