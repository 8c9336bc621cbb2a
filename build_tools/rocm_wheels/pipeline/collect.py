"""The output folder: which wheels in it are ours, and how a new one gets there.

The work directory remembers every wheel that it put anywhere. A wheel of the same project in
the output that it did not put there is somebody else's: two builds of one project must not mix,
so the step is refused before it begins.
"""

from __future__ import annotations

import json
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError
from rocm_wheels.workspace import Workspace, copy_atomically, lock_folder, write_json_file

_COLLECT_WAIT_SECONDS = 60.0  # another step writes the list


def refuse_foreign_wheels(workspace: Workspace, output: Path, distribution: str, python_tag: str) -> None:
    """Raise UsageError when the output has a wheel of ``distribution`` that we did not put there."""
    ours = _read_collected(workspace)
    for wheel in list_wheels(output, distribution, python_tag):
        if str(wheel) not in ours:
            raise UsageError(
                f"{wheel} is in the output folder and was not put there by this work directory",
                tip="move it away, or choose another --output-dir: two builds must not mix",
            )


def collect_wheel(
    workspace: Workspace, wheel: Path, output: Path, *, distribution: str, python_tag: str
) -> Path:
    """Copy a wheel into the output, whole or not at all, and remove those of ours that it replaces."""
    target = output / wheel.name
    with lock_folder(
        workspace.steps / ".locks" / "collected", purpose=wheel.name, patience=_COLLECT_WAIT_SECONDS
    ):
        ours = _read_collected(workspace)
        ours.add(str(target))
        write_json_file(
            _collected_path(workspace), sorted(ours)
        )  # before the copy: killed in between, it is still ours
    for part in output.glob(f".{_wheel_pattern(distribution)}.*.part"):  # of a run that was killed in a copy
        if f"-{python_tag}-" in part.name:
            part.unlink()
    copy_atomically(wheel, target)
    for old in list_wheels(output, distribution, python_tag):
        if old != target and str(old) in ours:
            old.unlink()
            log.log_note(f"{old.name} is replaced by {target.name}")
    return target


def list_wheels(output: Path, distribution: str, python_tag: str) -> list[Path]:
    """Return the wheels of a distribution for one interpreter, sorted."""
    wheels = sorted(output.glob(_wheel_pattern(distribution)))
    return [wheel for wheel in wheels if f"-{python_tag}-" in wheel.name]


def _wheel_pattern(distribution: str) -> str:
    return f"{distribution.replace('-', '_')}-*.whl"


def _read_collected(workspace: Workspace) -> set[str]:
    path = _collected_path(workspace)
    if not path.is_file():
        return set()
    try:
        return set(map(str, json.loads(path.read_text(encoding="utf-8"))))
    except ValueError as cause:
        tip = "delete it: wheels already in an output folder then count as somebody else's"
        raise DataError(f"{path} is not the list of wheels that it must be", tip=tip) from cause


def _collected_path(workspace: Workspace) -> Path:
    return workspace.root / "collected.json"
