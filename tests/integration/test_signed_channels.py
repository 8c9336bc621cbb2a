"""Signed channels: whatever is killed or put back, no reader takes what is old or what nobody signed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from faulty_store import FaultyStore, Killed
from promoted_sets import PAGES, PASSED, RELEASE, Sets, linked, sets, watched_point
from release_world import FAMILY, TARGET

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from install_world import make_environment
from judged_sets import policy, said

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.index import publish
from rocm_wheels.index.snapshot import Snapshot, SnapshotMemory, verify_snapshot
from rocm_wheels.release import layout, store_check, store_repair, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.promote import ChannelActor, Promoter
from rocm_wheels.release.refresh import Refresher
from rocm_wheels.release.snapshots import ReleaseSigner
from rocm_wheels.stores.store import Store

_ = sets  # a fixture
pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed"
)
LAYOUT = layout.load_layout()
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
POLICY = policy("channels: {nightly: {rules: {verify: {fresh: 14d}}}}")
SIGNING_CHECKS = {"unsigned", "wrong-snapshot", "expired-snapshot", "old-state", "unsigned-file"}
ENV = {"PATH": os.environ["PATH"]}
CHANNEL = RELEASE.channel_document("nightly")
SNAPSHOT = f"v2/{FAMILY}/nightly.snapshot.json"
SUPPORT = f"v2/{FAMILY}/support.snapshot.json"


@pytest.fixture(autouse=True)
def rename_is_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(publish, "point_link", watched_point)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two keys: that of the release, and another one."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("release", "other"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    return [folder / "release", folder / "other"]


class Signing:
    """One who promotes to nightly and refreshes it, with a key or (None) without."""

    def __init__(self, key: Path | None, now: datetime = MOMENT) -> None:
        self.now = now
        self.signer = None if key is None else ReleaseSigner(key, ENV, now)
        self.policy, self.change_policy = POLICY, False

    def promoter(self, store: Store) -> Promoter:
        actor = ChannelActor("ann@here", f"{self.now:%Y-%m-%dT%H:%M:%SZ}")
        return Promoter(store, layout.FamilyPaths(LAYOUT, FAMILY), "nightly", actor, signer=self.signer)

    def refresh(self, store: Store) -> None:
        refresher = Refresher(store, LAYOUT, self.policy, "ann@here", self.now, ENV, signer=self.signer)
        refresher = replace(refresher, change_policy=self.change_policy)
        refresher.refresh_channel(FAMILY, "nightly")
        refresher.refresh_support([FAMILY])

    def promote(self, store: Store, document: wheel_set.SetDocument) -> None:
        self.promoter(store).promote(document, lambda: PASSED)
        self.refresh(store)

    def demote(self, store: Store, document: wheel_set.SetDocument) -> None:
        self.promoter(store).demote([document.id])
        self.refresh(store)

    def begin(self, store: Store) -> None:
        """Sign for the first time what is there."""
        assert self.signer is not None
        signing = Signing(None, self.now)
        signing.signer = replace(self.signer, anew=True)
        signing.refresh(store)

    def check(self, store: Store, memory: SnapshotMemory | None = None) -> store_check.StoreReport:
        signers = {"release": ssh_signature.read_public_key(self.signer.key, ENV)} if self.signer else None
        found = store_check.StoreCheck(
            store, LAYOUT, self.now, pauses=(), signers=signers, env=ENV, memory=memory
        )
        return found.run()


@pytest.fixture(scope="module")
def signed(sets: Sets, keys: list[Path]) -> Mapping[str, Path]:
    """Copies of the store, signed, by how pages change in them. The second set passed on a GPU."""
    places = {}
    for mode in ("rename", "pages"):
        place = sets.home / f"signed {mode}"
        linked(getattr(sets, mode), place)
        store = sets.store(place)
        for document in sets.documents:
            when = MOMENT - timedelta(hours=5)
            evidence = said("smoke", gfx=TARGET, document=document, when=when, added=when).evidence
            add_evidence(store, LAYOUT, document, evidence)
        Signing(keys[0]).begin(store)
        places[mode] = place
    return places


def read_snapshot(store: Store, key: Path, path: str = SNAPSHOT) -> Snapshot:
    trusted = {"release": ssh_signature.read_public_key(key, ENV)}
    return verify_snapshot(store.read(path).content, path, trusted, ENV).snapshot


def list_unsigned(store: Store, place: Path, key: Path) -> list[str]:
    """Return the pages and documents for installers that no snapshot states as they are, or as gone."""
    found = []
    for path in (SNAPSHOT, SUPPORT):
        snapshot = read_snapshot(store, key, path)
        assert snapshot.find_time_fault(MOMENT) == ""
        family = place / f"v2/{FAMILY}"
        pages = {f"simple/{p.relative_to(family / 'simple')}" for p in (family / "simple").rglob("index.*")}
        views = family / "by-gfx"
        pages |= {f"by-gfx/{p.relative_to(views)}" for p in views.glob("*/nightly/**/index.*")}
        names = {*snapshot.files, *(pages if path == SNAPSHOT else ())} - {"channels/nightly.json"}
        for name in sorted(names):
            content = (family / name).read_bytes() if (family / name).is_file() else None
            if not snapshot.states_content(name, content):
                found.append(name)
    return found


@pytest.mark.parametrize("mode", ["rename", "pages"])
def test_what_a_killed_change_leaves_is_signed_and_the_same_command_finishes_it(
    *, mode: str, sets: Sets, signed: Mapping[str, Path], keys: list[Path], tmp_path: Path, exhaustive: bool
) -> None:
    signing, new = Signing(keys[0]), sets.documents[1]
    for action in (signing.promote, signing.demote)[: 2 if exhaustive else 1]:
        start = linked(signed[mode], tmp_path / f"{mode} start {action.__name__}")
        if action == signing.demote:
            signing.promote(sets.store(start), new)
        clean = sets.store(linked(start, tmp_path / f"{mode} clean {action.__name__}"))
        action(clean, new)
        writes = [write for write in clean.writes if "/files/" not in write and "/sets/" not in write]
        for number, write in enumerate(writes if exhaustive else writes[2 :: len(writes) // 4 + 1]):
            place = linked(start, tmp_path / f"{mode} {action.__name__} {number}")
            with pytest.raises(Killed):
                action(sets.store(place, write, "after"), new)
            store = sets.store(place)
            assert list_unsigned(store, place, keys[0]) == [], write
            assert SIGNING_CHECKS.isdisjoint(finding.check for finding in signing.check(store).errors), write
            action(store, new)
            snapshot = read_snapshot(store, keys[0])
            assert snapshot.settled and list_unsigned(store, place, keys[0]) == []
            assert all(len(states) == 1 for states in snapshot.files.values())
            assert signing.check(store).errors == ()
            count = len(store.writes)
            signing.refresh(store)
            assert len(store.writes) == count


def put_back(store: Store, old: Store, *, snapshots: bool) -> None:
    """Have what people see be what it was in an older copy, with the snapshots of then or those of now."""
    assert store.folder is not None and old.folder is not None
    area, before = store.folder / "v2", old.folder / "v2"
    kept = {} if snapshots else {path: path.read_bytes() for path in area.rglob("*.snapshot.json")}
    shutil.rmtree(area)
    shutil.copytree(before, area, symlinks=True)
    for path, content in kept.items():
        path.write_bytes(content)


def edit(store: Store, path: str, change: Callable[[Any], object]) -> None:
    """Change a JSON document in place, as somebody does who may write to the store."""
    assert store.folder is not None
    values = json.loads((store.folder / path).read_text())
    change(values)
    (store.folder / path).unlink()
    (store.folder / path).write_text(json.dumps(values, indent=1) + "\n")


def forge_pass(status: dict[str, Any]) -> None:
    for shown in status["sets"]:
        shown["told"] = ["gfx942: tested (full tests, 2026-11-21)"]


def forge_pending(channel: dict[str, Any]) -> None:
    """Take a set away by a change that looks as if it had been killed, and keep it in no place."""
    pending = {"action": "refresh", "sets": [channel["current"]], "by": "eve", "began": "x", "adds": False}
    channel["pending"] = {**pending, "goal": channel["sets"][:1]}
    channel["revision"] += 1


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "unsigned-file status": (RELEASE.channel_status("nightly"), forge_pass),
    "unsigned-file pending": (CHANNEL, forge_pending),
    "unsigned-file channel": (CHANNEL, lambda channel: channel.update(revision=99)),
    "wrong-snapshot text": (SNAPSHOT, lambda signed: signed.update(payload=signed["payload"] + " ")),
    "wrong-snapshot shape": (SNAPSHOT, lambda signed: signed.update(payload="{}")),
}


@pytest.fixture(scope="module")
def newer(sets: Sets, signed: Mapping[str, Path], keys: list[Path]) -> Path:
    """A store that shows the second set, too."""
    place = linked(signed["rename"], sets.home / "newer")
    Signing(keys[0], MOMENT + timedelta(hours=1)).promote(sets.store(place), sets.documents[1])
    return place


@pytest.fixture
def promoted(
    sets: Sets, signed: Mapping[str, Path], newer: Path, tmp_path: Path
) -> tuple[FaultyStore, FaultyStore]:
    """A copy of a store that shows the second set, and one of it from before."""
    return sets.store(linked(newer, tmp_path / "store")), sets.store(signed["rename"])


def require_never_signed(store: FaultyStore, signing: Signing, document: wheel_set.SetDocument) -> None:
    """Nobody who signs takes a store as it is: neither who changes a channel, nor who repairs it."""
    before = store.inner.read(CHANNEL).content
    for attempt in (signing.promote, signing.demote):
        with pytest.raises(errors.ReleaseError):
            attempt(store, document)
    looked = store_check.StoreCheck(store, LAYOUT, signing.now, pauses=(), signers={}, env=ENV)
    looked = replace(looked, signers=signing.signer.trusted if signing.signer else None)
    repair = store_repair.StoreRepairer(looked, POLICY, "ann@here", ENV, signer=signing.signer).repair()
    assert SIGNING_CHECKS.intersection(finding.check for finding in repair.report.errors)
    assert store.inner.read(CHANNEL).content == before


@pytest.mark.contract
@pytest.mark.parametrize("what", FORGERIES)
def test_what_was_edited_is_named_and_not_signed(
    what: str, sets: Sets, promoted: tuple[FaultyStore, FaultyStore], keys: list[Path]
) -> None:
    store, signing = promoted[0], Signing(keys[0], MOMENT + timedelta(hours=2))
    path, change = FORGERIES[what]
    edit(store, path, change)
    found = {finding.key for finding in signing.check(store).errors}
    assert (what.split(maxsplit=1)[0], path) in found
    if what.endswith("status"):  # it is made anew from what is signed, and says the truth again
        signing.refresh(store)
        assert signing.check(store).errors == ()
    else:
        require_never_signed(store, signing, sets.documents[1])


@pytest.mark.contract
def test_an_old_state_that_is_put_back_is_named_and_never_signed(
    sets: Sets, promoted: tuple[FaultyStore, FaultyStore], keys: list[Path], tmp_path: Path
) -> None:
    (store, old), now = promoted, MOMENT + timedelta(hours=2)
    signing, memory = Signing(keys[0], now), SnapshotMemory(tmp_path / "seen")
    assert signing.check(store, memory).errors == ()
    whole = sets.store(linked(store.inner.folder, tmp_path / "whole"))
    put_back(store, old, snapshots=False)
    found = signing.check(store).errors
    assert ("old-state", CHANNEL) in {finding.key for finding in found}
    require_never_signed(store, signing, sets.documents[1])
    put_back(whole, old, snapshots=True)  # only who saw the newer one can tell, until it expires
    assert signing.check(whole).errors == ()
    urls = SnapshotMemory(memory.folder)
    moved = store_check.StoreCheck(whole, LAYOUT, now, pauses=(), env=ENV, memory=_follow(urls, store, whole))
    assert ("old-state", SNAPSHOT) in {finding.key for finding in moved.run().errors}
    assert signing.signer is not None
    signing.signer = replace(signing.signer, memory=urls)
    with pytest.raises(errors.ReleaseError, match="an old state was put back"):
        signing.refresh(whole)
    restored = sets.store(linked(whole.inner.folder, tmp_path / "restored"))
    signing.signer = replace(signing.signer, memory=_follow(urls, store, restored))
    signing.begin(restored)  # who put a copy back says so
    assert signing.check(restored, urls).errors == ()
    later = Signing(keys[0], MOMENT + timedelta(days=15))
    assert ("expired-snapshot", SNAPSHOT) in {finding.key for finding in later.check(whole).errors}
    with pytest.raises(errors.ReleaseError, match="expired"):
        later.refresh(whole)
    later.begin(whole)
    assert later.check(whole).errors == ()


def _follow(memory: SnapshotMemory, store: Store, other: Store) -> SnapshotMemory:
    """Have a memory of a store hold for another one, as if that had its address."""
    for path in (SNAPSHOT, SUPPORT):
        source, target = (memory.locate(item.url_of(path)) for item in (store, other))
        shutil.copy(source, target)
    return memory


def test_a_channel_is_signed_for_the_first_time_whether_or_not_it_tells_something_new(
    sets: Sets, keys: list[Path], tmp_path: Path
) -> None:
    store, signing = sets.store(linked(sets.rename, tmp_path / "store")), Signing(keys[0])
    Signing(None).refresh(store)
    clean = sets.store(linked(store.inner.folder, tmp_path / "clean"))
    with pytest.raises(errors.ReleaseError, match="nobody has signed"):
        signing.refresh(clean)
    signing.begin(clean)
    for number, write in enumerate(clean.writes):
        place = linked(store.inner.folder, tmp_path / str(number))
        with pytest.raises(Killed):
            signing.begin(sets.store(place, write, "after"))
        again = sets.store(place)
        signing.begin(again)
        assert signing.check(again).errors == (), write


def test_the_policy_that_a_channel_keeps_is_signed_before_it_counts(
    *, sets: Sets, signed: Mapping[str, Path], keys: list[Path], tmp_path: Path, exhaustive: bool
) -> None:
    """A change of it that is killed at any write is finished by the same command; a forged one is refused."""
    signing = Signing(keys[0])
    signing.policy = policy("channels: {nightly: {rules: {verify: {fresh: 1d}}}}")
    clean = sets.store(linked(signed["pages"], tmp_path / "clean pages"))
    with pytest.raises(errors.ReleaseError, match="fresh is 2w, and would be 1d"):
        signing.refresh(clean)
    assert clean.writes == []
    signing.change_policy = True
    signing.refresh(clean)
    for number, write in enumerate(clean.writes if exhaustive else clean.writes[::2]):
        place = linked(signed["pages"], tmp_path / f"pages {number}")
        with pytest.raises(Killed):
            signing.refresh(sets.store(place, write, "after"))
        store = sets.store(place)
        assert list_unsigned(store, place, keys[0]) == [], write
        signing.refresh(store)
        document = json.loads(store.read(CHANNEL).content)
        assert document["policy"]["channels"]["nightly"]["rules"]["verify"] == {"fresh": "1d"}, write
        assert len(document["history"][-1]["policy"]) == 16 and document["pending"] is None
        assert read_snapshot(store, keys[0]).settled and list_unsigned(store, place, keys[0]) == []
    place = linked(signed["pages"], tmp_path / "pages forged")
    store = sets.store(place)
    document = json.loads(store.read(CHANNEL).content)
    easy = {**document["policy"], "signers": {}}
    shown = document["sets"]
    pending = {"action": "refresh", "sets": [shown[0]["set"]], "by": "eve", "began": "2026-11-21T12:00:00Z"}
    pending |= {"goal": shown, "adds": False, "policy": easy}
    forged = {**document, "revision": document["revision"] + 1, "pending": pending}
    (place / CHANNEL).unlink()
    (place / CHANNEL).write_text(json.dumps(forged))
    with pytest.raises(errors.ReleaseError, match="nobody signed that"):
        Signing(keys[0]).refresh(store)


@pytest.mark.contract
def test_without_the_key_what_is_signed_stays_as_it_is(
    sets: Sets, promoted: tuple[FaultyStore, FaultyStore], keys: list[Path], tmp_path: Path
) -> None:
    store, nobody, stranger = promoted[0], Signing(None), Signing(keys[1])
    store.writes.clear()
    for attempt in (nobody.promote, nobody.demote, stranger.promote, stranger.demote):
        with pytest.raises((errors.UsageError, errors.ReleaseError)):
            attempt(store, sets.documents[0])
    assert store.writes == []
    assert {finding.check for finding in stranger.check(store).errors} == {"wrong-snapshot"}
    memory, later = SnapshotMemory(tmp_path / "seen"), Signing(keys[1], MOMENT + timedelta(days=1))
    forged = sets.store(linked(store.inner.folder, tmp_path / "forged"))
    later.begin(forged)
    assert nobody.check(forged, memory).errors == ()
    assert memory.find_version(forged.url_of(SNAPSHOT)) == 0  # whose it is, nobody said
    store.remove(SNAPSHOT)
    assert ("unsigned", CHANNEL) in {finding.key for finding in nobody.check(store).errors}
    with pytest.raises(errors.ReleaseError, match="nobody has signed"):
        Signing(keys[0]).promote(store, sets.documents[0])


def test_a_signature_is_renewed_when_half_of_its_time_is_over(
    sets: Sets, signed: Mapping[str, Path], keys: list[Path], tmp_path: Path
) -> None:
    store = sets.store(linked(signed["pages"], tmp_path / "pages renewed"))
    written = {}
    for days in (6, 8):
        store.writes.clear()
        Signing(keys[0], MOMENT + timedelta(days=days)).refresh(store)
        written[days] = [write.removeprefix("replace ") for write in store.writes]
    assert written == {6: [], 8: [SNAPSHOT, SUPPORT, "v2/support.snapshot.json"]}
    replaced = replace(Signing(keys[1]).signer, signers={"old": ssh_signature.read_public_key(keys[0], ENV)})
    successor = Signing(keys[1], MOMENT + timedelta(days=16))
    successor.signer = replace(replaced, now=successor.now)
    successor.refresh(store)  # another key, which knows the one before
    assert successor.check(store).errors == ()


def choose(url: str, key: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit code of a choice from an index whose pages must be signed, and what it says."""
    machine = ["--gfx", TARGET, "--rocm", "7.1", "--python", "3.11", "--platform", "linux", "--retries", "0"]
    code = boundary.run_command(
        main.cli, ["choose", "torch", "--index", url, *machine, "--released-by", f"{key}.pub"]
    )
    output = capsys.readouterr()
    return code, output.out + output.err


@pytest.mark.contract
def test_an_installer_takes_what_was_signed_and_nothing_older(
    *,
    sets: Sets,
    promoted: tuple[FaultyStore, FaultyStore],
    keys: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (store, old), folder = promoted, promoted[0].inner.folder
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    now = datetime.now(timezone.utc).replace(microsecond=0)
    Signing(keys[0], now).begin(store)
    url = f"{sets.url}{quote(folder.relative_to(sets.root).as_posix())}/v2/{FAMILY}/"
    channel, view = f"{url}simple/nightly/", f"{url}by-gfx/{TARGET}/nightly/"
    for index in (channel, view, f"{folder.as_uri()}/v2/{FAMILY}/simple/nightly/"):
        code, text = choose(index, keys[0], capsys)
        assert code == 0 and "torch-2.9.2" in text
    assert choose(channel, keys[1], capsys)[0] == 17
    assert choose(f"{url}sets/{sets.documents[1].id}/simple/", keys[0], capsys)[0] == 17  # not signed
    page = folder / PAGES / "torch/index.html"
    for name in ("index.html", "index.json"):
        page.with_name(name).rename(tmp_path / name)
    assert choose(channel, keys[0], capsys)[0] == 17  # hidden
    shutil.copy(tmp_path / "index.html", page)
    assert choose(channel, keys[0], capsys)[0] == 0
    page.write_text(page.read_text().replace("2.9.2", "2.9.3"))
    assert choose(channel, keys[0], capsys)[0] == 17  # edited
    assert choose(view, keys[0], capsys)[0] == 0
    put_back(store, old, snapshots=True)
    Signing(keys[0], now - timedelta(days=1)).begin(store)  # it holds, as of yesterday
    code, text = choose(channel, keys[0], capsys)
    assert code == 17 and "an old state was put back" in text
    shutil.rmtree(tmp_path / "state")
    assert choose(channel, keys[0], capsys)[0] == 0  # who has seen nothing newer cannot know


@pytest.mark.contract
def test_torch_is_installed_from_a_signed_channel(
    sets: Sets,
    promoted: tuple[FaultyStore, FaultyStore],
    keys: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages are signed by who releases, statements by who builds; ROCm's packages come from elsewhere."""
    store, folder = promoted[0], promoted[0].inner.folder
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Signing(keys[0], datetime.now(timezone.utc).replace(microsecond=0)).begin(store)
    venv = make_environment(tmp_path / "venv")
    url = f"{sets.url}{quote(folder.relative_to(sets.root).as_posix())}/"
    words = ["torch", "--index", f"{url}v2/{FAMILY}/simple/nightly/", "--rocm-index", f"{url}rocm/"]
    words += ["--gfx", TARGET, "--python", str(venv.prefix), "--cache-dir", str(tmp_path / "cache")]

    def install(*more: str, dependencies: str = f"{url}rocm/") -> int:
        return boundary.run_command(main.cli, ["install", *words, "--dependency-index", dependencies, *more])

    assert install("--released-by", f"{keys[1]}.pub") == 17
    assert install("--released-by", f"{keys[0]}.pub", "--provenance", "required") == 17
    assert install("--released-by", f"{keys[0]}.pub", "--signed-by", f"{keys[1]}.pub") == 17
    assert install("--released-by", f"{keys[1]}.pub", dependencies=words[2]) == 17
    assert venv.packages() == {}
    assert install("--released-by", f"{keys[0]}.pub") == 0
    assert {"torch", "triton", "rocm"} == set(venv.packages())
    assert venv.packages()["torch"].startswith("2.9.2")


def test_the_commands_sign_by_a_key_that_a_variable_holds(
    sets: Sets, keys: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = linked(sets.rename, tmp_path / "store")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    look = ["store", "fsck", str(place), "--released-by", f"{keys[0]}.pub"]
    demote = ["set", "demote", str(place), "--channel", "nightly"]
    assert boundary.run_command(main.cli, look) == 15  # nobody has signed it
    monkeypatch.setenv("ROCM_WHEELS_RELEASE_KEY", keys[0].read_text())
    assert boundary.run_command(main.cli, ["set", "refresh", str(place)]) == 15
    assert boundary.run_command(main.cli, ["set", "refresh", str(place), "--sign-anew", "--dry-run"]) == 0
    assert boundary.run_command(main.cli, look) == 15
    assert boundary.run_command(main.cli, ["set", "refresh", str(place), "--sign-anew"]) == 0
    assert boundary.run_command(main.cli, look) == 0
    monkeypatch.delenv("ROCM_WHEELS_RELEASE_KEY")
    assert boundary.run_command(main.cli, demote) == 2
    assert boundary.run_command(main.cli, [*demote, "--sign-with", str(keys[0])]) == 0
    assert boundary.run_command(main.cli, look) == 0
    assert not list((tmp_path / "temp").rglob("key"))
