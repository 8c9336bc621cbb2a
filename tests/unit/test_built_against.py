"""Wheels that a run has and does not build: what is read of them, what fits, and what a plan makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import finish, make_facts, settled
from wheels import Draft, library, torch_draft

from rocm_wheels.core import errors
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models.lock import Lock
from rocm_wheels.models.project import load_project, sort_projects
from rocm_wheels.package import sbom
from rocm_wheels.pipeline import outputs, provided_wheel_checks, provided_wheels, source_checks
from rocm_wheels.pipeline.facts import DoneStep, Facts
from rocm_wheels.pipeline.plan import PlanFile, format_plan, make_plan_json, read_plan, write_plan
from rocm_wheels.pipeline.step import Plan, Step

TORCH = provided_wheels.ProvidedWheel(
    project="pytorch",
    place="/site-packages",
    version="2.9.0+rocm7.1.0",
    content="content of torch",
    rocm="7.1.0",
    libraries={"torch/lib/libtorch_hip.so": ("gfx942:sramecc+:xnack-", "gfx1100")},
)
TRITON = provided_wheels.ProvidedWheel("triton", "/site-packages", "3.5.0+git1234.rocm7.1.0", "its content")
ALONE = ("apex", "pytorch_audio", "pytorch_vision")


# -- reading a wheel that was given -------------------------------------------------------------------------


def read(draft: Draft, folder: Path) -> provided_wheels.ProvidedWheel:
    return provided_wheels.read_given_wheel(load_project("pytorch"), draft.write(folder), "linux", "cp311")


def test_a_good_wheel_says_what_it_is_without_being_installed(tmp_path: Path) -> None:
    draft = torch_draft()
    draft.requires += ["sympy>=1.13", "opt-einsum>=3.3; extra == 'opt-einsum'"]
    found = read(draft, tmp_path)
    assert found.faults == ()
    assert (found.version, found.rocm) == ("2.9.0+rocm7.1.0", "7.1.0")
    assert found.libraries == {"torch/lib/libtorch_hip.so": ("gfx942:sramecc+:xnack-", "gfx1100")}
    assert found.requires == ("filelock", "sympy>=1.13"), "ROCm, triton and extras are not for the tools"
    assert found.describe() == f"torch 2.9.0+rocm7.1.0 (--pytorch-wheel: {found.wheel})"


def tagged(tag: str) -> Callable[[Draft], object]:
    return lambda draft: setattr(draft, "tag", tag)


def cpu(draft: Draft) -> None:
    draft.members["torch/version.py"] = b"hip = None\ncuda = None\n"
    del draft.members["torch/_rocm_init.py"], draft.members["torch/lib/libtorch_hip.so"]
    draft.requires = ["filelock"]


def elsewhere(draft: Draft) -> None:
    draft.requires = ["filelock"]
    del draft.members["torch/_rocm_init.py"]


NO_ROCM = "does not require rocm[libraries]"
NO_INIT = "the module that starts the ROCm packages is missing"
LIBRARY = "torch/lib/libtorch_hip.so"
WRONG: list[tuple[str, Callable[[Draft], object], list[str]]] = [
    ("another Python", tagged("cp312-cp312-linux_x86_64"), ["does not fit the interpreter cp311"]),
    ("a free-threaded one", tagged("cp311-cp311t-linux_x86_64"), ["does not fit the interpreter cp311"]),
    ("Windows", tagged("cp311-cp311-win_amd64"), ["is for win_amd64, not for linux"]),
    ("a CPU build", cpu, [f"{NO_ROCM}==<version>", f"torch/_rocm_init.py: {NO_INIT}",
                          "torch/version.py: a CPU-only build", f"no library matches {LIBRARY}"]),
    ("pytorch.org's", elsewhere, [NO_ROCM, NO_INIT]),
    ("two versions of ROCm", lambda draft: draft.requires.__setitem__(1, "rocm[libraries]==7.0.0"),
     ["checks for ROCm 7.1.0, but was built with 7.0.0"]),
    ("no device code", lambda draft: draft.members.update({LIBRARY: library()}),
     ["a host-only library: holds no device code at all"]),
    ("Requires-Python", lambda d: setattr(d, "python", ">=3.12"), ["Requires-Python >=3.12 shuts out 3.11"]),
    ("changed since it was packed",
     lambda d: d.record.update({"torch/__init__.py": "torch/__init__.py,sha256=AAAA,25"}),
     ["torch/__init__.py"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_all_that_is_wrong_with_a_given_wheel_is_said(
    change: Callable[[Draft], object], said: list[str], tmp_path: Path
) -> None:
    draft = torch_draft()
    change(draft)
    found = read(draft, tmp_path)
    assert len(found.faults) == len(said), found.faults
    for fault, part in zip(found.faults, said, strict=True):
        assert part in fault


def test_a_wheel_is_read_once_for_as_long_as_it_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, wheel, looks = Workspace(tmp_path / "work"), torch_draft().write(tmp_path), []
    good = provided_wheels.read_given_wheel(load_project("pytorch"), wheel, "linux", "cp311")

    def count(*_: Any) -> provided_wheels.ProvidedWheel:
        looks.append(1)
        return good

    monkeypatch.setattr("rocm_wheels.pipeline.provided_wheels.read_given_wheel", count)

    def look() -> provided_wheels.ProvidedWheel:
        return provided_wheels.inspect_given_wheel("pytorch", wheel, "linux", "cp311", workspace)

    assert look() == look() == good
    assert len(looks) == 1
    os.utime(wheel, ns=(1, 1))
    assert look() == good
    assert len(looks) == 2
    next((tmp_path / "work" / "provided").glob("*.json")).write_text("{}")
    good = replace(good, faults=("broken",))
    os.utime(wheel, ns=(2, 2))
    assert look() == look()
    assert len(looks) == 4, "what has faults is looked at again"


@pytest.mark.parametrize(
    ("requires", "pin"),
    [
        (["rocm[libraries]==7.1.0"], "7.1.0"),
        (["numpy", "ROCm[devel,libraries]===7.1.0+x"], "7.1.0+x"),
        (["rocm[libraries]>=7.1"], None),
        (["rocm[libraries]==7.*"], None),
        (["rocm==7.1.0"], None),
        ([], None),
    ],
)
def test_the_rocm_that_a_wheel_is_of(requires: list[str], pin: str | None) -> None:
    assert provided_wheels.find_rocm_pin(requires) == pin


def test_one_wheel_a_python() -> None:
    old, new = (Path(f"/a/torch-2.9-{tag}-{tag}-linux_x86_64.whl") for tag in ("cp311", "cp312"))
    stable = Path("/a/triton-3.5-cp310-abi3-linux_x86_64.whl")
    select = provided_wheels.select_given_wheel
    assert select("pytorch", [old, new], "cp312") == new
    assert select("pytorch", [old], "cp312") == old, "that it does not fit is told with all else"
    assert select("triton", [stable], "cp313") == stable
    provided_wheels.refuse_unused_wheels({"pytorch": [old, new], "triton": [stable]}, ["cp311", "cp312"])
    for wheels, tag, said in [
        ([old, new], "cp313t", "none of those given is for cp313t"),
        ([new, Path("/b") / new.name], "cp312", f"{new}, /b/{new.name} are all for cp312"),
    ]:
        with pytest.raises(errors.UsageError, match=f"--pytorch-wheel: {said}"):
            select("pytorch", wheels, tag)
    with pytest.raises(errors.UsageError, match=f"--pytorch-wheel: {old} is for none of cp312, cp313"):
        provided_wheels.refuse_unused_wheels({"pytorch": [old, new]}, ["cp312", "cp313"])


# -- does it fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, []),
        ({"rocm": "7.1.0", "targets": ("gfx942", "gfx1100")}, []),
        ({"targets": ("gfx942:xnack-",)}, []),
        ({"rocm": "7.1"}, []),
        ({"rocm": "7.2.0"}, ["it requires ROCm 7.1.0, and ROCm 7.2.0 is installed"]),
        ({"targets": ("gfx942", "gfx1201")}, ["torch/lib/libtorch_hip.so lacks gfx1201: it holds gfx"]),
        ({"targets": ("gfx942:xnack+",)}, ["lacks gfx942:xnack+"]),
        ({"with_asan": False}, []),
        ({"with_asan": True}, ["compiled without AddressSanitizer, unlike this run"]),
        ({"lock": "another"}, ["it does not hold the lock of this run: it was"]),
        ({"rocm": "7.2.0", "targets": ("gfx906",), "lock": "another"},
         ["ROCm 7.2.0", "lacks gfx906", "the lock"]),
    ],
)  # fmt: skip
def test_every_reason_why_nothing_can_be_built_against_a_torch(
    asked: dict[str, Any], said: list[str]
) -> None:
    found = provided_wheel_checks.find_misfits(TORCH, **asked)
    assert len(found) == len(said), found
    for fault, part in zip(found, said, strict=True):
        assert part in fault


def test_a_wheel_for_every_family_is_built_against_the_torch_of_one(tmp_path: Path) -> None:
    """Others are refused: their kernels would call those of a torch that has none for the target."""
    foreign = ("gfx942", "gfx1201")
    facts = run_of(tmp_path, *ALONE, provided=(TORCH,))
    builds = [(load_project(name), foreign) for name in ALONE]
    provided_wheel_checks.refuse_misfits(facts, [one for one in builds if one[0].name == "pytorch_audio"])
    for one in builds:
        if one[0].name != "pytorch_audio":
            with pytest.raises(errors.UsageError, match="lacks gfx1201: it holds gfx942"):
                provided_wheel_checks.refuse_misfits(facts, [one])
    other = replace(TORCH, rocm="7.2.0")
    with pytest.raises(errors.UsageError, match=r"it requires ROCm 7\.2\.0"):
        provided_wheel_checks.refuse_misfits(run_of(tmp_path, *ALONE, provided=(other,)), builds[1:2])


def test_a_torch_that_the_sources_are_too_old_for_is_refused_before_anything_is_compiled(
    tmp_path: Path,
) -> None:
    """By the recipe: a torch that was given, and one that the same run builds; not once they were mended."""
    causal, source = load_project("causal_conv1d"), tmp_path / "sources/causal_conv1d"
    source.mkdir(parents=True)
    setup = source / "setup.py"
    setup.write_text('flags = ["-O3", "-std=c++17"]')

    def refuse(torch: str, *, built: bool = False) -> None:
        facts = run_of(tmp_path, "pytorch")
        facts = replace(facts, trees={"causal_conv1d": replace(facts.trees["pytorch"], source=source)})
        if built:
            tree = replace(run_of(tmp_path, "pytorch").trees["pytorch"], version=torch)
            facts = replace(facts, trees={**facts.trees, "pytorch": tree})
        else:
            given = replace(TORCH, version=torch)
            facts = replace(
                facts, projects=(causal,), python=replace(facts.python, provided={"pytorch": given})
            )
        provided_wheel_checks.refuse_misfits(facts, [(causal, ("gfx942",))])

    refuse("2.13.0+rocm7.1.0")
    refuse("2.13.0", built=True)
    for torch, built in [("2.14.1+rocm7.1.0", False), ("2.14.0a0", True)]:
        with pytest.raises(errors.UsageError, match=r"cannot be built against .*C\+\+20") as fault:
            refuse(torch, built=built)
        assert str(setup) in fault.value.message
    setup.write_text('flags = ["-O3", "-std=c++20"]')
    refuse("2.14.1+rocm7.1.0")


def run_of(
    tmp_path: Path, *names: str, provided: tuple[provided_wheels.ProvidedWheel, ...] = (), **more: Any
) -> Facts:
    """Facts of a run that builds some projects and has others."""
    facts = make_facts(tmp_path, **more)
    return replace(
        facts,
        projects=tuple(sort_projects(map(load_project, names))),
        trees={name: facts.trees[name] for name in names},
        python=replace(facts.python, provided={one.project: one for one in provided}),
    )


def plan_of(facts: Facts) -> dict[str, Step]:
    return settled(finish(facts))


def test_a_plan_and_its_file_say_where_a_wheel_comes_from(tmp_path: Path) -> None:
    given = replace(TORCH, wheel=Path("/w/torch.whl"))
    facts = run_of(tmp_path, *ALONE, provided=(given,), given_wheels={"pytorch": (Path("/w/torch.whl"),)})
    plan = Plan(settled(facts), ("gfx942",), provided_wheel_checks.list_built_against(facts))
    line = "built against pytorch 2.9.0+rocm7.1.0 for cp312 (--pytorch-wheel: /w/torch.whl)"
    line += ", with code for gfx942:sramecc+:xnack- gfx1100"
    assert line in format_plan(plan, details=False).splitlines()
    file = PlanFile.from_plan(facts.request, plan, {}, None)
    assert make_plan_json(file)["against"][0]["place"] == "/w/torch.whl"
    write_plan(tmp_path / "plan.json", file)
    again = read_plan(tmp_path / "plan.json")
    assert again.plan.against == plan.against
    assert again.request.given_wheels == {"pytorch": (Path("/w/torch.whl"),)}


def test_under_a_lock_what_is_there_must_be_of_it(tmp_path: Path) -> None:
    """By the lock inside, or by a step that built the same content under that lock."""
    pinned = {"origin": "o", "ref": "r", "why": "w", "commit": "0" * 40}
    lock = Lock.model_validate({"projects": dict.fromkeys(("pytorch", "pytorch_vision"), pinned)})
    part = sbom.digest_lock_part(lock, "pytorch")
    locked = source_checks.LockedBuild(tmp_path / "lock", "digest", lock, {})
    stamp = outputs.StepStamp("build-pytorch-cp312", {}, (), {"content": TORCH.content, "lock": part})
    other = replace(stamp, facts={"content": "another", "lock": part})
    for torch, done, fits in [
        (replace(TORCH, lock=part), {}, True),
        (TORCH, {stamp.step: DoneStep(stamp, None)}, True),
        (TORCH, {}, False),
        (TORCH, {stamp.step: DoneStep(other, None)}, False),
        (replace(TORCH, lock="another"), {}, False),
    ]:
        facts = replace(run_of(tmp_path, "pytorch_vision", provided=(torch,), done=done), locked=locked)
        vision = load_project("pytorch_vision")
        found = provided_wheel_checks.find_project_misfits(vision, torch, facts, ("gfx942",))
        assert (found == []) == fits
        assert fits or "it does not hold the lock of this run" in found[0]


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (["pytorch_vision"], "torchvision-0.24-cp311-cp311-linux_x86_64.whl", "it is a wheel of torchvision"),
        (["pytorch_vision"], "torch-2.9-cp311-cp311-linux_x86_64-rocm7.1_gfx942.whl", "it is a variant"),
        (["triton"], "torch-2.9-cp311-cp311-linux_x86_64.whl", r"nothing of this run \(triton\)"),
    ],
)  # fmt: skip
def test_a_wheel_that_nobody_needs_is_refused(
    tmp_path: Path, names: list[str], given: str, said: str
) -> None:
    facts = run_of(tmp_path, *names, given_wheels={"pytorch": (Path("/w") / given,)})
    with pytest.raises(errors.UsageError, match=f"--pytorch-wheel.*{said}"):
        provided_wheels.refuse_stray_wheels(facts.request, facts.projects)


# -- triton, which torch may have or not --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triton", "on", "why_not"),
    [
        (None, False, "triton is not built"),
        (TRITON, True, ""),
        (replace(TRITON, version="3.5.0", wheel=Path("/w/triton.whl")), True, ""),
        (replace(TRITON, version="3.5.0"), False,
         "triton is not built, and the installed 3.5.0 is none of this build (+rocm7.1.0)"),
        (replace(TRITON, version="3.5.0+rocm17.1.0"), False, "is none of this build"),
        (replace(TRITON, faults=("cut",)), False,
         "triton is not built, and the installed one is faulty: cut"),
    ],
)  # fmt: skip
def test_torch_requires_the_triton_that_is_there(
    tmp_path: Path, triton: provided_wheels.ProvidedWheel | None, on: bool, why_not: str
) -> None:
    facts = run_of(tmp_path, "pytorch", provided=() if triton is None else (triton,))
    found, said = provided_wheel_checks.find_usable_triton(facts)
    torch = plan_of(facts)["build-pytorch-cp312"]
    asked = torch.environment["PYTORCH_EXTRA_INSTALL_REQUIREMENTS"]
    assert (found is not None, torch.environment["USE_FLASH_ATTENTION"]) == (on, "ON" if on else "OFF")
    assert ("wheel of triton" in torch.inputs) == on
    if triton is not None and on:
        assert asked == f"rocm[libraries]==7.1.0|triton=={triton.version}"
    else:
        assert asked == "rocm[libraries]==7.1.0"
        assert why_not in said
        assert provided_wheel_checks.list_built_against(facts) == ()
