"""How long ``refresh`` takes in a store of many sets: the first, with nothing new, with one new result.

``python tests/bench/bench_refresh.py [SETS] [WHEELS]`` (100 sets of 200 wheels on one channel, five results a
set) makes documents in a folder and prints seconds, reads, and writes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "worlds"))
from faulty_store import FaultyStore
from judged_sets import FAMILY, METADATA, a_set, policy, put_set, said, sha, wheel

from rocm_wheels.index.folder import METADATA_SUFFIX
from rocm_wheels.release import refresh, store_paths, wheel_set
from rocm_wheels.release.channel import Channel, ChannelSet
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import StoredFile

PATHS = store_paths.FamilyPaths(FAMILY)
RULES = policy("channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}, smoke: {fresh: 7d}}}}")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
PROJECTS = ("torch", "torchvision", "torchaudio", "triton", "apex")


class Counted(FaultyStore):
    """A store that counts what is read of it, by kind."""

    seen: Counter[str]

    def read(self, path: str) -> StoredFile:
        kinds = {"set.json": "sets", METADATA_SUFFIX: "METADATA", "/evidence/": "results"}
        self.seen[next((name for part, name in kinds.items() if part in path), "others")] += 1
        return super().read(path)


def fill(store: FolderStore, sets: int, wheels: int) -> list[wheel_set.SetDocument]:
    """Make sets; no wheel is read, and the bytes of each are its name."""
    made, shown = [], []
    for number in range(sets):
        names = [(one, str(100 + build)) for build in range(wheels // len(PROJECTS)) for one in PROJECTS]
        files = [
            wheel(one, "312", version=f"2.9.{number}").model_copy(
                update={
                    "name": f"{one}-2.9.{number}-{build}-cp312-cp312-linux_x86_64.whl",
                    "metadata_sha256": sha(METADATA.decode()),
                }
            )
            for one, build in names
        ]
        files = [one.model_copy(update={"sha256": sha(one.name), "size": len(one.name)}) for one in files]
        when = f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z"
        document = a_set(*files, created=when, planned=())
        put_set(store, document)
        for kind, gfx in (("audit", None), ("resolver", None), ("smoke", "gfx1030"), ("smoke", "gfx1031")):
            add(store, document, kind, gfx, 9)
        add(store, document, "tests", "gfx1030", 8)
        shown.append(ChannelSet(set=document.id, document=document.digest, when=when, by="ann"))
        made.append(document)
    channel = Channel(family=FAMILY, channel="nightly", revision=1, sets=tuple(shown))
    store.create(PATHS.channel_document("nightly"), channel.to_json())
    return made


def add(  # noqa: PLR0917 - read in one line
    store: FolderStore,
    document: wheel_set.SetDocument,
    kind: str,
    gfx: str | None,
    hours: float,
    outcome: str = "pass",
) -> None:
    """Write a result down."""
    found = said(kind, outcome, gfx=gfx, hours=hours, document=document).evidence
    add_evidence(store, document, found)


def run(place: Path, what: str) -> None:
    """Refresh, and print what that cost."""
    store = Counted(FolderStore(place))
    store.seen = Counter()
    begun = time.perf_counter()
    refresher = refresh.Refresher(store, RULES, "ann", NOW + timedelta(hours=1), {})
    done = refresher.refresh_channel(FAMILY, "nightly")
    refresher.refresh_support()
    seconds = time.perf_counter() - begun
    views = len(done.views) if done else 0
    print(f"{what}: {seconds:.2f} s, read {dict(store.seen)}, {len(store.writes)} writes, {views} views")


def main() -> None:
    """Make a store, and refresh it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=int, nargs="?", default=100)
    parser.add_argument("wheels", type=int, nargs="?", default=200)
    options = parser.parse_args()
    sets, wheels = options.sets, options.wheels
    if wheels < len(PROJECTS):
        parser.error(f"a set has at least {len(PROJECTS)} wheels")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        made = fill(FolderStore(place), sets, wheels)
        run(place, f"the first refresh of {sets} sets of {wheels} wheels")
        run(place, "nothing new")
        add(FolderStore(place), made[-1], "smoke", "gfx1030", 1)
        run(place, "one more pass of that day")
        add(FolderStore(place), made[-1], "smoke", "gfx1030", 0.5, "fail")
        run(place, "the newest set failed on a target")
        size = FolderStore(place).head(PATHS.support_document)
        print(f"support.json: {size.size if size else 0:,} bytes")


if __name__ == "__main__":
    main()
