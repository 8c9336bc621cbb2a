"""Repair wheels for Windows, on any system: what DLLs import, and grafts by delvewheel.

Imports and delayed imports of every .dll and .pyd are read here. A DLL that is needed is in the wheel, in a
package that METADATA requires (names compared without case), part of Windows or Python by delvewheel's
list, of the VC runtime, or it is grafted from a folder that was named; else it is a fault.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rocm_wheels.binaries import pe
from rocm_wheels.core import errors
from rocm_wheels.package import repair
from rocm_wheels.wheels import platform_promises, required_packages, rewrite
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelEdit

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARY_SUFFIXES = (".dll", ".pyd")
_VC_OWNER = "the VC runtime, which torch asks users to have"


def plan_windows_repair(
    wheel: Path,
    platform: required_packages.WheelPlatform,
    offers: required_packages.PackagePool,
    request: repair.RepairRequest,
) -> repair.RepairPlan:
    """Read a wheel once, and return what becomes of it; DataError when it cannot be read."""
    imports = read_imports(wheel)
    if not imports:
        return repair.RepairPlan(wheel, "windows", wheel.name, notes=("it holds no DLL: nothing to look at",))
    around = repair.Surroundings(platform, offers.find_required(wheel, platform), offers, request)
    is_system_dll = platform_promises.make_system_test(platform)
    inside = {PurePosixPath(member).name.lower() for member in imports}
    outside = {name.lower(): reason for name, reason in request.excludes.items()}
    files = {
        file.name.lower(): file
        for folder in reversed(request.library_dirs)
        for file in sorted(folder.iterdir())
        if file.is_file()
    }
    needed_by: dict[str, list[str]] = {}
    needing = imports
    while needing:
        more: dict[str, list[str]] = {}
        for member, libraries in sorted(needing.items()):
            for library in sorted({name.lower() for name in libraries} - inside - needed_by.keys()):
                if not is_system_dll(library):
                    more.setdefault(library, []).append(member)
        outside = dict.fromkeys(filter(platform_promises.is_vc_runtime, more), _VC_OWNER) | outside
        needed_by |= more
        needs = around.meet_needs(needed_by, files.get, outside, "nor part of Windows")
        needing = {g.library: _read_file_imports(g.source) for g in needs.grafts if g.library in more}
    return repair.RepairPlan(
        wheel,
        "windows",
        wheel.name,
        grafts=needs.grafts,
        excluded=needs.excluded,
        faults=needs.faults,
    )


def read_imports(wheel: Path) -> dict[str, tuple[str, ...]]:
    """Return what each .dll and .pyd of a wheel imports, by member; DataError when one is damaged."""

    def choose(name: str, head: bytes) -> Callable[[memoryview], tuple[str, ...] | None] | None:
        is_library = name.lower().endswith(_LIBRARY_SUFFIXES) and head.startswith(b"MZ")
        return (lambda data: pe.read_pe_imports(data, f"{wheel}: {name}")) if is_library else None

    with WheelArchive.open(wheel) as archive:
        read = archive.read_chosen(choose, digest=False)
    return {name: imports for name, imports in read.items() if imports is not None}


def _read_file_imports(path: Path) -> tuple[str, ...]:
    """Return what a DLL to graft imports, but for what delvewheel knows that nobody needs."""
    from delvewheel import _dll_list  # type: ignore[import-untyped]

    imports = pe.read_pe_imports(memoryview(path.read_bytes()), str(path))
    if imports is None:
        raise errors.DataError(f"{path} is no DLL")
    ignored = _dll_list.ignore_dependency.get(path.name.lower(), set())
    return tuple(name for name in imports if name.lower() not in ignored)


def write_windows_repair(
    plan: repair.RepairPlan, stage: Path, env: Mapping[str, str], addition: WheelEdit
) -> Path:
    """Have delvewheel graft what was planned; PackageError when it fails or took anything else.

    The wheel gets the ``addition``, if that is one, before.
    """
    libraries = Path(tempfile.mkdtemp(dir=stage.absolute()))
    for graft in plan.grafts:  # these very files, whatever else lies beside them
        shutil.copy(graft.source, libraries)
    source = plan.source
    if addition != WheelEdit():
        source = rewrite.rewrite_wheel(source, libraries / "edited", addition)
    words = ["--analyze-existing", "--ignore-existing", "--no-mangle-all", "--add-path", str(libraries)]
    words += ["--wheel-dir", str(libraries / "grafted")]
    if plan.excluded:
        words += ["--exclude", os.pathsep.join(sorted(plan.excluded))]
    grafted = repair.graft_libraries(plan, source, ("delvewheel", words), env, _list_dlls)
    return grafted.replace(stage / plan.file_name)


def _list_dlls(wheel: Path) -> list[str]:
    with WheelArchive.open(wheel) as archive:
        return [entry.name for entry in archive.members if entry.name.lower().endswith(".dll")]
