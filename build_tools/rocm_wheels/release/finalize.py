"""Finalize a set: make a new set with final versions of one with pre-release versions, and stage it.

Each wheel is planned by the set's document and the METADATA beside it, fetched, written anew, and
compared with the old: nothing differs but what was meant. What is finished in the folder stays for the
next run, and is looked at again. The new set names the old one, and there is no evidence of it yet.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.core import errors, log, parallel, tables
from rocm_wheels.core.files import copy_atomically, hash_file, lock_folder, measure_free_space
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.models.lock import Lock
from rocm_wheels.models.project import Project
from rocm_wheels.package import version_edit
from rocm_wheels.release import (
    final_versions,
    layout,
    set_list,
    set_statements,
    stage,
    staged_wheels,
    wheel_set,
)
from rocm_wheels.release.final_versions import select_extras
from rocm_wheels.sources.lock import parse_lock
from rocm_wheels.stores.store import RUN_AGAIN_TIP, Store
from rocm_wheels.wheels import dist_info, rewrite, sbom, statement
from rocm_wheels.wheels.archive import WheelArchive
from rocm_wheels.wheels.edit import WheelDiff, WheelEdit, compare_wheels, get_edited_name

_READ_JOBS = 8
_STEP = "finalize"  # as the bill of materials of a wheel says it
_PUT_BACK_TIP = "a set never changes: put the file back from a copy of the store, or stage the wheels again"


@dataclass(frozen=True)
class WheelChange:
    """A wheel and what becomes of it: its version and name, and the requirements that change (old, new).

    A requirement that goes has "" as its new one; ``extras`` are those that go. ``rocm`` are the old and the
    new ROCm, where that is renamed; ``version_files`` the members that may hold a version. A wheel that
    stays has its own version and name.
    """

    file: wheel_set.SetFile
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
        return dist_info.split_wheel_name(self.file.name).build, dist_info.split_wheel_name(self.name).build

    @property
    def version_files(self) -> tuple[str, ...]:
        """The members that may hold a version."""
        return () if self.stays else version_edit.list_version_files(self.project)


@dataclass(frozen=True)
class FinalPlan:
    """A set that is to be finalized: its wheels, its locks, and the version of the new one.

    ``renamed`` says what the ROCm of each lock is called in the new set, ``targets`` those that it is for,
    where it is for fewer, and ``left_out`` the wheels that it has not.
    """

    document: wheel_set.SetDocument
    changes: tuple[WheelChange, ...]
    locks: tuple[Lock, ...]
    renamed: Mapping[str, str]
    version: str
    targets: tuple[str, ...] = ()
    left_out: tuple[wheel_set.SetFile, ...] = ()


def plan_finalize(
    store: Store,
    paths: layout.FamilyPaths,
    document: wheel_set.SetDocument,
    request: final_versions.FinalizeRequest,
) -> FinalPlan:
    """Return what is to be written. Only METADATA and locks are read.

    Raises ReleaseError that lists each wheel of which it is not clear what it becomes, or that would not fit
    the others.
    """
    files = final_versions.select_files(document, request.targets)
    kept_document = document.model_copy(update={"files": files})
    versions = final_versions.decide_final_versions(kept_document, request)
    new_versions = final_versions.map_versions(kept_document, versions)
    locks = parallel.run_in_parallel(
        lambda item: read_set_lock(store, paths, document, item), document.locks, jobs=_READ_JOBS
    )
    projects = list(
        {item.name: item for lock in locks for item in staged_wheels.list_lock_projects(lock)}.values()
    )
    metadata = parallel.run_in_parallel(
        lambda file: _read_metadata(store, paths, file), files, jobs=_READ_JOBS
    )
    changes, faults = list[WheelChange](), list[str]()
    for file, wheel_metadata in zip(files, metadata, strict=True):
        built = document.rocm_of(file) or ""
        rocm = (built, request.rocm[built]) if built in request.rocm else None
        try:
            changes.append(
                _plan_change(file, wheel_metadata, versions[file.name], new_versions, rocm, projects, request)
            )
        except errors.ReleaseError as fault:
            faults.append(f"{file.name}: {fault}")
    if faults:
        raise errors.ReleaseError("\n".join(faults), tip="nothing was written")
    if all(item.stays for item in changes) and len(files) == len(document.files):
        raise errors.ReleaseError(
            f"all wheels of {document.id} stay as they are: there is nothing to finalize"
        )
    torch = next((item.version for item in changes if item.file.project == "torch"), None)
    version = torch or (
        document.version
        if request.same_versions
        else final_versions.make_final_version(Version(document.version))
    )
    left_out = tuple(file for file in document.files if file not in files)
    renamed = _rename_rocms(document, locks, request)
    used = {file.lock for file in files}
    kept_locks = tuple(
        lock
        for lock, source in zip(locks, document.locks, strict=True)
        if source.digest in used or len(locks) == 1
    )
    return FinalPlan(document, tuple(changes), kept_locks, renamed, version, request.targets, left_out)


def _rename_rocms(
    document: wheel_set.SetDocument, locks: Sequence[Lock], request: final_versions.FinalizeRequest
) -> Mapping[str, str]:
    """Return what the ROCm of each lock is called in the new set; the old one may have renamed it before."""
    called = [set_lock.rocm or document.rocm for set_lock in document.locks]
    return {
        lock.rocm: request.rocm.get(now, now)
        for lock, now in zip(locks, called, strict=True)
        if lock.rocm is not None and now is not None
    }


def _plan_change(  # noqa: PLR0917 - all that is known of one wheel
    file: wheel_set.SetFile,
    metadata: dist_info.WheelMetadata,
    version: str,
    new_versions: version_edit.NewVersions,
    rocm: tuple[str, str] | None,
    projects: Sequence[Project],
    request: final_versions.FinalizeRequest,
) -> WheelChange:
    project = staged_wheels.find_recipe(file.project, projects)
    if project is None:
        raise errors.ReleaseError(f"nothing in the locks of the set builds {file.project}")

    def move(text: str) -> str:
        return version_edit.rewrite_requirement(
            text, new_versions, {Version(rocm[0]): Version(rocm[1])} if rocm else {}
        )

    def become(text: str) -> str:
        return move(text) if final_versions.select_requirements([text], request.targets) else ""

    pairs = tuple((text, new) for text in metadata.requires_dist if (new := become(text)) != text)
    extras_kept = select_extras(metadata.provides_extra, request.targets)
    extras = tuple(extra for extra in metadata.provides_extra if extra not in extras_kept)
    same_version = Version(version) == Version(file.version)
    if same_version and any(new for _, new in pairs):
        replaced = ", ".join(old for old, new in pairs if new)
        say = f"say --to {file.project}=VERSION in the place of --keep"
        raise errors.ReleaseError(f"it stays, and requires {replaced}, which the new set has not: {say}")
    if same_version and not pairs and not extras:
        return WheelChange(file, version, file.name, (), rocm, project, move)
    if same_version and not request.build:
        raise errors.ReleaseError(
            "it would lose requirements on what is left out and keep its name, which belongs to its bytes: "
            "say --build-tag 1"
        )
    name = get_edited_name(file.name, WheelEdit(version=version, build=request.build or None))
    return WheelChange(file, version, name, pairs, rocm, project, move, extras)


def read_set_lock(
    store: Store, paths: layout.FamilyPaths, document: wheel_set.SetDocument, set_lock: wheel_set.SetLock
) -> Lock:
    """Return a lock of a staged set. Raises ReleaseError for one that is another than the set says."""
    path = f"{paths.set_folder(document.id)}/{set_lock.path}"
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != set_lock.digest:
        raise errors.ReleaseError(
            f"{store.url_of(path)} is not the lock that the set was staged with", tip=_PUT_BACK_TIP
        )
    return parse_lock(content.decode(), name=store.url_of(path))


def _read_metadata(
    store: Store, paths: layout.FamilyPaths, file: wheel_set.SetFile
) -> dist_info.WheelMetadata:
    path = paths.wheel_file(file.sha256, file.name) + METADATA_SUFFIX
    content = store.read(path).content
    if hashlib.sha256(content).hexdigest() != file.metadata_sha256:
        raise errors.ReleaseError(f"{store.url_of(path)} is not that of the set", tip=_PUT_BACK_TIP)
    return dist_info.parse_metadata(content, name=store.url_of(path))


@dataclass(frozen=True)
class WrittenWheel:
    """A wheel of the new set: the file, and the members outside its dist-info that are other than before.

    ``origin`` is it with its statement, which there is where the old wheel had one.
    """

    change: WheelChange
    path: Path
    members: tuple[str, ...] = ()
    origin: statement.WheelOrigin | None = None


def write_final_wheels(
    store: Store, paths: layout.FamilyPaths, plan: FinalPlan, folder: Path
) -> list[WrittenWheel]:
    """Return the wheels of the new set; what is not in the store's folder is fetched into ``folder``.

    Raises ReleaseError when bytes are not those of the set, for a wheel that would differ in anything that
    was not meant, and before anything is written when the disk has no room for it.
    """
    (folder / "new").mkdir(parents=True, exist_ok=True)
    _require_room(store, plan, folder)
    try:
        return [_write_wheel(store, paths, plan.document.id, change, folder) for change in plan.changes]
    except OSError as failure:
        message = f"cannot write to {folder}: {failure.strerror or failure}"
        raise errors.ReleaseError(
            message, tip=f"free some space, or name another --work-dir; then {RUN_AGAIN_TIP}"
        ) from failure


def list_changed_members(source: Path, change: WheelChange) -> dict[str, bytes]:
    """Return the files outside dist-info that a wheel will have in another form."""
    return {} if change.stays else _rewrite_members(source, change)


def _write_wheel(
    store: Store, paths: layout.FamilyPaths, set_id: str, change: WheelChange, folder: Path
) -> WrittenWheel:
    source = _fetch_old_wheel(store, paths, change, folder)
    try:
        origin = set_statements.read_stored_origin(store, paths, set_id, change.file)
    except errors.DataError as fault:
        raise errors.ReleaseError(str(fault), tip=_PUT_BACK_TIP) from fault
    if change.stays:
        return WrittenWheel(change, source, origin=origin)
    members = _rewrite_members(source, change)
    target = folder / "new" / change.name
    if not target.exists() or _find_unintended(source, target, change, members):
        old_build, build = change.build_tags
        edit = WheelEdit(
            version=change.version,
            build=build if build != old_build else None,
            requirements=change.rewrite_requirements,
            extras=change.select_extras,
            members=members,
            step=_STEP,
        )
        rewrite.rewrite_wheel(source, target.parent, edit, replace=True)
        log.log_note(f"wrote {target.name}")
    if faults := _find_unintended(source, target, change, members):
        raise errors.ReleaseError(
            f"{target} differs from {source.name} in what was not meant: {'; '.join(faults)}"
        )
    sha256 = hash_file(target)
    statement.write_step_statement([origin], target, sha256, _STEP)
    return WrittenWheel(change, target, tuple(members), statement.read_origin(target, sha256=sha256))


def _fetch_old_wheel(store: Store, paths: layout.FamilyPaths, change: WheelChange, folder: Path) -> Path:
    """Return a wheel of the old set on this machine, with the bytes that were staged."""
    file = change.file
    path = paths.wheel_file(file.sha256, file.name)
    if store.folder is not None:
        stored_path = store.folder / path
        if not stored_path.is_file() or hash_file(stored_path) != file.sha256:
            tip = "put it back from a copy of the store, or stage the wheels again"
            raise errors.ReleaseError(f"{stored_path} is not what was staged", tip=tip)
        return stored_path
    target = _path_of_fetched(change, folder)
    if target.exists() and hash_file(target) != file.sha256:
        target.unlink()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(path, target)
        if hash_file(target) != file.sha256:
            target.unlink()
            raise errors.ReleaseError(f"{store.url_of(path)} is not what was staged", tip=RUN_AGAIN_TIP)
        log.log_note(f"fetched {file.name}")
    return target


def _path_of_fetched(change: WheelChange, folder: Path) -> Path:
    return folder / "old" / change.file.sha256 / change.file.name


def _rewrite_members(source: Path, change: WheelChange) -> dict[str, bytes]:
    with WheelArchive.open(source) as archive:
        texts = {
            member.name: archive.read(member)
            for member in archive.members
            if member.name in change.version_files
        }
    try:
        return version_edit.rewrite_version_files(
            texts, change.project, (change.file.version, change.version), change.rocm
        )
    except errors.ReleaseError as fault:
        raise errors.ReleaseError(f"{change.file.name}: {fault}", tip="nothing was staged") from None


def _find_unintended(
    source: Path, target: Path, change: WheelChange, members: Mapping[str, bytes]
) -> list[str]:
    """Return in what a wheel differs from the old one that was not meant, and what was meant and is not."""
    try:
        difference = compare_wheels(source, target)
        with WheelArchive.open(target) as archive:
            actual_members = {
                member.name: archive.read(member) for member in archive.members if member.name in members
            }
        old_sbom, new_sbom = (
            rewrite.read_dist_info_files(wheel).get(sbom.SBOM_MEMBER) for wheel in (source, target)
        )
    except errors.DataError as damaged:
        return [str(damaged)]
    dropped = sorted(old for old, _ in change.requires)
    added = sorted(new for _, new in change.requires if new)
    metadata = {
        "version": ([change.file.version], [change.version]),
        "requires-dist": (dropped, added),
        "provides-extra": (sorted(change.extras), []),
    }
    parts = {"version": (change.file.version, change.version), "build": change.build_tags}
    fields = {name: pair for name, pair in parts.items() if pair[0] != pair[1]}
    intended_difference = WheelDiff(
        fields=fields,
        changed=sorted(
            [
                *members,
                *(["*.dist-info/WHEEL"] if "build" in fields else []),
                *([f"*.dist-info/{sbom.SBOM_MEMBER}"] if old_sbom is not None else []),
            ]
        ),
        metadata={name: pair for name, pair in metadata.items() if pair[0] != pair[1]},
    )
    faults = [name for name, text in members.items() if actual_members.get(name) != text]
    if old_sbom is not None and new_sbom != sbom.revise_sbom(old_sbom, version=change.version, step=_STEP):
        faults.append(sbom.SBOM_MEMBER)
    for name in WheelDiff.__dataclass_fields__:
        actual, intended = (
            _sort_lines(getattr(difference, name)),
            _sort_lines(getattr(intended_difference, name)),
        )
        if actual != intended:
            faults.append(f"{name} {actual}")
    return faults


def _sort_lines(value: object) -> object:
    """Return a part of a comparison without the order of its lines."""
    if isinstance(value, dict):
        return {
            key: tuple(sorted(lines) if isinstance(lines, list) else lines for lines in pair)
            for key, pair in value.items()
        }
    return value


def _require_room(store: Store, plan: FinalPlan, folder: Path) -> None:
    needed = 0
    for change in plan.changes:
        if not change.stays and not (folder / "new" / change.name).exists():
            needed += change.file.size
        if store.folder is None and not _path_of_fetched(change, folder).exists():
            needed += change.file.size
    free = measure_free_space(folder)
    if needed > free:
        raise errors.ReleaseError(
            (
                f"{tables.format_size(needed)} are to be written, and {folder} has room for "
                f"{tables.format_size(free)}"
            ),
            tip="free some space, or name a folder on another disk with --work-dir",
        )


@dataclass(frozen=True)
class FinalizedSet:
    """What was made: the wheels, the plan of their set, and what became of it in the store."""

    wheels: tuple[WrittenWheel, ...]
    plan: stage.StagePlan
    staged: stage.StagedSet


def finalize_set(
    store: Store,
    paths: layout.FamilyPaths,
    plan: FinalPlan,
    folder: Path,
    *,
    now: str,
    output: Path | None = None,
) -> FinalizedSet:
    """Write the wheels of a set anew and stage them as a set of their own. The folder is removed then.

    ``output`` is a folder for a copy of all wheels of the new set. Raises ReleaseError; the same call carries
    on afterwards, and one more changes nothing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise errors.ReleaseError(
            f"cannot make {folder}: {failure.strerror}", tip="name another --work-dir"
        ) from failure
    with lock_folder(folder, purpose=f"finalizing {plan.document.id}", error=errors.ReleaseError):
        written = tuple(write_final_wheels(store, paths, plan, folder))
        staged_plan = plan_final_stage(paths, plan, written)
        staged = stage.stage_set(store, staged_plan, now=now)
        set_list.update_listing(store, paths)
        if output is not None:
            for written_wheel in written:
                _copy_wheel(written_wheel, output / written_wheel.change.name)
    shutil.rmtree(folder)  # not while its lock is open: Windows removes no open file
    return FinalizedSet(written, staged_plan, staged)


def _copy_wheel(wheel: WrittenWheel, target: Path) -> None:
    try:
        copy_atomically(wheel.path, target)
        if wheel.origin is not None:
            statement.write_statement(target, wheel.origin.statement, wheel.origin.signature)
    except OSError as failure:
        tip = f"the set is staged; name another --output-dir, then {RUN_AGAIN_TIP}"
        raise errors.ReleaseError(
            f"cannot write {target}: {failure.strerror or failure}", tip=tip
        ) from failure


def plan_final_stage(
    paths: layout.FamilyPaths, plan: FinalPlan, written: tuple[WrittenWheel, ...]
) -> stage.StagePlan:
    """Return the new set as it will be staged: all of it is read and checked as any other."""
    origins = {wheel.path.name: wheel.origin for wheel in written if wheel.origin is not None}
    return stage.plan_stage(
        [written_wheel.path for written_wheel in written],
        plan.locks,
        paths=paths,
        layout=plan.document.layout,
        version=plan.version,
        origin=plan.document.id,
        renamed=plan.renamed,
        targets=plan.targets,
        origins=origins,
    )
