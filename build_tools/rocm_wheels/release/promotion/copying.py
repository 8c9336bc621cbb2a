"""A set goes from staging to release: inside the store, and as it was tested.

Wheels are compared by sha256 before and after: that which the store keeps with a file (S3, where the copy
is bound to the source's ETag), else that of the bytes. Pages, METADATA and evidence are always read.
``set.json`` is the last file: until it is there, nothing was released.
"""

from __future__ import annotations

from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import SET, Places
from rocm_wheels.release.sets import SetDocument
from rocm_wheels.release.stores.store import Exists, Missing, Store

_JOBS = 8
_OF_STAGING = {"begun.json", SET}
_Copy = tuple[str, str, str]  # from, to, and the sha256 that it must have ("": that of the source)


def copy_set(store: Store, staging: Places, release: Places, document: SetDocument) -> int:
    """Copy a set and its evidence, and return how many files were new. Raises ReleaseError.

    What is there already stays and is compared; what is there and differs is refused.
    """
    wheels: list[_Copy] = []
    metadata: list[_Copy] = []
    for file in document.files:
        pair = staging.file(file.sha256, file.name), release.file(file.sha256, file.name)
        wheels.append((*pair, file.sha256))
        metadata.append((pair[0] + METADATA_SUFFIX, pair[1] + METADATA_SUFFIX, file.metadata_sha256))
    new = sum(each(lambda one: _copy(store, *one, kept=True), wheels, jobs=_JOBS))
    new += sum(each(lambda one: _copy(store, *one), metadata, jobs=_JOBS))
    new += sum(each(lambda file: _claim(store, release, file.name, file.sha256), document.files, jobs=_JOBS))
    beside = _documents(store, staging, release, document)
    new += sum(each(lambda one: _copy(store, *one), beside, jobs=_JOBS))
    last = staging.document(document.id), release.document(document.id)
    return new + _copy(store, *last, "")


def _documents(store: Store, staging: Places, release: Places, document: SetDocument) -> list[_Copy]:
    """Return the lock, the index and the evidence. Raises ReleaseError for an index with gaps."""
    found: list[_Copy] = []
    folder = staging.set_folder(document.id)
    for listed in store.listing(folder):
        name = listed.path[len(folder) + 1 :]
        if name not in _OF_STAGING:
            found.append((listed.path, f"{release.set_folder(document.id)}/{name}", ""))
    there = {source for source, _, _ in found}
    pages = {"", *(f"{project}/" for project in document.projects)}
    needed = {f"{staging.index(document.id)}/{page}{name}" for page in pages for name in (HTML, JSON)}
    locks = {f"{folder}/{one.path}" for one in document.sources}
    if gone := sorted((needed | locks) - there):
        raise ReleaseError(f"{document.id} has lost files in staging: {', '.join(gone)}", tip=_AGAIN)
    for listed in store.listing(staging.evidence(document.id)):
        name = listed.path.rpartition("/")[2]
        found.append((listed.path, f"{release.evidence(document.id)}/{name}", ""))
    return found


_AGAIN = "a set never changes: put the files back from a copy of the store, or stage the wheels again"


def _copy(store: Store, source: str, target: str, sha256: str, *, kept: bool = False) -> bool:
    """Copy a file unless it is there; tell whether it was not."""
    own = _digest(store, source, kept=kept)
    if sha256 and own != sha256:
        raise ReleaseError(f"{store.url_of(source)} is not what was tested: its sha256 is {own}", tip=_AGAIN)
    new = store.head(target) is None
    if new:
        try:
            store.copy(source, target)
        except Exists:
            new = False
    if (found := _digest(store, target, kept=kept)) != own:
        tip = "somebody else wrote it; what was released is never replaced: look who"
        raise ReleaseError(f"{store.url_of(target)} is not {source}: its sha256 is {found}", tip=tip)
    return new


def _digest(store: Store, path: str, *, kept: bool) -> str:
    if kept:
        found = store.head(path)
        if found is None:
            raise Missing(f"there is no {path} in {store.url}")
        if found.sha256:
            return found.sha256
    return store.digest(path)


def _claim(store: Store, release: Places, name: str, sha256: str) -> bool:
    """Have a file name belong to its bytes among what is released; tell whether that is new."""
    path = release.name(name)
    if new := store.head(path) is None:
        try:
            store.create(path, f"{sha256}\n".encode())
        except Exists:
            new = False
    if store.read(path).content.decode().strip() != sha256:
        tip = "a name belongs to its bytes for good: give the new wheel a build tag and stage it"
        raise ReleaseError(f"{name} was released with other bytes", tip=tip)
    return new
