"""Evidence of released sets goes where they are: who reads the release area alone sees what they stand on.

Files of evidence are only ever created, and their names hold the hash of what they say: a name that is
there is the same evidence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping

from rocm_wheels.parallel import run_in_parallel
from rocm_wheels.release.evidence import parse_evidence
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.stores.store import AlreadyInStoreError, Store

_COPY_JOBS = 8
_EVIDENCE_FILE_SUFFIX = ".json"


def list_evidence_ids(store: Store, paths: FamilyPaths) -> dict[str, set[str]]:
    """Return the ids of all evidence in an area, by set: one listing."""
    folder = f"{paths.family_folder}/{paths.layout.evidence}/"
    ids_by_set: dict[str, set[str]] = {}
    for listed in store.listing(folder.rstrip("/")):
        set_id, _, name = listed.path.removeprefix(folder).partition("/")
        if name.endswith(_EVIDENCE_FILE_SUFFIX):
            ids_by_set.setdefault(set_id, set()).add(name.removesuffix(_EVIDENCE_FILE_SUFFIX))
    return ids_by_set


def copy_evidence(
    store: Store,
    staging: FamilyPaths,
    release: FamilyPaths,
    present: Mapping[str, Container[str]],
    needed: Mapping[str, set[str]],
) -> int:
    """Copy what is ``needed`` and not ``present`` (ids, by set), and return how much that was.

    All is read before anything is copied: DataError for evidence that was changed, or cannot be read.
    """
    new = [
        (
            f"{staging.evidence_folder(set_id)}/{name}{_EVIDENCE_FILE_SUFFIX}",
            f"{release.evidence_folder(set_id)}/{name}{_EVIDENCE_FILE_SUFFIX}",
            name,
        )
        for set_id in sorted(needed)
        for name in sorted(needed[set_id])
        if name not in present.get(set_id, ())
    ]

    def read(pair: tuple[str, str, str]) -> None:
        parse_evidence(store.read(pair[0]).content, where=store.url_of(pair[0]), name=pair[2])

    def copy(pair: tuple[str, str, str]) -> None:
        with contextlib.suppress(AlreadyInStoreError):  # somebody else does the same
            store.copy(pair[0], pair[1])

    run_in_parallel(read, new, jobs=_COPY_JOBS)
    run_in_parallel(copy, new, jobs=_COPY_JOBS)
    return len(new)
