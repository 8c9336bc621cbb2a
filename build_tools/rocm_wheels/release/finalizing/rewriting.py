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
from rocm_wheels.release.finalizing.plan import Change, FinalPlan
from rocm_wheels.release.finalizing.texts import new_texts
from rocm_wheels.release.layout import Places
from rocm_wheels.stores.store import AGAIN, Store
from rocm_wheels.wheels.archive.edits import Edit
from rocm_wheels.wheels.archive.rewrite import rewrite_wheel
from rocm_wheels.wheels.compare import WheelDiff, compare_wheels
from rocm_wheels.wheels.members import WheelArchive, digest_of_file

_MIB = 1 << 20


@dataclass(frozen=True)
class Written:
    """A wheel of the new set: the file, and the members outside its dist-info that are other than before."""

    change: Change
    path: Path
    members: tuple[str, ...] = ()


def write_wheels(store: Store, places: Places, plan: FinalPlan, folder: Path) -> list[Written]:
    """Return the wheels of the new set; what is not in the store's folder is fetched into ``folder``.

    Raises ReleaseError when bytes are not those of the set, for a wheel that would differ in anything that
    was not meant, and before anything is written when the disk has no room for it.
    """
    (folder / "new").mkdir(parents=True, exist_ok=True)
    _require_room(store, plan, folder)
    try:
        return [_written(store, places, change, folder) for change in plan.changes]
    except OSError as failure:
        said = f"cannot write to {folder}: {failure.strerror or failure}"
        raise ReleaseError(
            said, tip=f"free some space, or name another --work-dir; then {AGAIN}"
        ) from failure


def changed_members(source: Path, change: Change) -> dict[str, bytes]:
    """Return the files outside dist-info that a wheel will have in another form."""
    return {} if change.stays else _members(source, change)


def _written(store: Store, places: Places, change: Change, folder: Path) -> Written:
    source = _old(store, places, change, folder)
    if change.stays:
        return Written(change, source)
    members = _members(source, change)
    target = folder / "new" / change.name
    if not target.exists() or _unmeant(source, target, change, members):
        old_build, build = change.builds
        edit = Edit(
            version=change.version,
            build=build if build != old_build else None,
            requirements=change.new_requirements,
            extras=change.kept_extras,
            members=members,
        )
        rewrite_wheel(source, target.parent, edit, replace=True)
        log.note(f"wrote {target.name}")
    if faults := _unmeant(source, target, change, members):
        raise ReleaseError(f"{target} differs from {source.name} in what was not meant: {'; '.join(faults)}")
    return Written(change, target, tuple(members))


def _old(store: Store, places: Places, change: Change, folder: Path) -> Path:
    """Return a wheel of the old set on this machine, with the bytes that were staged."""
    file = change.file
    path = places.file(file.sha256, file.name)
    if store.folder is not None:
        own = store.folder / path
        if not own.is_file() or digest_of_file(own) != file.sha256:
            tip = "put it back from a copy of the store, or stage the wheels again"
            raise ReleaseError(f"{own} is not what was staged", tip=tip)
        return own
    target = _fetched(change, folder)
    if target.exists() and digest_of_file(target) != file.sha256:
        target.unlink()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(path, target)
        if digest_of_file(target) != file.sha256:
            target.unlink()
            raise ReleaseError(f"{store.url_of(path)} is not what was staged", tip=AGAIN)
        log.note(f"fetched {file.name}")
    return target


def _fetched(change: Change, folder: Path) -> Path:
    return folder / "old" / change.file.sha256 / change.file.name


def _members(source: Path, change: Change) -> dict[str, bytes]:
    with WheelArchive.open(source) as archive:
        archive.require_sound()
        texts = {one.name: archive.read(one) for one in archive.members if one.name in change.looked_at}
    try:
        return new_texts(texts, change.project, (change.file.version, change.version), change.rocm)
    except ReleaseError as fault:
        raise ReleaseError(f"{change.file.name}: {fault}", tip="nothing was staged") from None


def _unmeant(source: Path, target: Path, change: Change, members: Mapping[str, bytes]) -> list[str]:
    """Return in what a wheel differs from the old one that was not meant, and what was meant and is not."""
    try:
        found = compare_wheels(source, target)
        with WheelArchive.open(target) as archive:
            archive.require_sound()
            there = {one.name: archive.read(one) for one in archive.members if one.name in members}
    except DataError as damaged:
        return [str(damaged)]
    gone = sorted(old for old, _ in change.requires)
    come = sorted(new for _, new in change.requires if new)
    metadata = {
        "version": ([change.file.version], [change.version]),
        "requires-dist": (gone, come),
        "provides-extra": (sorted(change.extras), []),
    }
    parts = {"version": (change.file.version, change.version), "build": change.builds}
    fields = {name: pair for name, pair in parts.items() if pair[0] != pair[1]}
    meant = WheelDiff(
        fields=fields,
        changed=sorted([*members, *(["*.dist-info/WHEEL"] if "build" in fields else [])]),
        metadata={name: pair for name, pair in metadata.items() if pair[0] != pair[1]},
    )
    faults = [name for name, text in members.items() if there.get(name) != text]
    for name in WheelDiff.__dataclass_fields__:
        said, wanted = _plain(getattr(found, name)), _plain(getattr(meant, name))
        if said != wanted:
            faults.append(f"{name} {said}")
    return faults


def _plain(value: object) -> object:
    """Return a part of a comparison without the order of its lines."""
    if isinstance(value, dict):
        return {
            key: tuple(sorted(one) if isinstance(one, list) else one for one in pair)
            for key, pair in value.items()
        }
    return value


def _require_room(store: Store, plan: FinalPlan, folder: Path) -> None:
    needed = 0
    for change in plan.changes:
        if not change.stays and not (folder / "new" / change.name).exists():
            needed += change.file.size
        if store.folder is None and not _fetched(change, folder).exists():
            needed += change.file.size
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ReleaseError(
            f"{needed // _MIB + 1} MiB are to be written, and {folder} has room for {free // _MIB} MiB",
            tip="free some space, or name a folder on another disk with --work-dir",
        )
