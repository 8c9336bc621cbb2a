"""Find what a set requires and does not bring: the torch of a companion that is released alone.

A set with torch brings all projects of ours that its wheels require, or it is not staged. A set without torch
is of a companion. Staged alone it may require them of another set, by a range (bitsandbytes) or by an exact
version (torchvision): the channel that is to show it must have them, for its platform, Pythons and ROCm. So
may an index of the policy (``other_indexes``), whose ROCm is not known here. PyPI's torch is for other GPUs,
and counts for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.audit import metadata
from rocm_wheels.core import errors, log
from rocm_wheels.index import reader, resolve_check
from rocm_wheels.index.platform_tags import PLATFORM_TAGS
from rocm_wheels.models import facts, project_names
from rocm_wheels.models.project import load_project
from rocm_wheels.release import set_conflicts, store_paths, support, wheel_set
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels import dist_info, python_tags


@dataclass(frozen=True)
class Need:
    """A requirement of a wheel that no wheel of its set meets."""

    file: wheel_set.SetFile
    requirement: Requirement

    @property
    def project(self) -> str:
        """The project that is required (normalized)."""
        return str(canonicalize_name(self.requirement.name))

    def __str__(self) -> str:
        """Return what is required, without its marker: ``torch<3,>=2.4``."""
        return f"{self.requirement.name}{self.requirement.specifier}"

    def accepts(self, version: str) -> bool:
        """Tell whether it is met by a version; ``--pre`` is the installer's matter."""
        return self.requirement.specifier.contains(version, prereleases=True)


def list_own_projects() -> frozenset[str]:
    """Return the projects of ours that PyPI's wheels do not stand for, by the names of their wheels."""
    return frozenset(project_names.find_wheel_projects()) - project_names.find_open_wheels()


def list_needs(
    document: wheel_set.SetDocument, requires: set_conflicts.RequirementsByFile
) -> tuple[Need, ...]:
    """Return what the wheels of a set require of our projects that the set has not, extras left aside."""
    outside = list_own_projects().difference(document.projects)
    names, platform = [file.name for file in document.files], wheel_set.find_set_platform(document)
    needs = []
    for file in document.files:
        machine = wheel_set.make_marker_environment(file.name, names, platform)
        for requirement in requires[file.name]:
            need = Need(file, requirement)
            marker = requirement.marker
            if need.project in outside and (marker is None or marker.evaluate(machine)):
                needs.append(need)
    return tuple(needs)


def read_needs(
    store: Store, paths: store_paths.FamilyPaths, document: wheel_set.SetDocument
) -> tuple[Need, ...] | None:
    """Return what a stored set needs; None, with a warning, where its METADATA are gone or damaged."""
    try:
        return list_needs(document, set_conflicts.read_all_requirements(store, paths, document))
    except errors.ReleaseError as cause:
        log.log_warning(f"what {document.id} needs is not known: {cause.message}")
        return None


def require_exact_builds(document: wheel_set.SetDocument, requires: set_conflicts.RequirementsByFile) -> None:
    """Raise ReleaseError for a companion alone that is compiled against another project, and takes any of it.

    By its recipe (``pins``). In a set with torch ``set_conflicts.require_pins`` looks at such requirements.
    """
    recipes = project_names.find_wheel_projects() if document.torch_line is None else {}
    for file in (file for file in document.files if file.project in recipes):
        exact = {
            canonicalize_name(requirement.name)
            for requirement in requires[file.name]
            if metadata.get_exact_version(requirement)
        }
        pins = load_project(recipes[file.project]).build.pins
        for name in (load_project(pin.project).normalized_name for pin in pins):
            if name not in exact:
                raise errors.ReleaseError(
                    f"{file.name} is compiled against {name}, and does not require one version of it:"
                    " installers would put it beside any",
                    tip=f"build it with `{name}==VERSION` in its METADATA, as `build` writes it",
                )


def require_needs(
    needs: Iterable[Need],
    document: wheel_set.SetDocument,
    shown: Sequence[wheel_set.SetDocument],
    other_indexes: Iterable[str],
) -> None:
    """Raise ReleaseError for a set that needs what neither a channel shows nor another index has.

    So is it where an index that may have it cannot be read.
    """
    for need in needs:
        lack = find_lack(need, document, shown)
        if lack and not any(_has_index(address, need, document) for address in other_indexes):
            raise errors.ReleaseError(
                f"{need.file.name} requires {need}, which is not in the set, and the channel has {lack}:"
                " installers would take one of PyPI, for other GPUs, or find none",
                tip="promote a set that has it first; or name the index that has it: other_indexes of the"
                " policy",
            )


def find_lack(need: Need, document: wheel_set.SetDocument, shown: Sequence[wheel_set.SetDocument]) -> str:
    """Return what sets have instead of what a set needs (``torch 2.9.1, for ROCm 7.0``); "": they have it."""
    platform, pythons = wheel_set.find_set_platform(document), wheel_set.list_wheel_pythons(need.file.name)
    rocm = None if need.file.for_any_rocm else document.rocm_of(need.file)
    missing, versions = set(pythons) or {""}, dict[str, None]()
    for other in shown:
        for file in other.files if wheel_set.find_set_platform(other) == platform else ():
            if file.project != need.project:
                continue
            their_rocm = other.rocm_of(file)
            if rocm and their_rocm and rocm != their_rocm:
                versions[f"{file.version}, for ROCm {their_rocm}"] = None
            elif not need.accepts(file.version):
                versions[file.version] = None
            else:
                missing -= set(_list_served(missing, file.name))
    if not missing:
        return ""
    if versions:
        return f"{need.project} {'; '.join(versions)}"
    listed = ", ".join(sorted(missing - {""}, key=facts.get_python_key))
    return f"none for Python {listed}" if listed else "none"


def find_pip_requirements(
    needs: Sequence[Need] | None, document: wheel_set.SetDocument, shown: Sequence[wheel_set.SetDocument]
) -> tuple[str, ...] | None:
    """Return what pip has to be asked for beside a set, so that it takes what that needs from ``shown`` sets.

    It takes the newest of all indexes, for a range that of PyPI. The newest set that has it is the first of
    those; None: no set has it, or it is not known what is needed.
    """
    named: dict[str, None] = {}
    for need in needs or ():
        if "+" in (metadata.get_exact_version(need.requirement) or ""):
            continue
        found = [other for other in shown if not find_lack(need, document, [other])]
        files = [file for other in found for file in other.files if file.project == need.project]
        versions = [file.version for file in files if need.accepts(file.version)]
        if not versions or "+" not in versions[0]:
            return None
        named[f"{need.project}=={versions[0]}"] = None
    return tuple(named) if needs is not None else None


def _list_served(pythons: Iterable[str], name: str) -> Iterator[str]:
    """Yield the Pythons ("": any will do) that a wheel is for."""
    tags = dist_info.parse_wheel_name(name).tags
    yield from (python for python in pythons if not python or python_tags.accepts_python(tags, python))


def _has_index(address: str, need: Need, document: wheel_set.SetDocument) -> bool:
    """Tell whether an index has what is needed, for the platform and the Pythons of the wheel."""
    if address == support.PYPI_URL:
        return False
    base = reader.resolve_index_url(address)
    platforms = {*PLATFORM_TAGS[wheel_set.find_set_platform(document)], "any"}
    try:
        candidates = resolve_check.find_candidates(base, need.project, (), reader.IndexReader())
    except errors.RocmWheelsError as cause:
        raise errors.ReleaseError(
            f"{need.file.name} requires {need}, and {address} cannot be asked for it"
        ) from cause
    found = [
        candidate.tags
        for candidate in candidates
        if need.accepts(str(candidate.version)) and any(tag.platform in platforms for tag in candidate.tags)
    ]
    pythons = wheel_set.list_wheel_pythons(need.file.name)
    return bool(found) and all(
        any(python_tags.accepts_python(tags, python) for tags in found) for python in pythons
    )
