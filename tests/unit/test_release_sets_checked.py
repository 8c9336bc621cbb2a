"""What is refused before anything is sent, and what a set should hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stores import FAMILY, PYTHON, ROCM, TAG, a_lock, drafts
from wheels import Draft, library, variant

from rocm_wheels.core import errors
from rocm_wheels.models.lock import Lock
from rocm_wheels.release import stage, wheel_set
from rocm_wheels.release.pages import make_index_pages
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.sources.lock import format_lock
from rocm_wheels.wheels import dist_info, python_tags

Drafts = dict[str, Draft]


def plan(
    folder: Path, made: Drafts, lock: Lock | None = None, *, family: str = FAMILY,
    layout: wheel_set.SetLayout = "per-family",
) -> stage.StagePlan:  # fmt: skip
    wheels = [draft.write(folder) for draft in made.values()]
    return stage.plan_stage(wheels, [lock or a_lock()], paths=FamilyPaths(family), layout=layout)


def _requires(project: str, *requirements: str) -> Callable[[Drafts], None]:
    return lambda made: made[project].requires.extend(requirements)


def _another(project: str, version: str) -> Callable[[Drafts], None]:
    return lambda made: made.update(other=Draft(project, version, TAG))


def _put_lock(made: Drafts, content: str) -> None:
    made["triton"].members[f"{made['triton'].folder}/sources.lock.json"] = content.encode()


def _other_commit(made: Drafts) -> None:
    lock = a_lock(["triton"])
    moved = lock.projects["triton"].model_copy(update={"commit": "f" * 40})
    _put_lock(made, format_lock(lock.model_copy(update={"projects": {"triton": moved}})))


def _other_rocm(made: Drafts) -> None:
    _put_lock(made, format_lock(a_lock(["triton"]).model_copy(update={"rocm": "7.0.0"})))


def _other_target(made: Drafts) -> None:
    made["torchvision"].members["torchvision/_C.so"] = library("gfx942", "gfx1100")


REFUSED: list[tuple[Callable[[Drafts], object], str]] = [
    (_other_target, r"torchvision.*: it has device code for gfx1100, which gfx94X-dcgpu has not"),
    (_other_commit, r"triton.*: it was built from commit ffffffffffff of triton, the lock says aaaaaaaaaaaa"),
    (_other_rocm, r"it was built with ROCm 7\.0\.0, the lock says 7\.1\.0"),
    (lambda made: _put_lock(made, "{}"), r"the lock in it is empty"),
    (_another("torch", "2.9.2"), r"a set has one torch, these are 2\.9\.1\+rocm7\.1\.0, 2\.9\.2"),
    (_another("numpy", "2.0"), r"nothing in the lock builds numpy"),
    (lambda made: setattr(made["torch"], "record", {"torch/__init__.py": "torch/__init__.py,sha256=AAAA,0"}),
     r"torch/__init__\.py"),
    (lambda made: made.pop("triton"), r"it requires triton==3\.5\.0\+rocm7\.1\.0, which is not in"),
    (_requires("torch", "triton==3.4.0"), r"triton==3\.4\.0, the set has triton 3\.5\.0\+rocm7\.1\.0"),
    (_requires("torch", "rocm[devel]==7.2.0"), r"rocm\[devel\]==7\.2\.0, the lock says ROCm 7\.1\.0"),
    (_requires("torch", "numpy==2.0+local"), r"PyPI has no versions with a local part"),
    (_requires("torch", "numpy @ file:///x.whl"), r"a place, which is not in the set"),
    (_requires("triton", "torchaudio"), r"it requires torchaudio, which is not in the set"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_what_cannot_be_a_set(change: Callable[[Drafts], object], said: str, tmp_path: Path) -> None:
    made = drafts()
    change(made)
    with pytest.raises(errors.ReleaseError, match=said):
        plan(tmp_path, made)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    made = drafts()
    _other_target(made)
    _other_commit(made)
    with pytest.raises(errors.ReleaseError) as said:
        plan(tmp_path, made)
    assert len(str(said.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("family", "layout", "said"),
    [
        ("gfx94x-dcgpu", "per-family", "did you mean gfx94X-dcgpu"),
        ("a/b", "multi-arch", "cannot be the name of a folder"),
        ("variants", "variants", "no variant label"),
    ],
)
def test_families_that_cannot_be(family: str, layout: wheel_set.SetLayout, said: str, tmp_path: Path) -> None:
    with pytest.raises(errors.RocmWheelsError, match=said):
        plan(tmp_path, drafts(), family=family, layout=layout)


def test_a_family_says_the_usual_layout() -> None:
    families = {
        "multi-arch": "multi-arch",
        "variants": "variants",
        FAMILY: "per-family",
        "else": "per-family",
    }
    assert {family: stage.find_usual_layout(family) for family in families} == families


def test_what_is_missing_follows_from_the_lock(tmp_path: Path) -> None:
    lock = a_lock(targets=("gfx942",)).model_copy(update={"pythons": (PYTHON, "3.99")})
    made = drafts()
    made["torchvision"].members["torchvision/_C.so"] = library()
    found = plan(tmp_path, made, lock).document
    assert len(found.planned) == 6
    assert [str(cell) for cell in found.missing] == [
        "triton for Python 3.99",
        "torch for Python 3.99 and gfx942",
        f"torchvision for Python {PYTHON} and gfx942",
        "torchvision for Python 3.99 and gfx942",
    ]


def test_requirements_of_other_machines_and_extras_do_not_count(tmp_path: Path) -> None:
    made = drafts()
    made["torch"].fields = ["Provides-Extra: more"]
    made["torch"].requires += [
        "triton-windows==9+x; platform_system == 'Windows'",
        "torchaudio==9; extra == 'more'",
        "typing-extensions==9+x; python_version < '3.8'",
    ]
    assert plan(tmp_path, made).document.is_complete


def test_variants_are_listed_with_what_they_state(tmp_path: Path) -> None:
    tag = TAG
    wheels = [
        variant(tmp_path, label, {"amd": {"gfx_arch": [target]}}, tag=tag, namespaces=("amd",))
        for label, target in (("gfx942", "gfx942"), ("gfx1100", "gfx1100"))
    ]
    places = FamilyPaths("variants")
    lock = a_lock(["pytorch", "triton"])
    made = stage.plan_stage(wheels, [lock], paths=places, layout="variants")
    assert [file.label for file in made.document.files] == ["gfx1100", "gfx942"]
    pages = made.make_pages("2026-11-21T12:00:00Z")
    (stated,) = (path for path in pages if path.endswith("/torch-2.9.1-variants.json"))
    assert set(json.loads(pages[stated])["variants"]) == {"gfx942", "gfx1100"}
    page = pages[f"{places.set_index(made.document.id)}/torch/index.html"].decode()
    assert f'href="{"/".join(stated.split("/")[-3:])}#sha256=' in page
    assert str(made.document.missing[0]) == f"triton for Python {PYTHON}"


def test_a_layout_for_all_gpus_takes_targets_of_all_families(tmp_path: Path) -> None:
    targets = ("gfx942", "gfx1100")
    lock = a_lock(targets=targets)
    found = plan(tmp_path, drafts(targets=targets), lock, family="multi-arch", layout="multi-arch").document
    assert (found.targets, found.missing) == (("gfx1100", "gfx942"), ())


def test_pages_are_the_same_bytes_and_link_up_to_the_files(tmp_path: Path) -> None:
    made = plan(tmp_path, drafts())
    pages = made.make_pages("2026-11-21T12:00:00Z")
    assert pages == made.make_pages("2026-11-21T12:00:00Z")
    folder = made.paths.set_index(made.document.id)
    page = pages[f"{folder}/torch/index.html"].decode()
    file = next(one for one in made.document.files if one.project == "torch")
    assert f'href="../../../../files/{file.sha256}/torch-2.9.1%2Brocm{ROCM}-' in page
    assert list(pages)[-1] == f"{folder}/index.html"
    other = make_index_pages(f"{FAMILY}/simple/nightly", made.paths, [made.document])
    link = "../../../files/"
    assert link in other[f"{FAMILY}/simple/nightly/torch/index.html"].decode()


@pytest.mark.parametrize(
    ("tag", "python", "fits"),
    [
        ("cp312-cp312-linux_x86_64", "3.12", True),
        ("cp312-cp312-linux_x86_64", "3.13", False),
        ("cp313-cp313t-linux_x86_64", "3.13t", True),
        ("cp313-cp313t-linux_x86_64", "3.13", False),
        ("cp310-abi3-linux_x86_64", "3.12", True),
        ("cp313-abi3-linux_x86_64", "3.12", False),
        ("cp310-abi3-linux_x86_64", "3.13t", False),
        ("py3-none-any", "3.14", True),
        ("py38-none-any", "3.12", True),
        ("cp312-none-linux_x86_64", "3.12", True),
        ("cp37-cp37m-linux_x86_64", "3.12", False),
        ("cp3-abi3-linux_x86_64", "3.12", False),
    ],
)
def test_which_python_takes_a_wheel(tag: str, python: str, fits: bool) -> None:
    assert python_tags.accepts_python(dist_info.parse_wheel_name(f"x-1-{tag}.whl").tags, python) is fits


@pytest.mark.parametrize(
    ("tag", "python"),
    [
        ("cp312-cp312-any", "3.12"),
        ("cp313-cp313t-any", "3.13t"),
        ("cp37-cp37m-any", "3.7"),
        ("cp312-none-any", "3.12"),
        ("cp311.cp312-none-any", None),
        ("cp3-abi3-any", None),
        ("cp3-cp3-any", None),
        ("py3-none-any", None),
    ],
)
def test_which_python_alone_a_wheel_is_for(tag: str, python: str | None) -> None:
    assert python_tags.find_single_python(dist_info.parse_wheel_name(f"x-1-{tag}.whl").tags) == python


@pytest.mark.parametrize("tag", ["cp37-cp37m-linux_x86_64", "cp3-abi3-linux_x86_64"])
def test_odd_tags_of_a_wheel_leave_cells_open(tag: str, tmp_path: Path) -> None:
    made = drafts()
    made["torchvision"] = replace(made["torchvision"], tag=tag, requires=[])
    assert {cell.project for cell in plan(tmp_path, made).document.missing} == {"torchvision"}
