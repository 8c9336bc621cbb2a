"""Wheels fetched, written anew, and compared with the old: nothing differs but what was meant.

What is finished in the folder stays for the next run: each wheel is there whole, and is looked at again.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import DataError, ReleaseError
from rocm_wheels.release.finalizing.plan import WheelChange, FinalPlan
from rocm_wheels.release.finalizing.texts import rewrite_version_files
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.stores.store import RUN_AGAIN_TIP, Store
from rocm_wheels.wheels.archive.edits import WheelEdit
from rocm_wheels.wheels.archive.rewrite import rewrite_wheel
from rocm_wheels.wheels.compare import WheelDiff, compare_wheels
from rocm_wheels.wheels.members import WheelArchive, hash_file

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class WrittenWheel:
    """A wheel of the new set: the file, and the members outside its dist-info that are other than before."""

    change: WheelChange
    path: Path
    members: tuple[str, ...] = ()


def write_final_wheels(store: Store, paths: FamilyPaths, plan: FinalPlan, folder: Path) -> list[WrittenWheel]:
    """Return the wheels of the new set; what is not in the store's folder is fetched into ``folder``.

    Raises ReleaseError when bytes are not those of the set, for a wheel that would differ in anything that
    was not meant, and before anything is written when the disk has no room for it.
    """
    (folder / "new").mkdir(parents=True, exist_ok=True)
    _require_room(store, plan, folder)
    try:
        return [_write_wheel(store, paths, change, folder) for change in plan.changes]
    except OSError as failure:
        message = f"cannot write to {folder}: {failure.strerror or failure}"
        raise ReleaseError(
            message, tip=f"free some space, or name another --work-dir; then {RUN_AGAIN_TIP}"
        ) from failure


def list_changed_members(source: Path, change: WheelChange) -> dict[str, bytes]:
    """Return the files outside dist-info that a wheel will have in another form."""
    return {} if change.stays else _rewrite_members(source, change)


def _write_wheel(store: Store, paths: FamilyPaths, change: WheelChange, folder: Path) -> WrittenWheel:
    source = _fetch_old_wheel(store, paths, change, folder)
    if change.stays:
        return WrittenWheel(change, source)
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
        )
        rewrite_wheel(source, target.parent, edit, replace=True)
        log.log_note(f"wrote {target.name}")
    if faults := _find_unintended(source, target, change, members):
        raise ReleaseError(f"{target} differs from {source.name} in what was not meant: {'; '.join(faults)}")
    return WrittenWheel(change, target, tuple(members))


def _fetch_old_wheel(store: Store, paths: FamilyPaths, change: WheelChange, folder: Path) -> Path:
    """Return a wheel of the old set on this machine, with the bytes that were staged."""
    file = change.file
    path = paths.wheel_file(file.sha256, file.name)
    if store.folder is not None:
        stored_path = store.folder / path
        if not stored_path.is_file() or hash_file(stored_path) != file.sha256:
            tip = "put it back from a copy of the store, or stage the wheels again"
            raise ReleaseError(f"{stored_path} is not what was staged", tip=tip)
        return stored_path
    target = _path_of_fetched(change, folder)
    if target.exists() and hash_file(target) != file.sha256:
        target.unlink()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(path, target)
        if hash_file(target) != file.sha256:
            target.unlink()
            raise ReleaseError(f"{store.url_of(path)} is not what was staged", tip=RUN_AGAIN_TIP)
        log.log_note(f"fetched {file.name}")
    return target


def _path_of_fetched(change: WheelChange, folder: Path) -> Path:
    return folder / "old" / change.file.sha256 / change.file.name


def _rewrite_members(source: Path, change: WheelChange) -> dict[str, bytes]:
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        texts = {
            member.name: archive.read(member)
            for member in archive.members
            if member.name in change.version_files
        }
    try:
        return rewrite_version_files(
            texts, change.project, (change.file.version, change.version), change.rocm
        )
    except ReleaseError as fault:
        raise ReleaseError(f"{change.file.name}: {fault}", tip="nothing was staged") from None


def _find_unintended(
    source: Path, target: Path, change: WheelChange, members: Mapping[str, bytes]
) -> list[str]:
    """Return in what a wheel differs from the old one that was not meant, and what was meant and is not."""
    try:
        difference = compare_wheels(source, target)
        with WheelArchive.open(target) as archive:
            archive.require_sound()
            actual_members = {
                member.name: archive.read(member) for member in archive.members if member.name in members
            }
    except DataError as damaged:
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
        changed=sorted([*members, *(["*.dist-info/WHEEL"] if "build" in fields else [])]),
        metadata={name: pair for name, pair in metadata.items() if pair[0] != pair[1]},
    )
    faults = [name for name, text in members.items() if actual_members.get(name) != text]
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
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ReleaseError(
            f"{needed // _MEBIBYTE + 1} MiB are to be written, and {folder} has room for {free // _MEBIBYTE} MiB",
            tip="free some space, or name a folder on another disk with --work-dir",
        )
