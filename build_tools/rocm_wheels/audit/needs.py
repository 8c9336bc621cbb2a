"""Check that what libraries are linked to will be there, where the loader looks for it.

A library that import never loads (one for each ROCm, chosen at run time) may lack what it needs: without a
recipe that is no error.

Sources: ld.so(8); System V ABI, "Dynamic Section"; the manylinux policies (pypa/auditwheel);
adang1345/delvewheel (DLLs of Windows).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from rocm_wheels.audit.audited_wheel import INSTALLED_ROOT, ORIGIN, AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, note, warning
from rocm_wheels.audit.libraries import find_openmp_kind
from rocm_wheels.binaries import asan, loader
from rocm_wheels.core.errors import Finding
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.wheels import platform_promises

if TYPE_CHECKING:
    from auditwheel.policy import WheelPolicies  # type: ignore[import-untyped]


@check("RW031 needed-libraries (error)")
def check_needed_libraries(wheel: AuditedWheel) -> Findings:
    """What libraries are linked to will be there.

    Why: Loading ends with: cannot open shared object file.
    Fix: Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.
    """
    platform = wheel.require_linux_libraries()
    promised = _list_promised(wheel.load_policies(), platform.fields.platform.split("."))
    outside = promised | loader.list_own_names(wheel.scan.binaries)
    needed_by: dict[str, list[str]] = {}
    for member, binary in wheel.binaries.items():
        for library in binary.loader.needed:
            is_python = library.startswith("libpython3")
            if is_python and member in wheel.loaded_libraries and wheel.is_manylinux:
                message = f"is linked to {library}, which many Pythons have not: their program is all of it"
                yield Finding(wheel.severity, message, _PYTHON_TIP, member)
            is_of_machine = platform_promises.is_dynamic_linker(library) or asan.is_runtime(library)
            if library not in outside and not is_python and not is_of_machine:
                needed_by.setdefault(library, []).append(member)
    yield from _judge_needs(wheel, needed_by, lambda library: library)
    yield from _find_unreached(wheel, promised)


def _list_promised(policies: WheelPolicies, tags: Collection[str]) -> set[str]:
    """Return the libraries that every system of the tags has; a tag without a table promises the fewest."""
    listed = [policy for policy in policies if policy.whitelist]
    named = [policy for policy in listed if {policy.name, *policy.aliases} & set(tags)]
    newest = min(listed, key=lambda policy: policy.priority)
    return set(max(named, key=lambda policy: policy.priority, default=newest).whitelist)


_PYTHON_TIP = "link modules without libpython (PEP 513): the program that imports them has its symbols"
_PRELOADS = re.compile(r"\bCDLL\b|\bdlopen\b|\bLoadLibrary\b")


def _find_unreached(wheel: AuditedWheel, promised: Collection[str]) -> Findings:
    """Yield a finding for each library inside that nobody who is linked to it finds.

    The loader looks for a file of that name in the run path of who needs it, and in DT_RPATH of who loads
    that; what is loaded already it knows by its SONAME. A package's ``__init__``, or the module that starts
    ROCm (a fat torch's), may load it before.
    """
    starts = ("/__init__.py", "/_rocm_init.py")
    texts = [content for member, content in wheel.scan.texts.items() if member.endswith(starts)]
    text = b"".join(texts).decode("utf-8", "replace")
    folders: dict[str, list[str]] = {}
    for member in wheel.members:
        folders.setdefault(posixpath.dirname(INSTALLED_ROOT.sub("", member)), []).append(member)
    owners: dict[str, set[str]] = {}
    needed_by: dict[str, list[str]] = {}
    reached: dict[str, set[str]] = {}  # by member: the files that its run path leads to
    for member, binary in wheel.binaries.items():
        for name in list_library_names(member, binary):
            owners.setdefault(name, set()).add(member)
        for name in () if binary.loader.program else binary.loader.needed:
            needed_by.setdefault(name, []).append(member)
        folder = posixpath.dirname(INSTALLED_ROOT.sub("", member))
        places = {
            posixpath.normpath(posixpath.join(folder, ORIGIN.sub("", entry)))
            for run_path in binary.run_paths
            for entry in run_path.entries
            if ORIGIN.match(entry)
        }
        reached[member] = {other for place in places for other in folders.get(place, ())}
    preloads = _PRELOADS.search(text) is not None
    for name, members in sorted(needed_by.items()):
        files = owners.get(name, set())
        loaded = [member for member in members if member in wheel.loaded_libraries]
        if not files or not loaded or name in promised or not files.isdisjoint(wheel.extension_modules):
            continue
        stem = re.escape(name.partition(".")[0].removeprefix("lib"))
        if preloads and ("*.so" in text or re.search(rf"\b(?:lib)?{stem}\b", text) is not None):
            continue
        # a file of that name, or one of that SONAME that somebody finds by the name of the file
        loaders, waiting = set(members), list(members)
        while waiting:
            member = waiting.pop()
            names = list_library_names(member, wheel.binaries[member])
            parents = {parent for own in names for parent in needed_by.get(own, ())} - loaders
            loaders |= parents
            waiting += parents
        ways: set[str] = set()
        for member in loaders:
            if member in members or any(path.is_rpath for path in wheel.binaries[member].run_paths):
                ways |= reached[member]
        needs = {need for member in members for need in wheel.binaries[member].loader.needed}
        if not any(file in ways and posixpath.basename(file) in needs for file in files):
            message = (
                f"{name} is inside ({join_names(sorted(files))}), where no run path leads to a file of that "
                f"name; needed by {join_names(loaded)}"
            )
            tip = "link with $ORIGIN and the way to its folder, and name the file as its SONAME"
            yield error(message, loaded[0], tip)


def list_library_names(member: str, binary: loader.HostBinary) -> set[str]:
    """Return the names that the loader knows a library by: its SONAME, and its file's name."""
    return {binary.loader.soname or "", posixpath.basename(member)} - {""}


@check("RW032 imported-dlls (error)")
def check_imported_dlls(wheel: AuditedWheel) -> Findings:
    """What DLLs import, at once or delayed, will be there.

    Why: Loading ends with: DLL load failed, the specified module could not be found.
    Fix: Require the package that has it, or take it in: `rocm-wheels wheel repair --library-dir`.
    """
    platform = wheel.wheel_platform
    if not wheel.scan.imports or platform is None or platform.system != "windows":
        raise Skip("holds no native library for Windows")
    inside = {posixpath.basename(member).lower() for member in wheel.members}
    needed_by: dict[str, list[str]] = {}
    try:
        is_system_dll = platform_promises.make_system_test(platform)
        for member, libraries in sorted(wheel.scan.imports.items()):
            for library in sorted({name.lower() for name in libraries} - inside):
                if not is_system_dll(library) and not platform_promises.is_vc_runtime(library):
                    needed_by.setdefault(library, []).append(member)
    except ModuleNotFoundError:
        wheel.skip_without_tables()
    yield from _judge_needs(wheel, needed_by, str.lower)


_TORCH_LIBRARY = re.compile(r"(?:lib)?(?:torch|c10|shm)(?:[_.]|$)")
# of the driver, or of another vendor: whoever is linked to one has code for machines with it
_OTHER_VENDOR = re.compile(
    r"(?:lib)?(?:cuda(?:rt)?|cu[a-z]+|nv[a-z]+|nccl|npp\w+|migraphx\w*)(?:[-_.0-9]|$)", re.IGNORECASE
)
# packages of which neither the libraries nor the project begin with the other's name
_PROVIDERS: Mapping[str, re.Pattern[str]] = {
    "intel-openmp": re.compile(r"(?:lib)?iomp5"),
    "pyarrow": re.compile(r"(?:lib)?(?:arrow|parquet)"),
    "tensorflow": re.compile(r"(?:lib)?tensorflow"),
}
_NOT_IN_STEMS = re.compile(r"[^a-z0-9]+")


def _judge_needs(
    wheel: AuditedWheel, needed_by: Mapping[str, list[str]], normalize: Callable[[str], str]
) -> Findings:
    """Judge what is needed from outside.

    What a package that is required and not at hand is known to have may be there; so may ROCm, and what
    comes with another vendor's driver, on a machine that anybody's wheel is for. Anything else is missing: an
    error where an import loads the library that needs it, and in wheels of ours.
    """
    if wheel.scan.metadata is None:
        return  # nobody knows what it requires
    scans, libraries = [wheel.scan], set(wheel.project.repair.exclude if wheel.has_recipe else ())
    requires_rocm, absent = False, wheel.list_absent_packages()
    if wheel.required is not None:
        libraries.update(wheel.required.libraries)
        for package in wheel.required.packages:
            requires_rocm = requires_rocm or package.name.startswith(("rocm", "torch"))
            scans += [package.scan] if package.scan else []
            # what it requires is not known: it may have, or bring, what is looked for
            absent += [package.name] if package.scan and package.scan.metadata is None else []
    for scan in scans:  # what is there and damaged is told by the archive's check
        libraries.update(map(posixpath.basename, scan.damaged_members))
    at_hand = set(map(normalize, libraries))
    provided, strays = list[str](), list[str]()
    for library, members in sorted(needed_by.items()):
        is_rocm = is_rocm_library(library)
        if library in at_hand or (wheel.installed_rocm and is_rocm):
            continue
        if any(_may_have(package, library) for package in absent):
            provided.append(library)
            continue
        is_of_machine = (is_rocm and not requires_rocm) or _OTHER_VENDOR.match(library)
        is_loaded = not wheel.loaded_libraries.isdisjoint(members)
        if not wheel.has_recipe and (is_of_machine or (not is_loaded and wheel.required is None)):
            strays.append(library)
            continue
        message = f"{library} is neither in the wheel, in what it requires, nor on every system of its tag"
        finding = error if wheel.has_recipe or is_loaded else warning
        yield finding(f"{message}; needed by {join_names(members)}", members[0])
    for names, message in (
        (strays, "needs libraries that nothing it requires is known to have"),
        (provided, "needs libraries of packages that it requires"),
    ):
        if names:
            first = min(member for name in names for member in needed_by[name])
            tip = "--find-links to the wheels that it requires shows whether they have it"
            yield note(f"{message}: {join_names(names)}", first, tip)


def _may_have(package: str, library: str) -> bool:
    """Tell whether a package (normalized) is known to have such a library, or to require who has it."""
    if _TORCH_LIBRARY.match(library):
        return package == "torch"
    if is_rocm_library(library):
        return package.startswith(("rocm", "torch"))
    if package == "torch" and find_openmp_kind(library):
        return True  # its wheels bring one
    if _OTHER_VENDOR.match(library):
        return package.startswith(("nvidia", "cuda", "torch", "jax"))
    if provider := _PROVIDERS.get(package):
        return provider.match(library) is not None
    stem = _NOT_IN_STEMS.sub("", library.lower().removeprefix("lib").partition(".")[0])
    name = _NOT_IN_STEMS.sub("", package)
    return stem.startswith((name, name.removeprefix("py"), name.removeprefix("lib")))
