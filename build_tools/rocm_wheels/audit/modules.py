"""Check that Python finds what a wheel installs under the names that it looks for.

Sources: PEP 3149 and PEP 384 (tags in the names of extension modules); PyPA specifications, "Entry points",
"Binary distribution format" and "Names and normalization"; PEP 440, "Normalization".
"""

from __future__ import annotations

import re
from collections.abc import Collection

from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.audit.audited_wheel import EXTENSION_MODULE, AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, warning
from rocm_wheels.audit.metadata import admits_python
from rocm_wheels.core.errors import DataError, Finding
from rocm_wheels.wheels import dist_info, hazards

_NEWEST_PYTHON = 14
_CPYTHON_TAG = re.compile(r"cp3(?P<minor>[0-9]+)")


@check("RW060 extension-modules (error)")
def check_extension_modules(wheel: AuditedWheel) -> Findings:
    """Extension modules are for the Pythons and the machine of the tags.

    Why: Importing it ends with: No module named.
    Fix: Build with the Python that the wheel is tagged for, in a clean tree.

    Of a module that is there for several Pythons, each Python of the tags needs its own.
    """
    pythons = {
        (match["minor"], tag.abi.endswith("t"), tag.abi == "abi3")
        for tag in wheel.name.tags
        if (match := _CPYTHON_TAG.fullmatch(tag.interpreter)) and tag.abi != "none"
    }
    modules: dict[str, list[re.Match[str]]] = {}
    for member in sorted(wheel.members):
        place = hazards.locate_installed(member)
        if place.is_library and (match := EXTENSION_MODULE.search(member)):
            modules.setdefault(member[: match.end("module")], []).append(match)
    suffix = {"linux": "so", "windows": "pyd"}.get(wheel.system)
    machine = wheel.wheel_platform.architecture if wheel.wheel_platform is not None else ""
    for matches in modules.values():
        member = matches[0].string
        foreign = [m for m in matches if m["suffix"] != suffix and (m["python"] or m["suffix"] == "pyd")]
        others = [match for match in matches if match["machine"] and not _is_for(match["machine"], machine)]
        lacking = sorted(
            f"3.{minor}{'t' * threads}{' and later' * stable}"
            for minor, threads, stable in pythons
            if not any(_fits(match, minor, threads, stable) for match in matches)
        )
        if suffix and len(foreign) == len(matches):
            yield error(f"is an extension module of another system; the wheel is for {wheel.system}", member)
        elif machine and len(others) == len(matches):
            yield error(f"is named for {others[0]['machine']}, the wheel for {machine}", member)
        elif lacking:
            message = f"cannot be imported by Python {join_names(lacking)}, which the wheel is for"
            yield error(message, member)
        minors = {match["minor"] for match in matches}
        if not pythons and None not in minors and _admits_others(wheel, minors):
            message = f"is for Python 3.{' and 3.'.join(sorted(minors))} alone, the tags for every Python"
            yield Finding(wheel.severity, message, subject=member)
    for match in (match for of_module in modules.values() for match in of_module):
        binary = wheel.binaries.get(match.string)
        tells = binary is not None and binary.symbols is not None and binary.symbols.exported
        # others load what is named like that by torch.ops.load_library
        if wheel.has_recipe and match["minor"] and tells and not wheel.exports_module(match.string, match):
            yield error(f"has no function PyInit_{match['module']}, which its import calls", match.string)


def _admits_others(wheel: AuditedWheel, minors: Collection[str]) -> bool:
    """Tell whether Requires-Python admits a Python 3 that exists, and is none of these."""
    pythons = [minor for minor in range(9, _NEWEST_PYTHON + 1) if str(minor) not in minors]
    return any(admits_python(wheel.metadata.requires_python, minor) for minor in pythons)


def _fits(match: re.Match[str], minor: str, threads: bool, stable: bool) -> bool:
    """Tell whether a Python imports a module; ``stable``: it and all later ones must."""
    if not match["python"]:
        return True
    if match["python"].startswith("abi3"):
        return not threads or match["python"].endswith("t")
    return not stable and (match["minor"], bool(match["threads"])) == (minor, threads)


def _is_for(machine: str, architecture: str) -> bool:
    """Tell whether the end of a module's tag (``x86_64-linux-gnu``, ``win_amd64``) names an architecture."""
    return not architecture or re.search(rf"(?:^|_){re.escape(architecture)}(?:-|$)", machine) is not None


@check("RW091 entry-points (error)")
def check_entry_points(wheel: AuditedWheel) -> Findings:
    """Entry points lead to modules that are inside.

    Why: The program ends with: No module named.
    Fix: Correct the entry point, or have the build back end take the module in.
    """
    where = f"{wheel.dist_info}/entry_points.txt"
    if where not in wheel.scan.texts:
        raise Skip("has no entry points")
    try:
        groups = hazards.parse_entry_points(wheel.scan.texts[where], name=where)
    except DataError:
        raise Skip("its entry points cannot be read") from None
    files = {place.path for place in map(hazards.locate_installed, wheel.members) if place.is_library}
    folders = {file[:at] for file in files for at in range(len(file)) if file[at] == "/"}
    alone = not wheel.list_absent_packages()
    for group, entries in groups.items():
        for name, target in entries.items():
            module = target.partition(":")[0].partition("[")[0].strip()
            if not _may_be_there(module.split("."), files, folders, alone=alone):
                yield error(f"{name} of {group} leads to {module}, and no such module is inside", where)


def _may_be_there(parts: list[str], files: set[str], folders: set[str], *, alone: bool) -> bool:
    """Tell whether a module is inside, or may be in another wheel: of a package that is none of this one."""
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        is_module = any(file.startswith(f"{path}.") and _is_module(file[len(path) :]) for file in files)
        if is_module or (depth == len(parts) and path in folders):
            if depth == len(parts):
                return True
            if path not in folders:
                return False  # a module, and no package
        elif path not in folders:
            # a package without __init__ may have parts in other wheels
            parent = "/".join(parts[: depth - 1])
            return f"{parent}/__init__.py" not in files if parent else not alone
    return True


def _is_module(suffix: str) -> bool:
    return re.fullmatch(r"(?:\.[\w-]+)?\.(?:py|pyc|so|pyd)", suffix) is not None


@check("RW092 normal-names (error)")
def check_normal_names(wheel: AuditedWheel) -> Findings:
    """File name and dist-info folder are spelled alike, and normalized.

    Why: Some installers and indexes refuse the wheel, or take it for another project or version.
    Fix: Build with a back end of today; `rocm-wheels wheel retag` writes both anew.

    What is spelled in two ways is an error; in one that is not normal, in wheels of ours.
    """
    if wheel.scan.name is None:
        raise Skip("the file name is not a wheel's")
    fields = dist_info.split_wheel_name(wheel.scan.path.name)
    spelled = {"the file name": (fields.distribution, fields.version)}
    name, dash, version = wheel.dist_info.removesuffix(".dist-info").partition("-")
    if dash:
        spelled[f"the folder {wheel.dist_info}"] = (name, version)
    is_grave = wheel.has_recipe or len({*spelled.values()}) > 1
    for place, (project, stated) in spelled.items():
        try:
            normal_version = str(Version(stated.replace("_", "-")))
        except ValueError:  # no version, or a number of more digits than Python reads
            continue  # told by the archive's check
        normal = canonicalize_name(project).replace("-", "_"), normal_version
        if normal != (project, stated):
            message = f"{place} says {project}-{stated}, and must say {'-'.join(normal)}"
            yield (error if is_grave else warning)(message)
