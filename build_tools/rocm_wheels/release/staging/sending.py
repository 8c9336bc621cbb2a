"""The writes of staging, in an order in which a run that ends anywhere has done no harm.

1. ``begun.json``: when the set was begun, which pages and document repeat: a second run makes the same bytes
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

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError
from rocm_wheels.parallel import each
from rocm_wheels.release.sets import SetDocument, parse_set
from rocm_wheels.release.staging.plan import StagePlan
from rocm_wheels.stores.content import content_size
from rocm_wheels.stores.store import AGAIN, Exists, Missing, Store
from rocm_wheels.words import counted

JOBS = 8
_SENDERS = 4  # a large file goes in parts, several at a time
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Staged:
    """What became of it: how many files were sent and how many were there, and the bytes that were sent."""

    document: SetDocument
    sent: int
    had: int
    sent_bytes: int
    new: bool  # the set was not visible before


@dataclass(frozen=True)
class Lacking:
    """What a store has not yet of the wheels: paths with what belongs there."""

    files: tuple[tuple[str, bytes | Path], ...]
    had: int

    @property
    def size(self) -> int:
        """The bytes that are to be sent."""
        return sum(content_size(content) for _, content in self.files)


def lacking(store: Store, plan: StagePlan) -> Lacking:
    """Return which wheels are to be sent. Raises ReleaseError for names that belong to other bytes."""
    refuse_taken_names(store, plan)
    files = list(plan.files().items())
    there = each(lambda item: _has(store, *item), files, jobs=JOBS)
    wanted = tuple(item for item, known in zip(files, there, strict=True) if not known)
    return Lacking(wanted, len(files) - len(wanted))


def send(store: Store, plan: StagePlan, *, now: str) -> Staged:
    """Stage a set: what is there already stays, and the set is visible when this returns.

    Raises ReleaseError; the same call carries on afterwards.
    """
    path = plan.places.document(plan.document.id)
    if (known := _visible(store, path)) is not None:
        return _put_back(store, plan, _same(known, plan.finished(known.created), store.url_of(path)))
    missing = lacking(store, plan)
    begun = _begin(store, plan, now)
    _create_all(store, plan, missing)
    for item in plan.pages(begun).items():
        _put_page(store, *item)
    _claim_names(store, plan)
    _look_at(store, plan, {**plan.files(), **plan.pages(begun)})
    document = plan.finished(begun)
    new = _publish(store, path, document)
    return Staged(document, len(missing.files), missing.had, missing.size, new)


def _put_back(store: Store, plan: StagePlan, document: SetDocument) -> Staged:
    """Send again what is gone of a set that is there; its pages were seen, so none of them is replaced."""
    missing = lacking(store, plan)
    pages = list(plan.pages(document.created).items())
    there = each(lambda item: store.head(item[0]) is not None, pages, jobs=JOBS)
    gone = [item for item, known in zip(pages, there, strict=True) if not known]
    if missing.files or gone:
        log.warn(f"{document.id} has lost {len(missing.files) + len(gone)} files, which are put back")
    _create_all(store, plan, missing)
    for item in gone:
        _put_page(store, *item)
    _claim_names(store, plan)
    _look_at(store, plan, dict([*missing.files, *gone]))
    return Staged(document, len(missing.files), missing.had, missing.size, False)


def refuse_taken_names(store: Store, plan: StagePlan) -> None:
    """Raise ReleaseError for names that belong to other bytes: what is published is never replaced."""

    def taken(claim: tuple[str, str]) -> bool:
        name, sha256 = claim
        try:
            return store.read(plan.places.name(name)).content.decode().strip() != sha256
        except Missing:
            return False

    claims = [(wheel.file.name, wheel.file.sha256) for wheel in plan.wheels]
    found = [name for (name, _), known in zip(claims, each(taken, claims, jobs=JOBS), strict=True) if known]
    if found:
        raise _taken(found, plan)


def _taken(names: list[str], plan: StagePlan) -> ReleaseError:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    how = f"a build tag and stage those: rocm-wheels wheel retag --build 1 --output-dir NEW {names[0]}"
    if plan.document.origin is not None:  # they were made by us, and are gone soon
        how = "a build tag: finalize with --build-tag 1, or stage what you retag (rocm-wheels wheel retag)"
    return ReleaseError(
        f"{plan.places.family} has other bytes under the same name: {', '.join(names[:_MOST_SHOWN])}{more}",
        tip="a name belongs to its bytes for good, for they are in people's lock files; give the new wheels "
        + how,
    )


def _has(store: Store, path: str, content: bytes | Path) -> bool:
    """Tell whether a file is there: the path says which bytes, so its size is enough until the last look."""
    found = store.head(path)
    return found is not None and found.size == content_size(content)


def _visible(store: Store, path: str) -> SetDocument | None:
    try:
        return parse_set(store.read(path).content, where=store.url_of(path))
    except Missing:
        return None


def _same(there: SetDocument, ours: SetDocument, where: str) -> SetDocument:
    if there == ours:
        return there
    differ = [name for name in SetDocument.model_fields if getattr(there, name) != getattr(ours, name)]
    raise ReleaseError(
        f"{where} is staged already, with another {', '.join(differ)}",
        tip=f"a set that is there never changes; its wheels have these very bytes: go on with {there.id}",
    )


def _begin(store: Store, plan: StagePlan, now: str) -> str:
    """Return when the set was begun, by whoever was first."""
    path = f"{plan.places.set_folder(plan.document.id)}/begun.json"
    ours = (json.dumps({"when": now}) + "\n").encode()
    try:
        store.create(path, ours)
    except Exists:
        found = store.read(path)
        try:
            return str(json.loads(found.content)["when"])
        except (ValueError, LookupError, TypeError):  # half of it, where a write is not one step
            store.replace(path, ours, found.tag)
    return now


def _create_all(store: Store, plan: StagePlan, missing: Lacking) -> None:
    """Write the files that nobody writes with other bytes, several at a time."""
    digests = _digests(plan)
    each(lambda item: _create(store, *item, digests.get(item[0])), missing.files, jobs=_SENDERS)


def _create(store: Store, path: str, content: bytes | Path, sha256: str | None) -> None:
    """Write a file; one that is there meanwhile is looked at later."""
    if store.looks_first and not store.conditional:
        store.remove(path)  # half of it, where a write is not one step, and by nobody else at work
    try:
        store.create(path, content, sha256=sha256)
    except Exists:
        log.note(f"{path} was written by somebody else meanwhile")
    else:
        if isinstance(content, Path):
            log.note(f"sent {content.name}")


def _digests(plan: StagePlan) -> dict[str, str]:
    """Return the sha256 of the wheels by their paths in the store."""
    return {plan.places.file(one.sha256, one.name): one.sha256 for one in plan.document.files}


def _put_page(store: Store, path: str, content: bytes) -> None:
    """Write a page; one of other bytes, by another version of this tool, was never seen and makes way."""
    try:
        store.create(path, content)
    except Exists:
        found = store.read(path)
        if found.content != content:
            store.replace(path, content, found.tag)


def _claim_names(store: Store, plan: StagePlan) -> None:
    """Give the names to their bytes, one after the other and sorted: of two who want some, one gets all."""
    for wheel in plan.wheels:
        path = plan.places.name(wheel.file.name)
        try:
            store.create(path, f"{wheel.file.sha256}\n".encode())
        except Exists:
            if store.read(path).content.decode().strip() != wheel.file.sha256:
                raise _taken([wheel.file.name], plan) from None


def _look_at(store: Store, plan: StagePlan, files: Mapping[str, bytes | Path]) -> None:
    """Compare what the store has with what was sent: the sha256 where it keeps it, else the bytes."""
    digests = _digests(plan)

    def differs(item: tuple[str, bytes | Path]) -> str | None:
        path, content = item
        same = _is(store, path, content) if isinstance(content, bytes) else _has_digest(store, path, digests)
        return None if same and _has(store, path, content) else path

    if wrong := _failed(each(differs, files.items(), jobs=JOBS)):
        raise ReleaseError(
            f"{store.url} has {counted(len(wrong), 'file')} unlike what was sent: "
            f"{', '.join(wrong[:_MOST_SHOWN])}",
            tip=f"remove them from the store, then {AGAIN}",
        )


def _has_digest(store: Store, path: str, digests: Mapping[str, str]) -> bool:
    found = store.head(path)
    return found is not None and (found.sha256 or store.digest(path)) == digests[path]


def _is(store: Store, path: str, content: bytes) -> bool:
    try:
        return store.read(path).content == content
    except Missing:
        return False


def _failed(results: Iterable[str | None]) -> list[str]:
    return sorted(path for path in results if path is not None)


def _publish(store: Store, path: str, document: SetDocument) -> bool:
    """Write the last file; tell whether we were the one who did."""
    try:
        store.create(path, document.to_json())
    except Exists:
        found = parse_set(store.read(path).content, where=store.url_of(path))
        _same(found, document, store.url_of(path))
        return False
    return True
