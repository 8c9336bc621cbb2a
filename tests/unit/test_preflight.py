"""Every preflight check, firing and not firing, on plans of runs that never were."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import finish, make_facts, settled

from rocm_wheels.core import errors
from rocm_wheels.models.project import load_project
from rocm_wheels.pipeline import estimates, machine, preflight
from rocm_wheels.pipeline.facts import Facts
from rocm_wheels.pipeline.plan import PlannedRun
from rocm_wheels.pipeline.step import Plan, make_steps

GIB, MIB = 1 << 30, 1 << 20
TORCH = estimates.Estimate(7200, 16 * GIB, 64 * GIB, "stated", 4 * GIB, GIB)
NOTHING = estimates.Estimate(1, 0, 0, "stated")
PATH = os.environ["PATH"]


@dataclass(frozen=True)
class Place:
    """A run that builds torch alone, on this machine; ``disk``: what is free on it."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def facts(self, **more: Any) -> Facts:
        facts = make_facts(self.folder, **more)
        here = {"PATH": PATH, "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return replace(
            facts,
            projects=(load_project("pytorch"),),
            trees={"pytorch": facts.trees["pytorch"]},
            env=here,
            python=replace(facts.python, python=Path(sys.executable)),
            machine=machine.MachineResources(16, 64 * GIB, 60 * GIB),
        )

    def disk(self, free: int) -> None:
        self.monkeypatch.setattr(
            "shutil.disk_usage", lambda _: SimpleNamespace(total=free, used=0, free=free)
        )

    def look(self, facts: Facts, headers: Path | None = Path("/include")) -> tuple[errors.Finding, ...]:
        """Return what is found; each build costs the same, and other steps nothing."""
        steps = {
            name: replace(step, estimate=TORCH if step.kind == "build" else NOTHING)
            for name, step in settled(facts).items()
        }
        targets = facts.request.chosen_targets or ()
        if facts.python.python == Path(sys.executable):  # which may have no headers here
            self.monkeypatch.setattr(preflight, "find_headers", lambda *_: headers)
        return preflight.preflight_plan(PlannedRun(facts, make_steps(facts), Plan(steps, targets)))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path, monkeypatch)
    made.disk(900 * GIB)
    return made


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def closed(place: Place, name: str) -> Facts:
    """A folder that nobody may write to, whoever runs the tests."""
    facts, allowed = place.facts(), os.access
    path = {"dist": facts.request.output, "tree": facts.request.sources["pytorch"]}[name]
    path.mkdir(parents=True, exist_ok=True)
    place.monkeypatch.setattr(os, "access", lambda file, mode: file != path and allowed(file, mode))
    return facts


def only_programs(place: Place, **scripts: str) -> Facts:
    """A PATH with some programs alone."""
    for name, script in scripts.items():
        program(place.folder / "bin", name.replace("xx", "++"), script)
    return replace(place.facts(), env={"PATH": str(place.folder / "bin"), "TMPDIR": str(place.folder)})


def no_git(place: Place) -> Facts:
    return only_programs(place, cc="exit 0", cxx="exit 0")


def broken_compiler(place: Place) -> Facts:
    return only_programs(place, git="exit 0", cc="exit 0", gxx="echo 'cannot execute cc1plus' >&2; exit 1")


def with_python(place: Place, **changed: Any) -> Facts:
    facts = place.facts()
    return replace(facts, python=replace(facts.python, **changed))


def bad_python(place: Place) -> Facts:
    program(place.folder / "other", "python3", "exit 3")
    return with_python(place, python=place.folder / "other" / "python3")


def with_disk(free: int) -> Callable[[Place], Facts]:
    def change(place: Place) -> Facts:
        place.disk(free)
        return place.facts()

    return change


def on_machine(*resources: Any) -> Callable[[Place], Facts]:
    return lambda place: replace(place.facts(), machine=machine.MachineResources(*resources))


def with_variable(name: str, value: str) -> Callable[[Place], Facts]:
    def change(place: Place) -> Facts:
        facts = place.facts()
        return replace(facts, env={**facts.env, name: value})

    return change


def offline(place: Place) -> Facts:
    facts = place.facts(offline=True)
    triton = facts.request.sources["triton"]
    (triton / "cmake").mkdir()
    (triton / "cmake" / "llvm-hash.txt").touch()
    tree = make_facts(place.folder).trees["triton"]
    return replace(
        facts,
        projects=(load_project("triton"), *facts.projects),
        trees={**facts.trees, "triton": tree},
        env={**facts.env, "JSON_SYSPATH": str(place.folder)},
    )


def with_rocm(facts: Facts, *missing: object) -> Facts:
    prefix = SimpleNamespace(find_missing=lambda *_: [*missing])
    sdk: Any = SimpleNamespace(version="7.2.4", root=facts.request.output, prefix=prefix)
    return replace(facts, installed_rocm=sdk)


def no_rccl(place: Place) -> Facts:
    part = SimpleNamespace(required=True, explain=lambda *_: ("ROCm 7.2.4 has no RCCL", "install it"))
    return with_rocm(place.facts(), part)


def no_submodule(place: Place) -> Facts:
    facts = place.facts()
    return replace(facts, trees={"pytorch": replace(facts.trees["pytorch"], missing=("third_party/fmt",))})


def foreign_wheel(place: Place) -> Facts:
    facts = place.facts()
    facts.request.output.mkdir()
    (facts.request.output / "torch-2.8-cp312-cp312-linux_x86_64.whl").touch()
    (facts.request.output / "torch-2.8-cp39-cp39-linux_x86_64.whl").touch()
    return facts


# (check, severity, words of the text, the facts)
FIRING: list[tuple[str, str, str, Callable[[Place], Facts]]] = [
    ("programs", "error", "there is no git on the PATH", no_git),
    ("programs", "error", "g++ does not work: C++ compiler failed", broken_compiler),
    ("programs", "error", "there is no C++ compiler on the PATH",
     lambda place: place.facts(set_env={"pytorch": {"CXX": "/no/such/compiler"}})),
    ("python-headers", "warning", "other/python3", bad_python),
    ("access", "error", "the output folder", lambda place: closed(place, "dist")),
    ("access", "error", "the source tree of pytorch", lambda place: closed(place, "tree")),
    ("access", "error", "temporary files go to /gone, which is not a folder",
     with_variable("TMPDIR", "/gone")),
    ("disk", "error", "the disk is full (1.0 MiB free)", with_disk(MIB)),
    ("disk", "warning", "17.0 GiB free, and this run may add 18.0 GiB (build-pytorch-cp312 18.0 GiB)",
     with_disk(17 * GIB)),
    ("memory", "warning", "may take 4.0 GiB, and there are 3.0 GiB of memory (3.0 GiB of",
     on_machine(2, 3 * GIB, 2 * GIB, ("3.0 GiB of memory by /sys/fs/cgroup/a",))),
    ("memory", "warning", "and 2.0 GiB of memory are free", on_machine(2, 9 * GIB, 2 * GIB)),
    ("memory", "warning", "16 at a time 64.0 GiB, and 60.0 GiB are free", with_variable("MAX_JOBS", "16")),
    ("installed-rocm", "error", "ROCm 7.2.4 has no RCCL", no_rccl),
    ("installed-rocm", "warning", "HIP_PATH=/opt/other leads to another ROCm",
     lambda place: with_rocm(with_variable("HIP_PATH", "/opt/other")(place))),
    ("sdk-targets", "warning", "serves gfx942: its libraries have no kernels for gfx1100",
     lambda place: place.facts(served=["gfx942:xnack+"], unlisted_targets=True)),
    ("downloads", "error", "UV_OFFLINE is set, but the build of triton downloads", offline),
    ("released-pythons", "warning", "of torch was released for Python",
     lambda place: with_python(place, version="3.7.1")),
    ("submodules", "error", "lacks 1 submodule: third_party/fmt", no_submodule),
    ("foreign-wheels", "error", "torch-2.8-cp312-cp312-linux_x86_64.whl is in the output", foreign_wheel),
]  # fmt: skip


@pytest.mark.parametrize("row", FIRING, ids=[f"{row[0]}-{number}" for number, row in enumerate(FIRING)])
def test_a_check_fires_alone(place: Place, row: tuple[str, str, str, Callable[[Place], Facts]]) -> None:
    check, severity, words, change = row
    [finding] = place.look(change(place))
    assert (finding.check, finding.severity) == (check, severity)
    assert words in finding.message
    assert finding.tip


@pytest.mark.parametrize(
    "change",
    [
        Place.facts,
        on_machine(2, 4 * GIB, 4 * GIB),
        with_variable("MAX_JOBS", "15"),
        with_variable("CC", "env cc"),
        lambda place: place.facts(targets="gfx942:xnack-"),
    ],
)
def test_nothing_is_said_of_what_is_right_and_nothing_is_written(
    place: Place, change: Callable[[Place], Facts]
) -> None:
    facts = change(place)
    before = sorted(place.folder.rglob("*"))
    begin = time.process_time()
    assert place.look(facts) == ()
    assert time.process_time() - begin < 1  # some 30 ms on two idle cores
    assert sorted(place.folder.rglob("*")) == before


def test_every_check_is_seen_to_fire() -> None:
    assert {row[0] for row in FIRING} == {*preflight.PREFLIGHT_CHECKS}


def test_what_is_done_needs_nothing(place: Place) -> None:
    place.disk(MIB * 100)
    facts = finish(place.facts())
    assert [finding.check for finding in place.look(facts)] == []


def test_needs_are_summed_over_all_steps_of_a_file_system(place: Place) -> None:
    place.disk(80 * GIB)
    facts = place.facts()
    every = make_facts(place.folder)
    [finding] = place.look(replace(facts, projects=every.projects, trees=every.trees))
    assert "may add 90.0 GiB" in finding.message
    assert finding.message.endswith("18.0 GiB and 2 more)")


def test_all_errors_are_refused_at_once_and_warnings_are_not(place: Place) -> None:
    facts = closed(place, "dist")
    tree = replace(facts.trees["pytorch"], missing=("third_party/fmt",))
    found = place.look(replace(facts, trees={"pytorch": tree}, env={**facts.env, "MAX_JOBS": "16"}))
    assert [finding.severity for finding in found] == ["error", "error", "warning"]
    with pytest.raises(errors.UsageError, match="for 2 reasons") as caught:
        preflight.refuse_errors(found)
    assert "cannot be written to\n    tip: make it" in caught.value.message
    assert "16 at a time" not in caught.value.message
    preflight.refuse_errors(found[2:])


def test_headers_where_they_usually_are_and_where_python_says() -> None:
    python, env = Path(sys.executable), dict(os.environ)
    there = Path(sysconfig.get_path("include"), "Python.h").is_file()
    for tag in (f"cp3{sys.version_info[1]}", "", "cp399"):
        folder = preflight.find_headers(python, env, tag)
        assert (folder is not None and (folder / "Python.h").is_file()) == there


def test_a_python_without_headers(place: Place) -> None:
    [finding] = place.look(place.facts(), headers=None)
    assert (finding.check, finding.severity) == ("python-headers", "error")
    assert finding.message.endswith(") has no Python.h")
