"""Whether a store keeps its word: conditional writes are tried once, on a file of no use.

A server may take the conditions and ignore them (s3rver does). Two promoters at a time would both win there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError
from rocm_wheels.stores.store import ChangedInStoreError, AlreadyInStoreError, Store, UnsupportedByStoreError

PROBE_FOLDER = "probe"


def find_broken_promise(store: Store) -> str | None:
    """Return what a store does with conditional writes that it must not, ``None`` when all is well.

    A few small writes below ``probe/``; what they leave is removed.
    """
    if not store.conditional:
        return "it knows no conditional writes"
    path = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
    try:
        tag = store.create(path, b"first")
    except UnsupportedByStoreError as unknown:
        return f"it knows no conditional writes ({unknown})"
    try:
        if not _is_refused(lambda: store.create(path, b"other"), AlreadyInStoreError):
            return "a file is created where there is one (If-None-Match is ignored)"
        new = store.replace(path, b"second", tag)
        if not _is_refused(lambda: store.replace(path, b"third", tag), ChangedInStoreError):
            return "a file is replaced that somebody else has changed (If-Match is ignored)"
        return None if store.read(path).tag == new else "a tag is not that of the file which was written"
    finally:
        store.remove(path)


def _is_refused(write: Callable[[], str], refusal: type[ReleaseError]) -> bool:
    try:
        write()
    except refusal:
        return True
    return False


def require_conditional_writes(store: Store, *, unconditional: bool = False) -> None:
    """Make sure that nobody's write is lost to another's. Raises ReleaseError.

    ``unconditional``: go on without, looking before each write. A folder of this machine is not asked.
    """
    if store.folder is not None:
        return
    broken = find_broken_promise(store)
    if broken is None:
        return
    if not unconditional:
        raise ReleaseError(
            f"{store.url} does not honour conditional writes: {broken}",
            tip="two that write at a time would both succeed; where nobody else does: --unconditional",
        )
    log.log_warning(
        f"{store.url} does not honour conditional writes: see to it that nobody else writes to it now"
    )
    store.looks_first = True
