"""Check what is inside a wheel: archive, RECORD, the recipe's files, what is installed beside the package."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rocm_wheels.audit.audited_wheel import AuditedWheel, is_same_name
from rocm_wheels.audit.definition import Findings, Skip, check, error, warning
from rocm_wheels.audit.metadata import get_exact_version, is_same_version, list_rocm_requirements
from rocm_wheels.core.errors import DataError, Finding, Severity
from rocm_wheels.models.project import Project
from rocm_wheels.variants import document
from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels import dist_info, sbom
from rocm_wheels.wheels.hazards import HazardKind, InstalledContents

# files that installers write; in a wheel they tell lies about the machine that it lands on
_INSTALLER_FILES = ("direct_url.json", "INSTALLER", "REQUESTED")


@check("RW001 archive (error)")
def check_archive(wheel: AuditedWheel) -> Findings:
    """Members are whole; RECORD, METADATA and names agree.

    Why: Installers refuse the wheel, or install something else than was packed.
    Fix: Build the wheel again; whatever changed it after it was packed must write RECORD, too.

    Device code and libraries that are damaged are told here as well: see ``scan_wheel``.
    """
    yield from _list_faults(wheel, "archive", "error")
    repair = "`rocm-wheels wheel retag --drop-requirement` takes them out"
    yield from (replace(fault, tip=repair) for fault in _list_faults(wheel, "markers", "error"))


@check("RW023 wheel-tags (error)")
def check_wheel_tags(wheel: AuditedWheel) -> Findings:
    """WHEEL states the tags of the file name.

    Why: Tools that read WHEEL take it for another platform; a sign of a file that was only renamed.
    Fix: `rocm-wheels wheel retag` changes both.
    """
    yield from _list_faults(wheel, "tags", wheel.format_severity)


@check("RW024 purelib (error)")
def check_purelib(wheel: AuditedWheel) -> Findings:
    """A wheel for a platform does not call itself pure.

    Why: On systems where both folders differ it is installed into the wrong one.
    Fix: The project's setup must tell that it has binary modules.
    """
    yield from _list_faults(wheel, "purelib", wheel.format_severity)


@check("RW025 record-digests (error)")
def check_record_digests(wheel: AuditedWheel) -> Findings:
    """RECORD has a digest of each file, spelled as the specification says.

    Why: Nobody can see whether a file was changed after it was installed.
    Fix: Pack the wheel again: `rocm-wheels wheel retag` writes digests.
    """
    broken = {fault.removeprefix(f"{wheel.scan.path}: ") for fault in wheel.scan.breaking_faults}
    for fault in _list_faults(wheel, "digests", "error" if wheel.expected.strict else "warning"):
        yield replace(fault, severity=wheel.format_severity) if fault.message in broken else fault


@check("RW047 archive-form (error)")
def check_archive_form(wheel: AuditedWheel) -> Findings:
    """Nothing that PyPI refuses in an archive that can be read.

    Why: The upload is refused.
    Fix: `rocm-wheels wheel retag` writes the archive again.
    """
    for fault in wheel.scan.repairable:
        yield error(fault.removeprefix(f"{wheel.scan.path}: "))


def _list_faults(wheel: AuditedWheel, kind: str, severity: Severity) -> Findings:
    """Yield what the scan found of a kind; METADATA that cannot be read has a check of its own."""
    prefix = f"{wheel.scan.path}: "
    elsewhere = f"{prefix}{wheel.metadata_member}: " if wheel.scan.metadata is None else "\n"
    for fault in wheel.scan.faults:
        if dist_info.get_fault_kind(fault) == kind and not fault.startswith(elsewhere):
            yield Finding(severity, fault.removeprefix(prefix))


@check("RW010 files (error)", needs_recipe=True)
def check_files(wheel: AuditedWheel) -> Findings:
    """The files that the recipe names are inside.

    Why: Parts of the package are missing at run time.
    Fix: The build back end left them out: git-ignored files need to be named to some.
    """
    if not wheel.project.checks.files:
        raise Skip("the recipe names no files")
    for pattern in wheel.project.checks.files:
        if not wheel.find_members(pattern):
            yield error(f"no member matches {pattern}")


@check("RW054 allowed-contents (error)", needs_recipe=True)
def check_allowed_contents(wheel: AuditedWheel) -> Findings:
    """Nothing is installed but what the recipe allows.

    Why: Files of other projects are overwritten, or programs appear that nobody has looked at.
    Fix: Take it out of the wheel, or name it under checks.contents of the recipe.
    """
    yield from _list_disallowed(wheel, "allowed-contents")


@check("RW055 startup-files (error)")
def check_startup_files(wheel: AuditedWheel) -> Findings:
    """Nothing runs whenever Python starts.

    Why: Lines of a .pth and the module sitecustomize run in every program of that environment.
    Fix: Take it out; a recipe allows a .pth by checks.contents.startup_files.
    """
    for hazard in _list_hazards(wheel, "startup-files"):
        if hazard.severity == "error" or not wheel.has_recipe:
            yield hazard
    if wheel.has_recipe:
        yield from _list_disallowed(wheel, "startup-files")


def _list_disallowed(wheel: AuditedWheel, check_name: str) -> Findings:
    for scan in (wheel.scan, *wheel.parts):
        distribution = scan.name.distribution if scan.name else wheel.project.distribution
        for finding in find_disallowed_contents(scan.contents, distribution, wheel.project):
            if finding.check == check_name:
                yield finding


def find_disallowed_contents(
    contents: InstalledContents, distribution: str, project: Project
) -> list[Finding]:
    """Return what a recipe does not allow its wheel, or a device wheel, which has its names and no more.

    Each finding has the name of its check. Libraries that were taken in lie in ``<distribution>.libs``.
    """
    allowed = project.checks.contents
    names = (project.checks.import_name, f"{distribution.replace('-', '_')}.libs", *allowed.names)
    rules: dict[str, tuple[Mapping[str, str], Sequence[str]]] = {
        "scripts": (contents.scripts, allowed.scripts),
        "entry_points": (contents.entry_points, allowed.entry_points),
        "data": (contents.data, allowed.data),
        "startup_files": (contents.startup_files, allowed.startup_files),
    }
    if not is_same_name(distribution, project.distribution):
        rules = {key: (members, ()) for key, (members, _) in rules.items()}
    tip = "take it out, or, if the wheel is to have it, name it there"
    findings = []
    for key, (member_by_word, patterns) in {"names": (contents.names, names), **rules}.items():
        check_name = "startup-files" if key == "startup_files" else "allowed-contents"
        for word, member in member_by_word.items():
            if not any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns):
                message = f"{word} is not among checks.contents.{key} of the recipe"
                findings.append(replace(error(message, member, tip), check=check_name))
    return findings


@check("RW056 environment-files (error)")
def check_environment_files(wheel: AuditedWheel) -> Findings:
    """Nothing takes the place of python, pip or another project.

    Why: Whoever uses that environment next runs what the wheel has put there.
    Fix: Give programs names of their own, and install nothing beside the package.
    """
    yield from _list_hazards(wheel, "environment-files")


@check("RW057 file-types (error)")
def check_file_types(wheel: AuditedWheel) -> Findings:
    """No links, and no bits of users or groups.

    Why: Unpacked by root, setuid files run as root; installers write a link's target into a file.
    Fix: Pack the files themselves, with mode 644 or 755.
    """
    yield from _list_hazards(wheel, "file-types")


@check("RW058 colliding-names (error)")
def check_colliding_names(wheel: AuditedWheel) -> Findings:
    """No names that differ by case or Unicode form alone.

    Why: On Windows and macOS one overwrites the other, unseen on Linux.
    Fix: Rename one of them.
    """
    yield from _list_hazards(wheel, "colliding-names")


@check("RW059 metadata-text (error)")
def check_metadata_text(wheel: AuditedWheel) -> Findings:
    """What METADATA's folder says can be read, and is about this wheel.

    Why: Control characters hide text, or command a terminal; the rest is read in different ways.
    Fix: Build the wheel again: no back end writes this.

    METADATA and entry points are plain text; variant.json is of the variant that the file name has, and of
    targets and a ROCm that the wheel is for; our bill of materials is of this project and version.
    """
    hazards = list(_list_hazards(wheel, "metadata-text"))
    yield from hazards
    unreadable = {finding.subject for finding in hazards}
    where, bill = (f"{wheel.dist_info}/{file}" for file in (document.VARIANT_FILE_NAME, sbom.SBOM_MEMBER))
    if where not in unreadable:
        stamp = "`rocm-wheels wheel stamp` writes it"
        yield from (replace(finding, tip=stamp) for finding in _judge_variant(wheel, where))
    if bill in wheel.scan.texts and bill not in unreadable and wheel.scan.metadata is not None:
        stated: Any = json.loads(wheel.scan.texts[bill])
        for key in ("metadata", "component"):
            stated = stated.get(key) if isinstance(stated, dict) else None
        project, version = wheel.scan.metadata.name, str(wheel.scan.metadata.version)
        own = stated if isinstance(stated, dict) else {}
        # as METADATA spells them, which need not be normal
        name, spelled = (
            value if isinstance(value := own.get(key), str) else "" for key in ("name", "version")
        )
        if not (is_same_name(name, project) and is_same_version(spelled, version)):
            yield error(f"is not the bill of materials of {project} {version}", bill)


def _judge_variant(wheel: AuditedWheel, where: str) -> Findings:
    content = wheel.scan.texts.get(where)
    label = wheel.scan.name.label if wheel.scan.name is not None else None
    if content is None:
        if label is not None:
            yield error(f"is missing, and the file name has the label {label}", where)
        return
    try:
        if wheel.expected.strict and label is not None:
            variants = document.parse_wheel_document(content, name=where, label=label)
        else:
            variants = document.read_any_format(content, name=where)
    except DataError as fault:
        yield error(f"does not describe this wheel: {str(fault).removeprefix(f'{where}: ')}", where)
        return
    if label is not None and tuple(variants.variants) != (label,):
        # what was written before today's form states its variant in other ways, and is read
        is_old = any(note.startswith("$schema") for note in variants.notes)
        stated = ", ".join(sorted(variants.variants)) or "none"
        message = f"describes {stated}, and the file name has the label {label}"
        yield (warning if is_old else error)(message, where)
        return
    values = [value for each in variants.variants.values() for value in document.list_values(each)]
    stated_of = {(namespace, feature): set(words) for namespace, feature, words in values}
    covered = {word for held in wheel.targets for word in COMPILER_GENERICS.get(held, (held,))}
    covered.update(held.replace("-", "_") for held in wheel.targets)
    is_known = wheel.targets and (wheel.parts or not wheel.moved_code)
    if is_known and (empty := sorted(stated_of.get(("amd", "gfx_arch"), set()) - covered)):
        yield error(f"is for {' '.join(empty)}, which the wheel has no code for", where)
    rocms = stated_of.get(("rocm", "version"), set())
    for pin in filter(None, map(get_exact_version, list_rocm_requirements(wheel))):
        if rocms and not any(f"{pin}.".startswith(f"{rocm}.") for rocm in rocms):
            yield error(f"is for ROCm {' '.join(sorted(rocms))}, and METADATA requires {pin}", where)


def _list_hazards(wheel: AuditedWheel, kind: HazardKind) -> Findings:
    for scan in (wheel.scan, *wheel.parts):
        for hazard in scan.hazards:
            if hazard.kind == kind:
                yield Finding(hazard.severity, hazard.text, subject=hazard.member)


@check("RW011 installer-files (error)")
def check_installer_files(wheel: AuditedWheel) -> Findings:
    """No file that only installers may write.

    Why: Installers take what direct_url.json or INSTALLER says for a fact of the user's machine.
    Fix: Take the files out of the wheel: they come from packing an installed package.
    """
    for name in _INSTALLER_FILES:
        if f"{wheel.dist_info}/{name}" in wheel.members:
            yield error("is written by installers and must not be in a wheel", f"{wheel.dist_info}/{name}")
