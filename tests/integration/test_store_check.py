"""A released store is damaged in every way: found by one name, and put back by the command that is told."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import servers
from commands import call
from crash import FaultyStore, killed_at_writes
from documents import policy, reseal, said
from stores import FAMILY, TARGET, World, a_lock, add_statement, linked, stage

from rocm_wheels.core import errors
from rocm_wheels.release import channel, fsck, store_paths, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.refresh import Refresher
from rocm_wheels.release.stage import StagePlan
from rocm_wheels.release.verdict import RuleResult, Verdict
from rocm_wheels.sources import lock
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store
from rocm_wheels.wheels import statement

PATHS = store_paths.FamilyPaths(FAMILY)
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
RULES = "channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}"
PASSED = Verdict("x", FAMILY, "nightly", MOMENT, (RuleResult("hashes", "pass"),))
CHANNEL, VIEW = PATHS.channel_pages("nightly"), PATHS.view_pages(TARGET, "nightly")
DOCUMENT = PATHS.channel_document("nightly")


@dataclass
class Released:
    """A store in which two sets are staged, promoted and refreshed, and what they were staged from."""

    folder: Path
    worlds: list[World]
    documents: list[wheel_set.SetDocument]

    @property
    def plans(self) -> list[StagePlan]:
        return [world.plan() for world in self.worlds]

    def copy(self, target: Path) -> FolderStore:
        return FolderStore(linked(self.folder, target))

    def path_of(self, kind: str) -> str:
        """Return where a kind of file lies, of the wheel of triton, which both sets have."""
        document = self.documents[-1]
        file = next(file for file in document.files if file.project == "triton")
        wheel = PATHS.pool_file(file.sha256, file.name)
        return {
            "wheel": wheel,
            "METADATA": wheel + ".metadata",
            "statement": wheel + statement.STATEMENT_SUFFIX,
            "signature": wheel + statement.STATEMENT_SIGNATURE_SUFFIX,
            "lock": PATHS.lock_file(document.locks[0].digest),
            "set": PATHS.set_document(document.id),
            "results": f"{PATHS.evidence_folder(document.id)}/{self.result.id}.json",
            "channel": DOCUMENT,
            "page": f"{PATHS.set_index(document.id)}/triton/index.html",
            "channel page": f"{CHANNEL}/triton/index.json",
            "view page": f"{VIEW}/triton/index.html",
            "support": PATHS.support_document,
            "whole support": "support.json",
        }[kind]

    @property
    def result(self) -> Any:
        when = MOMENT - timedelta(hours=5)
        document = self.documents[-1]
        of = {"document": document, "about": document.digest, "when": when, "added": when}
        return said("smoke", gfx=TARGET, **of).evidence


def promoter(store: Store, when: str) -> channel.Promoter:
    return channel.Promoter(store, PATHS, "nightly", channel.ChannelActor("ann@here", when))


def release(store: Store, documents: list[wheel_set.SetDocument]) -> None:
    for number, document in enumerate(documents):
        promoter(store, f"2026-11-2{number}T13:00:00Z").promote(document, lambda: PASSED)
    refresh(store)


def refresh(store: Store) -> None:
    refresher = Refresher(store, policy(RULES), "bob@here", MOMENT, {})
    refresher.refresh_channel(FAMILY, "nightly")
    refresher.refresh_support()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    home = tmp_path_factory.mktemp("released")
    worlds = [World(home / "1"), World(home / "2", "2.9.2")]
    triton = next(wheel for wheel in worlds[0].wheels if wheel.name.startswith("triton"))
    add_statement(triton, "triton", "a" * 40, lock.format_lock(a_lock(["triton"])).encode())
    statement.locate_statement_signature(triton).write_text("-----BEGIN SSH SIGNATURE-----\n")
    worlds[1].wheels = [triton, *(one for one in worlds[1].wheels if "triton" not in one.name)]
    made = Released(home / "store", worlds, [])
    fill(FolderStore(made.folder), made)
    return made


def fill(store: Store, released: Released) -> Store:
    documents = []
    for number, plan in enumerate(released.plans):
        stage(store, plan, now=f"2026-11-2{number}T12:00:00Z")
        documents.append(wheel_set.find_set(store, plan.document.id))
    released.documents = documents
    add_evidence(store, documents[-1], released.result)
    release(store, documents)
    assert fsck.check_store(store, hash_wheels=True).findings == []
    return store


def check(store: Store) -> fsck.StoreReport:
    return fsck.check_store(store, hash_wheels=True)


def named(report: fsck.StoreReport) -> set[tuple[str, str]]:
    return {(finding.check, finding.path) for finding in report.errors}


def everything(store: Store) -> dict[str, str]:
    return {one.path: hashlib.sha256(store.read(one.path).content).hexdigest() for one in store.listing("")}


def overwrite(store: Store, path: str, content: bytes) -> None:
    store.remove(path)
    store.create(path, content)


def edit(store: Store, path: str, change: Callable[[bytes], bytes]) -> None:
    content = store.read(path).content
    assert change(content) != content
    overwrite(store, path, change(content))


def rewrite(store: Store, path: str, change: Callable[[Any], object]) -> None:
    document = json.loads(store.read(path).content)
    change(document)
    overwrite(store, path, reseal(json.dumps(document, indent=1).encode() + b"\n"))


DAMAGES: dict[str, Callable[[Store, str], None]] = {
    "gone": lambda store, path: store.remove(path),
    "cut": lambda store, path: edit(store, path, lambda content: content[: len(content) // 2]),
    "swapped": lambda store, path: edit(store, path, lambda content: content[:-1] + bytes([content[-1] ^ 1])),
}
# what each damage of a kind of file is called, and what puts the very bytes back
FILES = {
    "wheel": ("missing-file", "other-bytes", "stage"),
    "METADATA": ("missing-file", "other-bytes", "stage"),
    "statement": ("missing-file", "other-bytes", "stage"),
    "lock": ("missing-file", "other-bytes", "stage"),
    "set": ("missing-file", "damaged-document", "a copy"),
    "results": ("", "damaged-document", "a copy"),
    "channel": ("missing-file", "damaged-document", "a copy"),
    "page": ("wrong-page", "wrong-page", "repair"),
    "channel page": ("wrong-page", "wrong-page", "repair"),
    "view page": ("wrong-page", "wrong-page", "repair"),
    "support": ("wrong-page", "wrong-page", "refresh"),
    "whole support": ("wrong-page", "wrong-page", "repair"),
}
CASES = [
    (kind, damage, (gone if damage == "gone" else other), remedy)
    for kind, (gone, other, remedy) in FILES.items()
    for damage in DAMAGES
]


def put_right(released: Released, store: Store, remedy: str, path: str) -> None:
    """Do what the finding, or the error, says."""
    if remedy == "stage":
        store.remove(path)
        for plan in released.plans:
            stage(store, plan)
    elif remedy == "a copy":
        store.remove(path)
        store.create(path, released.folder / path)
    elif remedy == "refresh":
        refresh(store)
    else:
        report = check(store)
        assert [finding.path for finding in fsck.repair_pages(store, report)] == [path]
        assert report.errors == []


def require_found(released: Released, store: Store, case: tuple[str, str, str, str]) -> None:
    """Damage one file; it alone is named, by a name of its own, and comes back with the same bytes."""
    kind, damage, name, remedy = case
    before, path = everything(store), released.path_of(kind)
    DAMAGES[damage](store, path)
    found = named(check(store))
    if kind == "support":
        found.discard(("wrong-page", "support.json"))  # follows from the other
    assert found == ({(name, path)} if name else set())
    put_right(released, store, remedy, path)
    assert everything(store) == before
    assert named(check(store)) == set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_a_damaged_file_is_named_and_comes_back(
    case: tuple[str, str, str, str], released: Released, tmp_path: Path
) -> None:
    require_found(released, released.copy(tmp_path / "store"), case)


@pytest.mark.exhaustive
def test_damaged_files_in_a_bucket_are_named_and_come_back(released: Released) -> None:
    """As in a folder: the store is another one, and what is looked at the same."""
    store = fill(servers.a_store(), released)
    for case in CASES:
        require_found(released, store, case)


def test_no_wheel_is_read_when_nobody_asks(released: Released) -> None:
    class Watching(FaultyStore):
        def read(self, path: str) -> Any:
            assert not path.endswith(".whl")
            return super().read(path)

        def digest(self, path: str) -> str:
            assert not path.endswith(".whl")
            return super().digest(path)

    assert fsck.check_store(Watching(FolderStore(released.folder))).findings == []


PAGE_EDITS: dict[str, Callable[[bytes], bytes]] = {
    "a digest": lambda page: re.sub(rb"sha256=[0-9a-f]{64}", b"sha256=" + b"0" * 64, page, count=1),
    "a link": lambda page: page.replace(b"</body>", b'<a href="../x.whl">x.whl</a></body>'),
    "no METADATA": lambda page: re.sub(rb' data-(?:core|dist-info)-metadata="[^"]*"', b"", page),
    "a comment": lambda page: page.replace(b"</body>", b"<!-- by hand --></body>"),
}


@pytest.mark.parametrize("what", PAGE_EDITS)
def test_an_edited_page_is_written_again(what: str, released: Released, tmp_path: Path) -> None:
    store = released.copy(tmp_path / "store")
    before = everything(store)
    pages = {
        f"{folder}/triton/index.html" for folder in (CHANNEL, VIEW, PATHS.set_index(released.documents[0].id))
    }
    for page in pages:
        edit(store, page, PAGE_EDITS[what])
    report = check(store)
    assert named(report) == {("wrong-page", page) for page in pages}
    fsck.repair_pages(store, report)
    assert everything(store) == before


def test_an_edited_document_is_named_and_no_page_follows_from_it(released: Released, tmp_path: Path) -> None:
    """Its id is that of its wheels, and says nothing of the rest; who edited it has sealed it again."""
    store, path = released.copy(tmp_path / "store"), released.path_of("set")
    before = everything(store)
    rewrite(store, path, lambda document: document.update(rocm="7.0.0"))
    edited = store.read(path).content
    report = check(store)
    assert named(report) == {("damaged-document", path)}
    assert fsck.repair_pages(store, report) == []
    assert everything(store) == {**before, path: hashlib.sha256(edited).hexdigest()}


@pytest.mark.parametrize("shown", [True, False])
def test_a_result_that_names_another_document_is_noted_and_makes_no_damage(
    shown: bool, released: Released, tmp_path: Path
) -> None:
    """Nobody signed it: else anybody who may add results could stop every refresh."""
    store, document = released.copy(tmp_path / "store"), released.documents[-1]
    if not shown:
        promoter(store, "2026-11-23T00:00:00Z").demote([document.id])
        refresh(store)
    result = released.result.model_copy(update={"about": "0" * 64})
    add_evidence(store, document, result)
    path = f"{PATHS.evidence_folder(document.id)}/{result.id}.json"
    report = check(store)
    assert [(finding.check, finding.path) for finding in report.findings] == [("other-document", path)]
    assert report.errors == []


def test_unknown_files_are_noted_and_stay(released: Released, tmp_path: Path) -> None:
    store = released.copy(tmp_path / "store")
    added = {
        f"{CHANNEL}/evil/index.html",
        f"{VIEW}/note.txt",
        f"{FAMILY}/files/note",
        f"{PATHS.set_folder(released.documents[0].id)}/note",
        f"{PATHS.set_index('2.9.3-0123456789ab')}/index.html",
    }
    for path in added:
        store.create(path, b"somebody's")
    store.create("probe/12", b"by a command that looks what the server honours")
    report = check(store)
    assert report.errors == []
    assert {(finding.check, finding.path) for finding in report.findings} == {
        ("unknown-file", path) for path in added
    }
    store.remove(f"{CHANNEL}/triton/index.json")
    fsck.repair_pages(store, check(store))
    assert all(store.read(path).content == b"somebody's" for path in added)


def test_a_lost_signature_comes_back(released: Released, tmp_path: Path) -> None:
    """It is no damage: nothing says which statements are signed."""
    store = released.copy(tmp_path / "store")
    before = everything(store)
    store.remove(released.path_of("signature"))
    assert check(store).findings == []
    stage(store, released.plans[0])
    assert everything(store) == before


def test_a_set_that_lost_all_its_files_comes_back(released: Released, tmp_path: Path) -> None:
    store = released.copy(tmp_path / "store")
    before = everything(store)
    set_id = released.documents[1].id
    for folder in (PATHS.set_index(set_id), PATHS.pool):
        for listed in list(store.listing(folder)):
            store.remove(listed.path)
    assert {name for name, _ in named(check(store))} == {"missing-file", "wrong-page"}
    for plan in released.plans:
        stage(store, plan)
    assert everything(store) == before


def test_a_set_without_its_document_is_said_by_all_and_can_be_taken_away(
    released: Released, tmp_path: Path
) -> None:
    """The error of each names the set, and none is a traceback."""
    store, path, set_id = released.copy(tmp_path / "store"), released.path_of("set"), released.documents[1].id
    place, rules = str(store.folder), tmp_path / "policy.yaml"
    rules.write_text(RULES)
    for listed in list(store.listing(PATHS.set_folder(set_id))):
        store.remove(listed.path)

    def told(*words: str) -> str:
        ended = call(*words, code=15)
        return ended.out + ended.err

    assert f"{path}: it is gone, and nightly shows the set" in told("store", "fsck", place)
    judged = ("--policy", str(rules))
    for words in (("refresh", place, *judged), ("list", place, "--channel", "nightly", *judged)):
        said_so = told("set", *words)
        assert f"there is no set {set_id} of {FAMILY}, and a channel shows it" in said_so, words
        assert "loses it by `rocm-wheels set demote`" in said_so
    call("set", "demote", place, "--channel", "nightly", "--set", set_id, *judged)
    assert named(check(store)) == set()
    call("set", "refresh", place, *judged)
    # nor with all of the family but its channels
    for kept in (PATHS.sets_folder, PATHS.pool):
        for listed in list(store.listing(kept)):
            store.remove(listed.path)
    path = PATHS.set_document(released.documents[0].id)
    assert f"{path}: it is gone, and nightly shows the set" in told("store", "fsck", place)
    gone = f"there is no set {released.documents[0].id} of {FAMILY}"
    assert gone in told("set", "refresh", place, *judged)


def test_whatever_was_cleared_or_cut_nothing_ends_in_a_traceback(
    released: Released, tmp_path: Path, exhaustive: bool
) -> None:
    """Each folder of a store, each file alone, a document with all of a kind: commands say what is wrong."""
    rules = tmp_path / "policy.yaml"
    rules.write_text(RULES)
    paths = [one.path for one in FolderStore(released.folder).listing("")]
    folders = {
        path.rsplit("/", depth)[0] + "/" for path in paths for depth in (1, 2, 3) if path.count("/") >= depth
    }
    pairs = [
        (path, other)
        for path in (DOCUMENT, released.path_of("set"))
        for other in ("files/", "sets/", "evidence/")
    ]
    cases = [*((folder,) for folder in sorted(folders)), *((path,) for path in paths), *pairs]
    for number, prefixes in enumerate(cases if exhaustive else cases[::3]):
        store = released.copy(tmp_path / str(number))
        for path in [path for path in paths if any(prefix in path for prefix in prefixes)]:
            content = store.read(path).content
            store.remove(path)
            if number % 2 and path.endswith(".json"):
                store.create(path, content[: len(content) // 2])
        place, judged = str(store.folder), ("--policy", str(rules))
        on_channel = ("--channel", "nightly", *judged)
        for words in (
            ("store", "fsck", place),
            ("set", "refresh", place, *judged),
            ("set", "list", place, *on_channel),
            ("set", "demote", place, "--set", released.documents[1].id, *on_channel),
            ("store", "prune", place, "--dry-run"),
        ):
            ended = call(*words, code=(0, 2, 15))
            assert ended.code == 0 or "error: " in ended.err, (prefixes, words, ended.err)


@pytest.mark.parametrize("kind", ["channel", "set"])
def test_a_damaged_document_is_named_with_what_to_do(kind: str, released: Released, tmp_path: Path) -> None:
    """A stage is done all the same, and warns; who changes the channel is refused."""
    store, path = released.copy(tmp_path / "store"), released.path_of(kind)
    DAMAGES["cut"](store, path)
    rules = tmp_path / "policy.yaml"
    rules.write_text(
        RULES.replace("{nightly:", "{stable: {signed: false, rules: {audit: {fresh: 14d}}}, nightly:")
    )
    says = f"{store.url_of(path)} is not the document of a {kind}: it does not end in a seal"
    tip = "put it back from a copy of the store"
    newer = released.worlds[0].next(tmp_path / "newer", "2.9.3")
    told = call(*newer.words(str(store.folder))).err
    assert "warning: `set promote` to " in told and says in told and tip in told
    document, now = wheel_set.find_set(store, "2.9.3"), datetime.now(timezone.utc)
    add_evidence(store, document, said("audit", document=document, when=now, added=now).evidence)
    promote = ["set", "promote", str(store.folder), "--set", "2.9.3", "--policy", str(rules), "--channel"]
    for words, code in (
        ([*promote, "nightly"], 2),
        ([*promote, "stable"], 2),
        (["set", "refresh", str(store.folder), "--policy", str(rules)], 15),
    ):
        told = call(*words, code=code).err
        assert says in told and tip in told.partition(says)[2]


class Crowded(FaultyStore):
    """A store that knows how many reads there were at a time."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.running, self.most, self.lock = 0, 0, threading.Lock()

    def _count(self, work: Callable[[], Any]) -> Any:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            time.sleep(0.02)
            return work()
        finally:
            with self.lock:
                self.running -= 1

    def read(self, path: str) -> Any:
        return self._count(lambda: self.inner.read(path))

    def head(self, path: str) -> Any:
        return self._count(lambda: self.inner.head(path))


def test_documents_of_a_store_are_read_several_at_a_time(
    released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = released.copy(tmp_path / "store")
    for family in ("gfx110X-all", "gfx120X-all"):
        (tmp_path / "store" / family / "sets").mkdir(parents=True)

    def find_none(store: Store) -> None:
        with pytest.raises(errors.ReleaseError, match="could be"):
            wheel_set.find_set(store, "2.9.")

    def list_all(store: Store) -> None:
        monkeypatch.setattr("rocm_wheels.stores.store.open_existing_store", lambda *_: store)
        assert len(call("set", "list", "x", "--json").json["sets"]) == 2

    for work in (find_none, check, list_all):
        store = Crowded(inner)
        work(store)
        assert store.most > 1


def test_a_change_in_progress_is_no_damage(released: Released, tmp_path: Path, exhaustive: bool) -> None:
    """Looked at after each write of a promotion, or of a refresh, that is killed there."""
    start = FolderStore(tmp_path / "start")
    for number, plan in enumerate(released.plans):
        stage(start, plan, now=f"2026-11-2{number}T12:00:00Z")
    add_evidence(start, released.documents[1], released.result)
    release(start, released.documents[:1])
    begun = True  # at first the channel alone was written
    for write, place in killed_at_writes(
        start.folder, lambda store: release(store, released.documents[1:]), exhaustive=exhaustive
    ):
        store = FolderStore(place)
        report = check(store)
        assert {finding.check for finding in report.errors} <= {"wrong-page"}, (write, report.errors)
        assert not begun or report.errors == []
        begun = False
        release(store, released.documents[1:])
        assert check(store).errors == [], write


def test_the_command(released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = released.copy(tmp_path / "store")
    place, wheel = str(store.folder), released.path_of("wheel")

    fsck_store = ("store", "fsck", place)
    call(*fsck_store, "--hash")
    DAMAGES["swapped"](store, wheel)
    call(*fsck_store)  # no wheel is read
    found = call(*fsck_store, "--hash", "--json", code=15).json["findings"]
    assert [(one["check"], one["path"]) for one in found] == [("other-bytes", wheel)]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = call(*fsck_store, "--hash", code=15)
    assert "::error::" in told.err and "`rocm-wheels set stage` with the same wheels" in told.out + told.err
    monkeypatch.delenv("GITHUB_ACTIONS")
    store.remove(wheel)
    for world in released.worlds:
        call(*world.words(place))
    store.remove(released.path_of("page"))
    told = call(*fsck_store, code=15)
    assert f"`rocm-wheels store fsck {place} --repair` writes the pages again" in told.out + told.err
    repaired = call(*fsck_store, "--repair", "--json").json["repaired"]
    assert [one["path"] for one in repaired] == [released.path_of("page")]


def test_a_refresh_looks_at_what_is_released(released: Released, tmp_path: Path) -> None:
    """It reads no wheel, repairs nothing, and does all of its own work before it fails."""
    store = released.copy(tmp_path / "store")
    rules = tmp_path / "policy.yaml"
    rules.write_text(RULES)

    words = ("set", "refresh", store.folder, "--policy", rules, "--json")
    assert call(*words).json["damage"] == []
    DAMAGES["swapped"](store, released.path_of("wheel"))
    call(*words)
    store.remove(released.path_of("wheel"))
    store.remove(released.path_of("support"))
    damage = call(*words, code=15).json["damage"]
    assert store.head(released.path_of("support")) is not None
    assert [one["path"] for one in damage] == [released.path_of("wheel")]
