"""Check that Python finds what a wheel installs under the names that it looks for.

Sources: PEP 3149 and PEP 384 (tags in the names of extension modules); PyPA specifications, "Entry points",
"Binary distribution format" and "Names and normalization"; PEP 440, "Normalization".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors
from rocm_wheels.wheels import dist_info, hazards

_NO_NAME = definition.SkippedCheck("the file name is not a wheel's")
_CPYTHON_TAG = re.compile(r"cp3(?P<minor>[0-9]+)")


@definition.check(
    "RW060 extension-modules (error)",
    why="Importing it ends with: No module named.",
    fix="Build with the Python that the wheel is tagged for, in a clean tree.",
)
def check_extension_modules(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Extension modules are for the Pythons and the machine of the tags.

    Of a module that is there for several Pythons, each Python of the tags needs its own.
    """
    if wheel.scan.name is None:
        return _NO_NAME
    pythons = {
        (match["minor"], tag.abi.endswith("t"), tag.abi == "abi3")
        for tag in wheel.scan.name.tags
        if (match := _CPYTHON_TAG.fullmatch(tag.interpreter)) and tag.abi != "none"
    }
    modules: dict[str, list[re.Match[str]]] = {}
    for member in sorted(wheel.members):
        place = hazards.locate_installed(member)
        if place.is_library and (match := audited_wheel.EXTENSION_MODULE.search(member)):
            modules.setdefault(member[: match.end("module")], []).append(match)
    system = wheel.wheel_platform.system if wheel.wheel_platform is not None else ""
    machine = wheel.wheel_platform.architecture if wheel.wheel_platform is not None else ""
    findings = []
    for matches in modules.values():
        suffix = {"linux": "so", "windows": "pyd"}.get(system)
        foreign = [m for m in matches if m["suffix"] != suffix and (m["python"] or m["suffix"] == "pyd")]
        if suffix and len(foreign) == len(matches):
            message = f"is an extension module of another system; the wheel is for {system}"
            findings.append(errors.Finding("error", message, subject=matches[0].string))
            continue
        others = [match for match in matches if match["machine"] and not _is_for(match["machine"], machine)]
        if machine and len(others) == len(matches):
            message = f"is named for {others[0]['machine']}, the wheel for {machine}"
            findings.append(errors.Finding("error", message, subject=matches[0].string))
            continue
        lacking = sorted(
            f"3.{minor}{'t' * threads}{' and later' * stable}"
            for minor, threads, stable in pythons
            if not any(_fits(match, minor, threads, stable) for match in matches)
        )
        if lacking:
            message = f"cannot be imported by Python {definition.join_names(lacking)}, which the wheel is for"
            findings.append(errors.Finding("error", message, subject=matches[0].string))
    return findings


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


@definition.check(
    "RW091 entry-points (error)",
    why="The program ends with: No module named.",
    fix="Correct the entry point, or have the build back end take the module in.",
)
def check_entry_points(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Entry points lead to modules that are inside."""
    where = f"{wheel.dist_info}/entry_points.txt"
    if where not in wheel.scan.texts:
        return definition.SkippedCheck("has no entry points")
    try:
        groups = hazards.parse_entry_points(wheel.scan.texts[where], name=where)
    except errors.DataError:
        return definition.SkippedCheck("its entry points cannot be read")
    files = {place.path for place in map(hazards.locate_installed, wheel.members) if place.is_library}
    folders = {file[:at] for file in files for at in range(len(file)) if file[at] == "/"}
    findings = []
    for group, entries in groups.items():
        for name, target in entries.items():
            module = target.partition(":")[0].partition("[")[0].strip()
            if not _may_be_there(module.split("."), files, folders, alone=not wheel.list_absent_packages()):
                message = f"{name} of {group} leads to {module}, and no such module is inside"
                findings.append(errors.Finding("error", message, subject=where))
    return findings


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


@definition.check(
    "RW092 normal-names (error)",
    why="Some installers and indexes refuse the wheel, or take it for another project or version.",
    fix="Build with a back end of today; `rocm-wheels wheel retag` writes both anew.",
)
def check_normal_names(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """File name and dist-info folder are spelled alike, and normalized.

    What is spelled in two ways is an error; in one that is not normal, in wheels of ours.
    """
    if wheel.scan.name is None:
        return _NO_NAME
    fields = dist_info.split_wheel_name(wheel.scan.path.name)
    spelled = {"the file name": (fields.distribution, fields.version)}
    name, dash, version = wheel.dist_info.removesuffix(".dist-info").partition("-")
    if dash:
        spelled[f"the folder {wheel.dist_info}"] = (name, version)
    is_ours = wheel.severity == "error" or len({*spelled.values()}) > 1
    findings = []
    for place, (project, stated) in spelled.items():
        if normal := "-".join(_list_normal(project, stated)):
            message = f"{place} says {project}-{stated}, and must say {normal}"
            findings.append(errors.Finding("error" if is_ours else "warning", message))
    return findings


def _list_normal(project: str, version: str) -> Iterable[str]:
    """Return project and version as file names spell them, () where these are so."""
    try:
        normal = canonicalize_name(project).replace("-", "_"), str(Version(version.replace("_", "-")))
    except InvalidVersion:
        return ()  # told by the archive's check
    return () if normal == (project, version) else normal
