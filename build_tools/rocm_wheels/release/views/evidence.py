"""Evidence of released sets goes where they are: who reads the release area alone sees what they stand on.

Files of evidence are only ever created, and their names hold the hash of what they say: a name that is
there is the same evidence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping

from rocm_wheels.parallel import each
from rocm_wheels.release.evidence import parse_evidence
from rocm_wheels.release.layout import Places
from rocm_wheels.stores.store import Exists, Store

_JOBS = 8
_SUFFIX = ".json"


def evidence_names(store: Store, places: Places) -> dict[str, set[str]]:
    """Return the ids of all evidence in an area, by set: one listing."""
    folder = f"{places.root}/{places.layout.evidence}/"
    found: dict[str, set[str]] = {}
    for listed in store.listing(folder.rstrip("/")):
        set_id, _, name = listed.path.removeprefix(folder).partition("/")
        if name.endswith(_SUFFIX):
            found.setdefault(set_id, set()).add(name.removesuffix(_SUFFIX))
    return found


def bring_evidence(
    store: Store,
    staging: Places,
    release: Places,
    there: Mapping[str, Container[str]],
    wanted: Mapping[str, set[str]],
) -> int:
    """Copy what is ``wanted`` and not ``there`` (ids, by set), and return how much that was.

    All is read before anything is copied: DataError for evidence that was changed, or cannot be read.
    """
    new = [
        (f"{staging.evidence(one)}/{name}{_SUFFIX}", f"{release.evidence(one)}/{name}{_SUFFIX}", name)
        for one in sorted(wanted)
        for name in sorted(wanted[one])
        if name not in there.get(one, ())
    ]

    def read(pair: tuple[str, str, str]) -> None:
        parse_evidence(store.read(pair[0]).content, where=store.url_of(pair[0]), name=pair[2])

    def copy(pair: tuple[str, str, str]) -> None:
        with contextlib.suppress(Exists):  # somebody else does the same
            store.copy(pair[0], pair[1])

    each(read, new, jobs=_JOBS)
    each(copy, new, jobs=_JOBS)
    return len(new)
