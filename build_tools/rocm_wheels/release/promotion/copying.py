"""A set goes from staging to release: inside the store, and as it was tested.

Wheels are compared by size and sha256 before and after: the sum that the store keeps with a file (S3, where
the copy is bound to the source's ETag, and an ETag itself is no sum of anything that we know), else that of
the bytes. METADATA, locks and evidence are always read, and pages are written anew: they follow from the
document. What was released before was compared then. ``set.json`` is the last file: until it is there,
nothing was released.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection

from rocm_wheels.errors import ReleaseError
from rocm_wheels.index.entries import METADATA_SUFFIX
from rocm_wheels.index.views import HTML, JSON
from rocm_wheels.parallel import each
from rocm_wheels.release.layout import SET, Places
from rocm_wheels.release.pages import index_pages
from rocm_wheels.release.sets import SetDocument, SetFile
from rocm_wheels.stores.store import Exists, Missing, Store

_JOBS = 8
_OF_STAGING = {"begun.json", SET}
_Copy = tuple[str, str, str]  # from, to, and the sha256 that it must have ("": that of the source)


def copy_set(store: Store, staging: Places, release: Places, document: SetDocument) -> int:
    """Copy a set and its evidence, and return how many files were new. Raises ReleaseError.

    What is there already stays and is compared; what is there and differs is refused.
    """
    there = each(lambda file: _is_released(store, release, file), document.files, jobs=_JOBS)
    files = [file for file, known in zip(document.files, there, strict=True) if not known]
    new = sum(each(lambda file: _copy_wheel(store, staging, release, file), files, jobs=_JOBS))
    beside = _documents(store, staging, release, document)
    new += _put_pages(store, release, document)
    folders = release.set_folder(document.id), release.evidence(document.id)
    known = {one.path for folder in folders for one in store.listing(folder)}
    new += sum(each(lambda one: _copy(store, *one, known=known), beside, jobs=_JOBS))
    last = staging.document(document.id), release.document(document.id)
    return new + _copy(store, *last, "", known=known)


def _is_released(store: Store, release: Places, file: SetFile) -> bool:
    """Tell whether a wheel was released, which is compared before its name is taken, and still lies there.

    Raises ReleaseError when its name belongs to other bytes.
    """
    try:
        said = store.read(release.name(file.name)).content
    except Missing:
        return False
    _require_own(file, said)
    path = release.file(file.sha256, file.name)
    found = store.head(path)
    if found is None or found.size != file.size or found.sha256 not in (None, file.sha256):
        return False
    return store.head(path + METADATA_SUFFIX) is not None


def _copy_wheel(store: Store, staging: Places, release: Places, file: SetFile) -> int:
    """Copy a wheel and its METADATA, then have its name belong to it; return how many files were new."""
    source, target = staging.file(file.sha256, file.name), release.file(file.sha256, file.name)
    new = int(_copy(store, source, target, file.sha256, size=file.size))
    new += _copy(store, source + METADATA_SUFFIX, target + METADATA_SUFFIX, file.metadata_sha256)
    path = release.name(file.name)
    try:
        store.create(path, f"{file.sha256}\n".encode())
    except Exists:
        _require_own(file, store.read(path).content)
        return new
    return new + 1


def _require_own(file: SetFile, said: bytes) -> None:
    if said.decode(errors="replace").strip() != file.sha256:
        tip = "a name belongs to its bytes for good: give the new wheel a build tag and stage it"
        raise ReleaseError(f"{file.name} was released with other bytes", tip=tip)


def _put_pages(store: Store, release: Places, document: SetDocument) -> int:
    """Write the pages of a set's own index; once it is released they stay as they are."""
    index, files = release.index(document.id), [(file, document.created) for file in document.files]
    released = store.head(release.document(document.id)) is not None
    there = {one.path for one in store.listing(index)}

    def put(item: tuple[str, bytes]) -> bool:
        path, content = item
        if path not in there:
            with contextlib.suppress(Exists):
                store.create(path, content)
                return True
        if released or (found := store.read(path)).content == content:
            return False
        store.replace(path, content, found.tag)  # by another version of this tool, and nobody has seen it
        return True

    return sum(each(put, index_pages(index, release, files).items(), jobs=_JOBS))


def _documents(store: Store, staging: Places, release: Places, document: SetDocument) -> list[_Copy]:
    """Return the locks, what else lies beside them, and the evidence. Raises ReleaseError for gaps."""
    folder, index = staging.set_folder(document.id), staging.index(document.id)
    locks = {f"{folder}/{one.path}": one.digest for one in document.sources}
    there = [one.path for one in store.listing(folder)]
    pages = {"", *(f"{project}/" for project in document.projects)}
    needed = {f"{index}/{page}{name}" for page in pages for name in (HTML, JSON)}
    if gone := sorted((needed | set(locks)) - set(there)):
        raise ReleaseError(f"{document.id} has lost files in staging: {', '.join(gone)}", tip=_AGAIN)
    found = [
        (path, release.set_folder(document.id) + path[len(folder) :], locks.get(path, ""))
        for path in there
        if path[len(folder) + 1 :] not in _OF_STAGING and not path.startswith(f"{index}/")
    ]
    for listed in store.listing(staging.evidence(document.id)):
        name = listed.path.rpartition("/")[2]
        found.append((listed.path, f"{release.evidence(document.id)}/{name}", ""))
    return found


_AGAIN = "a set never changes: put the files back from a copy of the store, or stage the wheels again"


def _copy(
    store: Store,
    source: str,
    target: str,
    sha256: str,
    *,
    size: int | None = None,
    known: Collection[str] = (),
) -> bool:
    """Copy a file unless it is there (``known`` are); tell whether it was not. ``size``: of a wheel."""
    own = _digest(store, source, size)
    if sha256 and own != sha256:
        raise ReleaseError(f"{store.url_of(source)} is not what was tested: its sha256 is {own}", tip=_AGAIN)
    new = False
    if target not in known:
        with contextlib.suppress(Exists):
            store.copy(source, target)
            new = True
    if (found := _digest(store, target, size)) != own:
        tip = "somebody else wrote it; what was released is never replaced: look who"
        raise ReleaseError(f"{store.url_of(target)} is not {source}: its sha256 is {found}", tip=tip)
    return new


def _digest(store: Store, path: str, size: int | None) -> str:
    """Return the sha256 of a file: of a wheel of the right size, the one that the store keeps, if it does."""
    if size is None:
        return hashlib.sha256(store.read(path).content).hexdigest()
    found = store.head(path)
    if found is None:
        raise Missing(f"there is no {path} in {store.url}")
    return found.sha256 if found.sha256 and found.size == size else store.digest(path)
