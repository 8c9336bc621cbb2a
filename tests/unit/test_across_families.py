"""Wheels that serve every family: built once with the code of all of them, and staged for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import ONE, judged
from stores import PYTHON, ROCM, TAG, a_lock, drafts
from wheels import Draft, library

from rocm_wheels.core import errors, records
from rocm_wheels.models import project, project_names
from rocm_wheels.models.gfx import get_gfx_families
from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.release import stage, wheel_set
from rocm_wheels.release.store_paths import FamilyPaths

FIRST, SECOND = "gfx94X-dcgpu", "gfx110X-all"
BOTH = (*get_gfx_families()[FIRST], *get_gfx_families()[SECOND])


def lock_of(family: str) -> Lock:
    """A lock with torchaudio; nights leave the targets to each family."""
    audio = LockedProject(origin="https://h/audio.git", ref="main", why="test", commit="d" * 40)
    lock = a_lock(targets=get_gfx_families()[family])
    projects = {**lock.projects, "pytorch_audio": audio}
    return lock.model_copy(update={"projects": projects, "targets": ()})


def wheels_of(folder: Path, family: str, *code: str, audio: bool = True) -> list[Path]:
    """A family's own wheels, and the torchaudio that holds ``code``, the same for all."""
    folder.mkdir(exist_ok=True)
    made = drafts(targets=get_gfx_families()[family])
    for draft in made.values():
        del draft.members[f"{draft.folder}/sources.lock.json"]
    members = {"torchaudio/__init__.py": b"", "torchaudio/lib/_torchaudio.so": library(*code)}
    made["torchaudio"] = Draft("torchaudio", f"2.11.0+rocm{ROCM}", TAG, members=members)
    return [draft.write(folder) for name, draft in made.items() if audio or name != "torchaudio"]


def staged(wheels: list[Path], family: str, layout: wheel_set.SetLayout = "per-family") -> stage.StagePlan:
    return stage.plan_stage(wheels, [lock_of(family)], paths=FamilyPaths(family), layout=layout)


def test_each_family_has_the_same_wheel_and_is_tested_for_itself(tmp_path: Path) -> None:
    plans = [staged(wheels_of(tmp_path / one, one, *BOTH), one) for one in (FIRST, SECOND)]
    for plan in plans:  # of each set alone, and by `set check` too
        scans = [wheel.scan for wheel in plan.wheels]
        assert stage.find_document_faults(plan.document, scans, [lock_of(plan.document.family)]) == []
    documents = [plan.document for plan in plans]
    audio = [file for one in documents for file in one.files if file.project == "torchaudio"]
    assert len({file.sha256 for file in audio}) == 1
    for document, file in zip(documents, audio, strict=True):
        own = get_gfx_families()[document.family]
        # nobody asks for tests on GPUs of the other family, and no index names them
        assert (
            set(file.targets)
            == set(document.targets)
            == set(wheel_set.list_set_targets(document))
            == set(own)
        )
        assert all(file in one.files for gfx in own for one in wheel_set.list_installed_wheels(document, gfx))
        assert document.is_complete


def test_without_it_the_gate_names_what_is_missing(tmp_path: Path) -> None:
    document = staged(wheels_of(tmp_path, SECOND, audio=False), SECOND).document
    assert [str(cell) for cell in document.missing] == [f"torchaudio for Python {PYTHON}"]
    verdict = judged(ONE.replace("rules: {", "rules: {complete: {}, "), document=document)
    (result,) = (one for one in verdict.rules if one.rule == "complete")
    (cell,) = result.facts_of("missing-cells")["cells"]
    assert result.outcome == "fail" and cell == f"torchaudio for Python {PYTHON}"


@pytest.mark.parametrize("code", [get_gfx_families()[FIRST], (*get_gfx_families()[FIRST], "gfx1100")])
def test_the_wheel_of_another_family_is_refused(code: tuple[str, ...], tmp_path: Path) -> None:
    """Where it has none of a GPU's kernels, whoever has that GPU would learn of it at run time."""
    with pytest.raises(
        errors.ReleaseError, match=r"torchaudio.*has not, and none for .*gfx1101.*it would have both"
    ):
        staged(wheels_of(tmp_path, SECOND, *code), SECOND)


def test_wheels_of_other_projects_hold_their_family_alone(tmp_path: Path) -> None:
    wheels = wheels_of(tmp_path, SECOND, *BOTH)
    (tmp_path / "v").mkdir()
    vision = drafts(targets=BOTH)["torchvision"]
    with pytest.raises(
        errors.ReleaseError, match=r"torchvision.*has device code for gfx942.*--family multi-arch"
    ):
        staged(
            [*(one for one in wheels if "torchvision" not in one.name), vision.write(tmp_path / "v")], SECOND
        )


def test_without_code_for_anybody_it_serves_everybody(tmp_path: Path) -> None:
    document = staged(wheels_of(tmp_path, FIRST), FIRST).document
    assert document.is_complete


def test_who_serves_every_family() -> None:
    names = ("triton", "pytorch", "pytorch_audio", "pytorch_vision", "apex")
    every = [name for name in names if project.load_project(name).serves_every_family("linux")]
    assert every == ["triton", "pytorch_audio"]


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("pytorch", "what others are built against has their family's code alone"),
        ("triton", "what others are built against"),
        ("pytorch_vision", ""),
    ],
)
def test_a_recipe_that_cannot_mean_it(recipe: str, said: str) -> None:
    text = (project_names.get_recipes_folder() / f"{recipe}.yaml").read_text(encoding="utf-8")
    changed = text.replace("\nbuild:\n", "\nbuild:\n  across_families: {reason: few kernels}\n")
    if said:
        with pytest.raises(errors.DataError, match=said):
            records.parse_record(changed, project.Project, name=f"{recipe}.yaml")
        return
    assert records.parse_record(changed, project.Project, name=f"{recipe}.yaml").serves_every_family("linux")
    without = changed.replace("expect: all", "expect: none")
    with pytest.raises(errors.DataError, match="without device code a wheel serves all families anyway"):
        records.parse_record(without, project.Project, name=f"{recipe}.yaml")
