"""List all checks of one wheel: add a function and a line here, and the command line and the docs follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocm_wheels.audit.audited_wheel import AuditedWheel
from rocm_wheels.audit.contents import (
    check_archive,
    check_files,
    check_installer_files,
    check_rocm_init,
    check_run_paths,
)
from rocm_wheels.audit.device_code import (
    check_consistency,
    check_coverage,
    check_device_code,
    check_device_libraries,
    check_device_wheels,
    check_rocm_build,
)
from rocm_wheels.audit.metadata import (
    check_metadata,
    check_pins,
    check_requirements,
    check_requires_python,
    check_rocm_requirement,
)
from rocm_wheels.audit.names import check_file_name, check_platform, check_python
from rocm_wheels.audit.report import SkippedCheck
from rocm_wheels.core import Finding

CheckFunction = Callable[[AuditedWheel], Sequence[Finding] | SkippedCheck]


@dataclass(frozen=True)
class WheelCheck:
    """A named check: ``run_check`` returns what is wrong ([] when nothing is), or why it could not look."""

    name: str
    summary: str
    run_check: CheckFunction


CHECKS: tuple[WheelCheck, ...] = (
    WheelCheck("archive", "members are whole; RECORD, METADATA, WHEEL and names agree", check_archive),
    WheelCheck("file-name", "the distribution and version that were to be built", check_file_name),
    WheelCheck("platform", "the tags say the platform it is for", check_platform),
    WheelCheck("python", "the interpreter it was built for accepts its tags", check_python),
    WheelCheck("metadata", "every field of METADATA is valid", check_metadata),
    WheelCheck("requires-python", "Requires-Python admits that interpreter", check_requires_python),
    WheelCheck("requirements", "no requirement points at a place", check_requirements),
    WheelCheck("rocm-requirement", "rocm[libraries] is pinned where it must be", check_rocm_requirement),
    WheelCheck("pins", "what was built with it is required at that version", check_pins),
    WheelCheck("files", "the files that the recipe names are inside", check_files),
    WheelCheck("installer-files", "no file that only installers may write", check_installer_files),
    WheelCheck("rocm-init", "the module that starts ROCm asks for the SDK's version", check_rocm_init),
    WheelCheck("rocm-build", "a ROCm build, not a CPU-only one", check_rocm_build),
    WheelCheck(
        "device-libraries",
        "the libraries that must hold device code exist",
        check_device_libraries,
    ),
    WheelCheck("device-code", "each library holds all, some or none of the targets", check_device_code),
    WheelCheck("device-consistency", "without stated targets: libraries agree", check_consistency),
    WheelCheck("device-coverage", "device code only where the recipe has a rule", check_coverage),
    WheelCheck(
        "device-wheels", "parts that were split off are whole and of this version", check_device_wheels
    ),
    WheelCheck("run-paths", "no library looks into the builder's folders", check_run_paths),
)
IMPORT_CHECK = "import"  # not in the table: it needs an environment; see imports.check_import
IMPORT_SUMMARY = "it can be imported in a clean process, and says of itself what was built"
