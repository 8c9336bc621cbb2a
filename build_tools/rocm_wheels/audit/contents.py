"""Check what is inside a wheel: archive, RECORD, the recipe's files, generated modules.

Generated Python modules are read as syntax trees: nothing of a wheel runs here.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from packaging.version import InvalidVersion, Version

from rocm_wheels.audit import audited_wheel, check, metadata
from rocm_wheels.core.errors import DataError, Finding, Severity
from rocm_wheels.models.libraries import is_rocm_library
from rocm_wheels.models.project import Project
from rocm_wheels.variants import document
from rocm_wheels.wheels import dist_info
from rocm_wheels.wheels.hazards import HazardKind, InstalledContents

# files that installers write; in a wheel they tell lies about the machine that it lands on
_INSTALLER_FILES = ("direct_url.json", "INSTALLER", "REQUESTED")


@check.check(
    "RW001 archive (error)",
    why="Installers refuse the wheel, or install something else than was packed.",
    fix="Build the wheel again; whatever changed it after it was packed must write RECORD, too.",
)
def check_archive(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """Members are whole; RECORD, METADATA and names agree.

    Device code and libraries that are damaged are told here as well: see ``scan_wheel``.
    """
    repair = "`rocm-wheels wheel retag --drop-requirement` takes them out"
    return [
        *_list_scan_faults(wheel, "archive", "error"),
        *_list_scan_faults(wheel, "markers", "error", repair),
    ]


@check.check(
    "RW023 wheel-tags (error)",
    why="Tools that read WHEEL take it for another platform; a sign of a file that was only renamed.",
    fix="`rocm-wheels wheel retag` changes both.",
)
def check_wheel_tags(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """WHEEL states the tags of the file name."""
    return _list_scan_faults(wheel, "tags", wheel.format_severity)


@check.check(
    "RW024 purelib (error)",
    why="On systems where both folders differ it is installed into the wrong one.",
    fix="The project's setup must tell that it has binary modules.",
)
def check_purelib(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """A wheel for a platform does not call itself pure."""
    return _list_scan_faults(wheel, "purelib", wheel.format_severity)


@check.check(
    "RW025 record-digests (error)",
    why="Nobody can see whether a file was changed after it was installed.",
    fix="Pack the wheel again: `rocm-wheels wheel retag` writes digests.",
)
def check_record_digests(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """RECORD has a digest of each file, spelled as the specification says."""
    findings = _list_scan_faults(wheel, "digests", "warning")
    broken = {fault.removeprefix(f"{wheel.scan.path}: ") for fault in wheel.scan.breaking_faults}
    if not wheel.has_recipe:
        return findings
    return [replace(each, severity="error") if each.message in broken else each for each in findings]


@check.check(
    "RW047 archive-form (error)",
    why="The upload is refused.",
    fix="`rocm-wheels wheel retag` writes the archive again.",
)
def check_archive_form(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """Nothing that PyPI refuses in an archive that can be read."""
    prefix = f"{wheel.scan.path}: "
    return [Finding("error", fault.removeprefix(prefix)) for fault in wheel.scan.repairable]


def _list_scan_faults(
    wheel: audited_wheel.AuditedWheel, kind: str, severity: Severity, tip: str = ""
) -> list[Finding]:
    prefix = f"{wheel.scan.path}: "
    # METADATA that cannot be read has a check of its own
    elsewhere = f"{prefix}{wheel.dist_info}/METADATA: " if wheel.scan.metadata is None else "\n"
    faults = [
        fault
        for fault in wheel.scan.faults
        if dist_info.get_fault_kind(fault) == kind and not fault.startswith(elsewhere)
    ]
    return [Finding(severity, fault.removeprefix(prefix), tip) for fault in faults]


@check.check(
    "RW010 files (error)",
    why="Parts of the package are missing at run time.",
    fix="The build back end left them out: git-ignored files need to be named to some.",
    needs_recipe=True,
)
def check_files(wheel: audited_wheel.AuditedWheel) -> list[Finding] | audited_wheel.SkippedCheck:
    """The files that the recipe names are inside."""
    patterns = wheel.project.checks.files
    if not patterns:
        return audited_wheel.SkippedCheck("the recipe names no files")
    return [
        Finding("error", f"no member matches {pattern}")
        for pattern in patterns
        if not wheel.find_members(pattern)
    ]


@check.check(
    "RW054 allowed-contents (error)",
    why="Files of other projects are overwritten, or programs appear that nobody has looked at.",
    fix="Take it out of the wheel, or name it under checks.contents of the recipe.",
    needs_recipe=True,
)
def check_allowed_contents(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """Nothing is installed but what the recipe allows."""
    return _list_disallowed(wheel, "allowed-contents")


@check.check(
    "RW055 startup-files (error)",
    why="Lines of a .pth and the module sitecustomize run in every program of that environment.",
    fix="Take it out; a recipe allows a .pth by checks.contents.startup_files.",
)
def check_startup_files(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """Nothing runs whenever Python starts."""
    findings = _list_hazards(wheel, "startup-files")
    if not wheel.has_recipe:
        return findings
    errors = [finding for finding in findings if finding.severity == "error"]
    return errors + _list_disallowed(wheel, "startup-files")


def _list_disallowed(wheel: audited_wheel.AuditedWheel, check: str) -> list[Finding]:
    findings = []
    for scan in (wheel.scan, *wheel.parts):
        distribution = scan.name.distribution if scan.name else wheel.project.distribution
        findings += find_disallowed_contents(scan.contents, distribution, wheel.project)
    return [finding for finding in findings if finding.check == check]


def find_disallowed_contents(
    contents: InstalledContents, distribution: str, project: Project
) -> list[Finding]:
    """Return what a recipe does not allow its wheel, or a device wheel, which has its names and no more.

    Each finding has the name of its check. Libraries that were taken in lie in ``<distribution>.libs``.
    """
    allowed, is_part = (
        project.checks.contents,
        not audited_wheel.is_same_name(distribution, project.distribution),
    )
    names = (project.checks.import_name, f"{distribution.replace('-', '_')}.libs", *allowed.names)
    rules: tuple[tuple[str, Mapping[str, str], Sequence[str]], ...] = (
        ("names", contents.names, names),
        ("scripts", contents.scripts, () if is_part else allowed.scripts),
        ("entry_points", contents.entry_points, () if is_part else allowed.entry_points),
        ("data", contents.data, () if is_part else allowed.data),
        ("startup_files", contents.startup_files, () if is_part else allowed.startup_files),
    )
    findings = []
    for key, member_by_word, patterns in rules:
        check = "startup-files" if key == "startup_files" else "allowed-contents"
        for word, member in member_by_word.items():
            if not any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns):
                message = f"{word} is not among checks.contents.{key} of the recipe"
                tip = "take it out, or, if the wheel is to have it, name it there"
                findings.append(Finding("error", message, tip, subject=member, check=check))
    return findings


@check.check(
    "RW056 environment-files (error)",
    why="Whoever uses that environment next runs what the wheel has put there.",
    fix="Give programs names of their own, and install nothing beside the package.",
)
def check_environment_files(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """Nothing takes the place of python, pip or another project."""
    return _list_hazards(wheel, "environment-files")


@check.check(
    "RW057 file-types (error)",
    why="Unpacked by root, setuid files run as root; installers write a link's target into a file.",
    fix="Pack the files themselves, with mode 644 or 755.",
)
def check_file_types(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """No links, and no bits of users or groups."""
    return _list_hazards(wheel, "file-types")


@check.check(
    "RW058 colliding-names (error)",
    why="On Windows and macOS one overwrites the other, unseen on Linux.",
    fix="Rename one of them.",
)
def check_colliding_names(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """No names that differ by case or Unicode form alone."""
    return _list_hazards(wheel, "colliding-names")


@check.check(
    "RW059 metadata-text (error)",
    why="Control characters hide text, or command a terminal; the rest is read in different ways.",
    fix="Build the wheel again: no back end writes this.",
)
def check_metadata_text(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """METADATA, entry points and variant.json are plain text that can be read."""
    findings = _list_hazards(wheel, "metadata-text")
    where = f"{wheel.dist_info}/{document.VARIANT_FILE_NAME}"
    content = wheel.scan.texts.get(where)
    label = wheel.scan.name.label if wheel.scan.name is not None else None
    tip = "`rocm-wheels wheel stamp` writes it"
    if any(finding.subject == where for finding in findings) or (content is None and label is None):
        return findings
    if content is None:
        message = f"is missing, and the file name has the label {label}"
        return [*findings, Finding("error", message, tip, subject=where)]
    try:
        variants = document.read_any_format(content, name=where)
    except DataError as fault:
        message = str(fault).removeprefix(f"{where}: ")
        return [*findings, Finding("error", f"is no description of variants: {message}", tip, subject=where)]
    if label is not None and tuple(variants.variants) != (label,):
        # what was written before today's form states its variant in other ways, and is read
        is_old = any(note.startswith("$schema") for note in variants.notes)
        stated = ", ".join(sorted(variants.variants)) or "none"
        message = f"describes {stated}, and the file name has the label {label}"
        findings.append(Finding("warning" if is_old else "error", message, tip, subject=where))
    return findings


def _list_hazards(wheel: audited_wheel.AuditedWheel, kind: HazardKind) -> list[Finding]:
    hazards = [
        hazard for scan in (wheel.scan, *wheel.parts) for hazard in scan.hazards if hazard.kind == kind
    ]
    return [Finding(hazard.severity, hazard.text, subject=hazard.member) for hazard in hazards]


@check.check(
    "RW011 installer-files (error)",
    why="Installers take what direct_url.json or INSTALLER says for a fact of the user's machine.",
    fix="Take the files out of the wheel: they come from packing an installed package.",
)
def check_installer_files(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """No file that only installers may write."""
    return [
        Finding(
            "error",
            "is written by installers and must not be in a wheel",
            subject=f"{wheel.dist_info}/{name}",
        )
        for name in _INSTALLER_FILES
        if f"{wheel.dist_info}/{name}" in wheel.members
    ]


_INIT_CALL = "initialize_process"
_FAT_TIP = "`rocm-wheels wheel fat` makes such a wheel from a thin one"
_WRITE_TIP = "write the module again: the build makes it right before the front end runs"


def check_version_module(wheel: audited_wheel.AuditedWheel) -> list[Finding]:
    """``version.py`` of the package states a ``hip`` version, and no ``cuda`` version."""
    member = f"{wheel.project.checks.import_name}/version.py"
    if member not in wheel.scan.texts:
        return [Finding("error", "the module that states the HIP version is missing", subject=member)]
    try:
        stated = _read_constants(_parse_module(wheel, member))
    except DataError as error:
        return [Finding("error", str(error), subject=member)]
    findings = []
    version, name = stated.get("__version__"), wheel.scan.name
    # a finished wheel may be given another local part, or a final version
    if name is not None and isinstance(version, str) and wheel.expected.version in (None, str(name.version)):
        try:
            base = Version(version).base_version
        except InvalidVersion:
            base = ""
        if base != name.version.base_version:
            message = f"says that this is version {version}, and the file name {name.version}"
            tip = "the file is of another build: build again with a clean tree"
            findings.append(Finding("error", message, tip, subject=member))
    if not isinstance(stated.get("hip"), str) or not stated["hip"]:
        findings.append(
            Finding("error", "a CPU-only build: `hip` is not stated (None or missing)", subject=member)
        )
    if stated.get("cuda") is not None:
        findings.append(Finding("error", f"a CUDA build: `cuda` is {stated['cuda']!r}", subject=member))
    return findings


@check.check(
    "RW013 rocm-init (error)",
    why="torch loads the libraries of another ROCm, or finds none.",
    fix="The build writes the module before the front end runs: it must reach the wheel unchanged.",
)
def check_rocm_init(wheel: audited_wheel.AuditedWheel) -> list[Finding] | audited_wheel.SkippedCheck:
    """The module that starts ROCm asks for the SDK's version."""
    member = wheel.rocm_init
    if member is None or (not wheel.has_recipe and not _is_started(wheel, member)):
        return audited_wheel.SkippedCheck("no recipe names such a module, and nothing inside uses one")
    if member not in wheel.scan.texts:
        tip = "the front end left it out: git-ignored files need to be named to some build back ends"
        return [Finding("error", "the module that starts the ROCm packages is missing", tip, subject=member)]
    try:
        tree = _parse_module(wheel, member)
    except DataError as error:
        return [Finding("error", str(error), _WRITE_TIP, subject=member)]
    call = _find_init_call(tree)
    if not wheel.has_recipe:  # anybody may start ROCm in another way
        return _judge_init_call(wheel, member, call, _read_constants(tree)) if call is not None else []
    if wheel.rocm_folder is not None:
        return [*_judge_carried_init(wheel, member, tree), *_check_init_use(wheel, PurePosixPath(member))]
    if wheel.installed_rocm:
        return [*_judge_installed_init(wheel, member, tree), *_check_init_use(wheel, PurePosixPath(member))]
    if call is None:
        return [Finding("error", f"`initialize()` does not call `{_INIT_CALL}`", _WRITE_TIP, subject=member)]
    faults = _judge_init_call(wheel, member, call, _read_constants(tree))
    return [*faults, *_check_init_use(wheel, PurePosixPath(member))]


def _is_started(wheel: audited_wheel.AuditedWheel, member: str) -> bool:
    """Tell whether the module is there, or its package uses it."""
    package = wheel.scan.texts.get(str(PurePosixPath(member).with_name("__init__.py")), b"")
    return (
        member in wheel.members or re.search(rb"^\s*from \. import _rocm_init\b", package, re.M) is not None
    )


def _judge_carried_init(wheel: audited_wheel.AuditedWheel, member: str, tree: ast.Module) -> list[Finding]:
    """The module of a wheel that carries its ROCm loads files that are inside, and no ROCm package."""
    stated = _read_constants(tree)
    imported = {name for node in ast.walk(tree) for name in _list_imported(node)}
    findings = []
    if "rocm_sdk" in imported:
        message = f"imports rocm_sdk, although the wheel carries its ROCm in {wheel.rocm_folder}"
        findings.append(Finding("error", message, _FAT_TIP, subject=member))
    libraries = stated.get("LIBRARIES")
    if not isinstance(libraries, Sequence) or isinstance(libraries, str) or not libraries:
        message = "does not say which libraries it loads (LIBRARIES)"
        return [*findings, Finding("error", message, _FAT_TIP, subject=member)]
    absent = [name for name in libraries if f"{wheel.rocm_folder}{name}" not in wheel.members]
    if absent:
        message = f"loads {', '.join(map(str, absent))}, which the wheel does not carry"
        findings.append(Finding("error", message, _FAT_TIP, subject=member))
    version, expected = stated.get("ROCM_VERSION"), wheel.expected.rocm_version
    if expected is not None and version != expected:
        message = f"carries ROCm {version}, but was to carry {expected}"
        findings.append(Finding("error", message, _FAT_TIP, subject=member))
    return findings


def _judge_installed_init(wheel: audited_wheel.AuditedWheel, member: str, tree: ast.Module) -> list[Finding]:
    """The module of a torch on an installed ROCm says which libraries of it are loaded, and of which ROCm."""
    stated = _read_constants(tree)
    findings = []
    libraries = stated.get("LIBRARIES")
    if not isinstance(libraries, Mapping) or not libraries:
        message = "does not say which libraries it loads (LIBRARIES)"
        findings.append(Finding("error", message, _WRITE_TIP, subject=member))
    if stated.get("ROCM_VERSION") != wheel.installed_rocm:
        message = f"is for ROCm {stated.get('ROCM_VERSION')}, but was built on {wheel.installed_rocm}"
        findings.append(Finding("error", message, _WRITE_TIP, subject=member))
    return findings


def _list_imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return [alias.name.partition(".")[0] for alias in node.names] if isinstance(node, ast.Import) else []


@check.check(
    "RW014 carried-rocm (error)",
    why="Loading it fails on machines without a ROCm of their own, for which such wheels are made.",
    fix="`rocm-wheels wheel fat` takes in all that it needs.",
)
def check_carried_rocm(wheel: audited_wheel.AuditedWheel) -> list[Finding] | audited_wheel.SkippedCheck:
    """Of a wheel that carries its ROCm: what it is linked to is inside."""
    if wheel.rocm_folder is None:
        return audited_wheel.SkippedCheck("carries no ROCm of its own")
    inside = {PurePosixPath(name).name for name in wheel.members}
    return [
        Finding(
            "error",
            f"is linked to {', '.join(missing)}, which the wheel does not carry",
            _FAT_TIP,
            subject=member,
        )
        for member, binary in sorted(wheel.scan.binaries.items())
        if (
            missing := [name for name in binary.loader.needed if is_rocm_library(name) and name not in inside]
        )
    ]


def _check_init_use(wheel: audited_wheel.AuditedWheel, member: PurePosixPath) -> list[Finding]:
    """The package's ``__init__`` uses the module: torch before 2.9 does not do so by itself."""
    package = str(member.with_name("__init__.py"))
    message = f"never uses `{member.stem}`: the ROCm packages are not started before its libraries are loaded"
    fault = Finding("error", message, "the sources need a patch that calls it first", subject=package)
    if package not in wheel.scan.texts:
        return []  # that a file is missing is said by another check
    try:
        tree = _parse_module(wheel, package)
    except DataError as error:
        return [Finding("error", str(error), subject=package)]
    for node in ast.walk(tree):
        names = [getattr(node, field, None) for field in ("id", "attr", "name", "module")]
        if any(str(name).rpartition(".")[2] == member.stem for name in names):
            return []
    return [fault]


def _judge_init_call(
    wheel: audited_wheel.AuditedWheel, member: str, call: ast.Call, named: Mapping[str, object]
) -> list[Finding]:
    arguments = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    findings = []
    version = _resolve_value(arguments.get("check_version"), named)
    rocm_version = wheel.expected.rocm_version
    pinned = next(filter(None, map(metadata.get_exact_version, metadata.list_rocm_requirements(wheel))), None)
    if not isinstance(version, str) or not version:
        message = f"`{_INIT_CALL}` is called without a `check_version`"
        findings += [Finding("error", message, _WRITE_TIP, subject=member)] if wheel.has_recipe else []
    elif rocm_version is not None and version != rocm_version:
        message = f"checks for ROCm {version}, but was built with {rocm_version}"
        findings.append(Finding("error", message, _WRITE_TIP, subject=member))
    elif rocm_version is None and pinned is not None and not metadata.is_same_version(pinned, version):
        message = f"checks for ROCm {version}, and METADATA requires {pinned}"
        findings.append(Finding("error", message, _WRITE_TIP, subject=member))
    preloads = _resolve_value(arguments.get("preload_shortnames"), named)
    is_empty = not isinstance(preloads, Sequence) or isinstance(preloads, str) or not preloads
    if is_empty and wheel.has_recipe:
        message = f"`{_INIT_CALL}` is called without libraries to preload"
        findings.append(Finding("error", message, _WRITE_TIP, subject=member))
    return findings


def _parse_module(wheel: audited_wheel.AuditedWheel, member: str) -> ast.Module:
    try:
        return ast.parse(wheel.scan.texts[member], filename=member)
    except SyntaxError as error:
        raise DataError(f"does not compile: line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # null bytes, or no valid encoding
        raise DataError(f"does not compile: {error}") from error
    except (MemoryError, RecursionError) as error:  # how the parser says so
        raise DataError("does not compile: nested too deeply") from error


def _read_constants(tree: ast.Module) -> dict[str, object]:
    """Return what a module's top level assigns to names, where the value is a literal."""
    stated: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            stated.update(dict.fromkeys(names, _read_literal(node.value)))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated[node.target.id] = _read_literal(node.value)
    return stated


def _read_literal(node: ast.expr | None) -> object:
    if node is None:
        return None
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError):  # not a literal: nothing that we can hold against an expectation
        return None
    return value


def _resolve_value(node: ast.expr | None, named: Mapping[str, object]) -> object:
    """Return a literal, or what the module's top level gave to the name that stands there."""
    return named.get(node.id) if isinstance(node, ast.Name) else _read_literal(node)


def _find_init_call(tree: ast.Module) -> ast.Call | None:
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "initialize":
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _get_called_name(node.func) == _INIT_CALL:
                    return node
    return None


def _get_called_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
