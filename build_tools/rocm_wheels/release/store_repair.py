"""Repair a store: what is damaged gets the bytes that its sets say, what follows from sets is made again.

Documents of sets come first, then files, pages of sets, channels and views, and last the documents that
follow from those. Every step can be repeated: a repair that was killed is carried on by another one.

A good file is never replaced, which is told by its digest at that moment, and what nothing explains stays.
Bytes for a file come from wherever in the store the same digest is kept, or from a folder of wheels; they
are hashed before they are copied, and again at their place. A wheel with other bytes is removed first, for
no store exchanges large files: a repair that is killed there leaves it missing, for the next one.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.core import errors, files, log
from rocm_wheels.index import publish, wheel_file
from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import promote, refresh, snapshots, store_check
from rocm_wheels.release.channel import read_channel_status
from rocm_wheels.release.layout import FamilyPaths
from rocm_wheels.release.policy import Policy
from rocm_wheels.release.views import publish_view, write_support, write_whole_support
from rocm_wheels.stores.store import RUN_AGAIN_TIP, AlreadyInStoreError, ChangedInStoreError, Store
from rocm_wheels.wheels.archive import WheelArchive

_MOST_ROUNDS = 5  # what a repair brings back shows what else was damaged: a set, its files, its pages


@dataclass(frozen=True)
class StoreRepair:
    """What became of a repair: ``repaired`` are the findings that are gone, ``report`` what is left."""

    report: store_check.StoreReport
    repaired: tuple[store_check.StoreFinding, ...]


@dataclass
class StoreRepairer:
    """One who repairs a store. ``copies`` are folders with good wheels, ``policy`` that of its channels.

    Of what is signed only a ``signer`` makes anything but what was signed.
    """

    check: store_check.StoreCheck
    policy: Policy
    by: str
    env: Mapping[str, str]
    copies: Sequence[Path] = ()
    signer: snapshots.ReleaseSigner | None = None
    _hashes: dict[Path, str] = field(default_factory=dict)

    def repair(self) -> StoreRepair:
        """Repair all that can be, and return what was, and what is left.

        Raises ReleaseError where the store cannot be read or written.
        """
        report = self.check.run()
        repaired: dict[tuple[str, str], store_check.StoreFinding] = {}
        look_again = replace(self.check, pauses=())
        for _ in range(_MOST_ROUNDS):
            fixable = [finding for finding in report.findings if finding.remedy is not None]
            if not self._apply_all(fixable, report):
                break
            repaired |= {finding.key: finding for finding in fixable}
            report = look_again.run()
        left = {finding.key for finding in report.findings}
        done = tuple(finding for key, finding in repaired.items() if key not in left)
        return StoreRepair(report, done)

    @property
    def _store(self) -> Store:
        return self.check.store

    def _apply_all(
        self, findings: Sequence[store_check.StoreFinding], report: store_check.StoreReport
    ) -> int:
        """Apply each remedy once, in their order; return how many did something."""
        unknown = frozenset(item.subject for item in report.findings if item.check == "unknown-file")
        remedies: dict[object, store_check.Remedy] = {}
        for finding in findings:
            remedy = finding.remedy
            assert remedy is not None
            remedies[remedy.folder if isinstance(remedy, store_check.IndexPages) else remedy] = remedy
        applied = 0
        for remedy in sorted(remedies.values(), key=_rank_remedy):
            try:
                applied += self._apply(remedy, unknown)
            except (errors.DataError, errors.ReleaseError, errors.UsageError) as failure:
                log.log_warning(errors.explain_error(failure))
        return applied

    def _apply(self, remedy: store_check.Remedy, unknown: frozenset[str]) -> bool:
        if isinstance(remedy, store_check.ExpectedFile):
            return self._restore_file(remedy)
        if isinstance(remedy, store_check.IndexPages):
            return self._publish_index(remedy, unknown)
        return self._derive_document(remedy)

    # ---- files

    def _restore_file(self, expected: store_check.ExpectedFile) -> bool:
        store, path = self._store, expected.path
        info = store.head(path)
        if info is not None and store_check.has_bytes(store, expected):
            return False
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-") as folder:
            source = self._find_good_copy(expected, Path(folder))
            if source is None:
                return False
            if isinstance(source, bytes):
                store.replace(path, source, info.tag if info is not None else None)
            else:
                if info is not None:
                    self._remove_damaged(path, info.tag)
                self._create(path, source, expected)
        if not store_check.has_bytes(store, expected):
            raise errors.ReleaseError(f"{store.url_of(path)} has other bytes again", tip=RUN_AGAIN_TIP)
        log.log_note(f"restored {path}")
        return True

    def _remove_damaged(self, path: str, tag: str) -> None:
        info = self._store.head(path)
        if info is not None and info.tag != tag:
            raise ChangedInStoreError(
                f"{path} was changed by another process in the meantime", tip=RUN_AGAIN_TIP
            )
        self._store.remove(path)

    def _create(self, path: str, source: str | Path, expected: store_check.ExpectedFile) -> None:
        try:
            if isinstance(source, Path):
                self._store.create(path, source, sha256=expected.sha256)
            else:
                self._store.copy(source, path)
        except AlreadyInStoreError:
            log.log_note(f"{path} was written by another process in the meantime")

    def _find_good_copy(self, expected: store_check.ExpectedFile, folder: Path) -> bytes | str | Path | None:
        """Return bytes that are right, or where they are: a path of the store, or of this machine."""
        if expected.content is not None:
            return expected.content
        for path in self._list_copies(expected):
            if store_check.has_bytes(self._store, expected, path):
                return path if expected.kind == "wheel" else self._store.read(path).content
        local = self._find_local(expected.path.rpartition("/")[2], expected.sha256)
        if local is not None:
            return local if expected.kind == "wheel" else local.read_bytes()
        return self._extract_metadata(expected, folder) if expected.kind == "METADATA" else None

    def _list_copies(self, expected: store_check.ExpectedFile) -> list[str]:
        """Return where the bytes may lie: first the other area, then other families, by the same place."""
        layout, family = self.check.layout, expected.path.split("/")
        areas = [layout.staging, layout.release]
        depth = next(area.count("/") + 1 for area in areas if expected.path.startswith(f"{area}/"))
        below = "/".join(family[depth + 1 :])
        paths = list(expected.copies)
        if expected.kind in ("wheel", "METADATA"):
            paths += [f"{area}/{name}/{below}" for area in areas for name in self._store.folders(area)]
        heads = [path for path in dict.fromkeys(paths) if path != expected.path]
        sizes = ((path, self._store.head(path)) for path in heads)
        return [path for path, info in sizes if info is not None and expected.size in (None, info.size)]

    def _find_local(self, name: str, sha256: str) -> Path | None:
        """Return a file of this machine that has the name and the bytes."""
        for folder in self.copies:
            for path in sorted(folder.rglob(name)):
                if path not in self._hashes:
                    self._hashes[path] = files.hash_file(path)
                if self._hashes[path] == sha256:
                    return path
        return None

    def _extract_metadata(self, expected: store_check.ExpectedFile, folder: Path) -> bytes | None:
        """Return METADATA from its wheel, which the digest of the folder it lies in names."""
        wheel_path = expected.path.removesuffix(METADATA_SUFFIX)
        digest, name = wheel_path.split("/")[-2:]
        wheel = store_check.ExpectedFile(wheel_path, "wheel", expected.set_id, digest)
        local = self._find_local(name, digest)
        if local is None and store_check.has_bytes(self._store, wheel):
            if self._store.folder is not None:
                local = self._store.folder / wheel_path
            else:
                local = folder / name
                self._store.fetch(wheel_path, local)
        if local is None:
            return None
        with WheelArchive.open(local) as archive:
            content = wheel_file.read_metadata_and_variant(archive, local, None)[0]
        return content if hashlib.sha256(content).hexdigest() == expected.sha256 else None

    # ---- pages, and what follows from them

    def _publish_index(self, index: store_check.IndexPages, unknown: frozenset[str]) -> bool:
        paths = FamilyPaths(self.check.layout, index.family)
        if not index.channel:
            return sum(self._put_page(path, content) for path, content in index.pages.items()) > 0
        promoter = self._make_promoter(paths, index.channel)
        if not index.gfx:
            record = promoter.read_channel_record()
            if record.channel.pending is not None:
                return False  # whoever changes it sees to its pages
            return promoter.renew_pages(record, unknown).pages > 0
        stored = read_channel_status(self._store, promoter.release, index.channel)
        view = next((item for item in stored.document.views if item.gfx == index.gfx), None)
        if view is None or not view.settled:
            return False
        message = f"views of {index.channel} of {index.family} were changed by another process"
        journal = publish.DocumentJournal(
            self._store,
            promoter.release.channel_status(index.channel),
            stored.tag,
            lambda: ChangedInStoreError(message, tip=RUN_AGAIN_TIP),
        )
        return publish_view(promoter.released, index.channel, view, journal.check, unknown) > 0

    def _put_page(self, path: str, content: bytes) -> bool:
        digest = hashlib.sha256(content).hexdigest()
        return self._restore_file(store_check.ExpectedFile(path, "page", "", digest, len(content), content))

    def _make_promoter(self, staging: FamilyPaths, channel: str) -> promote.Promoter:
        return promote.Promoter(
            self._store,
            staging,
            channel,
            promote.ChannelActor(self.by, f"{self.check.now:%Y-%m-%dT%H:%M:%SZ}"),
            signer=self.signer,
        )

    def _derive_document(self, document: store_check.DerivedDocument) -> bool:
        layout = self.check.layout
        if document.what == "support":
            if not document.family:
                return write_whole_support(self._store, layout, self.signer)
            return write_support(self._store, FamilyPaths(layout, document.family, "release"), self.signer)
        promoter = self._make_promoter(FamilyPaths(layout, document.family), document.channel)
        promoter.require_signed(promoter.read_channel_record())
        self._forget_unsound(document)
        refresher = refresh.Refresher(
            self._store,
            layout,
            self.policy,
            self.by,
            self.check.now,
            self.env,
            signer=self.signer,
            named=False,
        )
        refreshed = refresher.refresh_channel(document.family, document.channel)
        return refreshed is not None and not refreshed.other_change

    def _forget_unsound(self, document: store_check.DerivedDocument) -> None:
        """Drop what is written down of sets wrongly, so that a refresh judges them anew."""
        paths = FamilyPaths(self.check.layout, document.family, "release")
        stored = read_channel_status(self._store, paths, document.channel)
        sets = tuple(item for item in stored.document.sets if item.set in document.sound_sets)
        views = tuple(
            view for view in stored.document.views if set(view.shown) <= {item.set for item in sets}
        )
        if stored.tag is not None and (sets, views) != (stored.document.sets, stored.document.views):
            kept = stored.document.model_copy(update={"sets": sets, "views": views})
            self._store.replace(paths.channel_status(document.channel), kept.to_json(), stored.tag)


def _rank_remedy(remedy: store_check.Remedy) -> tuple[int, str]:
    """Return what remedies are ordered by: what others need comes before them."""
    if isinstance(remedy, store_check.ExpectedFile):
        order = ("document", "wheel", "METADATA", "lock", "statement", "signature", "audit", "name", "page")
        return order.index(remedy.kind), remedy.path
    if isinstance(remedy, store_check.IndexPages):
        return 10 + bool(remedy.channel) + bool(remedy.gfx), remedy.folder
    return (20 if remedy.what == "status" else 21 if remedy.family else 22), remedy.family
