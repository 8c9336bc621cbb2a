"""Find conflicts between sets on one channel: missing pins, overlapping wheels, lost GPU targets.

Pins: exact pins tie the wheels of a set together, so that no resolver joins wheels of two sets. With pins
the order of pages is all that is needed: a wheel appears after everything that it pins, and goes before
it. Without, no order helps: such sets are refused. Overlaps: a pin is by version, so one version of two
sets is taken for both.

Lost targets: sets for all GPUs can be built and staged for some families alone. Shown on a channel one is
the newest for all, and who has another GPU gets wheels without code for it. So it is held against what
people get now: the newest set of its platform and torch line (2.13) that the channel shows. No gate asks
that: it sees one set.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.core import errors, parallel
from rocm_wheels.index import folder
from rocm_wheels.models import ci
from rocm_wheels.models.versions import is_asan_version
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.stores.store import Store
from rocm_wheels.variants import device_names
from rocm_wheels.wheels import dist_info, installer_slots

_MOST_UNPINNED_SHOWN = 10
_EXTRA_MARKER = re.compile(r"\bextra\b")
_PIN_TIP = "build them with exact versions (==)"
RequirementsByFile = Mapping[str, Sequence[Requirement]]  # by file name; what needs an extra is there, too
ProjectGraph = Mapping[str, Collection[str]]  # the projects that a project requires


def read_all_requirements(
    store: Store, paths: store_paths.FamilyPaths, document: wheel_set.SetDocument
) -> RequirementsByFile:
    """Return what the wheels of a set require, by their METADATA in the store.

    Raises ReleaseError for METADATA that are gone, or not those that were staged.
    """

    def read(file: wheel_set.SetFile) -> list[Requirement]:
        path = paths.pool_file(file.sha256, file.name) + folder.METADATA_SUFFIX
        content = store.read(path).content
        if hashlib.sha256(content).hexdigest() != file.metadata_sha256:
            raise errors.ReleaseError(
                f"{store.url_of(path)} is not what was staged",
                tip="stage the same wheels again: what is wrong is named, and what is gone is sent",
            )
        return [Requirement(text) for text in dist_info.parse_metadata(content, name=path).requires_dist]

    requirements = parallel.run_in_parallel(read, document.files)
    return {file.name: requires for file, requires in zip(document.files, requirements, strict=True)}


def select_own_requirements(projects: Collection[str], requires: RequirementsByFile) -> RequirementsByFile:
    """Return what wheels require of these projects, those of their sets, of all that they require."""
    return {
        name: [item for item in requirements if _project_of(item) in projects]
        for name, requirements in requires.items()
    }


# ---- pins


def require_pins(document: wheel_set.SetDocument, requires: RequirementsByFile) -> None:
    """Raise ReleaseError for wheels that installers could join with wheels of another set.

    They take another version of a project of their set than the set's, or nothing ties them to the others.
    """
    if unpinned := _find_unpinned(document, requires):
        shown = unpinned[:_MOST_UNPINNED_SHOWN]
        if len(unpinned) > len(shown):
            shown.append(f"and {len(unpinned) - len(shown)} more")
        raise errors.ReleaseError(
            f"wheels of {document.id} are not pinned to it: {'; '.join(shown)}",
            tip=f"installers would join them with wheels of other sets: {_PIN_TIP}",
        )
    if untied := _find_untied(document.projects, _make_graph([document], requires)):
        raise errors.ReleaseError(
            f"nothing ties {'; '.join(untied)} in {document.id}",
            tip=f"installers would choose them from any set: {_PIN_TIP}",
        )


def require_ties(
    document: wheel_set.SetDocument,
    requires: RequirementsByFile,
    other_documents: Sequence[wheel_set.SetDocument],
) -> None:
    """Raise ReleaseError where a set differs from one that is shown in wheels that only equal ones tie.

    ``torchvision`` and ``torchaudio`` of both pin the same ``torch``: one of each set would be taken.
    """
    graph, versions = _make_graph([document], requires), _list_versions(document)
    for other in other_documents:
        other_versions = _list_versions(other)
        changed = [name for name in versions if versions[name] != other_versions.get(name, versions[name])]
        if untied := _find_untied(changed, graph):
            raise errors.ReleaseError(
                f"{document.id} and {other.id} differ in {', '.join(changed)}, and nothing in which they "
                f"differ ties {'; '.join(untied)}: installers would join wheels of both",
                tip=f"demote {other.id} first, or give what they require a version of its own, too",
            )


def sort_by_dependencies(
    documents: Sequence[wheel_set.SetDocument], requires: RequirementsByFile
) -> list[str]:
    """Return the projects of sets so that each comes after all that it requires.

    What an extra requires comes first as well, unless it requires the project itself. Parts of a host wheel
    do, and come first: nobody gets them but with their host, which is never there without them.
    """
    hard, graph = _make_graph(documents, requires, extras=False), _make_graph(documents, requires)
    order: dict[str, None] = {}
    visited: set[str] = set()

    def visit(project: str) -> None:
        if project in visited:  # or a circle, in which any order will do: all of it is pinned
            return
        visited.add(project)
        for needed in sorted(graph[project], key=lambda name: (name not in hard[project], name)):
            is_part = device_names.find_host_project(needed) == project
            if is_part or needed in hard[project] or project not in _find_closure(needed, hard):
                visit(needed)
        order[project] = None

    for project in sorted(graph, key=lambda name: (device_names.find_host_project(name) is not None, name)):
        visit(project)
    return list(order)


def _find_unpinned(document: wheel_set.SetDocument, requires: RequirementsByFile) -> list[str]:
    versions, hard = _list_versions(document), _make_graph([document], requires, extras=False)
    unpinned = []
    for file in document.files:
        for requirement in requires[file.name]:
            project = _project_of(requirement)
            # an extra may take any version of what pins its project: that decides
            decided = _needs_extra(requirement) and file.project in _find_closure(project, hard)
            if not decided and not _is_pinned(requirement, versions[project]):
                unpinned.append(f"{file.name} requires {requirement}")
    return unpinned


def _is_pinned(requirement: Requirement, versions: set[Version]) -> bool:
    for specifier in requirement.specifier:
        if specifier.operator in ("==", "===") and not specifier.version.endswith(".*"):
            try:
                if Version(specifier.version) in versions:
                    return True
            except InvalidVersion:
                continue
    return False


def _find_untied(projects: Collection[str], graph: ProjectGraph) -> list[str]:
    """Return which projects nothing of these ties together: ``apex to torch, torchvision``.

    Two are tied when both require one of them, or one of them requires both: a resolver that takes them from
    two sets wants two versions of it.
    """
    closures = {project: _find_closure(project, graph) & set(projects) for project in projects}
    untied: dict[str, set[str]] = defaultdict(set)
    for pair in combinations(sorted(projects), 2):
        first, second = (closures[project] for project in pair)
        if not first & second and not any(closure.issuperset(pair) for closure in closures.values()):
            untied[pair[0]].add(pair[1])
            untied[pair[1]].add(pair[0])
    groups: list[str] = []
    while any(untied.values()):
        most = max(sorted(untied), key=lambda project: len(untied[project]))
        others = untied.pop(most)
        groups.append(f"{most} to {', '.join(sorted(others))}")
        for other in others:
            untied[other].discard(most)
    return groups


def _make_graph(
    documents: Iterable[wheel_set.SetDocument], requires: RequirementsByFile, *, extras: bool = True
) -> ProjectGraph:
    graph: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        for file in document.files:
            needed = [item for item in requires[file.name] if extras or not _needs_extra(item)]
            graph[file.project] |= {_project_of(item) for item in needed} - {file.project}
    return graph


def _find_closure(project: str, graph: ProjectGraph) -> set[str]:
    """Return a project and all that it requires, at any depth."""
    reached, waiting = {project}, [project]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    return reached


def _list_versions(document: wheel_set.SetDocument) -> dict[str, set[Version]]:
    versions: dict[str, set[Version]] = defaultdict(set)
    for project, version in sorted({(file.project, file.version) for file in document.files}):
        versions[project].add(Version(version))
    return dict(versions)


def _project_of(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


def _needs_extra(requirement: Requirement) -> bool:
    return bool(requirement.marker and _EXTRA_MARKER.search(str(requirement.marker)))


# ---- wheels that installers take for each other


def find_rivals(
    files: Iterable[wheel_set.SetFile], other_files: Iterable[wheel_set.SetFile]
) -> Iterator[tuple[wheel_set.SetFile, wheel_set.SetFile]]:
    """Yield each file with each of the others that an installer would take for it on some machine.

    Only files of one project and version are compared, so that many wheels take as long as they are many.
    """
    rivals: dict[tuple[str, str], list[wheel_set.SetFile]] = defaultdict(list)
    for other in other_files:
        rivals[other.project, other.version].append(other)
    for file in files:
        for other in rivals.get((file.project, file.version), ()):
            if installer_slots.are_interchangeable(file.name, other.name):
                yield file, other


def find_asan_mixture(files: Iterable[wheel_set.SetFile]) -> tuple[str, str] | None:
    """Return a wheel with AddressSanitizer and one without it, by their names; None where all are alike.

    Beside each other installers take the first for the newer one: ``+rocm10.1.asan`` is above ``+rocm10.1``.
    """
    with_it, without = None, None
    for file in files:
        if is_asan_version(file.version):
            with_it = with_it or file.name
        else:
            without = without or file.name
    return (with_it, without) if with_it and without else None


def refuse_asan_mixture(
    document: wheel_set.SetDocument, other_documents: Sequence[wheel_set.SetDocument]
) -> None:
    """Raise ReleaseError for a set with AddressSanitizer beside one without it, or the other way round."""
    for other in other_documents:
        if mixed := find_asan_mixture((*document.files, *other.files)):
            raise errors.ReleaseError(
                f"{mixed[0]} has AddressSanitizer, and {mixed[1]} has not: with {other.id} shown as well,"
                " people would get it without asking",
                tip="show wheels with AddressSanitizer in a store of their own",
            )


def refuse_overlaps(
    document: wheel_set.SetDocument, other_documents: Sequence[wheel_set.SetDocument]
) -> None:
    """Raise ReleaseError for wheels that would take the place of others in a set that is still shown.

    A wheel of the same version, with a build tag or for a newer Linux, is taken for both sets. That is right
    where the new set is the old one with wheels of one project exchanged, and a mixture everywhere else.
    """
    slots = _list_slots(document)
    for other in other_documents:
        pairs = list(find_rivals(document.files, other.files))
        for file, rival in pairs:
            if file.carries_rocm != rival.carries_rocm:
                fat, thin = (file, rival) if file.carries_rocm else (rival, file)
                raise errors.ReleaseError(
                    f"{fat.name} carries its ROCm, and {thin.name} requires ROCm's packages: with {other.id}"
                    " shown as well as the new set, installers would take either",
                    tip=f"demote {other.id} first, or show fat and thin wheels on channels of their own",
                )
        changed = {file.project for file, rival in pairs if file.sha256 != rival.sha256}
        if len(changed) > 1 or (changed and _list_slots(other) != slots):
            raise errors.ReleaseError(
                f"{document.id} has {', '.join(sorted(changed))} in the same version as {other.id}, with "
                "other bytes: installers would join wheels of both",
                tip=f"demote {other.id} first, or give the new wheels a version of their own",
            )


def _list_slots(document: wheel_set.SetDocument) -> frozenset[installer_slots.InstallerSlot]:
    return frozenset[installer_slots.InstallerSlot]().union(
        *(installer_slots.installer_slots(file.name) for file in document.files)
    )


# ---- what upgrades do


def require_no_lost_targets(
    document: wheel_set.SetDocument,
    shown_documents: Sequence[wheel_set.SetDocument],
    channel: str,
    *,
    allow: bool = False,
) -> tuple[str, ...]:
    """Raise ReleaseError for a set for all GPUs without code for some that people get code for now.

    With ``allow`` that is returned, in a sentence, to be shown with the set.
    """
    if ci.MULTI_ARCH not in {document.family, document.layout}:
        return ()
    platform = wheel_set.find_set_platform(document)
    alike = [
        shown
        for shown in shown_documents
        if shown.torch_line == document.torch_line and shown.main_projects == document.main_projects
    ]
    newest = max(
        (shown for shown in alike if wheel_set.find_set_platform(shown) == platform),
        key=lambda shown: wheel_set.rank_set(
            shown.projects, shown.version, shown.created, shown.id, channel=channel
        ),
        default=None,
    )
    if newest is None:
        return ()
    targets = _list_code_targets(document)
    lost = [
        f"{project} for {', '.join(sorted(theirs - targets[project]))}"
        for project, theirs in sorted(_list_code_targets(newest).items())
        if project in targets and theirs - targets[project]
    ]
    if not lost:
        return ()
    if not allow:
        raise errors.ReleaseError(
            f"{document.id} has no code of {'; '.join(lost)}, and {newest.id}, which {channel} shows, has: "
            "people with these GPUs would get it as the newest",
            tip="promote a set for all of them, or allow this with --allow-fewer-targets",
        )
    return (f"fewer targets: no code of {'; '.join(lost)}, which {newest.id} has",)


def _list_code_targets(document: wheel_set.SetDocument) -> Mapping[str, set[str]]:
    """Return the targets of each project; parts that hold kernels (``torch-device-gfx942``) are of it."""
    targets: dict[str, set[str]] = defaultdict(set)
    for file in document.files:
        project = device_names.find_host_project(file.project) or file.project
        targets[project] |= {*file.targets}
    return targets


def find_upgrade_faults(
    document: wheel_set.SetDocument,
    requires: RequirementsByFile,
    shown_documents: Iterable[wheel_set.SetDocument],
) -> list[str]:
    """Return what people run into who upgrade from sets that a channel shows to this one.

    - A version that sorts below one that is shown, though it is of the same release: PEP 440 compares local
      parts as text where they have letters, so that ``+rocm10`` is below ``+rocm7`` (TheRock #7183).
    - An extra that names a device package which the set lacks: pip warns, exits 0, and installs no kernels.
    """
    faults, projects = [], document.projects
    shown: dict[str, set[Version]] = defaultdict(set)
    for other in shown_documents:
        for project, versions in _list_versions(other).items() if other.id != document.id else ():
            shown[project] |= versions
    for project, versions in _list_versions(document).items():
        for version in sorted(versions):
            above = [other for other in shown[project] if other > version and other.public == version.public]
            if above:
                faults.append(
                    f"{project} {version} sorts below {max(above)}, which is shown: installers keep that, "
                    "and `pip install -U` changes nothing"
                )
    for name, requirements in sorted(requires.items()):
        for requirement in requirements:
            project = _project_of(requirement)
            if project in projects:
                continue
            if device_names.find_host_project(project) in projects:
                faults.append(
                    f"{name} names {requirement.name} in an extra or as a requirement, and the set has no"
                    " such wheel: pip goes on without, and installs no kernels"
                )
    return faults
