"""Facts after a step: what it made, and what it took away from others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from runs import finish, make_facts

from rocm_wheels.core import files
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.pipeline import facts as gather
from rocm_wheels.pipeline import outputs, plan, planner
from rocm_wheels.pipeline.step import make_steps


def test_an_environment_made_anew_has_lost_its_build_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = finish(make_facts(tmp_path), only=["install-tools-cp312"])
    record = tmp_path / "RECORD"
    record.write_text("cmake/__init__.py,,\n", encoding="utf-8")
    did = facts.done["install-tools-cp312"].stamp
    outputs.write_stamp(
        facts.workspace.steps,
        outputs.StepStamp(did.step, did.inputs, (outputs.OutputFile.from_path(record),), did.facts),
    )
    before = facts.refresh_after_step("install-tools-cp312")
    assert plan.settle_step(planner.Planner(make_steps(before), before, {}), did.step).verdict == "skip"

    record.unlink()  # the environment was made anew, with the very same ROCm
    monkeypatch.setattr(gather, "inspect_python", lambda *_, **__: facts.python)
    after = before.refresh_after_step("install-rocm-cp312", environment=True)
    step = plan.settle_step(planner.Planner(make_steps(after), after, {}), did.step)
    assert (step.verdict, step.why) == ("run", f"{record} is missing")


def test_a_stamp_whose_facts_are_of_another_version_counts_as_none(tmp_path: Path) -> None:
    """Those of format 3 may be of a wheel that was built unverified, which is not to be shown as verified."""
    facts = finish(make_facts(tmp_path))
    folder, step = facts.workspace.steps, "build-pytorch-cp312"
    outputs.write_stamp(folder, facts.done[step].stamp)
    assert outputs.read_stamp(folder, step) == facts.done[step].stamp
    written = folder / f"{step}.json"
    document = json.loads(written.read_text(encoding="utf-8"))
    written.write_text(json.dumps({**document, "format": 3}), encoding="utf-8")
    assert (
        outputs.explain_run(outputs.read_stamp(folder, step), document["inputs"]) == outputs.NO_EARLIER_RESULT
    )


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is locked there")
def test_of_copies_to_the_output_what_killed_runs_left_goes_and_no_other(tmp_path: Path) -> None:
    """Of another version as well, and of names that are longer than hidden ones; not what is being copied."""
    output = tmp_path / "dist"
    wheel = tmp_path / "torch-2.10.0+rocm7.2.0.dev20261130-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"wheel")
    with files.open_atomically(output / wheel.name) as copied_by_another:
        copied_by_another.write(b"wheel")
        (output / ".torch-2.9.0+rocm7.1.0.dev20261129-cp312-cp31.abcd1234.part").write_bytes(b"the beginning")
        (output / ".torchaudio-2.9.0-cp312-cp312-linux_x86_64.abcd1234.part").write_bytes(b"of others")
        options = {"distribution": "torch", "python_tag": "cp312", "purpose": "gfx942"}
        outputs.deliver_files(Workspace(tmp_path / "work"), [wheel], output, **options)
    assert sorted(path.name for path in output.iterdir()) == [
        ".torchaudio-2.9.0-cp312-cp312-linux_x86_64.abcd1234.part",
        wheel.name,
    ]
