"""Stage a set: write it to the store in an order in which a run that ends anywhere has done no harm.

1. ``begun.json``: when the set was begun, which pages and document repeat: a second run makes the same
   bytes
2. the bytes of the wheels, each at the place that its sha256 says; what is there is not sent again
3. the lock and the pages, which nobody has a link to yet
4. the names: from here on each belongs to its bytes
5. a look at all of it in the store
6. ``set.json``: the set is there

Of a set that is there, what the store has lost since is sent again, and nothing else is touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.core import (
    RUN_AGAIN_TIP,
    AlreadyInStoreError,
    NotInStoreError,
    ReleaseError,
    Store,
    create_or_read,
    format_count,
    log_note,
    log_warning,
    put_file,
    run_in_parallel,
    size_of_content,
)
from rocm_wheels.release.stage_plan import StagePlan
from rocm_wheels.release.wheel_set import SetDocument, parse_set

STAGE_JOBS = 8
_SEND_JOBS = 4  # a large file goes in parts, several at a time
_MOST_NAMES_SHOWN = 10


@dataclass(frozen=True)
class StagedSet:
    """What became of it: how many files were sent and how many were there, and the bytes that were sent."""

    document: SetDocument
    sent: int
    already_there: int
    sent_bytes: int
    new: bool  # the set was not visible before


@dataclass(frozen=True)
class MissingFiles:
    """What a store has not yet of the wheels: paths with what belongs there."""

    files: tuple[tuple[str, bytes | Path], ...]
    already_there: int

    @property
    def size(self) -> int:
        """The bytes that are to be sent."""
        return sum(size_of_content(content) for _, content in self.files)


def find_missing_files(store: Store, plan: StagePlan) -> MissingFiles:
    """Return which wheels are to be sent. Raises ReleaseError for names that belong to other bytes."""
    refuse_taken_names(store, plan)
    files = list(plan.list_files().items())
    presence = run_in_parallel(lambda item: _has_file(store, *item), files, jobs=STAGE_JOBS)
    missing = tuple(item for item, present in zip(files, presence, strict=True) if not present)
    return MissingFiles(missing, len(files) - len(missing))


def stage_set(store: Store, plan: StagePlan, *, now: str) -> StagedSet:
    """Stage a set: what is there already stays, and the set is visible when this returns.

    Raises ReleaseError; the same call carries on afterwards.
    """
    path = plan.paths.set_document(plan.document.id)
    if (visible := _read_visible_set(store, path)) is not None:
        return _put_back(
            store, plan, _require_same_set(visible, plan.finish_document(visible.created), store.url_of(path))
        )
    missing = find_missing_files(store, plan)
    begun_at = _begin_set(store, plan, now)
    _create_files(store, plan, missing)
    for item in plan.make_pages(begun_at).items():
        put_file(store, *item)
    _claim_names(store, plan)
    _verify_files(store, plan, {**plan.list_files(), **plan.make_pages(begun_at)})
    document = plan.finish_document(begun_at)
    new = _publish_document(store, path, document)
    return StagedSet(document, len(missing.files), missing.already_there, missing.size, new)


def _put_back(store: Store, plan: StagePlan, document: SetDocument) -> StagedSet:
    """Send again what is gone of a set that is there; its pages were seen, so none of them is replaced."""
    missing = find_missing_files(store, plan)
    pages = list(plan.make_pages(document.created).items())
    presence = run_in_parallel(lambda item: store.head(item[0]) is not None, pages, jobs=STAGE_JOBS)
    lost_pages = [item for item, present in zip(pages, presence, strict=True) if not present]
    if missing.files or lost_pages:
        log_warning(
            f"{document.id} has lost "
            f"{format_count(len(missing.files) + len(lost_pages), 'file')}: sending again"
        )
    _create_files(store, plan, missing)
    for item in lost_pages:
        put_file(store, *item)
    _claim_names(store, plan)
    _verify_files(store, plan, dict([*missing.files, *lost_pages]))
    return StagedSet(document, len(missing.files), missing.already_there, missing.size, False)


def refuse_taken_names(store: Store, plan: StagePlan) -> None:
    """Raise ReleaseError for names that belong to other bytes: what is published is never replaced."""

    def taken(claim: tuple[str, str]) -> bool:
        name, sha256 = claim
        try:
            return store.read(plan.paths.name_claim(name)).content.decode().strip() != sha256
        except NotInStoreError:
            return False

    claims = [(wheel.file.name, wheel.file.sha256) for wheel in plan.wheels]
    taken_names = [
        name
        for (name, _), is_taken in zip(claims, run_in_parallel(taken, claims, jobs=STAGE_JOBS), strict=True)
        if is_taken
    ]
    if taken_names:
        raise _make_taken_error(taken_names, plan)


def _make_taken_error(names: list[str], plan: StagePlan) -> ReleaseError:
    rest_note = f" and {len(names) - _MOST_NAMES_SHOWN} more" if len(names) > _MOST_NAMES_SHOWN else ""
    advice = f"a build tag and stage those: rocm-wheels wheel retag --build 1 --output-dir NEW {names[0]}"
    if plan.document.origin is not None:  # they were made by us, and are gone soon
        advice = "a build tag: finalize with --build-tag 1, or stage what you retag (rocm-wheels wheel retag)"
    return ReleaseError(
        (
            f"{plan.paths.family} has other bytes under the same name: "
            f"{', '.join(names[:_MOST_NAMES_SHOWN])}{rest_note}"
        ),
        tip="a name belongs to its bytes for good, for they are in people's lock files; give the new wheels "
        + advice,
    )


def _has_file(store: Store, path: str, content: bytes | Path) -> bool:
    """Tell whether a file is there: the path says which bytes, so its size is enough until the last look."""
    info = store.head(path)
    return info is not None and info.size == size_of_content(content)


def _read_visible_set(store: Store, path: str) -> SetDocument | None:
    try:
        return parse_set(store.read(path).content, where=store.url_of(path))
    except NotInStoreError:
        return None


def _require_same_set(staged: SetDocument, expected: SetDocument, where: str) -> SetDocument:
    if staged == expected:
        return staged
    differ = [name for name in SetDocument.model_fields if getattr(staged, name) != getattr(expected, name)]
    raise ReleaseError(
        f"{where} is staged already, with another {', '.join(differ)}",
        tip=f"a set that is there never changes; its wheels have these very bytes: go on with {staged.id}",
    )


def _begin_set(store: Store, plan: StagePlan, now: str) -> str:
    """Return when the set was begun, by whoever was first."""
    path = f"{plan.paths.set_folder(plan.document.id)}/begun.json"
    content = (json.dumps({"when": now}) + "\n").encode()
    try:
        store.create(path, content)
    except AlreadyInStoreError:
        stored = store.read(path)
        try:
            return str(json.loads(stored.content)["when"])
        except (ValueError, LookupError, TypeError):  # half of it, where a write is not one step
            store.replace(path, content, stored.tag)
    return now


def _create_files(store: Store, plan: StagePlan, missing: MissingFiles) -> None:
    """Write the files that nobody writes with other bytes, several at a time."""
    digests = _digests_by_path(plan)
    run_in_parallel(
        lambda item: _create_file(store, *item, digests.get(item[0])), missing.files, jobs=_SEND_JOBS
    )


def _create_file(store: Store, path: str, content: bytes | Path, sha256: str | None) -> None:
    """Write a file; one that is there meanwhile is looked at later."""
    if store.looks_first and not store.conditional:
        store.remove(path)  # half of it, where a write is not one step, and by nobody else at work
    try:
        store.create(path, content, sha256=sha256)
    except AlreadyInStoreError:
        log_note(f"{path} was written by another process in the meantime")
    else:
        if isinstance(content, Path):
            log_note(f"sent {content.name}")


def _digests_by_path(plan: StagePlan) -> dict[str, str]:
    """Return the sha256 of the wheels by their paths in the store."""
    return {plan.paths.wheel_file(file.sha256, file.name): file.sha256 for file in plan.document.files}


def _claim_names(store: Store, plan: StagePlan) -> None:
    """Give the names to their bytes, one after the other and sorted: of two who want some, one gets all."""
    for wheel in plan.wheels:
        path = plan.paths.name_claim(wheel.file.name)
        present = create_or_read(store, path, f"{wheel.file.sha256}\n".encode())
        if present is not None and present.decode().strip() != wheel.file.sha256:
            raise _make_taken_error([wheel.file.name], plan)


def _verify_files(store: Store, plan: StagePlan, files: Mapping[str, bytes | Path]) -> None:
    """Compare what the store has with what was sent: the sha256 where it keeps it, else the bytes."""
    digests = _digests_by_path(plan)

    def differs(item: tuple[str, bytes | Path]) -> str | None:
        path, content = item
        is_same = (
            _has_content(store, path, content)
            if isinstance(content, bytes)
            else _has_digest(store, path, digests)
        )
        return None if is_same and _has_file(store, path, content) else path

    if wrong_paths := _sort_failed(run_in_parallel(differs, files.items(), jobs=STAGE_JOBS)):
        raise ReleaseError(
            f"{store.url} has {format_count(len(wrong_paths), 'file')} unlike what was sent: "
            f"{', '.join(wrong_paths[:_MOST_NAMES_SHOWN])}",
            tip=f"remove them from the store, then {RUN_AGAIN_TIP}",
        )


def _has_digest(store: Store, path: str, digests: Mapping[str, str]) -> bool:
    info = store.head(path)
    return info is not None and (info.sha256 or store.digest(path)) == digests[path]


def _has_content(store: Store, path: str, content: bytes) -> bool:
    try:
        return store.read(path).content == content
    except NotInStoreError:
        return False


def _sort_failed(results: Iterable[str | None]) -> list[str]:
    return sorted(path for path in results if path is not None)


def _publish_document(store: Store, path: str, document: SetDocument) -> bool:
    """Write the last file; tell whether we were the one who did."""
    present = create_or_read(store, path, document.to_json())
    if present is None:
        return True
    published = parse_set(present, where=store.url_of(path))
    _require_same_set(published, document, store.url_of(path))
    return False
