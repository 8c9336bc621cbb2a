"""Compare a wheel with the one of the last good set: what it lost, and what changed beyond the limits.

Wheels are the same wheel of two sets when project, Python, ABI, machine and label are: versions differ, and
so may the manylinux tag. Names of files are compared without what only follows a version: that of the
dist-info folder, the hash of a grafted library, the numbers behind ``.so``. Each loss is told by one check:
a library that is gone is not a file that is gone as well, nor are its kernels.

Sources: System V ABI, "Dynamic Section" (SONAME, NEEDED); LLVM, "User Guide for AMDGPU Backend" (target IDs).
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from rocm_wheels.audit import drift_limits, kernels
from rocm_wheels.audit.audited_set import AuditedSet
from rocm_wheels.audit.audited_wheel import AuditedWheel
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, note, warning
from rocm_wheels.audit.libraries import strip_hash
from rocm_wheels.binaries import loader
from rocm_wheels.core import errors, tables
from rocm_wheels.core.errors import Finding, Severity
from rocm_wheels.device_code import kernel_databases
from rocm_wheels.models import gfx
from rocm_wheels.variants.targets import COMPILER_GENERICS
from rocm_wheels.wheels import dist_info, edit, required_packages

_LIBRARY_NUMBERS = re.compile(r"\.so(\.[0-9]+)+$")
_MODULE = re.compile(r"\.(cpython-|abi3|pypy)[^/]*\.so$|\.pyd$")
_TOOLCHAIN_LIBRARY = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so")
_COMPILER_SYMBOL = re.compile(r"^__|^_(init|fini|edata|end)$|_GLOBAL__")
_PIN_OPERATORS = ("==", "===", "~=")
_KERNEL_FILE = re.compile(r"\.(co|hsaco|kpack)$")
_DIFF_TIP = "see which files changed: `rocm-wheels wheel diff`"

WheelKey = tuple[str, tuple[str, ...], str, str]


def make_wheel_key(file_name: str) -> WheelKey | None:
    """Return what a wheel is matched by: project, Python with ABI, machine, label.

    None for what is not named like a wheel: a check of the wheel tells.
    """
    try:
        name = dist_info.parse_wheel_name(file_name)
    except errors.DataError:
        return None
    try:
        platform = required_packages.read_wheel_platform(Path(file_name))
        machine = f"{platform.system} {platform.architecture}" if platform is not None else "any"
    except errors.DataError:  # a system that has no ROCm
        machine = " ".join(sorted({tag.platform for tag in name.tags}))
    pythons = tuple(sorted({f"{tag.interpreter}-{tag.abi}" for tag in name.tags}))
    return str(name.name), pythons, machine, name.label or ""


def match_wheels(names: Iterable[str], old_names: Iterable[str]) -> dict[str, str]:
    """Return the wheel of an old set that each of a new one is compared with, by file names.

    Of several versions the newest counts. What is not named like a wheel is left out.
    """
    newest: dict[WheelKey | None, tuple[Version, str]] = {}
    for old in old_names:
        if (key := make_wheel_key(old)) is not None:
            version = dist_info.parse_wheel_name(old).version
            newest[key] = max(newest.get(key, (version, old)), (version, old))
    matches = {name: newest.get(make_wheel_key(name)) for name in names}
    return {name: match[1] for name, match in matches.items() if match is not None}


@check("RW090 lost-wheels (error)", kind="set")
def check_lost_wheels(subject: AuditedSet) -> Findings:
    """Against an older set: there is a wheel for each of its wheels.

    Why: Who has that Python, platform or GPU stays on the old release, or gets wheels that do not match.
    Fix: Build what is missing; where support ends, let an exception say so.
    """
    if subject.compared is None:
        raise Skip("there is no older set to compare with (--against)")
    matched = match_wheels(subject.compared.names, subject.sha256_by_name)
    newest = set(match_wheels(subject.compared.names, subject.compared.names).values())
    for name in sorted(newest - matched.keys()):
        yield error("has no successor: no wheel here is of its project, Python, platform and label", name)


@check("RW081 lost-files (error)", kind="drift")
def check_lost_files(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: its files are there.

    Why: Somebody imports or reads each of them; a whole package was left out before.
    Fix: Look whether the sources took them out, or the build back end left them out.
    """
    before, after = _list_plain_files(wheel.compared.wheel), _list_plain_files(wheel)
    lost = sorted(before.keys() - after.keys())
    if severity := _judge(wheel, "files-lost", len(before), len(lost)):
        yield from _name_files(lost, severity, "gone")


@check("RW082 new-files (warning)", kind="drift")
def check_new_files(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: not many files came along.

    Why: Tests, headers or somebody else's package are downloaded and installed by everybody.
    Fix: Look what brought them: a pattern of package data, a test folder, a bundled package.
    """
    before, after = _list_plain_files(wheel.compared.wheel), _list_plain_files(wheel)
    added = sorted(after.keys() - before.keys())
    if severity := _judge(wheel, "files-new", len(before), len(added)):
        yield from _name_files([after[key] for key in added], severity, "new")


def _name_files(names: Iterable[str], severity: Severity, state: str) -> Findings:
    """Yield a finding a folder: a package that was left out has many files."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(posixpath.dirname(name), []).append(name)
    for folder, members in folders.items():
        count, verb = tables.format_count(len(members), "file"), "is" if len(members) == 1 else "are"
        listed = join_names(map(posixpath.basename, members))
        subject = members[0] if len(members) == 1 else f"{folder}/"
        yield Finding(severity, f"{count} of {folder or 'its root'} {verb} {state}: {listed}", "", subject)


@check("RW083 lost-libraries (error)", kind="drift")
def check_lost_libraries(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: its libraries and modules are there, under their SONAMEs.

    Why: What is linked to such a library no longer loads; what imports such a module fails.
    Fix: Bring it back, or build all that needs it again, and publish both together.
    """
    before, after = _list_libraries(wheel.compared.wheel), _list_libraries(wheel)
    by_base: dict[str, list[str]] = {}
    for name in after:
        by_base.setdefault(_strip_numbers(name), []).append(name)
    for name, member in sorted(before.items()):
        others = by_base.get(_strip_numbers(name), [])
        if name in after or (others and _is_private(member)):
            continue
        if others:
            yield error(f"{name} is {join_names(sorted(others))} now", after[others[0]])
        else:
            message = f"the {'module' if _MODULE.search(member) else 'library'} {posixpath.basename(member)}"
            yield (warning if _is_private(member) else error)(f"{message} is gone", member)


@check("RW084 lost-symbols (error)", kind="drift")
def check_lost_symbols(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: libraries that others can link to export the same symbols.

    Why: Extensions that were built against the old library end with: undefined symbol.
    Fix: Bring the symbols back, or build all that uses them again, and publish both together.
    """
    before, after = _list_libraries(wheel.compared.wheel), _list_libraries(wheel)
    for name in sorted(before.keys() & after.keys()):
        member = before[name]
        old, new = wheel.compared.wheel.binaries.get(member), wheel.binaries.get(after[name])
        if old is None or new is None or not old.loader.soname:
            continue
        if _MODULE.search(member) or _is_private(member):
            continue  # nobody links to it
        exported, left = _list_exported(old), _list_exported(new)
        of_cpp = {symbol for symbol in exported if symbol.startswith("_Z")}
        kinds: tuple[tuple[drift_limits.DriftMeasure, str, set[str]], ...] = (
            ("functions-lost", "C symbol", exported - of_cpp),
            ("cpp-symbols-lost", "C++ symbol", of_cpp),
        )
        for measure, noun, of_kind in kinds:
            lost = sorted(of_kind - left)
            if severity := _judge(wheel, measure, len(of_kind), len(lost)):
                count = tables.format_count(len(lost), noun)
                message = f"lost {count} of {len(of_kind):,}: {join_names(lost)}"
                yield Finding(severity, message, subject=after[name])


def _list_exported(binary: loader.HostBinary) -> set[str]:
    """Return the exported symbols, as ``name@VERSION``.

    Left out is what nobody can mean: names that C keeps for compilers (``__hip_cuid_…``, with a hash of the
    source), what linkers add, names of versions, and what is in anonymous namespaces of C++.
    """
    symbols = binary.symbols.list_exported() if binary.symbols is not None else ()
    return {
        f"{name}@{version}" if version else name
        for name, version in symbols
        if name != version and _COMPILER_SYMBOL.search(name) is None
    }


@check("RW085 needed-drift (warning)", kind="drift")
def check_needed_drift(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: libraries are linked to the same libraries.

    Why: A feature is gone without a word, or the wheel needs what machines of users may not have.
    Fix: Look in the log of configure which option or library it found otherwise.

    What glibc and the compiler bring does not count: which of it is named goes with their versions.
    """
    before, after = _list_libraries(wheel.compared.wheel), _list_libraries(wheel)
    inside = {_strip_numbers(posixpath.basename(member)) for member in wheel.members}
    for name in sorted(before.keys() & after.keys()):
        old, new = _list_needed(wheel.compared.wheel, before[name]), _list_needed(wheel, after[name])
        parts = []
        if lost := sorted(old.keys() - new.keys()):
            parts.append(f"no longer linked to {join_names(old[base] for base in lost)}")
        if gained := sorted(new.keys() - old.keys()):
            parts.append(f"newly linked to {join_names(new[base] for base in gained)}")
        if parts:
            yield warning(f"is {' and '.join(parts)}", after[name])
        common = sorted(old.keys() & new.keys() - inside)
        if renumbered := [base for base in common if old[base] != new[base]]:
            pairs = join_names(f"{new[base]} instead of {old[base]}" for base in renumbered)
            yield note(f"is linked to {pairs}", after[name])


@check("RW086 lost-targets (error)", kind="drift")
def check_lost_targets(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: each library and kernel database serves the same targets.

    Why: On GPUs that the wheel served before, the first kernel fails.
    Fix: Build for those targets again; where support ends, let an exception say so.

    Code for fewer features serves more, and so does code for a generic processor. What was moved into device
    wheels is looked for there; that a device wheel is gone, or a whole library, other checks tell.
    """
    after = _collect_code(wheel)
    libraries = {_mask_member(wheel, member): member for member in wheel.libraries}
    for key, group in sorted(_collect_code(wheel.compared.wheel).items()):
        new, library = after.get(key), libraries.get(key)
        is_known = bool(wheel.parts) or library not in wheel.moved_code
        if not is_known or (new is None and group.is_library and library is None):
            continue
        held = new.targets if new is not None else set()
        if lost := sorted(target for target in group.targets if not _is_served(target, held)):
            message = f"{group.label or 'has'} no {group.noun} for {' '.join(lost)} any more"
            yield error(message, new.member if new is not None else library or "")


@check("RW087 lost-kernels (error)", kind="drift")
def check_lost_kernels(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: as many code objects and kernel files for each target.

    Why: Some operations fail, or are slow, on one kind of GPU alone.
    Fix: Look which sources are no longer compiled for that target.
    """
    before, after = _collect_code(wheel.compared.wheel), _collect_code(wheel)
    for key in sorted(before.keys() & after.keys()):
        old, new = before[key], after[key]
        for target in sorted(old.numbers.keys() & new.numbers.keys()):
            number, left, size = old.numbers[target], new.numbers[target], old.sizes[target]
            if severity := _judge(wheel, "kernels-lost", number, number - left):
                message = f"{old.label or 'has'} {left:,} of {number:,} {old.noun} for {target}"
            elif severity := _judge(wheel, "code-shrunk", size, size - new.sizes[target]):
                sizes = f"from {tables.format_size(size)} to {tables.format_size(new.sizes[target])}"
                message = f"{old.noun} for {target} shrank {sizes}"
            if severity:
                yield Finding(severity, message, subject=new.member)


@check("RW088 size-drift (error)", kind="drift")
def check_size_drift(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: neither it nor a file of it grew or shrank beyond the limits.

    Why: A library was grafted by mistake, debug information left in, or a part not built.
    Fix: `rocm-wheels wheel diff` shows which files changed; limits can be set in a policy.
    """
    old = wheel.compared.wheel
    before = {_mask_member(old, member.name): member.size for member in old.scan.members}
    rows: list[tuple[str, drift_limits.DriftMeasure, drift_limits.DriftMeasure, int, int]] = [
        ("", "wheel-grown", "wheel-shrunk", old.scan.size, wheel.scan.size)
    ]
    for member in wheel.scan.members:
        size = before.get(_mask_member(wheel, member.name), 0)
        rows.append((member.name, "file-grown", "file-shrunk", size, member.size))
    for subject, grown, shrunk, size, now in rows:
        if severity := _judge(wheel, grown, size, now - size) or _judge(wheel, shrunk, size, size - now):
            change = f"{'grew' if now > size else 'shrank'} from {tables.format_size(size)} to"
            message = f"{change if size else 'is new, with'} {tables.format_size(now)}"
            yield Finding(severity, message, _DIFF_TIP, subject)


@check("RW089 requirement-drift (warning)", kind="drift")
def check_requirement_drift(wheel: AuditedWheel) -> Findings:
    """Against an older wheel: METADATA requires the same projects in the same way.

    Why: Installers bring something else, or refuse what they installed before.
    Fix: Look whether the project changed its requirements, or an edit of METADATA did.

    A pin may name another version, as each build does; which is right is told by the checks of pins.
    """
    old, new = wheel.compared.wheel.scan.metadata, wheel.scan.metadata
    if old is None or new is None:
        return
    where = wheel.metadata_member
    before, after = _collect_requirements(old.requires_dist), _collect_requirements(new.requires_dist)
    for key in sorted(before.keys() - after.keys()):
        yield warning(f"no longer requires {before[key]}", where)
    for key in sorted(after.keys() - before.keys()):
        yield warning(f"newly requires {after[key]}", where)
    for key in sorted(before.keys() & after.keys()):
        change = f"requires {after[key]} instead of {before[key]}"
        if _get_operators(before[key]) != _get_operators(after[key]):
            yield warning(change, where)
        elif not _has_same_bounds((before[key], old.version), (after[key], new.version)):
            yield note(change, where)
    old_extras, new_extras = (set(map(canonicalize_name, side.provides_extra)) for side in (old, new))
    if extras := sorted(old_extras - new_extras):
        count = tables.format_count(len(extras), "extra")
        yield warning(f"no longer has {count}: {join_names(extras)}", where)
    if old.requires_python != new.requires_python:
        pythons = [f"Python {metadata.requires_python or 'of any version'}" for metadata in (new, old)]
        yield warning(f"is for {' instead of '.join(pythons)}", where)


def _collect_requirements(lines: Iterable[str]) -> dict[tuple[str, str, str], Requirement]:
    requirements = {}
    for requirement in map(Requirement, lines):
        extras = ",".join(sorted(map(canonicalize_name, requirement.extras)))
        key = str(canonicalize_name(requirement.name)), extras, str(requirement.marker or "")
        requirements[key] = requirement
    return requirements


def _get_operators(requirement: Requirement) -> tuple[list[str], str | None]:
    return sorted(specifier.operator for specifier in requirement.specifier), requirement.url


def _has_same_bounds(old: tuple[Requirement, Version], new: tuple[Requirement, Version]) -> bool:
    """Tell whether bounds that are no pins are the same, or the version of the wheel itself in both."""
    before, after = (
        {specifier.version for specifier in requirement.specifier if specifier.operator not in _PIN_OPERATORS}
        for requirement, _ in (old, new)
    )
    return before == after or (before - after == {str(old[1])} and after - before == {str(new[1])})


def _judge(
    wheel: AuditedWheel, measure: drift_limits.DriftMeasure, before: int, change: int
) -> Severity | None:
    return drift_limits.judge_change(wheel.compared.limits, measure, before, change)


def _mask_member(wheel: AuditedWheel, member: str) -> str:
    """Return the name of a member without what follows a version."""
    name = edit.mask_version(member, wheel.dist_info.removesuffix(".dist-info"))
    folder, _, file = name.rpartition("/")
    return posixpath.join(folder, _strip_numbers(file))


def _strip_numbers(name: str) -> str:
    """Return the name of a library without the hash of a repair and the numbers behind ``.so``."""
    return _LIBRARY_NUMBERS.sub(".so", strip_hash(name))


def _list_plain_files(wheel: AuditedWheel) -> dict[str, str]:
    """Return the members that are neither libraries nor kernels, by their masked names."""
    others = {*wheel.scan.binaries, *wheel.scan.imports, *wheel.device_code, *wheel.libraries}
    names = [
        name
        for name in wheel.members - others
        if not kernel_databases.is_database_file(name)
        and _KERNEL_FILE.search(name) is None
        and not name.endswith("/")
    ]
    return {_mask_member(wheel, name): name for name in names}


def _list_libraries(wheel: AuditedWheel) -> dict[str, str]:
    """Return the libraries of a wheel: by SONAME, without one by member; grafted ones without their hash."""
    libraries = {}
    for member in sorted({*wheel.binaries, *wheel.scan.imports}):
        binary = wheel.binaries.get(member)
        if binary is not None and binary.loader.program:
            continue
        soname = binary.loader.soname if binary is not None else None
        is_named = soname is not None and not _MODULE.search(member)
        libraries[strip_hash(soname or "") if is_named else _mask_member(wheel, member)] = member
    return libraries


def _is_private(member: str) -> bool:
    """Tell whether a repair took a library in: it has a hash in its name, and nothing else links to it."""
    return strip_hash(member) != member


def _list_needed(wheel: AuditedWheel, member: str) -> dict[str, str]:
    binary: loader.HostBinary | None = wheel.binaries.get(member)
    if binary is None:
        return {name.lower(): name for name in map(strip_hash, wheel.scan.imports.get(member, ()))}
    names = [name for name in binary.loader.needed if not _TOOLCHAIN_LIBRARY.match(name)]
    return {_strip_numbers(name): strip_hash(name) for name in names}


def _is_served(target: str, held: Collection[str]) -> bool:
    """Tell whether code for one of the targets runs wherever code for ``target`` does."""
    processor, *features = target.split(":")
    for other in held:
        other_processor, *other_features = other.split(":")
        covered = COMPILER_GENERICS.get(other_processor, (other_processor,))
        if processor in (other_processor, *covered) and set(other_features) <= set(features):
            return True
    return False


@dataclass
class _CodeGroup:
    """The code of a library, of kernel files in a folder, or of a kernel database; counts by base target.

    ``label`` begins a message about a database, and is "" where the member is named beside it.
    """

    member: str
    noun: str = "code objects"
    label: str = ""
    is_library: bool = False
    targets: set[str] = field(default_factory=set)
    numbers: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)

    def add_code(self, target: str, size: int) -> None:
        """Count a code object or a file."""
        self.targets.add(target)
        self.numbers[gfx.strip_features(target)] += 1
        self.sizes[gfx.strip_features(target)] += size


def _collect_code(wheel: AuditedWheel) -> dict[str, _CodeGroup]:
    groups: dict[str, _CodeGroup] = {}
    moved_code = {member: wheel.list_moved_objects(member) for member in wheel.moved_code}
    for member, objects in [*wheel.scan.device_code.items(), *moved_code.items()]:
        if kernels.find_kernel_database(member) is not None:
            continue
        is_file = _KERNEL_FILE.search(member) is not None
        for code in objects:
            if code.form == "empty":
                continue
            key = f"{posixpath.dirname(member)}/*" if is_file else _mask_member(wheel, member)
            if code.kind == "kpack" and is_file:
                key = f"{code.section} (moved)"
            group = groups.setdefault(key, _CodeGroup(member, is_library=not is_file))
            group.add_code(str(code.target), code.size)
    for scanned in wheel.scan.members:
        if (database := kernels.find_kernel_database(scanned.name)) is None:
            continue
        label = f"{database.project} has"
        group = groups.setdefault(
            f"{database.project} (database)",
            _CodeGroup(posixpath.dirname(scanned.name), "kernel files", label),
        )
        for target in database.targets:
            group.add_code(target, scanned.size)
    return groups
