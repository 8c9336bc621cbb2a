"""Repair wheels for Windows, on any system: what DLLs import, and grafts by delvewheel.

Imports and delayed imports of every .dll and .pyd are read here. A DLL that is needed is in the wheel, in a
package that METADATA requires (names compared without case), part of Windows or Python by delvewheel's
list, of the VC runtime, or it is grafted from a folder that was named; else it is a fault.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.binaries import loader
from rocm_wheels.core import errors, process
from rocm_wheels.package import repair
from rocm_wheels.wheels import platform_promises, required_packages, rewrite, wheel_writer
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
    inside = {posixpath.basename(member).lower() for member in imports}
    is_system_dll = platform_promises.make_system_test(platform)
    needed_by: dict[str, list[str]] = {}
    for member, libraries in sorted(imports.items()):
        for library in sorted({name.lower() for name in libraries} - inside):
            if not is_system_dll(library):
                needed_by.setdefault(library, []).append(member)
    excluded, grafts, faults = _meet_needs(needed_by, around)
    return repair.RepairPlan(
        wheel,
        "windows",
        wheel.name,
        grafts=tuple(grafts),
        excluded=excluded,
        faults=tuple(faults),
    )


def read_imports(wheel: Path) -> dict[str, tuple[str, ...]]:
    """Return what each .dll and .pyd of a wheel imports, by member; DataError when one is damaged."""

    def choose(name: str, head: bytes) -> Callable[[memoryview], tuple[str, ...] | None] | None:
        is_library = name.lower().endswith(_LIBRARY_SUFFIXES) and head.startswith(b"MZ")
        return (lambda data: loader.read_pe_imports(data, f"{wheel}: {name}")) if is_library else None

    with WheelArchive.open(wheel) as archive:
        contents = archive.read_all(choose, digest=False)
    if faults := [content.fault for content in contents if content.fault]:
        raise errors.DataError(faults[0])
    return {content.name: content.result for content in contents if content.result is not None}


def _meet_needs(
    needed_by: dict[str, list[str]], around: repair.Surroundings
) -> tuple[dict[str, str], list[repair.Graft], list[str]]:
    """Decide for each DLL where it is; what is grafted needs others."""
    request, required = around.request, around.required
    is_system_dll = platform_promises.make_system_test(around.platform)
    excludes = {name.lower(): said for name, said in request.excludes.items()}
    files = {
        file.name.lower(): file
        for folder in reversed(request.library_dirs)
        for file in sorted(folder.iterdir())
        if file.is_file()
    }
    excluded: dict[str, str] = {}
    grafts: dict[str, repair.Graft] = {}
    faults: list[str] = []
    waiting = sorted(needed_by)
    while waiting:
        library = waiting.pop(0)
        members = needed_by[library]
        if library in required.libraries:
            excluded[library] = required.owners[library]
        elif library in excludes:
            excluded[library] = excludes[library]
        elif platform_promises.is_vc_runtime(library) and request.vc_runtime == "exclude":
            excluded[library] = _VC_OWNER
        elif owner := around.find_rocm_owner(library):
            faults.append(around.explain_rocm_need(library, members, owner))
        elif library in files:
            grafts[library] = repair.Graft(library, files[library], tuple(members))
            for name in _read_file_imports(files[library]):
                if name not in needed_by and not is_system_dll(name):
                    needed_by[name] = [library]
                    waiting.append(name)
        else:
            faults.append(
                f"{library}, needed by {repair.shorten_list(members)}, is neither in the wheel, "
                "in what it requires,"
                " nor part of Windows: --library-dir names a folder to graft it from"
            )
    return excluded, [grafts[library] for library in sorted(grafts)], faults


def _read_file_imports(path: Path) -> list[str]:
    """Return what a DLL to graft imports, in lower case, but for what delvewheel knows that nobody needs."""
    from delvewheel import _dll_list  # type: ignore[import-untyped]

    imports = loader.read_pe_imports(memoryview(path.read_bytes()), str(path))
    if imports is None:
        raise errors.DataError(f"{path} is no DLL")
    ignored = _dll_list.ignore_dependency.get(path.name.lower(), set())
    return sorted({name.lower() for name in imports} - ignored)


def write_windows_repair(
    plan: repair.RepairPlan, stage: Path, env: Mapping[str, str], addition: WheelEdit
) -> Path:
    """Have delvewheel graft what was planned, and nothing else; PackageError when it took anything else.

    The wheel gets the ``addition``, if that is one, before.
    """
    libraries = Path(tempfile.mkdtemp(dir=stage.absolute()))
    for graft in plan.grafts:  # these very files, whatever else lies beside them
        shutil.copy(graft.source, libraries)
    source = plan.source
    if addition != WheelEdit():
        source = rewrite.rewrite_wheel(source, libraries / "edited", addition).path
    words = [sys.executable, "-m", "delvewheel", "repair", "--analyze-existing", "--ignore-existing"]
    words += ["--no-mangle-all", "--add-path", str(libraries), "--wheel-dir", str(stage)]
    if plan.excluded:
        words += ["--exclude", os.pathsep.join(sorted(plan.excluded))]
    tool_env = {**env, "SOURCE_DATE_EPOCH": env.get("SOURCE_DATE_EPOCH", str(wheel_writer.DEFAULT_EPOCH))}
    process.capture_output(
        [*words, source],
        env=tool_env,
        check=errors.PackageError,
        timeout=None,
        description="delvewheel repair",
    )
    repaired = stage / plan.file_name
    taken = _list_added_dlls(plan.source, repaired)
    if taken != sorted(graft.source.name.lower() for graft in plan.grafts):
        raise errors.PackageError(f"delvewheel took {', '.join(taken) or 'nothing'} into {plan.source.name}")
    return repaired


def _list_added_dlls(old: Path, new: Path) -> Sequence[str]:
    with WheelArchive.open(old) as before, WheelArchive.open(new) as after:
        names = {entry.name for entry in after.members} - {entry.name for entry in before.members}
    return sorted(posixpath.basename(name).lower() for name in names if name.lower().endswith(".dll"))
