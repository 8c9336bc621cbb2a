"""The variant of a built wheel: what is stamped how, what is replaced, and what is not overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from wheels import Draft, torch_draft

from rocm_wheels.core import errors
from rocm_wheels.pipeline.step_kinds import stamp_variant

pytestmark = pytest.mark.contract
TARGETS = ("gfx942", "gfx1100")
BOTH = "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942_gfx1100.whl"
ONE = "torch-2.9.0-cp311-cp311-linux_x86_64-rocm7.1_gfx942.whl"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    return folder


def stamped(wheel: Path, ours: set[Path] | None = None) -> tuple[str, str]:
    path, label = stamp_variant.stamp_wheel(wheel, "7.1.0", TARGETS, ours or set())
    return path.name, label


def without_device_code(dist: Path) -> Path:
    draft = torch_draft()
    del draft.members["torch/lib/libtorch_hip.so"]
    return draft.write(dist)


def test_a_wheel_is_stamped_for_its_code_else_for_the_targets_of_the_run(dist: Path) -> None:
    assert stamped(torch_draft().write(dist)) == (BOTH, "rocm7.1_gfx942_gfx1100")
    audio = Draft("torchaudio", "2.9.0+rocm7.1.0", requires=["torch==2.9.0+rocm7.1.0"]).write(dist)
    assert stamped(audio) == (BOTH.replace("torch-", "torchaudio-"), "rocm7.1_gfx942_gfx1100")


def test_another_wheel_of_the_project_replaces_its_variant(dist: Path) -> None:
    stamped(torch_draft().write(dist))
    ours = {dist / "variants" / BOTH}
    assert stamped(without_device_code(dist), ours) == (ONE, "rocm7.1_gfx942")
    assert [one.name for one in (dist / "variants").iterdir()] == [ONE]


def test_a_file_of_somebody_else_is_not_overwritten(dist: Path) -> None:
    theirs = dist / "variants" / BOTH
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    with pytest.raises(errors.DataError, match="exists with other bytes"):
        stamped(torch_draft().write(dist))
    assert theirs.read_text() == "theirs"


def test_what_is_ours_in_another_folder_stays_with_its_wheel(dist: Path, tmp_path: Path) -> None:
    stamped(torch_draft().write(dist))
    other = tmp_path / "other"
    other.mkdir()
    stamped(without_device_code(other), {dist / "variants" / BOTH})
    assert (dist / "variants" / BOTH).is_file()
    assert (other / "variants" / ONE).is_file()
