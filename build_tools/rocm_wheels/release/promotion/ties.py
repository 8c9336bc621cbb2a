"""What ties the wheels of a set together: exact pins, so that no resolver joins wheels of two sets.

With pins the order of pages is all that is needed: a wheel appears after everything that it pins, and
goes before it. Without, no order helps: such sets are refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.metadata import parse_metadata

_METADATA_JOBS = 16
_MOST_UNPINNED_SHOWN = 10
_EXTRA_MARKER = re.compile(r"\bextra\b")
_PIN_TIP = "build them with exact versions (==), or say --allow-unpinned"
UNPINNED_PREFIXES = (
    "not pinned: ",
    "not tied",
)  # how the lines begin that tell of what is allowed nevertheless
RequirementsByFile = Mapping[str, Sequence[Requirement]]  # by file name; what needs an extra is there, too
ProjectGraph = Mapping[str, Collection[str]]  # the projects that a project requires


def read_requirements(store: Store, paths: FamilyPaths, document: SetDocument) -> RequirementsByFile:
    """Return what the wheels of a set require of each other."""

    def of(file: SetFile) -> list[Requirement]:
        path = paths.wheel_file(file.sha256, file.name) + METADATA_SUFFIX
        listed = parse_metadata(store.read(path).content, name=path).requires_dist
        parsed = [Requirement(requirement) for requirement in listed]
        return [
            requirement for requirement in parsed if _project_of_requirement(requirement) in document.projects
        ]

    requirements = run_in_parallel(of, document.files, jobs=_METADATA_JOBS)
    return {file.name: requires for file, requires in zip(document.files, requirements, strict=True)}


def require_pins(
    document: SetDocument, requires: RequirementsByFile, *, allow: bool = False
) -> tuple[str, ...]:
    """Raise ReleaseError for wheels that installers could join with wheels of another set.

    They take another version of a project of their set than the set's, or nothing ties them to the others.
    With ``allow`` that is returned, one sentence each, to be shown with the set.
    """
    unpinned = _find_unpinned(document, requires)
    if unpinned and not allow:
        rest_note = (
            f"; and {len(unpinned) - _MOST_UNPINNED_SHOWN} more"
            if len(unpinned) > _MOST_UNPINNED_SHOWN
            else ""
        )
        raise ReleaseError(
            f"wheels of {document.id} are not pinned to it: {'; '.join(unpinned[:_MOST_UNPINNED_SHOWN])}{rest_note}",
            tip=f"installers would join them with wheels of other sets: {_PIN_TIP}",
        )
    untied = _find_untied(document.projects, _make_graph([document], requires))
    if untied and not allow:
        raise ReleaseError(
            f"nothing ties {'; '.join(untied)} in {document.id}",
            tip=f"installers would choose them from any set: {_PIN_TIP}",
        )
    return (*(f"not pinned: {fault}" for fault in unpinned), *(f"not tied: {fault}" for fault in untied))


def require_ties(
    document: SetDocument,
    requires: RequirementsByFile,
    other_documents: Sequence[SetDocument],
    *,
    allow: bool = False,
) -> tuple[str, ...]:
    """Raise ReleaseError where a set differs from one that is shown in wheels that only equal ones tie.

    ``torchvision`` and ``torchaudio`` of both pin the same ``torch``: one of each set would be taken. With
    ``allow`` that is returned, one sentence each, to be shown with the set.
    """
    graph, versions = _make_graph([document], requires), _list_versions(document)
    faults: list[str] = []
    for other in other_documents:
        other_versions = _list_versions(other)
        changed = [
            project
            for project in versions
            if project in other_versions and versions[project] != other_versions[project]
        ]
        untied = _find_untied(changed, graph)
        if untied and not allow:
            raise ReleaseError(
                f"{document.id} and {other.id} differ in {', '.join(changed)}, and nothing in which they "
                f"differ ties {'; '.join(untied)}: installers would join wheels of both",
                tip=f"demote {other.id} first, or give what they require a version of its own, too",
            )
        faults += [f"not tied, and {other.id} is shown, too: {fault}" for fault in untied]
    return tuple(faults)


def sort_by_dependencies(documents: Sequence[SetDocument], requires: RequirementsByFile) -> list[str]:
    """Return the projects of sets so that each comes after all that it requires.

    What an extra requires comes first as well, unless it requires the project itself: wheels of kernels do.
    """
    hard = _make_graph(documents, requires, extras=False)
    needs = {
        project: sorted(
            needed, key=lambda needed_project: (needed_project not in hard[project], needed_project)
        )
        for project, needed in _make_graph(documents, requires).items()
    }
    order: dict[str, None] = {}
    visited: set[str] = set()

    def visit(project: str) -> None:
        if project in visited:  # or a circle, in which any order will do: all of it is pinned
            return
        visited.add(project)
        for needed in needs[project]:
            if needed in hard[project] or project not in _find_closure(needed, hard):
                visit(needed)
        order[project] = None

    for project in sorted(needs):
        visit(project)
    return list(order)


def _find_unpinned(document: SetDocument, requires: RequirementsByFile) -> list[str]:
    versions, hard = _list_versions(document), _make_graph([document], requires, extras=False)
    return [
        f"{file.name} requires {requirement}"
        for file in document.files
        for requirement in requires[file.name]
        if not _is_pinned(requirement, versions[_project_of_requirement(requirement)])
        # an extra may take any version of what pins its project: that decides
        and not (
            _needs_extra(requirement)
            and file.project in _find_closure(_project_of_requirement(requirement), hard)
        )
    ]


def _find_untied(projects: Collection[str], graph: ProjectGraph) -> list[str]:
    """Return which projects nothing of these ties together: ``apex to torch, torchvision``.

    Two are tied when both require one of them, or one of them requires both: a resolver that takes them from
    two sets wants two versions of it.
    """
    closures = {project: _find_closure(project, graph) & set(projects) for project in projects}
    untied: dict[str, set[str]] = {}
    for project, other_project in combinations(sorted(projects), 2):
        if not closures[project] & closures[other_project] and not any(
            {project, other_project} <= closure for closure in closures.values()
        ):
            untied.setdefault(project, set()).add(other_project)
            untied.setdefault(other_project, set()).add(project)
    groups: list[str] = []
    while any(untied.values()):
        most = max(sorted(untied), key=lambda project: len(untied[project]))
        other_projects = untied.pop(most)
        groups.append(f"{most} to {', '.join(sorted(other_projects))}")
        for other_project in other_projects:
            untied[other_project].discard(most)
    return groups


def _make_graph(
    documents: Iterable[SetDocument], requires: RequirementsByFile, *, extras: bool = True
) -> ProjectGraph:
    graph: dict[str, set[str]] = {}
    for document in documents:
        for file in document.files:
            needed = {
                _project_of_requirement(requirement)
                for requirement in requires[file.name]
                if extras or not _needs_extra(requirement)
            }
            graph.setdefault(file.project, set()).update(needed - {file.project})
    return graph


def _find_closure(project: str, graph: ProjectGraph) -> set[str]:
    """Return a project and all that it requires, at any depth."""
    reached, waiting = {project}, [project]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    return reached


def _list_versions(document: SetDocument) -> dict[str, set[Version]]:
    versions: dict[str, set[Version]] = {}
    for project, version in sorted({(file.project, file.version) for file in document.files}):
        versions.setdefault(project, set()).add(Version(version))
    return versions


def _project_of_requirement(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


def _needs_extra(requirement: Requirement) -> bool:
    return bool(requirement.marker and _EXTRA_MARKER.search(str(requirement.marker)))


def _is_pinned(requirement: Requirement, versions: set[Version]) -> bool:
    for specifier in requirement.specifier:
        if specifier.operator in ("==", "===") and not specifier.version.endswith(".*"):
            try:
                if Version(specifier.version) in versions:
                    return True
            except InvalidVersion:
                continue
    return False
