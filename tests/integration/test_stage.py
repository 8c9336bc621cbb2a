"""Staging on real stores with real wheels: a set is there whole or not at all, and installers can use it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
import servers
from commands import call
from crash import FaultyStore, in_a_process, run_on_full_disk, sample
from pythons import PIP, UV
from servers import serve_folder
from stores import (
    LATER,
    NOW,
    ROCM,
    World,
    killed_again_and_again,
    promote,
    promoter,
    require_whole,
    rocm_wheel,
    small_plan,
    stage,
    visible,
)

from rocm_wheels.core import errors, process
from rocm_wheels.index import update
from rocm_wheels.release import channel as channels
from rocm_wheels.release import wheel_set
from rocm_wheels.release.stage import StagePlan
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels import archive


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def plan(world: World) -> StagePlan:
    return world.plan()


@pytest.fixture(scope="module")
def small(world: World) -> StagePlan:
    return small_plan(world)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return FolderStore(tmp_path / "store") if request.param == "folder" else servers.a_store()


@pytest.mark.contract
def test_what_is_staged_is_there_and_nothing_is_sent_twice(world: World, tmp_path: Path) -> None:
    place = tmp_path / "store"
    would = call(*world.words(place, "--json", "--dry-run")).json
    assert (would["to_send"], would["had"], place.exists()) == (7, 0, False)
    first = call(*world.words(place, "--json")).json
    assert (first["new"], first["sent"], first["had"], first["missing"]) == (True, 7, 0, [])
    assert first["set"] == would["set"] and first["set"].startswith(f"2.9.1-rocm{ROCM}-")
    assert first["next"] == f"rocm-wheels set check {place} --set {first['set']}" and "next" not in would
    document = require_whole(FolderStore(place), world.plan())
    assert [(file.project, file.targets) for file in document.files] == [
        ("torch", ("gfx942",)),
        ("torchvision", ("gfx942",)),
        ("triton", ()),
    ]
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    again = call(*world.words(place, "--json")).json
    assert (again["new"], again["sent"], again["had"]) == (False, 0, 7)
    assert before == {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    second = call(*world.next(tmp_path / "next").words(place, "--json")).json
    assert (second["sent"], second["had"]) == (4, 3)
    listed = call("set", "list", place, "--json").json["sets"]
    counts = {one["id"]: (one["wheels"], one["missing"]) for one in listed}
    assert counts == dict.fromkeys((first["set"], second["set"]), (3, 0))


def test_each_wheel_is_opened_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_wheel = archive.WheelArchive.open

    def open_and_note(path: Path, **how: bool) -> archive.WheelArchive:
        opened.append(path.name)
        return open_wheel(path, **how)

    monkeypatch.setattr(archive.WheelArchive, "open", open_and_note)
    world.plan()
    assert sorted(opened) == sorted(path.name for path in world.wheels)


@pytest.fixture
def everybodys_folder() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own they cannot."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-shared-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can be other users")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_two_users_of_a_group_stage_into_one_store(everybodys_folder: Path, tmp_path: Path) -> None:
    group, users = 54321, (12345, 12346)
    store = everybodys_folder / "store"
    store.mkdir()
    os.chown(store, 0, group)
    store.chmod(0o2775)
    plans = [World(everybodys_folder / version, version).plan() for version in ("2.9.1", "2.9.2")]
    stage(FolderStore(tmp_path / "first"), plans[0])  # they cannot import what root's Python has

    def stage_as(user: int, plan: StagePlan) -> None:
        os.setgroups([group])
        os.setgid(user)
        os.setuid(user)
        os.umask(0o022)
        stage(FolderStore(store), plan)

    for user, plan in zip(users, plans, strict=True):
        assert in_a_process(lambda user=user, plan=plan: stage_as(user, plan), os.environ) == 0  # type: ignore[misc]
        require_whole(FolderStore(store), plan)
    folders = [path for path in (store, *store.rglob("*")) if path.is_dir()]
    assert {(path.stat().st_gid, path.stat().st_mode & 0o7777) for path in folders} == {(group, 0o2775)}
    assert {path.stat().st_uid for path in store.rglob("*.whl")} == set(users)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions")
@pytest.mark.parametrize(("umask", "warned"), [(0o077, True), (0o022, False)])
def test_a_store_that_no_web_server_can_read_is_said(
    world: World, tmp_path: Path, umask: int, *, warned: bool
) -> None:
    before = os.umask(umask)
    try:
        told = call(*world.words(tmp_path / "store")).err
    finally:
        os.umask(before)
    assert ("chmod -R go+rX" in told) == warned


@pytest.mark.contract
def test_a_workflow_that_cannot_be_told_is_an_error_before_anything_is_staged(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "not-mounted" / "output"))
    said = call(*world.words(tmp_path / "store"), code=2).err
    assert "error: GITHUB_OUTPUT names" in said and "which cannot be written" in said
    assert not (tmp_path / "store").exists()


def alone(folder: Path) -> dict[str, str]:
    """Return an environment of which nothing is anybody's."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


@pytest.mark.contract
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_installers_install_from_the_index_of_a_set(
    tool: str, world: World, plan: StagePlan, tmp_path: Path
) -> None:
    store = FolderStore(tmp_path / "store")
    stage(store, plan)
    update.add_wheels(tmp_path / "store" / "rocm", [rocm_wheel(tmp_path)], now=NOW)
    words = PIP if tool == "pip" else UV
    with serve_folder(tmp_path / "store") as server:
        index = ["--index-url", f"{server.url}{plan.index}", "--extra-index-url", f"{server.url}rocm/"]
        process.capture_output(
            [*words, "--target", str(tmp_path / "site"), *index, "torchvision"], env=alone(tmp_path)
        )
        asked = [request.path for request in server.requests if request.status == 200]
        call("index", "verify", "--full", f"{server.url}{plan.index}")
    expected = [f"torch-2.9.1+rocm{ROCM}", f"torchvision-0.24.1+rocm{ROCM}", f"triton-3.5.0+rocm{ROCM}"]
    installed = [path.name.removesuffix(".dist-info") for path in (tmp_path / "site").glob("*.dist-info")]
    assert sorted(installed) == [f"rocm-{ROCM}", *expected]
    assert sum(path.endswith(".whl.metadata") for path in asked) >= 3
    assert not [path for path in asked if ".store" in path]


@pytest.mark.contract
def test_names_belong_to_the_bytes_that_people_got_until_they_get_a_build_tag(
    world: World, plan: StagePlan, tmp_path: Path
) -> None:
    place = str(tmp_path / "store")
    other = World(tmp_path / "other", text="built again")
    for words in (world.words(place), other.words(place)):  # nobody got any of them yet
        assert "will refuse" not in call(*words).err
    promote(FolderStore(Path(place)), wheel_set.find_set(FolderStore(Path(place)), plan.document.id))
    said = call(*other.words(place)).err
    assert "will refuse this set as things are: torch-2.9.1" in said
    assert f"has other bytes in {plan.document.id}, which people got" in said
    assert "rocm-wheels wheel retag --build-tag 1 WHEELS" in said
    retagged = tmp_path / "retagged"
    words = ["wheel", "retag", "--build-tag", "1", "--output-dir", str(retagged), *map(str, other.wheels)]
    call(*words)
    other.wheels = sorted(retagged.glob("*.whl"))
    said = call(*other.words(place)).err
    assert "has other bytes" not in said
    assert "in the same version as" in said and f"demote {plan.document.id} first" in said
    store = FolderStore(Path(place))
    assert len(visible(store)) == 3
    retagged_set = wheel_set.find_set(store, other.plan().document.id)
    with pytest.raises(errors.ReleaseError, match="in the same version as"):
        promote(store, retagged_set)
    refusals = channels.find_refusals(store, retagged_set, ["stable", "nightly"])
    assert refusals["stable"] == []  # which shows nothing
    (refusal,) = refusals["nightly"]
    assert "in the same version as" in refusal.message
    promoter(store).demote([plan.document.id])  # as both said
    printed = call(*other.words(place))
    assert "will refuse" not in printed.err
    assert printed.out.endswith(f"next: rocm-wheels set check {place} --set {retagged_set.id}\n")
    promote(store, retagged_set)


@pytest.mark.parametrize("what", ["channel", "set that it shows"])
def test_a_damaged_document_of_a_channel_is_a_warning(
    what: str, world: World, plan: StagePlan, tmp_path: Path
) -> None:
    """Nothing can be promoted until it is mended; what is staged does not depend on it."""
    place = tmp_path / "store"
    store = FolderStore(place)
    stage(store, plan)
    promote(store, wheel_set.find_set(store, plan.document.id))
    paths = {
        "channel": plan.paths.channel_document("nightly"),
        "set that it shows": plan.paths.set_document(plan.document.id),
    }
    damaged = place / paths[what]
    damaged.write_bytes(damaged.read_bytes().replace(b'"2026', b'"2025', 1))
    printed = call(*world.next(tmp_path / "next").words(place))
    assert "`set promote` to nightly, prerelease, stable will refuse this set" in printed.err
    assert f"{damaged.name} was edited" in printed.err and "from a copy of the store" in printed.err
    assert "next: rocm-wheels set check" in printed.out


@pytest.mark.contract
def test_what_a_set_has_lost_is_put_back_and_nothing_else_is_touched(
    world: World, plan: StagePlan, tmp_path: Path
) -> None:
    """As `store fsck` says: stage the wheels again."""
    store = FolderStore(tmp_path)
    stage(store, plan)
    wheel = plan.paths.pool_file(plan.document.files[0].sha256, plan.document.files[0].name)
    (lock,) = (plan.paths.lock_file(digest) for digest in plan.locks)
    lost = [wheel, f"{wheel}.metadata", lock, f"{plan.index}torch/index.html"]
    before = {one.path: (one.tag, store.digest(one.path)) for one in store.listing("")}
    edited = f"{plan.index}index.html"
    store.replace(edited, b"by hand", before[edited][0])
    for path in lost:
        store.remove(path)
    staged = call(*world.words(str(tmp_path), "--json")).json
    assert (staged["new"], staged["sent"]) == (False, 3)
    after = {one.path: (one.tag, store.digest(one.path)) for one in store.listing("")}
    assert {path for path in before if after[path] != before[path]} == {*lost, edited}
    assert {path: digest for path, (_, digest) in after.items()} == {
        path: digest for path, (_, digest) in before.items()
    }


@pytest.mark.contract
def test_a_wheel_that_is_written_to_while_it_is_staged_is_never_in_a_store(
    store: Store, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    plan = small_plan(world)
    triton = plan.wheels[0].path
    before = triton.read_bytes()
    triton.write_bytes(bytes(len(before)))
    with pytest.raises(
        errors.ReleaseError, match=r"triton-.*\.whl has other bytes than when it was looked at"
    ):
        stage(store, plan)
    assert not [one.path for one in store.listing("") if one.path.endswith(triton.name)]
    triton.write_bytes(before)
    stage(store, plan)
    require_whole(store, plan)


# ---- every write of staging goes wrong once


def test_every_write_may_fail(plan: StagePlan, tmp_path: Path, exhaustive: bool) -> None:
    clean = FaultyStore(FolderStore(tmp_path / "clean"))
    stage(clean, plan)
    last = f"create {plan.paths.set_document(plan.document.id)}"
    assert len(clean.writes) == len(set(clean.writes)) == 16
    expected = {one.path: one.size for one in clean.listing("")}
    for number, write in sample(list(enumerate(clean.writes)), exhaustive, 6):
        store = FolderStore(tmp_path / str(number))
        with pytest.raises(errors.ReleaseError):
            stage(FaultyStore(store, at=write, fault="error"), plan)
        there = clean.writes.index(last) < number
        assert visible(store) == ([plan.document.id] if there else [])
        stage(store, plan, LATER)
        assert require_whole(store, plan).created == (
            NOW if any("simple" in one for one in clean.writes[:number]) else LATER
        )
        assert {one.path: one.size for one in store.listing("")} == expected


def test_every_write_to_s3_may_be_the_last_one(small: StagePlan) -> None:
    assert len(list(killed_again_and_again(servers.a_store(), small))) >= 6  # some at a time are one


@pytest.mark.contract
def test_installers_never_see_half_a_set_whatever_write_was_the_last(plan: StagePlan, tmp_path: Path) -> None:
    store, seen = FolderStore(tmp_path / "store"), list[int]()
    with serve_folder(tmp_path / "store") as server:
        words = [*UV, "--dry-run", "--no-deps", "--target", str(tmp_path / "site")]
        words += ["--index-url", f"{server.url}{plan.index}", *plan.document.projects]
        for done in killed_again_and_again(store, plan):
            if len(done) > 1 and not any("/simple/" in path for path in done):
                continue  # there is no page yet
            found = subprocess.run(words, env=alone(tmp_path), capture_output=True, text=True, check=False)
            seen.append(found.stderr.count("\n + "))
            assert (found.returncode == 0) == (seen[-1] == 3), found.stderr
    assert seen == sorted(seen) and set(seen) == {0, 3}


@pytest.mark.contract
def test_every_write_may_meet_somebody_who_is_faster(store: Store, small: StagePlan) -> None:
    assert not stage(Raced(store), small).new
    require_whole(store, small)


@pytest.mark.exhaustive
def test_any_write_may_meet_somebody_who_is_faster(plan: StagePlan, tmp_path: Path, exhaustive: bool) -> None:
    clean = FaultyStore(FolderStore(tmp_path / "clean"))
    stage(clean, plan)
    for number, write in enumerate(sample(clean.writes, exhaustive)):
        store = FolderStore(tmp_path / str(number))
        stage(FaultyStore(store, at=write, fault="raced"), plan)
        require_whole(store, plan)


class Raced(FaultyStore):
    """A store where somebody else does every write just before."""

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        work()
        return work()


@pytest.mark.contract
def test_two_who_stage_the_same_wheels_at_a_time_make_one_set(store: Store, small: StagePlan) -> None:
    start = threading.Barrier(2)

    def work(now: str) -> bool:
        start.wait()
        return stage(store, small, now).new

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(work, (NOW, LATER))) == [False, True]
    require_whole(store, small)


@pytest.mark.contract
def test_bytes_that_are_not_those_that_were_sent_are_found(plan: StagePlan, tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    path = plan.paths.pool_file(plan.document.files[0].sha256, plan.document.files[0].name)
    store.create(path, bytes(plan.document.files[0].size))  # as long, by whatever tool
    with pytest.raises(errors.ReleaseError, match=r"1 file unlike what was sent: .*torch-"):
        stage(store, plan)
    assert visible(store) == []
    store.remove(path)
    stage(store, plan)
    require_whole(store, plan)


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_every_write_may_be_killed_by_the_system(small: StagePlan, tmp_path: Path, exhaustive: bool) -> None:
    """When all is written but has no name yet, and after it; then a second run does the rest."""
    clean = FaultyStore(FolderStore(tmp_path / "clean"))
    stage(clean, small)
    assert len(clean.writes) == 8
    kills = list(product(clean.writes, ("kill -9 in", "kill -9 after")))  # before it is after the one before
    for number, (write, fault) in enumerate(sample(kills, exhaustive, 6)):
        store = FolderStore(tmp_path / str(number))
        killed = FaultyStore(store, at=write, fault=fault)
        assert in_a_process(lambda killed=killed: stage(killed, small)) == -signal.SIGKILL  # type: ignore[misc]
        if visible(store):
            require_whole(store, small)
        stage(store, small, LATER)
        require_whole(store, small)


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of this kind")
def test_a_full_disk_is_named_and_filled_up_later(world: World, plan: StagePlan, tmp_path: Path) -> None:
    code, said = run_on_full_disk(world.words(tmp_path / "store"), 900)
    assert code == 15, said
    assert "cannot write" in said and "free some space, then run the same command again" in said
    store = FolderStore(tmp_path / "store")
    assert visible(store) == [] and not list((tmp_path / "store" / ".store" / "parts").iterdir())
    stage(store, plan)
    require_whole(store, plan)


@pytest.mark.parametrize("fault", ["503", "lost", "half"])
def test_a_set_is_staged_over_a_bad_line(fault: str, small: StagePlan) -> None:
    """Every other answer to the same question is trouble; of each write the server sees, one counts."""
    bucket, seen = servers.a_bucket(), Counter[tuple[str, str]]()

    def faults(method: str, path: str) -> str:
        seen[method, path] += 1
        return fault if seen[method, path] % 2 and (fault != "half" or method == "GET") else ""

    with servers.bad_line(faults) as line:
        assert stage(servers.a_store(line.url, bucket=bucket), small).new
    require_whole(servers.a_store(bucket=bucket), small)
