"""A released store is damaged in every way that has a name: found by that name, and repaired to its bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import s3_servers
from faulty_store import FaultyStore, Killed
from release_world import FAMILY, TARGET, World, a_lock, add_statement
from staged import stage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from judged_sets import policy, said

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import parallel
from rocm_wheels.release import layout, promote, store_check, store_repair, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.policy import RuleResult, Verdict
from rocm_wheels.release.refresh import Refresher
from rocm_wheels.sources import lock
from rocm_wheels.stores import s3
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import ListedFile, Store
from rocm_wheels.wheels import statement

LAYOUT = layout.load_layout()
STAGING, RELEASE = (layout.FamilyPaths(LAYOUT, FAMILY, area) for area in ("staging", "release"))
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
LATER = MOMENT + timedelta(days=1)
POLICY = policy("channels: {nightly: {rules: {verify: {fresh: 14d}}}}")
PASSED = Verdict("x", FAMILY, "nightly", MOMENT, (RuleResult("hashes", "pass", "yes"),))
CHANNEL, VIEW = RELEASE.channel_pages("nightly"), RELEASE.view_pages(TARGET, "nightly")


@dataclass
class Released:
    """A store in which two sets are staged, promoted and refreshed; ``wheels`` is a folder with theirs."""

    folder: Path
    wheels: Path
    documents: list[wheel_set.SetDocument]

    def copy(self, target: Path) -> FolderStore:
        """Copy it by links: nothing in a store is ever written in place."""
        return FolderStore(shutil.copytree(self.folder, target, symlinks=True, copy_function=os.link))

    def fill(self, store: Store) -> Store:
        """Have another store hold the same: what is staged is promoted there once more."""
        start = FolderStore(self.folder)
        paths = [one.path for one in start.listing("v2-staging")]
        parallel.run_in_parallel(lambda path: store.create(path, self.folder / path), paths, jobs=8)
        release(store, self.documents)
        return store

    def path_of(self, kind: str, area: layout.FamilyPaths = RELEASE) -> str:
        """Return where a kind of file lies, of the wheel of triton, which both sets have."""
        document = self.documents[-1]
        file = next(file for file in document.files if file.project == "triton")
        return {
            "wheel": area.wheel_file(file.sha256, file.name),
            "METADATA": area.wheel_file(file.sha256, file.name) + ".metadata",
            "name": area.name_claim(file.name),
            "statement": area.set_statement(document.id, file.name),
            "signature": area.set_statement_signature(document.id, file.name),
            "offered": area.offered_statement(file.sha256, file.name),
            "offered signature": area.offered_statement_signature(file.sha256, file.name),
            "lock": area.set_lock(document.id),
            "set": area.set_document(document.id),
            "page": f"{area.set_index(document.id)}/triton/index.html",
            "channel page": f"{CHANNEL}/triton/index.json",
            "view page": f"{VIEW}/triton/index.html",
            "status": RELEASE.channel_status("nightly"),
            "support": RELEASE.support_document,
            "whole support": "v2/support.json",
        }[kind]


def promoter(store: Store, when: str) -> promote.Promoter:
    return promote.Promoter(store, STAGING, "nightly", promote.ChannelActor("ann@here", when))


def release(store: Store, documents: list[wheel_set.SetDocument]) -> None:
    for number, document in enumerate(documents):
        promoter(store, f"2026-11-2{number}T13:00:00Z").promote(document, lambda: PASSED)
    refresher = Refresher(store, LAYOUT, POLICY, "bob@here", MOMENT, {})
    refresher.refresh_channel(FAMILY, "nightly")
    refresher.refresh_support([FAMILY])


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    home = tmp_path_factory.mktemp("released")
    worlds = [World(home / "1"), World(home / "2", "2.9.2")]
    triton = next(wheel for wheel in worlds[0].wheels if wheel.name.startswith("triton"))
    add_statement(triton, "triton", "a" * 40, lock.format_lock(a_lock(["triton"])).encode())
    statement.locate_statement_signature(triton).write_text("-----BEGIN SSH SIGNATURE-----\n")
    worlds[1].wheels = [triton, *(one for one in worlds[1].wheels if "triton" not in one.name)]
    store, documents = FolderStore(home / "store"), []
    for number, world in enumerate(worlds):
        plan = world.plan()
        stage(store, plan, now=f"2026-11-2{number}T12:00:00Z")
        document = wheel_set.find_set(store, plan.document.id)
        when = MOMENT - timedelta(hours=5)
        evidence = said("smoke", gfx=TARGET, document=document, when=when, added=when).evidence
        add_evidence(store, LAYOUT, document, evidence)
        documents.append(document)
    release(store, documents)
    wheels = home / "wheels"
    wheels.mkdir()
    for wheel in {wheel for world in worlds for wheel in world.wheels}:
        shutil.copy(wheel, wheels)
    assert check(store, hash_wheels=True).findings == []
    return Released(store.folder, wheels, documents)


@pytest.fixture(scope="module")
def bucket(released: Released) -> Store:
    """The same in a bucket, which each test leaves as it was: to fill one takes long."""
    return released.fill(s3_servers.a_store())


@pytest.fixture(autouse=True)
def no_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def check(store: Store, **more: Any) -> store_check.StoreReport:
    return store_check.StoreCheck(store, LAYOUT, more.pop("now", LATER), pauses=(), **more).run()


def repair(store: Store, *copies: Path, now: datetime = LATER) -> store_repair.StoreRepair:
    looked = store_check.StoreCheck(store, LAYOUT, now, hash_wheels=True, pauses=())
    return store_repair.StoreRepairer(looked, POLICY, "bob@here", {}, copies).repair()


def named(report: store_check.StoreReport) -> set[tuple[str, str]]:
    return {(finding.check, finding.subject) for finding in report.errors}


def everything(store: Store) -> dict[str, str]:
    """Return all files by path; builds of pages, of which one is shown, are seen by their names alone."""
    found = {
        one.path: hashlib.sha256(store.read(one.path).content).hexdigest()
        for one in store.listing("")
        if ".pages/" not in one.path
    }
    if store.folder is not None:
        found |= {path: str((store.folder / path).readlink()) for path in (CHANNEL, VIEW)}
    return found


def overwrite(store: Store, path: str, content: bytes) -> None:
    store.remove(path)
    store.create(path, content)


def edit(store: Store, path: str, change: Callable[[bytes], bytes]) -> None:
    content = store.read(path).content
    assert change(content) != content
    overwrite(store, path, change(content))


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def swap(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES: dict[str, Callable[[Store, str], None]] = {
    "gone": lambda store, path: store.remove(path),
    "cut": lambda store, path: edit(store, path, cut),
    "swapped": lambda store, path: edit(store, path, swap),
}
FILES = {  # what each damage of a kind of file is called
    "wheel": ("missing-file", "cut-file", "other-bytes"),
    "METADATA": ("missing-file", "other-bytes", "other-bytes"),
    "name": ("missing-name", "wrong-name", "wrong-name"),
    "statement": ("missing-file", "other-bytes", "other-bytes"),
    "offered": ("missing-file", "other-bytes", "other-bytes"),
    "lock": ("missing-file", "other-bytes", "other-bytes"),
    "set": ("missing-set", "damaged-document", "damaged-document"),
    "page": ("missing-page", "", "edited-page"),
    "channel page": ("missing-page", "broken-page", ""),
    "view page": ("missing-page", "", "edited-page"),
    "status": ("stale-status", "stale-status", "stale-status"),
    "support": ("stale-support", "stale-support", "stale-support"),
    "whole support": ("stale-support", "stale-support", "stale-support"),
}
ONLY_RELEASED = {"channel page", "view page", "status", "support", "whole support"}


@dataclass(frozen=True)
class Case:
    """A kind of file, what is done to it, where, and how that is called ("": by one of several names)."""

    kind: str
    damage: str
    area: layout.FamilyPaths
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.damage} {self.area.area}"


PRODUCT = [
    Case(kind, damage, area, names[number])
    for kind, names in FILES.items()
    for number, damage in enumerate(DAMAGES)
    for area in (RELEASE, STAGING)
    if area is RELEASE or kind not in ONLY_RELEASED
]


def require_repaired(released: Released, store: Store, case: Case) -> None:
    """Damage one file; it alone is named, by a name of its own, and comes back with the same bytes."""
    before, path = everything(store), released.path_of(case.kind, case.area)
    DAMAGES[case.damage](store, path)
    found = named(check(store, hash_wheels=True))
    assert {subject for _, subject in found} == {path}, found
    assert not case.name or found == {(case.name, path)}
    done = repair(store)
    assert done.report.errors == () and {finding.key for finding in done.repaired} >= found
    assert everything(store) == before
    assert repair(store).repaired == ()


@pytest.mark.parametrize("case", PRODUCT[::4], ids=str)
def test_a_damaged_file_is_named_and_repaired(case: Case, released: Released, tmp_path: Path) -> None:
    require_repaired(released, released.copy(tmp_path / "store"), case)


@pytest.mark.parametrize("case", PRODUCT[1::40], ids=str)
def test_a_damaged_file_in_s3_is_named_and_repaired(case: Case, released: Released, bucket: Store) -> None:
    require_repaired(released, bucket, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ["folder", "s3"])
@pytest.mark.parametrize("case", PRODUCT, ids=str)
def test_every_damage_of_every_kind_of_file_anywhere(
    case: Case, where: str, released: Released, bucket: Store, tmp_path: Path
) -> None:
    require_repaired(released, bucket if where == "s3" else released.copy(tmp_path / "store"), case)


@pytest.mark.parametrize("kind", ["signature", "offered signature"])
def test_a_lost_signature_comes_back(kind: str, released: Released, tmp_path: Path) -> None:
    store, path = released.copy(tmp_path / "store"), released.path_of(kind)
    before = everything(store)
    store.remove(path)
    assert named(check(store)) == {("missing-file", path)}
    assert repair(store).report.errors == () and everything(store) == before


WRONG_DIGEST = b"0" * 64
PAGE_EDITS: dict[str, Callable[[bytes], bytes]] = {
    "page-digest": lambda page: re.sub(rb"sha256=[0-9a-f]{64}", b"sha256=" + WRONG_DIGEST, page, count=1),
    "page-link": lambda page: page.replace(b"</body>", b'<a href="../x.whl">x.whl</a></body>'),
    "forms-differ": lambda page: re.sub(rb' data-(?:core|dist-info)-metadata="[^"]*"', b"", page),
    "edited-page": lambda page: page.replace(b"</body>", b"<!-- by hand --></body>"),
}


@pytest.mark.parametrize("name", PAGE_EDITS)
@pytest.mark.parametrize("place", [VIEW, CHANNEL, "set"])
def test_an_edited_page_is_named_by_what_it_says(
    name: str, place: str, released: Released, tmp_path: Path
) -> None:
    store = released.copy(tmp_path / "store")
    folder = RELEASE.set_index(released.documents[0].id) if place == "set" else place
    before, page = everything(store), f"{folder}/triton/index.html"
    edit(store, page, PAGE_EDITS[name])
    assert named(check(store)) == {(name, page)}
    assert repair(store).report.errors == () and everything(store) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no links there")
@pytest.mark.parametrize("target", [None, "nowhere", "../channels/nightly.json"])
@pytest.mark.parametrize("link", [CHANNEL, VIEW])
def test_a_link_that_is_gone_or_leads_elsewhere(
    link: str, target: str | None, released: Released, tmp_path: Path
) -> None:
    store = released.copy(tmp_path / "store")
    before, place = everything(store), store.folder / link
    place.unlink()
    if target is not None:
        place.symlink_to(target)
    assert named(check(store)) == {("broken-link", link)}
    assert repair(store).report.errors == () and everything(store) == before


def rewrite(store: Store, path: str, change: Callable[[Any], object]) -> None:
    document = json.loads(store.read(path).content)
    change(document)
    overwrite(store, path, json.dumps(document, indent=1).encode() + b"\n")


DOCUMENTS: dict[str, Callable[[Any], object]] = {
    "a change that nobody made": lambda channel: channel["history"].pop(0),
    "a set that nobody took away": lambda channel: (
        channel.update(current=channel["sets"][0]["set"]),
        channel["sets"].pop(),
    ),
    "a revision that was": lambda channel: channel.update(revision=2),
    "somebody else": lambda channel: channel["sets"][0].update(by="eve@there"),
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_a_history_that_does_not_lead_to_what_is_shown(what: str, released: Released, tmp_path: Path) -> None:
    store, path = released.copy(tmp_path / "store"), RELEASE.channel_document("nightly")
    rewrite(store, path, DOCUMENTS[what])
    assert ("wrong-history", path) in named(check(store))
    left = repair(store).report.errors
    assert {finding.key for finding in left} == {("wrong-history", path)}
    assert "copy of the store" in left[0].tip


def test_a_status_that_names_other_wheels_is_made_again(released: Released, tmp_path: Path) -> None:
    """Installers read these digests in support.json."""
    store, path = released.copy(tmp_path / "store"), RELEASE.channel_status("nightly")
    before = everything(store)
    rewrite(store, path, lambda status: status["sets"][1]["wheels"][0].update(sha256="0" * 64))
    assert ("stale-status", path) in named(check(store))
    assert repair(store).report.errors == () and everything(store) == before


def test_evidence_is_of_sets_that_are_there_and_as_it_was_written(released: Released, tmp_path: Path) -> None:
    store, set_id = released.copy(tmp_path / "store"), released.documents[0].id
    before = everything(store)
    (listed,) = store.listing(RELEASE.evidence_folder(set_id))
    edit(store, listed.path, lambda content: content.replace(b'"pass"', b'"fail"'))
    lost = STAGING.evidence_folder(f"1.0-{'0' * 12}")
    store.create(f"{lost}/x.json", b"{}")
    found = named(check(store))
    assert found == {
        ("damaged-document", listed.path),
        ("damaged-document", f"{lost}/x.json"),
        ("lost-evidence-set", lost),
    }
    left = named(repair(store).report)
    assert left == {("damaged-document", f"{lost}/x.json"), ("lost-evidence-set", lost)}
    store.remove(f"{lost}/x.json")
    assert everything(store) == before


def test_unknown_files_are_noted_and_stay(released: Released, bucket: Store, tmp_path: Path) -> None:
    """Also while the pages around them are published again, in a folder and page by page."""
    for store in (released.copy(tmp_path / "store"), bucket):
        added = [
            f"{CHANNEL}/evil/index.html",
            f"{VIEW}/note.txt",
            f"{RELEASE.family_folder}/files/note",
            f"{STAGING.set_folder(released.documents[0].id)}/note",
        ]
        for path in added:
            store.create(path, b"somebody's")
        store.create("probe/12", b"first")
        report = check(store)
        assert report.errors == ()
        assert {f.subject for f in report.findings if f.check == "unknown-file"} == set(added)
        assert {f.subject for f in report.findings if f.check == "stray-file"} == {"probe/12"}
        for page in (CHANNEL, VIEW):
            store.remove(f"{page}/triton/index.json")
        assert repair(store).report.errors == ()
        for path in added:
            assert store.read(path).content == b"somebody's", path
            store.remove(path)
        store.remove("probe/12")


def test_what_has_no_good_copy_is_named_and_comes_from_a_folder(released: Released, tmp_path: Path) -> None:
    store, triton = released.copy(tmp_path / "store"), released.documents[1].files[-1]
    before, paths = everything(store), [released.path_of("wheel", area) for area in (STAGING, RELEASE)]
    store.remove(paths[0])
    edit(store, paths[1], swap)
    for area in (STAGING, RELEASE):  # is read from the wheel
        store.remove(released.path_of("METADATA", area))
    left = [finding for finding in repair(store).report.errors if finding.subject in paths]
    assert [finding.sha256 for finding in left] == [triton.sha256] * 2
    assert all(finding.set_id and "--from" in finding.tip for finding in left)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / triton.name).write_bytes(b"another")
    assert len(repair(store, tmp_path / "bad").report.errors) == 4
    assert repair(store, tmp_path / "bad", released.wheels).report.errors == ()
    assert everything(store) == before


def test_a_set_that_lost_nearly_all_comes_back(released: Released, tmp_path: Path) -> None:
    """What comes back shows what else is gone: the document first, then its files, and pages from those."""
    store, set_id = released.copy(tmp_path / "store"), released.documents[1].id
    before = everything(store)
    for listed in list(store.listing(RELEASE.set_folder(set_id))):
        store.remove(listed.path)
    for listed in list(store.listing(f"{RELEASE.family_folder}/files")):
        store.remove(listed.path)
    assert ("missing-set", RELEASE.set_document(set_id)) in named(check(store))
    assert repair(store).report.errors == ()
    assert everything(store) == before


def killed_repair(store: FaultyStore) -> None:
    with pytest.raises(Killed):
        repair(store)


@pytest.mark.parametrize("mode", ["rename", "pages"])
def test_a_repair_that_is_killed_at_any_write_is_carried_on(
    mode: str, released: Released, tmp_path: Path, exhaustive: bool
) -> None:
    def damaged(name: str) -> FolderStore:
        store = released.copy(tmp_path / name)
        if mode == "pages":  # as where links cannot be made
            for link in (CHANNEL, VIEW):
                pages = store.folder / link
                build = pages.resolve()
                pages.unlink()
                shutil.copytree(build, pages)
        for kind in ("METADATA", "name", "set", "channel page", "view page", "support", "lock"):
            store.remove(released.path_of(kind))
        edit(store, released.path_of("wheel"), swap)
        return store

    clean = FaultyStore(damaged("clean"))
    assert repair(clean).report.errors == ()
    goal = everything_but_links(clean.inner)
    writes = list(dict.fromkeys(clean.writes))
    assert len(writes) >= 8
    for number, write in list(enumerate(writes))[:: 1 if exhaustive else 4]:
        store = damaged(str(number))
        killed_repair(FaultyStore(store, at=write, fault="after"))
        assert repair(store).report.errors == ()
        assert everything_but_links(store) == goal


def everything_but_links(store: Store) -> dict[str, str]:
    return {
        one.path: hashlib.sha256(store.read(one.path).content).hexdigest()
        for one in store.listing("")
        if ".pages/" not in one.path
    }


def test_a_change_in_progress_is_no_damage(released: Released, tmp_path: Path, exhaustive: bool) -> None:
    """Looked at after each write of a promotion that is killed there, and while others hold a channel."""
    source = FolderStore(released.folder)
    for mode in ("rename", "pages"):
        writes = begun_again(released, source, tmp_path / f"{mode} clean", mode, "")
        claims = 0
        begin = next(number for number, write in enumerate(writes) if "channels/nightly.json" in write)
        logs = [number for number, write in enumerate(writes) if f"copy {RELEASE.logs_folder}/" in write]
        results = [
            number
            for number, write in enumerate(writes)
            if f"copy {RELEASE.family_folder}/evidence/" in write
        ]
        assert results and results[-1] < logs[0]  # no log names what is not there
        sample = [2, logs[0], begin, begin + 4, len(writes) - 2, len(writes) - 1]
        chosen = range(len(writes)) if exhaustive else sample
        for number in chosen:
            write = writes[number]
            store = FolderStore(tmp_path / f"{mode} {number}")
            begun_again(released, source, store.folder, mode, write)
            now = datetime(2026, 11, 21, 13, 5, tzinfo=timezone.utc)
            report = check(store, hash_wheels=True, now=now)
            kinds = {finding.check for finding in report.errors}
            assert kinds <= {"stale-support"}, (mode, write, report.errors)
            claims += "pending-change" in {finding.check for finding in report.findings}
        assert claims >= 2


def begun_again(released: Released, source: Store, place: Path, mode: str, write: str) -> list[str]:
    """Stage both sets anew, and promote them up to a write; return what is written."""
    inner = FolderStore(place)
    for listed in source.listing("v2-staging"):
        inner.create(listed.path, source.read(listed.path).content)
    promoter(inner, "2026-11-20T13:00:00Z").promote(released.documents[0], lambda: PASSED)
    refresher = Refresher(inner, LAYOUT, POLICY, "bob@here", MOMENT, {})
    refresher.refresh_channel(FAMILY, "nightly")
    refresher.refresh_support([FAMILY])
    store = FaultyStore(inner, at=write, fault="after")
    if mode == "pages":
        place = inner.folder / CHANNEL
        build = place.resolve()
        place.unlink()
        shutil.copytree(build, place)
    try:
        promoter(store, "2026-11-21T13:00:00Z").promote(released.documents[1], lambda: PASSED)
    except Killed:
        assert write
    return list(dict.fromkeys(store.writes))


def test_what_seems_damaged_is_looked_at_again(released: Released, tmp_path: Path) -> None:
    """A file that comes between the listing and the second look is no damage."""
    store, path = released.copy(tmp_path / "store"), released.path_of("wheel")
    content = store.read(path).content
    store.remove(path)

    class Slow(FaultyStore):
        def listing(self, prefix: str) -> Iterator[ListedFile]:
            listed = list(super().listing(prefix))
            if prefix == "probe" and self.inner.head(path) is None:  # the last listing of a look
                self.inner.create(path, content)
            return iter(listed)

    assert store_check.StoreCheck(Slow(store), LAYOUT, LATER, pauses=(0,)).run().errors == ()


def test_few_requests_to_a_bucket(bucket: Store) -> None:
    """Pages and names are told by their ETags; what is read are documents, and never a wheel."""
    store = bucket
    assert isinstance(store, s3.S3Store)
    asked: list[tuple[str, str]] = []
    call, read = store._client.call, store._client.call_with_body

    def note(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(operation: str, **words: Any) -> Any:
            asked.append((operation, words.get("Key", "").removeprefix("some/where/")))
            return work(operation, **words)

        return noted

    store._client.call, store._client.call_with_body = note(call), note(read)
    try:
        report = check(store)
    finally:
        store._client.call, store._client.call_with_body = call, read
    assert report.findings == [] and report.files > 100
    listings = [key for operation, key in asked if operation == "list_objects_v2"]
    assert len(listings) <= 5
    paths = [key for operation, key in asked if operation == "get_object"]
    assert not [path for path in paths if path.endswith((".whl", ".html", ".sha256", "index.json"))]
    assert not [operation for operation, _ in asked if operation == "head_object"]
    assert len(paths) < report.files / 2


def test_the_command(
    released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = released.copy(tmp_path / "store")
    place = str(store.folder)

    def run(*words: str) -> int:
        return boundary.run_command(main.cli, ["store", "fsck", place, *words])

    assert run("--hash") == 0
    edit(store, released.path_of("wheel"), swap)
    assert run() == 0, "no wheel is read"
    capsys.readouterr()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run("--hash", "--json") == 15
    printed = capsys.readouterr()
    (finding,) = json.loads(printed.out)["findings"]
    assert (finding["check"], finding["path"]) == ("other-bytes", released.path_of("wheel"))
    assert "::error::" in printed.err
    assert run("--hash", "--repair", "--json") == 0
    assert [one["check"] for one in json.loads(capsys.readouterr().out)["repaired"]] == ["other-bytes"]
    assert run("--from", str(released.wheels)) == 2
    assert run("--family", "gfx1") == 2
    assert run("--repair", "--from", str(tmp_path / "none")) == 2
    assert run("--list-checks", "--json") == 0
    assert json.loads(capsys.readouterr().out) == store_check.STORE_CHECKS


def test_a_refresh_looks_at_what_is_released(
    released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads no wheel, repairs nothing, and does all of its own work before it fails."""
    store = released.copy(tmp_path / "store")
    rules = tmp_path / "policy.yaml"
    rules.write_text("channels: {nightly: {rules: {verify: {fresh: 14d}}}}")

    def refresh() -> tuple[int, Any]:
        words = ["set", "refresh", str(store.folder), "--policy", str(rules), "--json"]
        code = boundary.run_command(main.cli, words)
        return code, json.loads(capsys.readouterr().out)

    code, printed = refresh()
    assert (code, printed["damage"]) == (0, [])
    edit(store, released.path_of("wheel"), swap)
    assert refresh()[0] == 0
    store.remove(released.path_of("wheel"))
    store.remove(released.path_of("wheel", STAGING))
    store.remove(released.path_of("support"))
    code, printed = refresh()
    assert code == 15 and printed["documents"] == [released.path_of("support")]
    assert [one["path"] for one in printed["damage"]] == [released.path_of("wheel")]
