"""Each wheel of a set, old and new: by the set's document and the METADATA beside the wheels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.model.lock import Lock
from rocm_wheels.model.project import Project
from rocm_wheels.parallel import each
from rocm_wheels.release.finalizing.keeping import kept_extras, kept_files, kept_requirements
from rocm_wheels.release.finalizing.requirements import Moved, moved_requirement
from rocm_wheels.release.finalizing.texts import files_with_versions
from rocm_wheels.release.finalizing.versions import Wishes, final_version, final_versions, moved_versions
from rocm_wheels.release.layout import Places
from rocm_wheels.release.sets import SetDocument, SetFile, SetLock
from rocm_wheels.release.staging.belonging import projects_of, recipe_of
from rocm_wheels.sources.lock.file import parse_lock
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.archive.edits import Edit, edited_name
from rocm_wheels.wheels.metadata import WheelMetadata, parse_metadata
from rocm_wheels.wheels.names import split_wheel_name

_JOBS = 8
_PUT_BACK = "a set never changes: put the file back from a copy of the store, or stage the wheels again"


@dataclass(frozen=True)
class Change:
    """A wheel and what becomes of it: its version and name, and the requirements that change (old, new).

    A requirement that goes has "" as its new one; ``extras`` are those that go. ``rocm`` are the old and the
    new ROCm, where that is renamed; ``looked_at`` the members that may hold a version. A wheel that stays has
    its own version and name.
    """

    file: SetFile
    version: str
    name: str
    requires: tuple[tuple[str, str], ...]
    rocm: tuple[str, str] | None
    project: Project
    move: Callable[[str], str]
    extras: tuple[str, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether it is in the new set as it is."""
        return self.name == self.file.name

    def new_requirements(self, old: Sequence[str]) -> list[str]:
        """Return the requirements of the new wheel."""
        gone = {text for text, new in self.requires if not new}
        return [self.move(text) for text in old if text not in gone]

    def kept_extras(self, old: Sequence[str]) -> list[str]:
        """Return the extras of the new wheel."""
        return [extra for extra in old if extra not in self.extras]

    @property
    def builds(self) -> tuple[str, str]:
        """The old and the new build tag; "": none."""
        return split_wheel_name(self.file.name).build, split_wheel_name(self.name).build

    @property
    def looked_at(self) -> tuple[str, ...]:
        """The members that may hold a version."""
        return () if self.stays else files_with_versions(self.project)


@dataclass(frozen=True)
class FinalPlan:
    """A set that is to be finalized: its wheels, its locks, and the version of the new one.

    ``renamed`` says what the ROCm of each lock is called in the new set, ``targets`` those that it is for,
    where it is for fewer, and ``left_out`` the wheels that it has not.
    """

    document: SetDocument
    changes: tuple[Change, ...]
    locks: tuple[Lock, ...]
    renamed: Mapping[str, str]
    version: str
    targets: tuple[str, ...] = ()
    left_out: tuple[SetFile, ...] = ()


def plan_final(store: Store, places: Places, document: SetDocument, wishes: Wishes) -> FinalPlan:
    """Return what is to be written. Only METADATA and locks are read.

    Raises ReleaseError that lists each wheel of which it is not clear what it becomes, or that would not fit
    the others.
    """
    files = kept_files(document, wishes.targets)
    kept = document.model_copy(update={"files": files})
    versions = final_versions(kept, wishes)
    moved = moved_versions(kept, versions)
    locks = each(lambda one: _lock(store, places, document, one), document.sources, jobs=_JOBS)
    projects = list({one.name: one for lock in locks for one in projects_of(lock)}.values())
    metadata = each(lambda file: _metadata(store, places, file), files, jobs=_JOBS)
    changes, faults = list[Change](), list[str]()
    for file, said in zip(files, metadata, strict=True):
        built = document.rocm_of(file) or ""
        rocm = (built, wishes.rocm[built]) if built in wishes.rocm else None
        try:
            changes.append(_change(file, said, versions[file.name], moved, rocm, projects, wishes))
        except ReleaseError as fault:
            faults.append(f"{file.name}: {fault}")
    if faults:
        raise ReleaseError("\n".join(faults), tip="nothing was written")
    if all(one.stays for one in changes) and len(files) == len(document.files):
        raise ReleaseError(f"all wheels of {document.id} stay as they are: there is nothing to finalize")
    torch = next((one.version for one in changes if one.file.project == "torch"), None)
    version = torch or (
        document.version if wishes.same_versions else final_version(Version(document.version))
    )
    left_out = tuple(file for file in document.files if file not in files)
    renamed = _renamed(document, locks, wishes)
    used = {file.lock for file in files}
    kept_locks = tuple(
        lock
        for lock, source in zip(locks, document.sources, strict=True)
        if source.digest in used or document.lock is not None
    )
    return FinalPlan(document, tuple(changes), kept_locks, renamed, version, wishes.targets, left_out)


def _renamed(document: SetDocument, locks: Sequence[Lock], wishes: Wishes) -> Mapping[str, str]:
    """Return what the ROCm of each lock is called in the new set; the old one may have renamed it before."""
    called = [document.rocm] if document.lock is not None else [one.rocm for one in document.locks]
    return {
        lock.rocm: wishes.rocm.get(now, now)
        for lock, now in zip(locks, called, strict=True)
        if lock.rocm is not None and now is not None
    }


def _change(  # noqa: PLR0917 - all that is known of one wheel
    file: SetFile,
    said: WheelMetadata,
    version: str,
    moved: Moved,
    rocm: tuple[str, str] | None,
    projects: Sequence[Project],
    wishes: Wishes,
) -> Change:
    project = recipe_of(file.project, projects)
    if project is None:
        raise ReleaseError(f"nothing in the locks of the set builds {file.project}")

    def move(text: str) -> str:
        return moved_requirement(text, moved, {Version(rocm[0]): Version(rocm[1])} if rocm else {})

    def become(text: str) -> str:
        return move(text) if kept_requirements([text], wishes.targets) else ""

    pairs = tuple((text, new) for text in said.requires_dist if (new := become(text)) != text)
    kept = kept_extras(said.provides_extra, wishes.targets)
    extras = tuple(extra for extra in said.provides_extra if extra not in kept)
    same_version = Version(version) == Version(file.version)
    if same_version and any(new for _, new in pairs):
        gone = ", ".join(old for old, new in pairs if new)
        say = f"say --to {file.project}=VERSION in the place of --keep"
        raise ReleaseError(f"it stays, and requires {gone}, which the new set has not: {say}")
    if same_version and not pairs and not extras:
        return Change(file, version, file.name, (), rocm, project, move)
    if same_version and not wishes.build:
        raise ReleaseError(
            "it would lose requirements on what is left out and keep its name, which belongs to its bytes: "
            "say --build-tag 1"
        )
    name = edited_name(file.name, Edit(version=version, build=wishes.build or None))
    return Change(file, version, name, pairs, rocm, project, move, extras)


def _lock(store: Store, places: Places, document: SetDocument, named: SetLock) -> Lock:
    path = f"{places.set_folder(document.id)}/{named.path}"
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != named.digest:
        raise ReleaseError(
            f"{store.url_of(path)} is not the lock that the set was staged with", tip=_PUT_BACK
        )
    return parse_lock(content.decode(), name=store.url_of(path))


def _metadata(store: Store, places: Places, file: SetFile) -> WheelMetadata:
    path = places.file(file.sha256, file.name) + METADATA_SUFFIX
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != file.metadata_sha256:
        raise ReleaseError(f"{store.url_of(path)} is not that of the set", tip=_PUT_BACK)
    return parse_metadata(content, name=store.url_of(path))
