"""What ties the wheels of a set together: exact pins, so that no resolver joins wheels of two sets.

With pins the order of pages is all that is needed: a wheel appears after everything that it pins, and
goes before it. Without, no order helps: such sets are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import Places
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.release.stores.store import Store
from rocm_wheels.wheels.metadata import parse_metadata

_JOBS = 16
_SHOWN = 10
_EXTRA = re.compile(r"\bextra\b")
Requires = Mapping[str, Sequence[Requirement]]  # by file name; what needs an extra is left out


def requires_of(store: Store, places: Places, document: SetDocument) -> Requires:
    """Return what the wheels of a set require of each other."""

    def of(file: SetFile) -> list[Requirement]:
        path = places.file(file.sha256, file.name) + METADATA_SUFFIX
        listed = parse_metadata(store.read(path).content, name=path).requires_dist
        known = [Requirement(one) for one in listed]
        return [
            one
            for one in known
            if canonicalize_name(one.name) in document.projects
            and not (one.marker and _EXTRA.search(str(one.marker)))
        ]

    found = each(of, document.files, jobs=_JOBS)
    return {file.name: requires for file, requires in zip(document.files, found, strict=True)}


def require_pins(document: SetDocument, requires: Requires, *, allow: bool = False) -> tuple[str, ...]:
    """Raise ReleaseError for wheels that take another version of a project of their set than the set's.

    With ``allow`` they are returned, one sentence each, to be shown with the set.
    """
    versions = {
        project: {Version(file.version) for file in document.files if file.project == project}
        for project in document.projects
    }
    loose = [
        f"{name} requires {one}"
        for name, listed in requires.items()
        for one in listed
        if not _pinned(one, versions[canonicalize_name(one.name)])
    ]
    if loose and not allow:
        more = f"; and {len(loose) - _SHOWN} more" if len(loose) > _SHOWN else ""
        raise ReleaseError(
            f"wheels of {document.id} are not pinned to it: {'; '.join(loose[:_SHOWN])}{more}",
            tip="installers would join them with wheels of other sets: build them with exact versions (==), "
            "or say --allow-unpinned",
        )
    tied = {str(canonicalize_name(one.name)) for listed in requires.values() for one in listed}
    tied |= {file.project for file in document.files if requires[file.name]}
    alone = [project for project in document.projects if project not in tied]
    if alone and len(document.projects) > 1:
        log.warn(f"nothing ties {', '.join(alone)} to this set: installers choose by version alone")
    return tuple(f"not pinned: {one}" for one in loose)


def _pinned(requirement: Requirement, versions: set[Version]) -> bool:
    for one in requirement.specifier:
        if one.operator in ("==", "===") and not one.version.endswith(".*"):
            try:
                if Version(one.version) in versions:
                    return True
            except InvalidVersion:
                continue
    return False


def refuse_overlaps(document: SetDocument, others: Sequence[SetDocument]) -> None:
    """Raise ReleaseError for wheels that would take the place of others in a set that is still shown.

    A pin is by version: a wheel of the same version, with a build tag, is taken for both sets. That is right
    where the new set is the old one with wheels of one project exchanged, and a mixture everywhere else.
    """
    own = {_key(file): file for file in document.files}
    for other in others:
        changed = {
            file.project
            for file in other.files
            if (ours := own.get(_key(file))) is not None and ours.sha256 != file.sha256
        }
        same = {_key(file) for file in other.files} == set(own)
        if changed and not (same and len(changed) == 1):
            raise ReleaseError(
                f"{document.id} has {', '.join(sorted(changed))} in the same version as {other.id}, with "
                "other bytes: installers would join wheels of both",
                tip=f"demote {other.id} first, or give the new wheels a version of their own",
            )


def _key(file: SetFile) -> tuple[str, Version, str]:
    """Return what an installer chooses by, but for the build tag."""
    fields = file.name.removesuffix(".whl").split("-")
    tags = fields[3:] if fields[2][:1].isdigit() else fields[2:]
    return file.project, Version(file.version), "-".join(tags)


def dependencies_first(documents: Sequence[SetDocument], requires: Requires) -> list[str]:
    """Return the projects of sets so that each comes after all that it requires."""
    needs: dict[str, set[str]] = {}
    for document in documents:
        for file in document.files:
            needed = {str(canonicalize_name(one.name)) for one in requires[file.name]}
            needs.setdefault(file.project, set()).update(needed - {file.project})
    order: dict[str, None] = {}
    seen: set[str] = set()

    def visit(project: str) -> None:
        if project in seen:  # or a circle, in which any order will do: all of it is pinned
            return
        seen.add(project)
        for needed in sorted(needs.get(project, ())):
            visit(needed)
        order[project] = None

    for project in sorted(needs):
        visit(project)
    return list(order)
