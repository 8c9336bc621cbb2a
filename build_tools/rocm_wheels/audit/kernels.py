"""Check the kernel databases of ROCm's libraries, whoever built the wheel.

Rules of the databases of rocBLAS, hipBLASLt and hipSPARSELt: as found in the packages of ROCm 7.2.4,
without an exception in 22 pairs of library and target. A target has one list,
``TensileLibrary_lazy_<gfx>.dat``; each stem in it is a ``.dat`` file, of the target or shared
(``*_fallback``); a target's ``.dat`` has its ``.co``, and the reverse; a fallback has its ``.hsaco`` for
the target, with xnack on and off where there are both. Source: ROCm/rocm-systems, shared/kpack.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rocm_wheels.audit.audited_wheel import AuditedWheel, list_base_targets
from rocm_wheels.audit.definition import Findings, Skip, check, error, join_names, warning
from rocm_wheels.core.errors import Finding
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.models import gfx

_TENSILE_FOLDER = re.compile(
    r"^(?P<root>(?:.*/)?(?P<library>rocblas|hipblaslt|hipsparselt)/(?:[^/]+/)*?library)/(?P<file>.+)$"
)
_PROJECTS = {"rocblas": "rocBLAS", "hipblaslt": "hipBLASLt", "hipsparselt": "hipSPARSELt"}
_MIOPEN = re.compile(r"(?:^|/)share/miopen/db/")
_AOTRITON = re.compile(r"(?:^|/)aotriton\.images/")
_KERNELS_OF_ALL = "Kernels.so-000-"


@dataclass(frozen=True)
class KernelDatabase:
    """The files of a Tensile library's database, by paths relative to ``root``."""

    project: str
    root: str
    files: frozenset[str]

    @property
    def targets(self) -> frozenset[str]:
        """The targets that files are labelled with."""
        labels = (
            label
            for file in self.files
            for label in kernel_databases.list_database_labels(f"{self.root}/{file}")
        )
        return frozenset(filter(None, map(_get_processor, labels)))


def _get_processor(label: str) -> str | None:
    target = kernel_databases.parse_label(label)
    return target.processor if target is not None else None


def collect_databases(members: Iterable[str]) -> tuple[KernelDatabase, ...]:
    """Return the databases of rocBLAS, hipBLASLt and hipSPARSELt among files."""
    files: dict[tuple[str, str], set[str]] = {}
    for member in members:
        if match := _TENSILE_FOLDER.match(member):
            files.setdefault((_PROJECTS[match["library"]], match["root"]), set()).add(match["file"])
    return tuple(KernelDatabase(*key, frozenset(names)) for key, names in sorted(files.items()))


@check("RW034 kernel-files (error)")
def check_kernel_files(wheel: AuditedWheel) -> Findings:
    """Kernel databases have every file that their lists name.

    Why: Matrix products fail on that GPU, when one of the shapes comes up.
    Fix: Take the database whole, from one ROCm.

    Each file of code, of a database or not, holds code for the target that it is named for.
    """
    databases = collect_databases(wheel.members)
    labelled = {member: labels for member in wheel.members if (labels := _list_labels(member))}
    if not databases and not labelled:
        raise Skip("carries no kernel database of rocBLAS, hipBLASLt or hipSPARSELt")
    yield from _find_wrong_code(wheel, labelled)
    for database in databases:
        inside = f"{database.root}/"
        lists = {name: stems for name, stems in wheel.scan.kernel_lists.items() if name.startswith(inside)}
        for member, stems in sorted(lists.items()):
            yield from _judge_list(database, member, stems)
        damaged = {member for member in wheel.damaged_members if member.startswith(inside)}
        listed = {kernel_databases.get_kernel_list_target(member) for member in {*lists, *damaged}}
        typed = {match["target"] for match in map(_OF_LAZY_LIST.search, database.files) if match}
        for target in sorted((database.targets if lists else typed) - listed):
            message = f"{database.project} has kernel files for {target} and no list of them: it loads none"
            yield error(message, database.root)


# such files are only ever read through a list
_OF_LAZY_LIST = re.compile(r"(?:^|/)TensileLibrary_Type_.*_(?P<target>gfx[0-9a-f]+)\.(?:co|dat)$")
_CODE_FILE = re.compile(r"\.(?:co|hsaco)$")
_ANY_LABEL = re.compile(r"(?<![a-z0-9])gfx[0-9][0-9a-f]{2,3}(?:-[a-z]+[+-])*(?![0-9a-zA-Z])")


def _list_labels(member: str) -> list[str]:
    """Return the labels of a file of code or of a Tensile database: of its name, else of its folder."""
    if not _CODE_FILE.search(member) and not (member.endswith(".dat") and _TENSILE_FOLDER.match(member)):
        return []
    folder, _, name = member.rpartition("/")
    return _ANY_LABEL.findall(name) or _ANY_LABEL.findall(posixpath.basename(folder))


def _find_wrong_code(wheel: AuditedWheel, labelled: Mapping[str, Collection[str]]) -> Findings:
    """Yield files that are empty, hold no code, or code for another target than their names say."""
    sizes = {member.name: member.size for member in wheel.scan.members}
    for member, labels in sorted(labelled.items()):
        if member in wheel.damaged_members:
            continue
        if not sizes.get(member):
            yield error("is empty", member)
        elif _CODE_FILE.search(member):
            objects = wheel.scan.device_code.get(member, ())
            targets = {code.target for code in objects if code.form != "empty"}
            named = [kernel_databases.parse_label(label) for label in labels]
            other = [t for t in targets if not any(label is None or _serves(t, label) for label in named)]
            if not targets:
                yield error("holds no code object", member)
            elif other:
                yield error(f"is named for {' '.join(labels)}, and holds code for {other[0]}", member)


def _serves(target: code_objects.TargetId, label: code_objects.TargetId) -> bool:
    """Tell whether code is for a label's processor, and for no other setting than it names."""
    settings = dict(target.features)
    return target.processor == label.processor and all(
        settings.get(name, sign) == sign for name, sign in label.features
    )


def _judge_list(database: KernelDatabase, member: str, stems: Collection[str]) -> Findings:
    target = kernel_databases.get_kernel_list_target(member)
    assert target is not None, member
    inside = posixpath.relpath(posixpath.dirname(member), database.root)
    near = {posixpath.basename(f) for f in database.files if posixpath.dirname(f) in ("", inside.lstrip("."))}
    shared = any(name.endswith("_fallback.dat") for name in near)  # else they are in another wheel
    missing: list[str] = []
    for stem in sorted(stems):
        is_fallback = stem.endswith("_fallback")
        if (shared or not is_fallback) and f"{stem}.dat" not in near:
            missing.append(f"{stem}.dat")
        if is_fallback:
            missing += _list_missing_code(f"{stem}_{target}", near)
        elif f"{stem}.co" not in near:
            missing.append(f"{stem}.co")
    if any(name.startswith(_KERNELS_OF_ALL) for name in near):
        missing += _list_missing_code(f"{_KERNELS_OF_ALL}{target}", near)
    if missing:
        yield error(f"{database.project} lacks files for {target}: {join_names(sorted(missing))}", member)
    of_target = re.compile(rf"(TensileLibrary_.*_{target})\.(dat|co)")
    matches = (of_target.fullmatch(name) for name in near if "_lazy_" not in name)
    if stray := sorted(match[0] for match in matches if match and match[1] not in stems):
        message = f"{database.project} has files for {target} that its list does not name"
        yield warning(f"{message}: {join_names(stray)}", member)


def _list_missing_code(stem: str, files: Collection[str]) -> list[str]:
    """Return which code of source kernels is not there: one file, or one for each setting of xnack."""
    settings = [f"{stem}-xnack{sign}.hsaco" for sign in "+-"]
    if any(name in files for name in settings):
        return [name for name in settings if name not in files]
    return [] if f"{stem}.hsaco" in files else [f"{stem}.hsaco"]


@check("RW035 kernel-targets (error)")
def check_kernel_targets(wheel: AuditedWheel) -> Findings:
    """Each kernel database serves each target.

    Why: On that GPU the library fails, or is slow, although torch itself has code for it.
    Fix: Take the files of that target from the same ROCm.
    """
    served = _collect_served_targets(wheel.members)
    if not served:
        raise Skip("carries no kernel database")
    if wheel.expected.targets is not None:
        targets = list_base_targets(wheel.expected.targets)
    else:
        targets = tuple(sorted({*_join_targets(served), *(wheel.targets if wheel.has_recipe else ())}))
    for target in targets:
        fact = gfx.get_gfx_targets().get(target)
        for project, labels in sorted(served.items()):
            is_excluded = fact is None or project in fact.excluded
            is_unknown = project == "aotriton" and fact is not None and fact.aotriton is None
            if not is_excluded and not is_unknown and not _is_served(target, labels):
                message = f"{project} has no kernel files for {target}, and has some for others"
                yield Finding("info" if project == "MIOpen" else wheel.severity, message)


@dataclass(frozen=True)
class KernelFileLabels:
    """Whose database a kernel file is of, and its labels: targets, and families (``gfx11xx``)."""

    project: str
    targets: tuple[str, ...]


def find_kernel_database(member: str) -> KernelFileLabels | None:
    """Return the database that a member is a labelled file of; None for another file."""
    labels = kernel_databases.list_database_labels(member)
    if not labels:
        return None
    if match := _TENSILE_FOLDER.match(member):
        project = _PROJECTS[match["library"]]
    elif _MIOPEN.search(member):
        project = "MIOpen"
    elif _AOTRITON.search(member):
        project = "aotriton"
    else:
        return None
    return KernelFileLabels(project, tuple(dict.fromkeys(_get_processor(label) or label for label in labels)))


def _collect_served_targets(members: Iterable[str]) -> dict[str, set[str]]:
    """Return by project the labels of the files of its database."""
    served: dict[str, set[str]] = {}
    for member in members:
        if (database := find_kernel_database(member)) is not None:
            served.setdefault(database.project, set()).update(database.targets)
    return served


def list_kinds(members: Iterable[str]) -> set[tuple[str, str]]:
    """Return by project what its database has for each target: files at all, and kernels of all types."""
    kinds = set[tuple[str, str]]()
    for member in members:
        database = find_kernel_database(member)
        if database is not None and database.project in _PROJECTS.values():
            kinds.add((database.project, "kernel files"))
            if posixpath.basename(member).startswith(_KERNELS_OF_ALL):
                kinds.add((database.project, f"{_KERNELS_OF_ALL}*"))
    return kinds


def _join_targets(served: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    labels = {label for project, of_project in served.items() for label in of_project if project != "MIOpen"}
    return tuple(sorted(label for label in labels if "x" not in label.removeprefix("gfx")))


def _is_served(target: str, labels: Collection[str]) -> bool:
    shapes = (label.replace("x", "[0-9a-f]") for label in (name.removeprefix("gfx") for name in labels))
    return any(re.fullmatch(shape, target.removeprefix("gfx")) for shape in shapes)
