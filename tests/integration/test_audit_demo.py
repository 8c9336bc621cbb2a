"""Audits of the demo's wheels and of its ROCm: nothing is found, and each change is named by one check."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from binaries import code_object
from finished_demo import Demo

from rocm_wheels.audit import audited_wheel, verify
from rocm_wheels.device_code import kpack
from rocm_wheels.wheels import required_packages

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the demo's wheels are of this system"),
]
RUNTIME = "_rocm_sdk_core/lib/libamdhip64.so.7"
LIBRARY = "_rocm_sdk_libraries/lib/{}/library/"
SGEMM = "TensileLibrary_Type_SS_Contraction_l_Ailk_Bljk_Cijk_Dijk_gfx942"
# paths of the Python that the demo was built with may be in torchaudio and torchvision
HARMLESS = {"builder-paths"}


def list_packages(demo: Demo) -> dict[str, Path]:
    wheels = (demo.folder / "rocm-packages" / "dist").glob("*.whl")
    return {wheel.name.split("-")[0]: wheel for wheel in wheels}


def audit(wheel: Path, *packages: Path) -> audited_wheel.AuditReport:
    pool = required_packages.PackagePool.collect([*packages], (), None, {}, symbols=True)
    return verify.verify_wheel(wheel, audited_wheel.WheelExpectation(None, "linux"), packages=pool)


def change(wheel: Path, folder: Path, edit: Callable[[dict[str, bytes]], object]) -> Path:
    """Write a wheel anew with other members; RECORD has no digests then."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    record = next(name for name in members if name.endswith("/RECORD"))
    members[record] = "".join(f"{name},,\n" for name in members).encode()
    with zipfile.ZipFile(folder / wheel.name, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / wheel.name


def test_nothing_is_found(demo: Demo) -> None:
    packages = [*list_packages(demo).values()]
    wheels = [*(demo.folder / "wheels").glob("*.whl")]
    reports = {wheel.name.split("-")[0]: audit(wheel, *packages, *wheels) for wheel in (*wheels, *packages)}
    named = {name: {finding.check for finding in report.findings} for name, report in reports.items()}
    assert not set().union(*named.values()) - HARMLESS, named
    assert {"needed-symbols", "needed-versions"} <= set(reports["torch"].ran)
    assert {"kernel-files", "kernel-targets"} <= set(reports["rocm_sdk_device_gfx942"].ran)
    assert reports["rocm_sdk_device_gfx942"].targets == ("gfx942",)


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        (b"\0hipMalloc\0", b"\0hipMellow\0", "needed-symbols"),
        (b"\0hip_4.2\0", b"\0hip_9.9\0", "needed-versions"),
    ],
)
def test_another_runtime(demo: Demo, tmp_path: Path, old: bytes, new: bytes, check: str) -> None:
    packages = list_packages(demo)
    replace = lambda members: members.update({RUNTIME: members[RUNTIME].replace(old, new)})  # noqa: E731
    packages["rocm_sdk_core"] = change(packages["rocm_sdk_core"], tmp_path, replace)
    (torch,) = (demo.folder / "wheels").glob("torch-*.whl")
    report = audit(torch, *packages.values())
    assert {(finding.check, finding.subject) for finding in report.findings} == {
        (check, "torch/lib/libtorch_hip.so")
    }


def rename_list(members: dict[str, bytes]) -> None:
    members[f"{LIBRARY.format('rocblas')}TensileLibrary_lazy_gfx942.dat"] = kpack.pack_messagepack(
        {"library": {"rows": [{"library": {"type": "Placeholder", "value": f"{SGEMM}_other"}}]}}
    )


def add_other_target(members: dict[str, bytes]) -> None:
    members[f"{LIBRARY.format('hipsparselt')}TensileLibrary_gfx950.co"] = code_object(0x4F)


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (lambda members: members.pop(f"{LIBRARY.format('rocblas')}{SGEMM}.co"), "kernel-files"),
        (lambda members: members.pop(f"{LIBRARY.format('rocblas')}{SGEMM}.dat"), "kernel-files"),
        (rename_list, "kernel-files"),
        (add_other_target, "kernel-targets"),
    ],
    ids=["code", "solutions", "list", "target"],
)
def test_another_kernel_database(
    demo: Demo, tmp_path: Path, edit: Callable[[dict[str, bytes]], object], check: str
) -> None:
    package = change(list_packages(demo)["rocm_sdk_device_gfx942"], tmp_path, edit)
    report = audit(package)
    assert {finding.check for finding in report.findings} - {"record-digests"} == (
        {check} if check else set()
    )
