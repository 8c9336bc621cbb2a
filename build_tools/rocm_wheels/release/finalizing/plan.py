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
from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.finalizing.keeping import select_extras, select_files, select_requirements
from rocm_wheels.release.finalizing.requirements import NewVersions, rewrite_requirement
from rocm_wheels.release.finalizing.texts import list_version_files
from rocm_wheels.release.finalizing.versions import (
    FinalizeRequest,
    make_final_version,
    decide_final_versions,
    map_versions,
)
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.sets import SetDocument, SetFile, SetLock
from rocm_wheels.release.staging.belonging import list_lock_projects, find_recipe
from rocm_wheels.sources.lock.file import parse_lock
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels.archive.edits import WheelEdit, get_edited_name
from rocm_wheels.wheels.metadata import WheelMetadata, parse_metadata
from rocm_wheels.wheels.names import split_wheel_name

_READ_JOBS = 8
_PUT_BACK_TIP = "a set never changes: put the file back from a copy of the store, or stage the wheels again"


@dataclass(frozen=True)
class WheelChange:
    """A wheel and what becomes of it: its version and name, and the requirements that change (old, new).

    A requirement that goes has "" as its new one; ``extras`` are those that go. ``rocm`` are the old and the
    new ROCm, where that is renamed; ``version_files`` the members that may hold a version. A wheel that stays has
    its own version and name.
    """

    file: SetFile
    version: str
    name: str
    requires: tuple[tuple[str, str], ...]
    rocm: tuple[str, str] | None
    project: Project
    rewrite_requirement_text: Callable[[str], str]
    extras: tuple[str, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether it is in the new set as it is."""
        return self.name == self.file.name

    def rewrite_requirements(self, old: Sequence[str]) -> list[str]:
        """Return the requirements of the new wheel."""
        dropped = {text for text, new in self.requires if not new}
        return [self.rewrite_requirement_text(text) for text in old if text not in dropped]

    def select_extras(self, old: Sequence[str]) -> list[str]:
        """Return the extras of the new wheel."""
        return [extra for extra in old if extra not in self.extras]

    @property
    def build_tags(self) -> tuple[str, str]:
        """The old and the new build tag; "": none."""
        return split_wheel_name(self.file.name).build, split_wheel_name(self.name).build

    @property
    def version_files(self) -> tuple[str, ...]:
        """The members that may hold a version."""
        return () if self.stays else list_version_files(self.project)


@dataclass(frozen=True)
class FinalPlan:
    """A set that is to be finalized: its wheels, its locks, and the version of the new one.

    ``renamed`` says what the ROCm of each lock is called in the new set, ``targets`` those that it is for,
    where it is for fewer, and ``left_out`` the wheels that it has not.
    """

    document: SetDocument
    changes: tuple[WheelChange, ...]
    locks: tuple[Lock, ...]
    renamed: Mapping[str, str]
    version: str
    targets: tuple[str, ...] = ()
    left_out: tuple[SetFile, ...] = ()


def plan_finalize(
    store: Store, paths: FamilyPaths, document: SetDocument, request: FinalizeRequest
) -> FinalPlan:
    """Return what is to be written. Only METADATA and locks are read.

    Raises ReleaseError that lists each wheel of which it is not clear what it becomes, or that would not fit
    the others.
    """
    files = select_files(document, request.targets)
    kept_document = document.model_copy(update={"files": files})
    versions = decide_final_versions(kept_document, request)
    new_versions = map_versions(kept_document, versions)
    locks = run_in_parallel(
        lambda item: _read_set_lock(store, paths, document, item), document.sources, jobs=_READ_JOBS
    )
    projects = list({item.name: item for lock in locks for item in list_lock_projects(lock)}.values())
    metadata = run_in_parallel(lambda file: _read_metadata(store, paths, file), files, jobs=_READ_JOBS)
    changes, faults = list[WheelChange](), list[str]()
    for file, wheel_metadata in zip(files, metadata, strict=True):
        built = document.rocm_of(file) or ""
        rocm = (built, request.rocm[built]) if built in request.rocm else None
        try:
            changes.append(
                _plan_change(file, wheel_metadata, versions[file.name], new_versions, rocm, projects, request)
            )
        except ReleaseError as fault:
            faults.append(f"{file.name}: {fault}")
    if faults:
        raise ReleaseError("\n".join(faults), tip="nothing was written")
    if all(item.stays for item in changes) and len(files) == len(document.files):
        raise ReleaseError(f"all wheels of {document.id} stay as they are: there is nothing to finalize")
    torch = next((item.version for item in changes if item.file.project == "torch"), None)
    version = torch or (
        document.version if request.same_versions else make_final_version(Version(document.version))
    )
    left_out = tuple(file for file in document.files if file not in files)
    renamed = _rename_rocms(document, locks, request)
    used = {file.lock for file in files}
    kept_locks = tuple(
        lock
        for lock, source in zip(locks, document.sources, strict=True)
        if source.digest in used or document.lock is not None
    )
    return FinalPlan(document, tuple(changes), kept_locks, renamed, version, request.targets, left_out)


def _rename_rocms(
    document: SetDocument, locks: Sequence[Lock], request: FinalizeRequest
) -> Mapping[str, str]:
    """Return what the ROCm of each lock is called in the new set; the old one may have renamed it before."""
    called = [document.rocm] if document.lock is not None else [set_lock.rocm for set_lock in document.locks]
    return {
        lock.rocm: request.rocm.get(now, now)
        for lock, now in zip(locks, called, strict=True)
        if lock.rocm is not None and now is not None
    }


def _plan_change(  # noqa: PLR0917 - all that is known of one wheel
    file: SetFile,
    metadata: WheelMetadata,
    version: str,
    new_versions: NewVersions,
    rocm: tuple[str, str] | None,
    projects: Sequence[Project],
    request: FinalizeRequest,
) -> WheelChange:
    project = find_recipe(file.project, projects)
    if project is None:
        raise ReleaseError(f"nothing in the locks of the set builds {file.project}")

    def move(text: str) -> str:
        return rewrite_requirement(text, new_versions, {Version(rocm[0]): Version(rocm[1])} if rocm else {})

    def become(text: str) -> str:
        return move(text) if select_requirements([text], request.targets) else ""

    pairs = tuple((text, new) for text in metadata.requires_dist if (new := become(text)) != text)
    extras_kept = select_extras(metadata.provides_extra, request.targets)
    extras = tuple(extra for extra in metadata.provides_extra if extra not in extras_kept)
    same_version = Version(version) == Version(file.version)
    if same_version and any(new for _, new in pairs):
        replaced = ", ".join(old for old, new in pairs if new)
        say = f"say --to {file.project}=VERSION in the place of --keep"
        raise ReleaseError(f"it stays, and requires {replaced}, which the new set has not: {say}")
    if same_version and not pairs and not extras:
        return WheelChange(file, version, file.name, (), rocm, project, move)
    if same_version and not request.build:
        raise ReleaseError(
            "it would lose requirements on what is left out and keep its name, which belongs to its bytes: "
            "say --build-tag 1"
        )
    name = get_edited_name(file.name, WheelEdit(version=version, build=request.build or None))
    return WheelChange(file, version, name, pairs, rocm, project, move, extras)


def _read_set_lock(store: Store, paths: FamilyPaths, document: SetDocument, set_lock: SetLock) -> Lock:
    path = f"{paths.set_folder(document.id)}/{set_lock.path}"
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != set_lock.digest:
        raise ReleaseError(
            f"{store.url_of(path)} is not the lock that the set was staged with", tip=_PUT_BACK_TIP
        )
    return parse_lock(content.decode(), name=store.url_of(path))


def _read_metadata(store: Store, paths: FamilyPaths, file: SetFile) -> WheelMetadata:
    path = paths.wheel_file(file.sha256, file.name) + METADATA_SUFFIX
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != file.metadata_sha256:
        raise ReleaseError(f"{store.url_of(path)} is not that of the set", tip=_PUT_BACK_TIP)
    return parse_metadata(content, name=store.url_of(path))
