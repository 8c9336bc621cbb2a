"""``fat``: put ROCm into the repaired wheel of torch, from the wheels that the build's ROCm came from.

They come from the folder of ``--find-links`` or the index of ``--rocm-index``. The name of the fat wheel has
a build tag: its version is that of the thin one, because companions pin it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from rocm_wheels.core import errors
from rocm_wheels.pipeline import build_environment, packaging
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import Step
from rocm_wheels.pipeline.step_run import StepRun

FAT_VERSION = "1"
FAT_BUILD_TAG = "1fat"


def settle_fat(planner: Planner, step: Step, inputs: dict[str, str]) -> Step:
    """Return the step with the targets that kernels are kept for, and the ROCm that is put in."""
    inputs["step"] = FAT_VERSION
    inputs["targets"] = ",".join(planner.find_targets())
    inputs["ROCm packages"] = planner.ready.content
    return packaging.settle_packaging(planner, step, inputs, "rocm-wheels wheel fat")


def run_fat(step_run: StepRun) -> None:
    """Make the fat wheel. Raises PackageError for what ROCm's wheels lack."""
    packaging.run_packaging(step_run, partial(_make_fat_wheel, step_run))


def _make_fat_wheel(step_run: StepRun, wheel: Path, folder: Path) -> packaging.PackagedFiles:
    from rocm_wheels.package import fat

    targets, sdk = step_run.planner.find_targets(), step_run.facts.request.sdk
    links = Path(sdk.find_links) if sdk.find_links is not None else None
    index_url = str(sdk.index_url) if links is None else None
    request = fat.FatRequest(wheel, targets, FAT_BUILD_TAG, links, index_url, folder / "rocm")
    with ExitStack() as stack:
        plan = fat.plan_fat(request, stack)
        _require_installed_rocm(step_run, plan.part_paths)
        path = plan.write(folder)
    step_run.append_log("ROCm inside", [*plan.parts, *plan.libraries])
    return packaging.PackagedFiles(path, note=f"carries ROCm {plan.rocm}", rewritten=True)


def _require_installed_rocm(step_run: StepRun, rocm_wheels: Sequence[Path]) -> None:
    """Raise PackageError for a wheel of ROCm with other files than those that torch was built against."""
    from rocm_wheels.wheels import dist_info, rewrite

    installed = build_environment.list_installed_packages(step_run.ready.site_packages)
    for wheel in rocm_wheels:
        package = installed.get(canonicalize_name(dist_info.parse_wheel_name(wheel.name).name))
        if package is None:
            continue  # kernels of a target, which no compiler needs
        lines = build_environment.read_record_lines(package.record)
        listed_digests = {
            entry.path: entry.digest
            for entry in dist_info.parse_wheel_record(lines, name=str(package.record))
        }
        record = dist_info.parse_wheel_record(
            rewrite.read_dist_info_files(wheel)["RECORD"], name=f"{wheel}: RECORD"
        )
        for entry in record:
            if listed_digests.get(entry.path, entry.digest) != entry.digest:
                raise errors.PackageError(
                    f"{wheel} is not the {package.name} {package.version} that torch was built against:"
                    f" {entry.path} differs",
                    tip="name the folder or index that the build's ROCm was installed from",
                )
