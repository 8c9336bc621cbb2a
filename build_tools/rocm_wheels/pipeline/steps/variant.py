"""``build --packaging variant``: the variant of a wheel, in ``variants/`` of its output folder.

It is stamped for AMD's provider with the ROCm version of the run; ``rocm-wheels stamp`` has the other
choices. A wheel without device code serves what the torch of the run serves, and is stamped so: an
installer that chose it for another machine would put it beside another torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.pipeline.plan.step import KnownAfter
from rocm_wheels.pipeline.stamps import Output
from rocm_wheels.pipeline.steps.turn import Turn
from rocm_wheels.variants.stamp import StampRequest, plan_stamps, write_stamps
from rocm_wheels.variants.targets import HeldTargets, read_held
from rocm_wheels.wheels.archive.edits import edited_name

FOLDER = "variants"


def stamp_variant(turn: Turn) -> None:
    """Write the variants of a wheel, one for each folder that has it, and take away those they replace.

    DataError when a wheel cannot be stamped, or when a file that is not ours has the name of its variant.
    """
    wheels = turn.facts.done[turn.step.after[0]].stamp.outputs
    done = turn.facts.done.get(turn.step.id)
    before = () if done is None else done.stamp.outputs
    ours = {Path(one.path) for one in before if one.fault() is None}
    rocm = turn.known_inputs["ROCm"]
    written = [stamp_wheel(Path(wheel.path), rocm, _served(turn, wheel), ours) for wheel in wheels]
    labels = sorted({label for _, label in written})
    turn.succeed(tuple(Output.of(path) for path, _ in written), label=", ".join(labels))


def _served(turn: Turn, wheel: Output) -> tuple[str, ...]:
    """Return the targets of the set whose folder a wheel is in: one wheel may be in several."""
    folders = turn.planner.graph.folders(turn.step, turn.facts.request.output)
    sets = [turn.step.cell.target_set] if len(folders) == 1 else list(turn.planner.graph.sets)
    name = dict(zip(folders, sets, strict=True))[Path(wheel.path).parent]
    targets = turn.planner.targets(replace(turn.step.cell, target_set=name))
    assert not isinstance(targets, KnownAfter)
    return targets


def stamp_wheel(wheel: Path, rocm: str, targets: Sequence[str], ours: set[Path]) -> tuple[Path, str]:
    """Stamp one wheel; return its variant and the label. ``ours``: earlier variants that may be replaced."""
    folder = wheel.parent / FOLDER
    held = read_held(wheel)
    planned = plan_stamps([wheel], _request(held, rocm, targets), held={wheel: held})
    target = folder / edited_name(planned[0].source.name, planned[0].edit)
    (done,) = write_stamps(planned, folder, replace=target in ours)
    for old in ours - {target}:
        if old.parent != folder:
            continue  # in another folder it stays with its wheel
        old.unlink(missing_ok=True)
        log.note(f"{old.name} is replaced by {done.path.name}")
    return done.path, done.label


def _request(held: HeldTargets, rocm: str, targets: Sequence[str]) -> StampRequest:
    request = StampRequest(rocm_version=rocm)
    if held.targets:
        return request
    return replace(request, targets=",".join(targets), allow_claim=True)
