"""All checks of one wheel: add a function and a line here, and the command line and the docs follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocm_wheels.audit import contents, device_code, metadata, modules, names, parts
from rocm_wheels.audit.findings import AuditFinding, SkippedCheck
from rocm_wheels.audit.subject import AuditedWheel

CheckFunction = Callable[[AuditedWheel], Sequence[AuditFinding] | SkippedCheck]


@dataclass(frozen=True)
class WheelCheck:
    """A named check: ``run_check`` returns what is wrong ([] when nothing is), or why it could not look."""

    name: str
    summary: str
    run_check: CheckFunction


CHECKS: tuple[WheelCheck, ...] = (
    WheelCheck(
        "archive", "members are whole; RECORD, METADATA, WHEEL and names agree", contents.check_archive
    ),
    WheelCheck("file-name", "the distribution and version that were to be built", names.check_file_name),
    WheelCheck("platform", "the tags say the platform it is for", names.check_platform),
    WheelCheck("python", "the interpreter it was built for accepts its tags", names.check_python),
    WheelCheck("metadata", "every field of METADATA is valid", metadata.check_metadata),
    WheelCheck("requires-python", "Requires-Python admits that interpreter", metadata.check_requires_python),
    WheelCheck("requirements", "no requirement points at a place", metadata.check_requirements),
    WheelCheck(
        "rocm-requirement", "rocm[libraries] is pinned where it must be", metadata.check_rocm_requirement
    ),
    WheelCheck("pins", "what was built with it is required at that version", metadata.check_pins),
    WheelCheck("files", "the files that the recipe names are inside", contents.check_files),
    WheelCheck("installer-files", "no file that only installers may write", contents.check_installer_files),
    WheelCheck(
        "rocm-init", "the module that starts ROCm asks for the SDK's version", modules.check_rocm_init
    ),
    WheelCheck("rocm-build", "a ROCm build, not a CPU-only one", device_code.check_rocm_build),
    WheelCheck(
        "device-libraries",
        "the libraries that must hold device code exist",
        device_code.check_device_libraries,
    ),
    WheelCheck(
        "device-code", "each library holds all, some or none of the targets", device_code.check_device_code
    ),
    WheelCheck(
        "device-consistency", "without stated targets: libraries agree", device_code.check_consistency
    ),
    WheelCheck("device-coverage", "device code only where the recipe has a rule", device_code.check_coverage),
    WheelCheck(
        "device-wheels", "parts that were split off are whole and of this version", parts.check_device_wheels
    ),
    WheelCheck("run-paths", "no library looks into the builder's folders", contents.check_run_paths),
)
IMPORT_CHECK = "import"  # not in the table: it needs an environment; see imports.check_import
IMPORT_SUMMARY = "it can be imported in a clean process, and says of itself what was built"
