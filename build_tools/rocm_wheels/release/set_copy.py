"""Have a set lie in a folder of this machine as it lies in its store, to look at it and to install it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.core import errors, log, parallel, tables
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import wheel_set
from rocm_wheels.release.store_paths import FamilyPaths
from rocm_wheels.stores.store import Store

_FETCH_JOBS = 4  # a large file comes in parts


@contextmanager
def open_copy(
    store: Store, document: wheel_set.SetDocument, wheels: Mapping[str, Path] | None = None
) -> Iterator[Path]:
    """Give a folder in which a set lies as in a store: its document, its index, and the files of its wheels.

    It is the store itself where that is a folder. Else a copy, removed in the end: pages as the store gives
    them out, and wheels from ``wheels``, by their sha256, or (None) fetched. Raises ReleaseError for wheels
    of the set that are not among them.
    """
    if store.folder is not None and wheels is None:
        yield store.folder
        return
    if wheels is not None:
        missing = [file.name for file in document.files if file.sha256 not in wheels]
        if missing:
            others = f" and {tables.format_count(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
            raise errors.ReleaseError(
                f"{missing[0]}{others} of {document.id} not among the wheels that were named",
                tip="name the folder of all wheels of the set; without --wheels they are fetched",
            )
    paths = FamilyPaths(document.family)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-set-") as name:
        root = Path(name)
        if wheels is None:
            size = tables.format_size(sum(file.size for file in document.files))
            log.log_note(f"fetching {tables.format_count(len(document.files), 'wheel')}, {size}")

        def bring(file: wheel_set.SetFile) -> None:
            place = root / paths.pool_file(file.sha256, file.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            if wheels is None:
                store.fetch(paths.pool_file(file.sha256, file.name), place)
            else:
                _link(wheels[file.sha256], place)

        parallel.run_in_parallel(bring, document.files, jobs=_FETCH_JOBS)
        texts = [item.path for item in store.listing(paths.set_index(document.id))]
        texts += [paths.pool_file(file.sha256, file.name) + METADATA_SUFFIX for file in document.files]
        for path in (*texts, paths.set_document(document.id)):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            store.fetch(path, root / path)
        yield root


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
