"""Every preflight check, firing and not firing, on plain values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.core import errors, machine
from rocm_wheels.models import project, project_names
from rocm_wheels.pipeline import estimates, preflight_checks

GIB = 1 << 30
WORK = preflight_checks.PreflightFolder("work", "work directory", Path("/b/work"), 1, 900 * GIB)
OUTPUT = preflight_checks.PreflightFolder("output", "output folder", Path("/b/dist"), 1, 900 * GIB)
SOURCE = preflight_checks.PreflightFolder(
    "source", "source tree of pytorch", Path("/b/pytorch"), 1, 900 * GIB
)
TEMPORARY = preflight_checks.PreflightFolder(
    "temporary", "folder of temporary files", Path("/tmp"), 2, 9 * GIB
)
TORCH = estimates.Estimate(7200, 16 * GIB, 64 * GIB, "stated", 4 * GIB, GIB)
PYTHON = preflight_checks.PythonHeaders("/opt/py/bin/python3 (Python 3.12.1)", Path("/opt/py/include"))
GOOD = preflight_checks.PreflightSubject(
    platform="linux",
    machine=machine.MachineResources(16, 64 * GIB, 60 * GIB),
    folders=(WORK, OUTPUT, SOURCE, TEMPORARY),
    projects=("pytorch",),
    costs=(preflight_checks.StepCost("build-pytorch-cp312", "pytorch", TORCH),),
    pythons=(PYTHON,),
    programs=(
        preflight_checks.BuildProgram("git", Path("/usr/bin/git")),
        preflight_checks.BuildProgram("C compiler", Path("/usr/bin/cc")),
    ),
    targets=("gfx942", "gfx1100"),
    sdk_targets=("gfx942", "gfx1100"),
)


def on(*, platform: project_names.Platform = "linux", **changes: Any) -> preflight_checks.PreflightSubject:
    return replace(GOOD, platform=platform, **changes)


def at(folder: preflight_checks.PreflightFolder, **changes: Any) -> preflight_checks.PreflightSubject:
    """The good subject with one folder that is not as it should be."""
    changed = replace(folder, **changes)
    return replace(GOOD, folders=tuple(changed if one is folder else one for one in GOOD.folders))


def costs(**changes: Any) -> tuple[preflight_checks.StepCost, ...]:
    return (preflight_checks.StepCost("build-pytorch-cp312", "pytorch", replace(TORCH, **changes)),)


def program(name: str, path: str | None = "/x", fault: str = "") -> Any:
    return (preflight_checks.BuildProgram(name, Path(path) if path else None, fault),)


SMALL = machine.MachineResources(2, 3 * GIB, 2 * GIB, ("3.0 GiB of memory by /sys/fs/cgroup/a",))
# (check, severity, words of the text, the subject)
FIRING: list[tuple[str, str, str, preflight_checks.PreflightSubject]] = [
    ("programs", "error", "there is no git on the PATH", on(programs=program("git", None))),
    (
        "programs",
        "error",
        "/x does not work: cannot exec",
        on(programs=program("C++ compiler", fault="cannot exec")),
    ),
    ("python-headers", "error", "3.12.1) has no Python.h", on(pythons=(replace(PYTHON, folder=None),))),
    ("access", "error", "the output folder /b/dist cannot be written to", at(OUTPUT, writable=False)),
    ("access", "error", "the source tree of pytorch /b/pytorch cannot", at(SOURCE, writable=False)),
    ("access", "error", "temporary files go to /tmp, which is not a folder", at(TEMPORARY, exists=False)),
    ("disk", "error", "/tmp: the disk is full (1.0 MiB free)", at(TEMPORARY, free=1 << 20)),
    (
        "disk",
        "warning",
        "/b/work, /b/dist, /b/pytorch: 17.0 GiB free, and this run may add 18.0 GiB"
        " (build-pytorch-cp312 18.0 GiB)",
        at(OUTPUT, free=17 * GIB),
    ),
    (
        "disk",
        "warning",
        "/b/dist: 1.0 GiB free, and this run may add 2.0 GiB",
        replace(at(OUTPUT, free=GIB, device=7), costs=costs(wheel=2 * GIB)),
    ),
    ("memory", "warning", "may take 4.0 GiB, and there are 3.0 GiB of memory (3.0 GiB of", on(machine=SMALL)),
    (
        "memory",
        "warning",
        "and 2.0 GiB of memory are free",
        on(machine=machine.MachineResources(2, 9 * GIB, 2 * GIB)),
    ),
    ("memory", "warning", "16 at a time 64.0 GiB, and 60.0 GiB are free", on(jobs=16)),
    (
        "installed-rocm",
        "error",
        "ROCm 7.2.4 in /opt/rocm has no RCCL",
        on(rocm_findings=(errors.Finding("error", "ROCm 7.2.4 in /opt/rocm has no RCCL", "install it"),)),
    ),
    (
        "sdk-targets",
        "warning",
        "serves gfx942: its libraries have no kernels for gfx1100",
        on(sdk_targets=("gfx942:xnack+",)),
    ),
    (
        "downloads",
        "error",
        "--offline, but the build of triton downloads LLVM from here",
        on(
            offline=True,
            fetches=(
                preflight_checks.BuildFetch(
                    "triton",
                    project.BuildDownload(what="LLVM", origin="here", named_in="x", variable="LLVM_SYSPATH"),
                ),
            ),
        ),
    ),
    (
        "released-pythons",
        "warning",
        "line 2.13 of torch was released for",
        on(unreleased=("line 2.13 of torch was released for Python 3.10, and not for 3.9",)),
    ),
    (
        "submodules",
        "error",
        "lacks 1 submodule: third_party/fmt",
        on(missing={Path("/src/pytorch"): ("third_party/fmt",)}),
    ),
    (
        "foreign-wheels",
        "error",
        "x.whl is in the output folder",
        on(foreign=("x.whl is in the output folder",)),
    ),
]


@pytest.mark.parametrize("row", FIRING, ids=[f"{row[0]}-{number}" for number, row in enumerate(FIRING)])
def test_a_check_fires_alone(row: tuple[str, str, str, preflight_checks.PreflightSubject]) -> None:
    check, severity, words, subject = row
    [finding] = preflight_checks.run_preflight_checks(subject)
    assert (finding.check, finding.severity) == (check, severity)
    assert words in finding.message
    assert finding.tip


SILENT = [
    GOOD,
    on(costs=(), pythons=(), programs=(), targets=(), sdk_targets=None),
    at(OUTPUT, device=5),
    at(TEMPORARY, free=GIB),
    on(machine=machine.MachineResources(2, 4 * GIB, 4 * GIB)),
    on(jobs=15),
    on(targets=("gfx942:xnack-",)),
]


@pytest.mark.parametrize("subject", SILENT, ids=range(len(SILENT)))
def test_nothing_is_said_of_what_is_right(subject: preflight_checks.PreflightSubject) -> None:
    assert preflight_checks.run_preflight_checks(subject) == ()


def test_every_check_is_seen_to_fire() -> None:
    assert {row[0] for row in FIRING} == set(preflight_checks.PREFLIGHT_CHECKS)


def test_needs_are_summed_over_all_steps_of_a_file_system() -> None:
    steps = tuple(preflight_checks.StepCost(f"build-pytorch-cp31{n}", "pytorch", TORCH) for n in range(5))
    subject = replace(
        at(SOURCE, free=80 * GIB),
        costs=(*steps, preflight_checks.StepCost("install-rocm-cp310", None, TORCH)),
    )
    [finding] = preflight_checks.run_preflight_checks(subject)
    assert "may add 108.0 GiB" in finding.message
    assert finding.message.endswith("18.0 GiB and 3 more)")


def test_all_errors_are_refused_at_once_and_warnings_are_not() -> None:
    found = preflight_checks.run_preflight_checks(
        replace(at(OUTPUT, writable=False), jobs=16, pythons=(replace(PYTHON, folder=None),))
    )
    assert [finding.severity for finding in found] == ["error", "error", "warning"]
    with pytest.raises(errors.UsageError, match="for 2 reasons") as caught:
        preflight_checks.refuse_errors(found)
    assert "no Python.h\n    tip: install" in caught.value.message
    assert "16 at a time" not in caught.value.message
    preflight_checks.refuse_errors(found[2:])


def test_one_error_is_said_as_it_is() -> None:
    with pytest.raises(errors.UsageError) as caught:
        preflight_checks.refuse_errors([errors.Finding("error", "no git", "install git")])
    assert (caught.value.message, caught.value.tip) == ("no git", "install git")


def test_lines_for_people() -> None:
    found = [errors.Finding("warning", "the disk is small", "buy another", check="disk")]
    assert preflight_checks.format_findings(found) == [
        "warning: disk: the disk is small",
        "  tip: buy another",
    ]
