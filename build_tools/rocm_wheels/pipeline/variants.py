"""``build --packaging variant``: the variant wheels of a run, in ``variants/`` of the output folder.

They are stamped for AMD's provider with the ROCm version of the run; ``rocm-wheels stamp`` has the other
choices. A wheel without device code serves what the torch of the run serves, and is stamped so: an
installer that chose it for another machine would put it beside another torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels import __version__, log
from rocm_wheels.pipeline.built import Built
from rocm_wheels.pipeline.inputs import Setting
from rocm_wheels.pipeline.stamps import Output, Stamp, read_stamp, why_run, write_stamp
from rocm_wheels.pipeline.summary import Row
from rocm_wheels.variants.stamp import StampRequest, plan_stamps, write_stamps
from rocm_wheels.variants.targets import HeldTargets, choose_targets, held_ids, read_held
from rocm_wheels.wheels.archive.edits import edited_name

FOLDER = "variants"


def check_targets(targets: Sequence[str]) -> None:
    """Raise DataError for targets that no variant can state (``gfx90a:xnack+``): before they are built."""
    choose_targets("--packaging variant: the build", held_ids(targets))


def stamp_run(rows: Sequence[Row], built: Mapping[str, Built], setting: Setting) -> list[Row]:
    """Write the variants of a finished run and return its rows, each with its label.

    A variant whose wheel did not change is not written again. DataError when a wheel cannot be stamped, or
    when a file that is not ours has the name of its variant.
    """
    return [
        replace(
            row, note=", ".join(filter(None, (row.note, f"variant {_label(built[row.project], setting)}")))
        )
        for row in rows
    ]


def _label(built: Built, setting: Setting) -> str:
    name = f"variant-{built.project.name}-{setting.ready.python_tag}"
    steps, folder = setting.workspace.steps, setting.request.output / FOLDER
    inputs = {
        "wheel": built.output.sha256,
        "targets": ",".join(setting.targets),
        "ROCm": setting.ready.sdk.version,
        "output folder": str(folder),
        "rocm-wheels": __version__,
    }
    before = read_stamp(steps, name)
    if before is not None and why_run(before, inputs) is None:
        return str(before.facts["label"])
    ours = {Path(one.path) for one in before.outputs if one.fault() is None} if before else set()
    held = read_held(built.path) if built.held is None else built.held
    planned = plan_stamps([built.path], _request(held, setting), held={built.path: held})
    target = folder / edited_name(planned[0].source.name, planned[0].edit)
    (done,) = write_stamps(planned, folder, replace=target in ours)
    for old in ours - {target}:
        if old.parent != folder:
            continue  # in another --output-dir it stays with its wheel
        old.unlink(missing_ok=True)
        log.note(f"{old.name} is replaced by {done.path.name}")
    write_stamp(steps, Stamp(name, inputs, (Output.of(done.path),), {"label": done.label}))
    return done.label


def _request(held: HeldTargets, setting: Setting) -> StampRequest:
    request = StampRequest(rocm_version=setting.ready.sdk.version)
    if held.targets:
        return request
    return replace(request, targets=",".join(setting.targets), allow_claim=True)
