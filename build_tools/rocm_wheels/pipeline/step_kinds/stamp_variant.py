"""``variant`` (``build --packaging variant``): stamp a repaired wheel, in ``variants/`` of its folder.

It is stamped for AMD's provider with the ROCm version of the run; ``rocm-wheels wheel stamp`` has the other
choices. A wheel without device code serves what the torch of the run serves, and is stamped so: an
installer that chose it for another machine would put it beside another torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.core import log
from rocm_wheels.pipeline import wheel_checks
from rocm_wheels.pipeline.outputs import OutputFile
from rocm_wheels.pipeline.planner import Planner, decide_verdict
from rocm_wheels.pipeline.step import NotYet, Step
from rocm_wheels.pipeline.step_run import StepRun

VARIANTS_FOLDER = "variants"
VARIANT_VERSION = "2"


def settle_stamp_variant(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the wheel that is stamped, its targets and its ROCm."""
    (needed,) = step.after
    inputs["output folder"] = str(planner.facts.request.wheels_folder)
    inputs["step"] = VARIANT_VERSION
    inputs["targets"] = ",".join(planner.find_targets())
    inputs["ROCm"] = planner.ready.sdk.version
    if not planner.is_current(needed):
        raise NotYet(needed)
    inputs["wheel"] = planner.facts.done[needed].stamp.outputs[0].sha256
    return decide_verdict(planner, step, inputs, command="rocm-wheels wheel stamp")


def run_stamp_variant(step_run: StepRun) -> None:
    """Write the variants of a wheel and its parts, and take away those they replace.

    DataError when a wheel cannot be stamped, or when a file that is not ours has the name of its variant;
    AuditError for one that fails its checks.
    """
    source = step_run.facts.done[step_run.step.after[0]].stamp
    wheels = [output for output in source.outputs if output.path.endswith(".whl")]
    done = step_run.facts.done.get(step_run.step.id)
    before = () if done is None else done.stamp.outputs
    ours = {Path(output.path) for output in before if output.renew_times() is not None}
    rocm = step_run.known_inputs["ROCm"]
    targets = step_run.planner.find_targets()
    written = [stamp_wheel(Path(wheel.path), rocm, targets, ours) for wheel in wheels]
    from rocm_wheels.audit import verify  # planning does not load it

    for path, _ in written:
        wheel_checks.judge_report(
            step_run, verify.verify_wheel(path, wheel_checks.make_expectation(step_run, None))
        )
    labels = sorted({label for _, label in written})
    outputs = tuple(OutputFile.from_path(path) for path, _ in written)
    facts = {name: source.facts[name] for name in ("targets", "content")}
    step_run.record_success(outputs, label=", ".join(labels), **facts)
    for output, (path, label) in zip(outputs, written, strict=True):
        step_run.record_event(
            "output",
            path=output.path,
            size=output.size,
            sha256=output.sha256,
            project=step_run.step.project,
            version=path.name.split("-")[1],
            targets=facts["targets"],
            libraries={},
            content=facts["content"],
            note=f"variant {label}",
        )


def stamp_wheel(wheel: Path, rocm: str, targets: Sequence[str], ours: set[Path]) -> tuple[Path, str]:
    """Stamp one wheel; return its variant and the label. ``ours``: earlier variants that may be replaced."""
    folder = wheel.parent / VARIANTS_FOLDER
    # planning does not load what stamps
    from rocm_wheels.package import variant_stamp
    from rocm_wheels.variants.targets import read_wheel_targets
    from rocm_wheels.wheels import edit, statement, write_together

    held_targets = read_wheel_targets(wheel)
    request = variant_stamp.StampRequest(rocm_version=rocm)
    if not held_targets.targets:
        request = replace(request, targets=",".join(targets))
    planned = variant_stamp.plan_stamps([wheel], request, read_targets=lambda _: held_targets)
    target = folder / edit.get_edited_name(planned[0].source.name, planned[0].edit)
    with write_together.write_together() as batch:
        if target in ours:
            batch.remove(target)
        (done,) = variant_stamp.write_stamps(planned, folder, batch=batch)
    for old in ours - {target}:
        if old.parent != folder:
            continue  # in another folder it stays with its wheel
        old.unlink(missing_ok=True)
        statement.remove_statement(old)
        log.log_note(f"{old.name} is replaced by {done.path.name}")
    return done.path, done.label
