"""Hash the wheels of a set as the store gives them out, once in a command.

A path holds the sha256 of its wheel, and a bucket keeps with a file the one that its writer stated: neither
is computed from the bytes by anybody but whoever wrote them, and S3 computes none of a file that came in
parts. So the bytes are read. What was read is read again when its size, tag or the time of the last write are
others, which a store's server or this system sets and no writer can, and where it was written a moment ago: a
second write in the same tick of that clock would not show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rocm_wheels.core import log, parallel, tables
from rocm_wheels.release import store_paths, verdict, wheel_set
from rocm_wheels.release.verdict import reason
from rocm_wheels.stores.store import ChangedInStoreError, NotInStoreError, Store, StoredFileInfo

_SETTLED_SECONDS = 2.0  # S3 keeps times of whole seconds, and some file systems do
_LARGE = 256 << 20  # bytes that take so long to read that people are told


@dataclass
class StoredDigests:
    """What was read of wheels in a store. ``clock`` returns seconds since the epoch (``time.time``)."""

    clock: Callable[[], float] = time.time
    _read: dict[str, tuple[StoredFileInfo, str]] = field(default_factory=dict)  # info and sha256, by path

    def list_wheel_faults(
        self, store: Store, paths: store_paths.FamilyPaths, document: wheel_set.SetDocument
    ) -> list[verdict.Reason]:
        """Return which wheels of a set are gone or have other bytes than its document says, and how."""
        wheels = [(file, paths.pool_file(file.sha256, file.name)) for file in document.files]
        infos = parallel.run_in_parallel(lambda wheel: store.head(wheel[1]), wheels)
        unread = [
            file.size
            for (file, path), info in zip(wheels, infos, strict=True)
            if info is not None and self._recall(path, info) is None
        ]
        if sum(unread) >= _LARGE:
            count = tables.format_count(len(unread), "wheel")
            log.log_note(f"reading {count} of {document.id}, {tables.format_size(sum(unread))}")

        def find_fault(item: tuple[wheel_set.SetFile, str, StoredFileInfo | None]) -> verdict.Reason | None:
            file, path, info = item
            if info is None:
                return reason("gone", file=file.name)
            if info.size != file.size:
                return reason("other-size", file=file.name, size=info.size, expected=file.size)
            sha256, begun = self._recall(path, info), self.clock()
            if sha256 is None:
                try:
                    sha256 = store.digest(path)
                except NotInStoreError:
                    return reason("gone", file=file.name)
                except ChangedInStoreError:
                    return reason("changing", file=file.name)
                if store.head(path) != info:  # the tag may be that of other bytes than were read
                    return reason("changing", file=file.name)
                if info.changed is not None and begun - info.changed > _SETTLED_SECONDS:
                    self._read[path] = info, sha256
            return None if sha256 == file.sha256 else reason("other-bytes", file=file.name, sha256=sha256)

        looked = [(file, path, info) for (file, path), info in zip(wheels, infos, strict=True)]
        faults = parallel.run_in_parallel(find_fault, looked)
        return [fault for fault in faults if fault is not None]

    def _recall(self, path: str, info: StoredFileInfo) -> str | None:
        """Return the sha256 of a file as it was read before, None where it may be another one now."""
        before, sha256 = self._read.get(path, (None, ""))
        return sha256 if before == info else None
