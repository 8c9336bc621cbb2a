"""Stores on a real S3 server, Ceph's, where Debian's packages of it are installed; by hand.

``apt-get install radosgw ceph-mon ceph-osd ceph-base`` and nothing is configured: a cluster of one monitor,
one disk in memory and one gateway runs as long as the tests do, without root's folders or a service. What
it takes to start depends on the machine, so nobody waits for it who did not ask (``-m exhaustive``).
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
import servers
from crash import FaultyStore, Killed, KilledAfter
from documents import policy, said
from stores import (
    FAMILY,
    NOW,
    TARGET,
    World,
    killed_again_and_again,
    promote,
    promoter,
    require_promises,
    send_in_parts,
    stage,
)

from rocm_wheels.core import errors
from rocm_wheels.release import wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.refresh import Refresher
from rocm_wheels.stores import s3
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import AlreadyInStoreError, Store, find_broken_promise

PROGRAMS = ("monmaptool", "ceph-mon", "ceph-osd", "ceph", "radosgw", "radosgw-admin")
CONFIGURATION = """[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon_port}
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
mon allow pool size one = true
mon data = {folder}/mon
mon data avail crit = 1
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {folder}/rgw
run dir = {folder}/run
log file = {folder}/$name.log
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
"""
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="no radosgw"),
]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running gateway, by its URL; there is a user ``testing``."""
    folder, port, mon_port = tmp_path_factory.mktemp("ceph"), _free_port(), _free_port()
    for name in ("mon", "osd", "rgw", "run"):
        (folder / name).mkdir()
    fsid, disk, conf = str(uuid.uuid4()), str(uuid.uuid4()), folder / "ceph.conf"
    conf.write_text(CONFIGURATION.format(fsid=fsid, folder=folder, port=port, mon_port=mon_port))

    def done(*words: str) -> None:
        subprocess.run([*words, "-c", str(conf)], check=True, timeout=300, capture_output=True)

    with ExitStack() as running:

        def start(*words: str) -> None:
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = running.enter_context(subprocess.Popen([*words, "-f", "-c", str(conf)], **silent))
            running.callback(process.kill)

        monmap = str(folder / "monmap")
        done("monmaptool", "--create", "--addv", "a", f"[v1:127.0.0.1:{mon_port}]", "--fsid", fsid, monmap)
        done("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        start("ceph-mon", "-i", "a")
        done("ceph", "osd", "new", disk)
        done("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", disk)
        start("ceph-osd", "-i", "0")
        keys = ("--access-key=testing", "--secret=testing")
        done("radosgw-admin", "user", "create", "--uid=testing", "--display-name=testing", *keys)
        start("radosgw", "-n", "client.rgw")
        _wait_for(port)
        yield f"http://127.0.0.1:{port}"


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the gateway does not answer")


@pytest.fixture
def store(gateway: str) -> s3.S3Store:
    return _store(servers.environment(gateway), f"bucket-{uuid.uuid4().hex}")


def _store(env: Mapping[str, str], bucket: str) -> s3.S3Store:
    store = s3.S3Store(bucket, "some/where", env, policy=servers.QUICK)
    store._client.call("create_bucket", Bucket=bucket)
    return store


def test_it_keeps_the_promises_of_a_store(
    store: s3.S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_broken_promise(store) is None
    require_promises(store, tmp_path)
    send_in_parts(store, tmp_path, monkeypatch)


def test_it_knows_who_may_write(gateway: str) -> None:
    env = {**servers.environment(gateway), "AWS_SECRET_ACCESS_KEY": "wrong"}
    with pytest.raises(errors.ReleaseError, match=r"403 SignatureDoesNotMatch"):
        _store(env, "bucket-of-nobody")


def test_of_many_writers_one_is_told_that_it_won(store: s3.S3Store) -> None:
    won: list[int] = []

    def create(number: int) -> None:
        try:
            store.create("one", b"same")
        except AlreadyInStoreError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_sets_are_staged_whatever_write_was_the_last(store: s3.S3Store, tmp_path: Path) -> None:
    plan = World(tmp_path).plan()
    for _ in killed_again_and_again(store, plan):
        pass
    found = wheel_set.read_set(store, FAMILY, plan.document.id)
    assert all(
        store.digest(plan.paths.pool_file(file.sha256, file.name)) == file.sha256 for file in found.files
    )


def test_channels_and_views_are_changed_whatever_write_was_the_last_and_whoever_does_it_too(
    store: s3.S3Store, tmp_path: Path
) -> None:
    """Each change is killed again and again; in the end all is as in a folder without any fault."""
    clean, first = FolderStore(tmp_path / "clean"), World(tmp_path / "1")
    worlds = [first, first.next(tmp_path / "2")]
    old, new = (stage(clean, world.plan()).document for world in worlds)
    moment = datetime.fromisoformat(NOW.replace("Z", "+00:00"))
    for place in (clean, store):
        for world, document in zip(worlds, (old, new), strict=True):
            stage(place, world.plan())
            passed = said("smoke", gfx=TARGET, document=document, when=moment, added=moment)
            add_evidence(place, document, passed.evidence)
    rules = policy("channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}")

    def refresh(place: Store) -> None:
        refresher = Refresher(place, rules, "ann@here", moment, {})
        refresher.refresh_channel(FAMILY, "nightly")
        refresher.refresh_support()

    def promote_and_refresh(place: Store, document: wheel_set.SetDocument) -> None:
        promote(place, document)
        refresh(place)

    def demote(place: Store) -> None:
        promoter(place).demote([new.id])
        refresh(place)

    promote_and_refresh(clean, old)
    promote_and_refresh(store, old)
    for step in (lambda place: promote_and_refresh(place, new), demote):
        step(clean)
        carry_on(store, step)
        require_same(store, clean)
    promote(clean, new)
    promote(FaultyStore(store, at="*", fault="raced"), new)  # somebody else does each write first
    require_same(store, clean)


def require_same(store: Store, clean: Store) -> None:
    wanted, found = (
        {one.path: place.read(one.path).content for one in place.listing("")} for place in (clean, store)
    )
    assert found == wanted


def carry_on(store: Store, step: Callable[[Store], object]) -> None:
    """Do a step whose process ends after every fourth write, until it is done."""
    for _ in range(20):
        try:
            step(KilledAfter(store, 4))
        except Killed:
            continue
        return
    raise AssertionError("it comes to no end")
