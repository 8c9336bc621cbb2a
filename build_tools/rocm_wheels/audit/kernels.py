"""Check device code against itself and against kernel databases, whoever built the wheel.

Rules of the databases of rocBLAS, hipBLASLt and hipSPARSELt: as found in the packages of ROCm 7.2.4,
without an exception in 22 pairs of library and target. A target has one list,
``TensileLibrary_lazy_<gfx>.dat``; each stem in it is a ``.dat`` file, of the target or shared
(``*_fallback``); a target's ``.dat`` has its ``.co``, and the reverse; a fallback has its ``.hsaco`` for
the target, with xnack on and off where there are both.

Sources: LLVM, "User Guide for AMDGPU Backend" (code object versions, generic processors); LLVM, "Clang
Offload Bundler" (features in target IDs); pytorch, torch/CMakeLists.txt; ROCm/rocm-systems, shared/kpack.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors
from rocm_wheels.device_code import code_objects, kernel_databases
from rocm_wheels.models import gfx

_ABI_OF_V4 = 2
_ABI_OF_V6 = 4


@definition.check(
    "RW033 target-list (error)",
    why="Programs ask torch.cuda.get_arch_list() and are told of GPUs that it cannot use.",
    fix="Build with a clean tree: the list changed between configuring and compiling.",
)
def check_target_list(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """The targets that torch states are those it has code for.

    An error where it holds code that it does not state; a warning where it states more, as a wheel whose code
    was pruned does. A split library may have the rest in device wheels that are not here.
    """
    if not wheel.scan.target_lists:
        return definition.SkippedCheck("no libtorch_python.so that states targets")
    findings = []
    for member, targets in sorted(wheel.scan.target_lists.items()):
        library = f"{posixpath.dirname(member)}/libtorch_hip.so"
        held = set(audited_wheel.list_base_targets(wheel.list_member_targets(library)))
        stated = set(audited_wheel.list_base_targets(targets))
        is_split = library in wheel.moved_code
        if not held or held == stated or (is_split and held < stated):
            continue
        severity: errors.Severity = "warning" if held < stated else "error"
        message = f"states {' '.join(targets)} (torch.cuda.get_arch_list), and {library} holds"
        findings.append(errors.Finding(severity, f"{message} {' '.join(sorted(held))}", subject=member))
    return findings


@definition.check(
    "RW036 code-object-version (warning)",
    why="Loaders drop the older versions, which cannot state xnack and sramecc as IDs do.",
    fix="Compile with -mcode-object-version=4 or newer.",
)
def check_code_versions(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Code objects are of version V4 or newer."""
    if not wheel.device_code:
        return definition.SkippedCheck("holds no device code")
    findings = []
    for member, objects in _list_code(wheel):
        old = {code.abi_version for code in objects if code.abi_version is not None} & set(range(_ABI_OF_V4))
        if old:
            versions = ", ".join(f"V{version + 2}" for version in sorted(filter(None, old)))
            message = f"holds code objects of version {versions or 'V2'}, older than V4"
            severity: errors.Severity = "error" if wheel.has_recipe else "warning"
            findings.append(errors.Finding(severity, message, subject=member))
    return findings


@definition.check(
    "RW037 feature-mixtures (warning)",
    why="In one setting of the GPU a part of the package has no kernels.",
    fix="Build all libraries for one list of targets.",
)
def check_feature_mixtures(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Code states xnack and sramecc everywhere or nowhere."""
    if not wheel.device_code:
        return definition.SkippedCheck("holds no device code")
    findings = []
    stating: dict[tuple[str, str], dict[frozenset[str], str]] = {}
    for member, objects in _list_code(wheel):
        if kernel_databases.list_database_labels(member):
            continue  # a database has files for each setting, side by side
        for key, signs in _collect_signs(objects).items():
            stating.setdefault(key, {}).setdefault(signs, member)
            if len(signs) > 1 and "any" in signs:
                processor, feature = key
                message = f"for {processor}, some of its code states {feature} and some is for any setting"
                tip = "state the feature of a target everywhere, or nowhere"
                findings.append(errors.Finding("warning", message, tip, subject=member))
    for (processor, feature), members in sorted(stating.items()):
        if frozenset("+") in members and frozenset("-") in members:
            names = [members[frozenset("+")], members[frozenset("-")]]
            message = f"{names[0]} is for {processor}:{feature}+ alone and {names[1]} for {feature}- alone"
            tip = "no setting of the GPU runs both: build all libraries for the same targets"
            findings.append(errors.Finding("error", message, tip, subject=names[0]))
    return findings


def _collect_signs(objects: Iterable[code_objects.CodeObject]) -> dict[tuple[str, str], frozenset[str]]:
    """Return by processor and feature the settings that code states: "+", "-" or "any"."""
    targets = {code.target for code in objects if code.form != "empty"}
    features = {(t.processor, name) for t in targets for name, _ in t.features}
    return {
        (processor, feature): frozenset(
            dict(target.features).get(feature, "any") for target in targets if target.processor == processor
        )
        for processor, feature in features
    }


@definition.check(
    "RW038 generic-targets (error)",
    why="No runtime loads it; older runtimes pass over generic code of any version.",
    fix="Compile with -mcode-object-version=6, or for the processors themselves.",
)
def check_generic_targets(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Code for generic processors is of version V6."""
    if not wheel.device_code:
        return definition.SkippedCheck("holds no device code")
    findings = []
    for member, objects in _list_code(wheel):
        generic = [code for code in objects if code.target.processor.endswith("-generic")]
        targets = " ".join(sorted({code.target.processor for code in generic}))
        if any(code.abi_version is not None and code.abi_version < _ABI_OF_V6 for code in generic):
            message = f"holds code for {targets} in a version older than V6, which no runtime loads"
            findings.append(errors.Finding("error", message, subject=member))
        elif generic:
            message = f"holds code for {targets}: a runtime that knows no generic targets passes over it"
            findings.append(errors.Finding("info", message, subject=member))
    return findings


def _list_code(
    wheel: audited_wheel.AuditedWheel,
) -> Iterator[tuple[str, tuple[code_objects.CodeObject, ...]]]:
    yield from sorted(wheel.scan.device_code.items())


_DEVICE_REQUIREMENT = re.compile(r"amd-.*-device-")
_PACKAGE_TARGET = re.compile(r"^(?:rocm-sdk|amd)-.*?-?(?P<label>gfx[\w-]+)$")


@definition.check(
    "RW039 target-packages (error)",
    why="The libraries of another GPU are installed: nothing runs.",
    fix="Make METADATA and the code from one list of targets.",
)
def check_target_packages(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Packages for a GPU that it requires are for one of its targets."""
    if not wheel.targets:
        return definition.SkippedCheck("holds no device code")
    families = {name.lower(): set(targets) for name, targets in gfx.get_gfx_families().items()}
    findings = []
    for line in wheel.scan.metadata.requires_dist if wheel.scan.metadata else ():
        match = _PACKAGE_TARGET.match(
            re.split(r"[\s\[;=<>!~(]", line.lower().replace("_", "-"), maxsplit=1)[0]
        )
        if match is None or (wheel.moved_code and _DEVICE_REQUIREMENT.match(match[0])):
            continue  # where the extras of a split wheel lead has a check of its own
        covered = families.get(match["label"])
        if covered is not None and covered.isdisjoint(wheel.targets):
            message = f"requires {line}, and holds code for {' '.join(wheel.targets)} alone"
            findings.append(errors.Finding("error", message, subject=f"{wheel.dist_info}/METADATA"))
    return findings


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


@definition.check(
    "RW034 kernel-files (error)",
    why="Matrix products fail on that GPU, when one of the shapes comes up.",
    fix="Take the database whole, from one ROCm.",
)
def check_kernel_files(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Kernel databases have every file that their lists name.

    Each file of code, of a database or not, holds code for the target that it is named for.
    """
    databases = collect_databases(wheel.members)
    labelled = {member: labels for member in wheel.members if (labels := _list_labels(member))}
    if not databases and not labelled:
        return definition.SkippedCheck("carries no kernel database of rocBLAS, hipBLASLt or hipSPARSELt")
    findings = list(_find_wrong_code(wheel, labelled))
    for database in databases:
        lists = {
            member: stems
            for member, stems in wheel.scan.kernel_lists.items()
            if member.startswith(f"{database.root}/")
        }
        for member, stems in sorted(lists.items()):
            findings += _judge_list(database, member, stems)
        damaged = {member for member in wheel.damaged_members if member.startswith(f"{database.root}/")}
        listed = {kernel_databases.get_kernel_list_target(member) for member in {*lists, *damaged}}
        typed = {match["target"] for match in map(_OF_LAZY_LIST.search, database.files) if match}
        for target in sorted((database.targets if lists else typed) - listed):
            message = f"{database.project} has kernel files for {target} and no list of them: it loads none"
            findings.append(errors.Finding("error", message, subject=database.root))
    return findings


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


def _find_wrong_code(
    wheel: audited_wheel.AuditedWheel, labelled: Mapping[str, Collection[str]]
) -> Iterator[errors.Finding]:
    """Yield files that are empty, hold no code, or code for another target than their names say."""
    sizes = {member.name: member.size for member in wheel.scan.members}
    for member, labels in sorted(labelled.items()):
        if member in wheel.damaged_members:
            continue
        if not sizes.get(member):
            yield errors.Finding("error", "is empty", subject=member)
        elif _CODE_FILE.search(member):
            objects = wheel.scan.device_code.get(member, ())
            targets = {code.target for code in objects if code.form != "empty"}
            named = [kernel_databases.parse_label(label) for label in labels]
            other = [t for t in targets if not any(label is None or _serves(t, label) for label in named)]
            if not targets:
                yield errors.Finding("error", "holds no code object", subject=member)
            elif other:
                message = f"is named for {' '.join(labels)}, and holds code for {other[0]}"
                yield errors.Finding("error", message, subject=member)


def _serves(target: code_objects.TargetId, label: code_objects.TargetId) -> bool:
    """Tell whether code is for a label's processor, and for no other setting than it names."""
    settings = dict(target.features)
    return target.processor == label.processor and all(
        settings.get(name, sign) == sign for name, sign in label.features
    )


def _judge_list(database: KernelDatabase, member: str, stems: Collection[str]) -> list[errors.Finding]:
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
    of_target = re.compile(rf"(TensileLibrary_.*_{target})\.(dat|co)")
    matches = (of_target.fullmatch(name) for name in near if "_lazy_" not in name)
    stray = sorted(match[0] for match in matches if match and match[1] not in stems)
    findings = []
    if missing:
        message = f"{database.project} lacks files for {target}: {definition.join_names(sorted(missing))}"
        findings.append(errors.Finding("error", message, subject=member))
    if stray:
        message = (
            f"{database.project} has files for {target} that its list does not name: "
            f"{definition.join_names(stray)}"
        )
        findings.append(errors.Finding("warning", message, subject=member))
    return findings


def _list_missing_code(stem: str, files: Collection[str]) -> list[str]:
    """Return which code of source kernels is not there: one file, or one for each setting of xnack."""
    settings = [f"{stem}-xnack{sign}.hsaco" for sign in "+-"]
    if any(name in files for name in settings):
        return [name for name in settings if name not in files]
    return [] if f"{stem}.hsaco" in files else [f"{stem}.hsaco"]


@definition.check(
    "RW035 kernel-targets (error)",
    why="On that GPU the library fails, or is slow, although torch itself has code for it.",
    fix="Take the files of that target from the same ROCm.",
)
def check_kernel_targets(
    wheel: audited_wheel.AuditedWheel,
) -> list[errors.Finding] | definition.SkippedCheck:
    """Each kernel database serves each target."""
    served = _collect_served_targets(wheel.members)
    if not served:
        return definition.SkippedCheck("carries no kernel database")
    asked = wheel.expected.targets
    if asked is not None:
        targets = audited_wheel.list_base_targets(asked)
    else:
        targets = tuple(sorted({*_join_targets(served), *(wheel.targets if wheel.has_recipe else ())}))
    severity: errors.Severity = "error" if wheel.has_recipe else "warning"
    findings = []
    for target in targets:
        fact = gfx.get_gfx_targets().get(target)
        for project, labels in sorted(served.items()):
            is_excluded = fact is None or project in fact.excluded
            is_unknown = project == "aotriton" and fact is not None and fact.aotriton is None
            if not is_excluded and not is_unknown and not _is_served(target, labels):
                message = f"{project} has no kernel files for {target}, and has some for others"
                findings.append(errors.Finding("info" if project == "MIOpen" else severity, message))
    return findings


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
