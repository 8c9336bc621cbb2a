"""How long a store of many sets takes: ``set list``, and the last of many promotions.

``python tests/bench/bench_release.py [SETS] [WHEELS]`` (100 sets of 200 wheels) makes them of small files in
a folder, promotes all but the last, and prints what the last costs: seconds, reads, writes, sums of files.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
from faulty_store import FaultyStore

from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import queries, store_paths, verdict, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter
from rocm_wheels.release.pages import make_index_pages
from rocm_wheels.stores.folder import FolderStore

FAMILY = "gfx94X-dcgpu"
PROJECTS = ("triton", "torch", "torchvision", "torchaudio", "apex")
PASSED = verdict.Verdict(
    "x", FAMILY, "nightly", datetime.now(timezone.utc), (verdict.RuleResult("hashes", "pass"),)
)
LOCK = b"{}\n"


class Counted(FaultyStore):
    """A store that counts what is asked of it."""

    def __init__(self, inner: FolderStore) -> None:
        super().__init__(inner)
        self.reads: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in ("read", "head", "digest", "listing"):
            self.reads[name] += 1
        return super().__getattribute__(name)


def a_set(
    places: store_paths.FamilyPaths, store: FolderStore, number: int, wheels: int
) -> wheel_set.SetDocument:
    """Stage a set without looking at it: the wheels are no wheels."""
    version = f"2.9.{number}+rocm7.1.0"
    files = []
    for count in range(wheels):
        project = PROJECTS[count % len(PROJECTS)]
        own = "3.5.0+rocm7.1.0" if project == "triton" else version  # the same in all sets
        tag = f"cp3{count // len(PROJECTS)}"
        name = f"{project}-{own}-{tag}-{tag}-linux_x86_64.whl"
        needs = {"torch": "triton==3.5.0+rocm7.1.0", "triton": ""}.get(project, f"torch=={version}")
        required = f"Requires-Dist: {needs}\n" if needs else ""
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {own}\n{required}".encode()
        content = name.encode() * 100
        sha256 = hashlib.sha256(content).hexdigest()
        path = places.pool_file(sha256, name)
        if store.head(path) is None:
            store.create(path, content)
            store.create(path + METADATA_SUFFIX, metadata)
        digest = hashlib.sha256(metadata).hexdigest()
        files.append(
            wheel_set.SetFile(
                name=name,
                project=project,
                version=own,
                sha256=sha256,
                size=len(content),
                metadata_sha256=digest,
            )
        )
    lock = wheel_set.SetLock(digest=hashlib.sha256(LOCK).hexdigest())
    known = wheel_set.make_set_id(version, ((file.name, file.sha256) for file in files), lock.digest)
    document = wheel_set.SetDocument(
        id=known,
        created=f"2026-11-21T12:{number // 60:02}:{number % 60:02}Z",
        version=version,
        family=FAMILY,
        layout="per-family",
        files=tuple(files),
        locks=(lock,),
    )
    if store.head(places.lock_file(lock.digest)) is None:
        store.create(places.lock_file(lock.digest), LOCK)
    for path, page in make_index_pages(places.set_index(known), places, [document]).items():
        store.create(path, page)
    store.create(places.set_document(known), document.to_json())
    return document


@contextmanager
def timed(what: str, store: Counted | None = None) -> Iterator[None]:
    """Print how long it takes, and what is asked of a store."""
    begun, cpu = time.perf_counter(), time.process_time()
    yield
    said = f"{what}: {time.perf_counter() - begun:.2f} s ({time.process_time() - cpu:.2f} s of CPU)"
    if store is not None:
        kinds = Counter(write.split()[0] for write in store.writes)
        pages = sum("/simple/" in write for write in store.writes)
        said += f", {len(store.writes)} writes {dict(kinds)}, {pages} of pages; {dict(store.reads)}"
    print(said, flush=True)


def promoter(store: Counted | FolderStore) -> Promoter:
    """Return one who promotes to nightly."""
    actor = ChannelActor("bench", "2026-11-21T12:00:00Z")
    return Promoter(store, store_paths.FamilyPaths(FAMILY), "nightly", actor)


def main(sets: int, wheels: int) -> None:
    """Make the store and measure."""
    places = store_paths.FamilyPaths(FAMILY)
    with tempfile.TemporaryDirectory(prefix="bench-release-") as folder:
        store = FolderStore(Path(folder))
        documents = [a_set(places, store, number, wheels) for number in range(sets)]
        with timed(f"set list of {sets} sets of {wheels} wheels"):
            listed = wheel_set.read_family_sets(store, FAMILY).documents
            assert len([queries.make_set_row(document) for document in listed]) == sets
        with timed(f"{sets - 1} promotions"):
            for document in documents[:-1]:
                promoter(store).promote(document, lambda: PASSED)
        counted = Counted(store)
        with timed("the last promotion", counted):
            promoter(counted).promote(documents[-1], lambda: PASSED)
        counted = Counted(store)
        with timed("the same again", counted):
            promoter(counted).promote(documents[-1], lambda: PASSED)
        counted = Counted(store)
        with timed("demote it", counted):
            promoter(counted).demote([documents[-1].id])
        counted = Counted(store)
        with timed("promote it again", counted):
            promoter(counted).promote(documents[-1], lambda: PASSED)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=int, nargs="?", default=100)
    parser.add_argument("wheels", type=int, nargs="?", default=200)
    main(**vars(parser.parse_args()))
