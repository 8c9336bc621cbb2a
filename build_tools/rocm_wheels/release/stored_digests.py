"""Hash the wheels of a set as the store gives them out, and remember on this machine what was read.

A path holds the sha256 of its wheel, and a bucket keeps with a file the one that its writer stated: neither
is computed from the bytes by anybody but whoever wrote them, and S3 computes none of a file that came in
parts. So the bytes are read, once: what was found is remembered by path, size, tag and the time of the last
write, which a store's server or this system sets and no writer can. A file that was written a moment ago is
not remembered: a second write in the same tick of that clock would not show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from rocm_wheels.core import download, log, parallel, records, tables
from rocm_wheels.core.files import write_atomically
from rocm_wheels.models import lock
from rocm_wheels.release import store_paths, verdict, wheel_set
from rocm_wheels.release.verdict import reason
from rocm_wheels.stores.store import ChangedInStoreError, NotInStoreError, Store, StoredFileInfo

_SETTLED_SECONDS = 2.0  # S3 keeps times of whole seconds, and some file systems do
_LARGE = 256 << 20  # bytes that take so long to read that people are told


class _RememberedDigest(records.Record):
    size: int
    tag: str
    changed: float
    sha256: lock.Sha256Digest


class _DigestRecord(records.Record):
    schema_version: Literal[1] = Field(default=1, alias="schema")
    files: Mapping[str, _RememberedDigest] = {}


@dataclass
class StoredDigests:
    """What was read of wheels in stores. ``folder`` keeps it, a file a set; None: this process alone.

    ``clock`` returns seconds since the epoch, as ``time.time`` does.
    """

    folder: Path | None = None
    clock: Callable[[], float] = time.time
    _remembered: dict[str, _RememberedDigest] = field(default_factory=dict)

    def list_wheel_faults(
        self, store: Store, paths: store_paths.FamilyPaths, document: wheel_set.SetDocument
    ) -> list[verdict.Reason]:
        """Return which wheels of a set are gone or have other bytes than its document says, and how."""
        record = None
        if self.folder is not None:
            name = download.fingerprint_of_url(store.url_of(paths.set_folder(document.id)))
            record = self.folder / f"{name}.json"
        before = self._load(record)
        wheels = [(file, paths.pool_file(file.sha256, file.name)) for file in document.files]
        infos = parallel.run_in_parallel(lambda wheel: store.head(wheel[1]), wheels)
        looked = [(file, path, info) for (file, path), info in zip(wheels, infos, strict=True)]
        unread = [file.size for file, path, info in looked if info and not self._recall(store, path, info)]
        if sum(unread) >= _LARGE:
            count = tables.format_count(len(unread), "wheel")
            log.log_note(f"reading {count} of {document.id}, {tables.format_size(sum(unread))}")
        faults = parallel.run_in_parallel(lambda wheel: self._find_fault(store, *wheel), looked)
        self._keep(record, before, [store.url_of(path) for _, path in wheels])
        return [fault for fault in faults if fault is not None]

    def _find_fault(
        self, store: Store, file: wheel_set.SetFile, path: str, info: StoredFileInfo | None
    ) -> verdict.Reason | None:
        if info is None:
            return reason("gone", file=file.name)
        if info.size != file.size:
            return reason("other-size", file=file.name, size=info.size, expected=file.size)
        sha256 = self._recall(store, path, info)
        if not sha256:
            begun = self.clock()
            try:
                sha256 = store.digest(path)
            except NotInStoreError:
                return reason("gone", file=file.name)
            except ChangedInStoreError:
                return reason("changing", file=file.name)
            if store.head(path) != info:  # the tag may be that of other bytes than were read
                return reason("changing", file=file.name)
            if info.changed is not None and begun - info.changed > _SETTLED_SECONDS:
                self._remembered[store.url_of(path)] = _RememberedDigest(
                    size=info.size, tag=info.tag, changed=info.changed, sha256=sha256
                )
        return None if sha256 == file.sha256 else reason("other-bytes", file=file.name, sha256=sha256)

    def _recall(self, store: Store, path: str, info: StoredFileInfo) -> str:
        """Return the sha256 of a file as it was read before, "" where it may be another one now."""
        remembered = self._remembered.get(store.url_of(path))
        if remembered is None:
            return ""
        seen = (remembered.size, remembered.tag, remembered.changed)
        return remembered.sha256 if seen == (info.size, info.tag, info.changed) else ""

    def _load(self, record: Path | None) -> Mapping[str, _RememberedDigest]:
        """Read what another process has kept; what cannot be read is read from the store anew."""
        try:
            files = _DigestRecord.model_validate_json(record.read_bytes()).files if record else {}
        except (OSError, ValidationError):
            return {}
        self._remembered = {**files, **self._remembered}
        return files

    def _keep(
        self, record: Path | None, before: Mapping[str, _RememberedDigest], urls: Sequence[str]
    ) -> None:
        files = {url: self._remembered[url] for url in urls if url in self._remembered}
        if record is None or files == before:
            return
        try:
            record.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(record, _DigestRecord(files=files).model_dump_json(by_alias=True))
        except OSError as failure:
            log.log_note(f"{record} cannot be written, so wheels are read anew each time: {failure.strerror}")
