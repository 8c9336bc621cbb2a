"""The variants of a run: what is stamped how, what is not written twice, and what is not overwritten."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audit_wheels import Draft, torch_draft

from rocm_wheels.errors import DataError
from rocm_wheels.model.project import load_project
from rocm_wheels.pipeline.built import Built
from rocm_wheels.pipeline.stamps import Output
from rocm_wheels.pipeline.summary import Row
from rocm_wheels.pipeline.variants import check_targets, stamp_run


def finished(project: str, wheel: Path) -> Built:
    return Built(load_project(project), "2.9.0", Output.of(wheel), "content", (), verified=False, again=False)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A finished run of torch, with device code, and torchaudio, without any, as (rows, built, setting)."""
    dist = tmp_path / "dist"
    dist.mkdir()
    audio = Draft("torchaudio", "2.9.0+rocm7.1.0", requires=["torch==2.9.0+rocm7.1.0"])
    built = {
        "pytorch": finished("pytorch", torch_draft().write(dist)),
        "pytorch_audio": finished("pytorch_audio", audio.write(dist)),
    }
    setting = SimpleNamespace(
        request=SimpleNamespace(output=dist),
        workspace=SimpleNamespace(steps=tmp_path / "steps"),
        ready=SimpleNamespace(python_tag="cp311", sdk=SimpleNamespace(version="7.1.0")),
        targets=("gfx942", "gfx1100"),
    )
    return [Row(name, "built") for name in built], built, setting


def variants(run: Any) -> dict[str, int]:
    found = (run[2].request.output / "variants").glob("*")
    return {wheel.name: wheel.stat().st_mtime_ns for wheel in found}


def test_each_wheel_of_a_run_is_stamped_once(run: Any) -> None:
    rows = stamp_run(*run)
    assert [row.note for row in rows] == ["variant rocm7.1_gfx942_gfx1100"] * 2
    before = variants(run)
    assert sorted(before) == [
        "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942_gfx1100.whl",
        "torchaudio-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942_gfx1100.whl",
    ]
    assert stamp_run(*run) == rows
    assert variants(run) == before


def test_another_wheel_of_the_project_replaces_its_variant(run: Any) -> None:
    stamp_run(*run)
    draft = torch_draft()
    del draft.members["torch/lib/libtorch_hip.so"]
    run[1]["pytorch"] = finished("pytorch", draft.write(run[2].request.output))
    assert stamp_run(*run)[0].note == "variant rocm7.1_gfx942"
    assert sorted(variants(run)) == [
        "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942.whl",
        "torchaudio-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942_gfx1100.whl",
    ]


def test_a_file_of_somebody_else_is_not_overwritten(run: Any) -> None:
    place = (
        run[2].request.output / "variants" / "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942_gfx1100.whl"
    )
    place.parent.mkdir()
    place.write_text("theirs")
    with pytest.raises(DataError, match="exists with other bytes"):
        stamp_run(*run)
    assert place.read_text() == "theirs"


def test_targets_that_no_variant_can_state_are_refused_before_the_build() -> None:
    check_targets(("gfx942", "gfx90a:xnack-", "gfx1100"))
    with pytest.raises(DataError, match=r"holds gfx90a:xnack\+ and no plain code for it"):
        check_targets(("gfx942", "gfx90a:xnack+"))


def test_only_what_is_ours_is_replaced_or_taken_away(run: Any) -> None:
    stamp_run(*run)
    first = run[2].request.output / "variants"
    before = variants(run)
    draft = torch_draft()
    del draft.members["torch/lib/libtorch_hip.so"]
    run[1]["pytorch"] = finished("pytorch", draft.write(run[2].request.output))
    theirs = first / "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942.whl"
    theirs.write_text("theirs")
    with pytest.raises(DataError, match="exists with other bytes"):
        stamp_run(*run)
    assert theirs.read_text() == "theirs"
    run[2].request.output = run[2].request.output.parent / "other"
    stamp_run(*run)
    assert theirs.name in variants(run)
    assert before.keys() < {one.name for one in first.iterdir()}
