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
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import Places
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.metadata import parse_metadata

_JOBS = 16
_SHOWN = 10
_EXTRA = re.compile(r"\bextra\b")
_PIN = "build them with exact versions (==), or say --allow-unpinned"
LOOSE = ("not pinned: ", "not tied")  # how the lines begin that tell of what is allowed nevertheless
Requires = Mapping[str, Sequence[Requirement]]  # by file name; what needs an extra is there, too
Graph = Mapping[str, Collection[str]]  # the projects that a project requires


def requires_of(store: Store, places: Places, document: SetDocument) -> Requires:
    """Return what the wheels of a set require of each other."""

    def of(file: SetFile) -> list[Requirement]:
        path = places.file(file.sha256, file.name) + METADATA_SUFFIX
        listed = parse_metadata(store.read(path).content, name=path).requires_dist
        known = [Requirement(one) for one in listed]
        return [one for one in known if _project(one) in document.projects]

    found = each(of, document.files, jobs=_JOBS)
    return {file.name: requires for file, requires in zip(document.files, found, strict=True)}


def require_pins(document: SetDocument, requires: Requires, *, allow: bool = False) -> tuple[str, ...]:
    """Raise ReleaseError for wheels that installers could join with wheels of another set.

    They take another version of a project of their set than the set's, or nothing ties them to the others.
    With ``allow`` that is returned, one sentence each, to be shown with the set.
    """
    loose = _loose(document, requires)
    if loose and not allow:
        more = f"; and {len(loose) - _SHOWN} more" if len(loose) > _SHOWN else ""
        raise ReleaseError(
            f"wheels of {document.id} are not pinned to it: {'; '.join(loose[:_SHOWN])}{more}",
            tip=f"installers would join them with wheels of other sets: {_PIN}",
        )
    apart = _apart(document.projects, _graph([document], requires))
    if apart and not allow:
        raise ReleaseError(
            f"nothing ties {'; '.join(apart)} in {document.id}",
            tip=f"installers would choose them from any set: {_PIN}",
        )
    return (*(f"not pinned: {one}" for one in loose), *(f"not tied: {one}" for one in apart))


def require_tied(
    document: SetDocument, requires: Requires, others: Sequence[SetDocument], *, allow: bool = False
) -> tuple[str, ...]:
    """Raise ReleaseError where a set differs from one that is shown in wheels that only equal ones tie.

    ``torchvision`` and ``torchaudio`` of both pin the same ``torch``: one of each set would be taken. With
    ``allow`` that is returned, one sentence each, to be shown with the set.
    """
    graph, own = _graph([document], requires), _versions(document)
    said: list[str] = []
    for other in others:
        shown = _versions(other)
        changed = [project for project in own if project in shown and own[project] != shown[project]]
        apart = _apart(changed, graph)
        if apart and not allow:
            raise ReleaseError(
                f"{document.id} and {other.id} differ in {', '.join(changed)}, and nothing in which they "
                f"differ ties {'; '.join(apart)}: installers would join wheels of both",
                tip=f"demote {other.id} first, or give what they require a version of its own, too",
            )
        said += [f"not tied, and {other.id} is shown, too: {one}" for one in apart]
    return tuple(said)


def dependencies_first(documents: Sequence[SetDocument], requires: Requires) -> list[str]:
    """Return the projects of sets so that each comes after all that it requires.

    What an extra requires comes first as well, unless it requires the project itself: wheels of kernels do.
    """
    hard = _graph(documents, requires, extras=False)
    needs = {
        project: sorted(needed, key=lambda one: (one not in hard[project], one))
        for project, needed in _graph(documents, requires).items()
    }
    order: dict[str, None] = {}
    seen: set[str] = set()

    def visit(project: str) -> None:
        if project in seen:  # or a circle, in which any order will do: all of it is pinned
            return
        seen.add(project)
        for needed in needs[project]:
            if needed in hard[project] or project not in _closure(needed, hard):
                visit(needed)
        order[project] = None

    for project in sorted(needs):
        visit(project)
    return list(order)


def _loose(document: SetDocument, requires: Requires) -> list[str]:
    versions, hard = _versions(document), _graph([document], requires, extras=False)
    return [
        f"{file.name} requires {one}"
        for file in document.files
        for one in requires[file.name]
        if not _pinned(one, versions[_project(one)])
        # an extra may take any version of what pins its project: that decides
        and not (_by_extra(one) and file.project in _closure(_project(one), hard))
    ]


def _apart(projects: Collection[str], graph: Graph) -> list[str]:
    """Return which projects nothing of these ties together: ``apex to torch, torchvision``.

    Two are tied when both require one of them, or one of them requires both: a resolver that takes them from
    two sets wants two versions of it.
    """
    closures = {project: _closure(project, graph) & set(projects) for project in projects}
    apart: dict[str, set[str]] = {}
    for one, other in combinations(sorted(projects), 2):
        if not closures[one] & closures[other] and not any(
            {one, other} <= all_ for all_ in closures.values()
        ):
            apart.setdefault(one, set()).add(other)
            apart.setdefault(other, set()).add(one)
    said: list[str] = []
    while any(apart.values()):
        most = max(sorted(apart), key=lambda one: len(apart[one]))
        others = apart.pop(most)
        said.append(f"{most} to {', '.join(sorted(others))}")
        for other in others:
            apart[other].discard(most)
    return said


def _graph(documents: Iterable[SetDocument], requires: Requires, *, extras: bool = True) -> Graph:
    found: dict[str, set[str]] = {}
    for document in documents:
        for file in document.files:
            needed = {_project(one) for one in requires[file.name] if extras or not _by_extra(one)}
            found.setdefault(file.project, set()).update(needed - {file.project})
    return found


def _closure(project: str, graph: Graph) -> set[str]:
    """Return a project and all that it requires, at any depth."""
    found, waiting = {project}, [project]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def _versions(document: SetDocument) -> dict[str, set[Version]]:
    found: dict[str, set[Version]] = {}
    for project, version in sorted({(file.project, file.version) for file in document.files}):
        found.setdefault(project, set()).add(Version(version))
    return found


def _project(requirement: Requirement) -> str:
    return str(canonicalize_name(requirement.name))


def _by_extra(requirement: Requirement) -> bool:
    return bool(requirement.marker and _EXTRA.search(str(requirement.marker)))


def _pinned(requirement: Requirement, versions: set[Version]) -> bool:
    for one in requirement.specifier:
        if one.operator in ("==", "===") and not one.version.endswith(".*"):
            try:
                if Version(one.version) in versions:
                    return True
            except InvalidVersion:
                continue
    return False
