"""Signed channels: whatever is killed or put back, no reader takes what is old or what nobody signed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from commands import Ended, call, make_key, needs_ssh_keygen
from crash import FaultyStore, Killed, Watched, before_first_call, killed_at_writes
from documents import policy, reseal, said
from pythons import make_environment
from stores import FAMILY, PAGES, PASSED, PATHS, TARGET, Sets, World, abandon, linked, sets, stage

from rocm_wheels.core import errors, ssh_signature
from rocm_wheels.index.manifest import Manifest, ManifestMemory, verify_manifest
from rocm_wheels.index.signing import ManifestKeeper, ReleaseSigner
from rocm_wheels.release import wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.refresh import Refresher, RefreshResult
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store, StoredFile

_ = sets  # a fixture
pytestmark = [pytest.mark.contract, needs_ssh_keygen]
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
RULES = "{signed: false, rules: {audit: {fresh: 14d}}}"
POLICY = policy(f"channels: {{nightly: {RULES}, stable: {RULES}}}")
ENV = {"PATH": os.environ["PATH"]}
CHANNEL, MANIFEST = PATHS.channel_document("nightly"), PATHS.channel_manifest("nightly")
REFUSED = (errors.ReleaseError, errors.DataError, errors.UsageError)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two keys: that of the release, and another one."""
    folder = tmp_path_factory.mktemp("keys")
    return [make_key(folder / name) for name in ("release", "other")]


class Signing:
    """One who changes a channel and refreshes it, with a key or (None) without."""

    def __init__(self, key: Path | None, now: datetime = MOMENT, channel: str = "nightly") -> None:
        self.now, self.channel = now, channel
        self.signer = None if key is None else ReleaseSigner(key, ENV, now)

    def promoter(self, store: Store) -> Promoter:
        actor = ChannelActor("ann@here", f"{self.now:%Y-%m-%dT%H:%M:%SZ}")
        return Promoter(store, PATHS, self.channel, actor, signer=self.signer)

    def refresh(self, store: Store) -> RefreshResult | None:
        refresher = Refresher(store, POLICY, "ann@here", self.now, ENV, signer=self.signer)
        done = refresher.refresh_channel(FAMILY, self.channel)
        refresher.refresh_support()
        return done

    def promote(self, store: Store, document: wheel_set.SetDocument) -> None:
        self.promoter(store).promote(document, lambda: PASSED)
        self.refresh(store)

    def demote(self, store: Store, document: wheel_set.SetDocument) -> None:
        self.promoter(store).demote([document.id])
        self.refresh(store)

    def abandon(self, store: Store, document: wheel_set.SetDocument) -> None:
        promoter = self.promoter(store)
        pending = promoter.read_channel_record().channel.pending
        assert pending is None or document.id in pending.sets
        abandon(promoter)  # views had followed what it goes back to: nothing is left to refresh

    def begin(self, store: Store) -> None:
        """Sign for the first time what is there."""
        assert self.signer is not None
        signing = Signing(None, self.now)
        signing.signer = replace(self.signer, anew=True)
        signing.refresh(store)


@pytest.fixture(scope="module")
def signed(sets: Sets, keys: list[Path]) -> Path:
    """A copy of the store, signed. Both sets passed on a GPU, and the first is shown."""
    place = linked(sets.place, sets.home / "signed")
    store = sets.store(place)
    for document in sets.documents:
        when = MOMENT - timedelta(hours=5)
        evidence = said("smoke", gfx=TARGET, document=document, when=when, added=when).evidence
        add_evidence(store, document, evidence)
    Signing(keys[0]).begin(store)
    return place


def read_manifest(store: Store, key: Path, path: str = MANIFEST) -> Manifest:
    trusted = {"release": ssh_signature.read_public_key(key, ENV)}
    return verify_manifest(store.read(path).content, path, trusted, ENV).manifest


def list_unsigned(place: Path, key: Path) -> list[str]:
    """Return the pages of the channel and its views that its manifest does not state as they are now."""
    manifest, family = read_manifest(FolderStore(place), key), place / FAMILY
    pages = [*(place / PAGES).rglob("index.*"), *family.glob("by-gfx/*/nightly/**/index.*")]
    names = {*manifest.files, *(page.relative_to(family).as_posix() for page in pages)}
    contents = {name: family / name for name in sorted(names)}
    return [
        name
        for name, page in contents.items()
        if not manifest.states_content(name, page.read_bytes() if page.is_file() else None)
    ]


def require_signed(sets: Sets, place: Path, key: Path) -> None:
    """All that readers take is signed, and there is nothing to do."""
    assert list_unsigned(place, key) == []
    store = sets.store(place)
    Signing(key).refresh(store)
    assert store.writes == []


Change = Callable[[Store, wheel_set.SetDocument], None]


def kill_at_each(
    sets: Sets, start: Path, key: Path, change: Change, document: wheel_set.SetDocument, *, exhaustive: bool
) -> list[Path]:
    """Kill a change after its writes; the same change carries on. Return the stores as they were."""
    left = []
    for _, killed in killed_at_writes(
        start, lambda store: change(store, document), exhaustive=exhaustive, most=3
    ):
        left.append(killed)
        place = linked(killed, killed.with_name(f"{killed.name} again"))
        change(sets.store(place), document)
        require_signed(sets, place, key)
    return left


def test_what_a_killed_change_leaves_is_finished_by_the_same_command_and_signed(
    shop: Shop, exhaustive: bool
) -> None:
    signing, (old, new) = Signing(shop.key), shop.sets.documents
    start = shop.start("start")
    for killed in kill_at_each(shop.sets, start, shop.key, signing.promote, new, exhaustive=exhaustive):
        if json.loads((killed / CHANNEL).read_bytes())["pending"]:  # or it is put back
            signing.abandon(shop.sets.store(killed), new)
            require_signed(shop.sets, killed, shop.key)
            assert signing.promoter(shop.sets.store(killed)).read_channel_record().channel.shown == (old.id,)
    signing.promote(shop.sets.store(start), new)
    kill_at_each(shop.sets, start, shop.key, signing.demote, new, exhaustive=exhaustive)


def test_an_abandoned_change_that_is_killed_is_finished_and_signed(shop: Shop, exhaustive: bool) -> None:
    """The change may have been killed when it was signed already, but not done."""
    signing, new = Signing(shop.key), shop.sets.documents[1]
    for name, at in (("claimed", f"replace {CHANNEL}"), ("begun", f"replace {MANIFEST}")):
        start = shop.start(name)
        with pytest.raises(Killed):
            signing.promote(shop.sets.store(start, at, "after"), new)
        kill_at_each(shop.sets, start, shop.key, signing.abandon, new, exhaustive=exhaustive)


@pytest.mark.parametrize("at", [f"replace {CHANNEL}", f"replace {MANIFEST}"])
def test_a_claim_stays_where_it_cannot_be_read_what_other_channels_show(shop: Shop, at: str) -> None:
    """It may be signed already, and people may have got it: nothing is taken back for want of an answer."""
    signing, new, place = Signing(shop.key), shop.sets.documents[1], shop.start("store")
    with pytest.raises(Killed):
        signing.promote(shop.sets.store(place, at, "after"), new)
    silent = shop.sets.store(place)

    def read(path: str) -> StoredFile:
        if path == PATHS.channel_document("stable"):
            raise errors.ReleaseError("no answer")
        return silent.inner.read(path)

    silent.read = read  # type: ignore[method-assign]
    with pytest.raises(errors.ReleaseError, match="no answer"):
        signing.promote(silent, new)
    assert silent.writes == []
    signing.promote(shop.sets.store(place), new)
    require_signed(shop.sets, place, shop.key)


def test_a_new_channel_is_signed_from_its_first_set_on_whatever_write_is_the_last(
    shop: Shop, exhaustive: bool
) -> None:
    stable, (old, _new) = Signing(shop.key, channel="stable"), shop.sets.documents
    start, path = shop.start("start"), PATHS.channel_manifest("stable")
    for number, killed in enumerate(
        kill_at_each(shop.sets, start, shop.key, stable.promote, old, exhaustive=exhaustive)
    ):
        again = linked(killed, shop.root / f"put back {number}")
        pending = json.loads((again / PATHS.channel_document("stable")).read_bytes())["pending"]
        stable.promote(shop.sets.store(killed), old)
        assert (
            "simple/stable/torch/index.json" in read_manifest(shop.sets.store(killed), shop.key, path).files
        )
        if pending:
            stable.abandon(shop.sets.store(again), old)
            assert read_manifest(shop.sets.store(again), shop.key, path).files.keys() <= {
                "simple/stable/index.json",
                "simple/stable/index.html",
            }


def put_back(store: Store, old: Store, *, manifest: bool) -> None:
    """Have a store be what it was in an older copy, with the manifest of then or that of now."""
    assert store.folder is not None and old.folder is not None
    family = store.folder / FAMILY
    kept = family / "nightly.manifest.json"
    content = kept.read_bytes()
    shutil.rmtree(family)
    shutil.copytree(old.folder / FAMILY, family)
    if not manifest:
        kept.write_bytes(content)


def edit(store: Store, path: str, change: Callable[[Any], object]) -> None:
    """Change a JSON document in place, and seal it again, as somebody does who may write to the store."""
    assert store.folder is not None
    values = json.loads((store.folder / path).read_text())
    change(values)
    (store.folder / path).unlink()
    (store.folder / path).write_bytes(reseal((json.dumps(values, indent=1) + "\n").encode()))


def forge_pending(channel: dict[str, Any], action: str, goal: list[Any]) -> None:
    """Write down a change that looks as if it had been killed."""
    said = {"by": "eve", "policy": "", "began": "x", "goal": goal, "adds": False}
    channel["pending"] = {"action": action, "sets": [channel["sets"][-1]["set"]], **said}
    channel["revision"] += 1


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "revision": (CHANNEL, lambda channel: channel.update(revision=99)),
    "note": (CHANNEL, lambda channel: channel["sets"][0].update(notes=["gfx942: tested (full tests)"])),
    "set": (CHANNEL, lambda channel: channel["sets"][0].update(document="0" * 64)),
    "demotion": (CHANNEL, lambda channel: forge_pending(channel, "demote", channel["sets"])),
    "promotion": (CHANNEL, lambda channel: forge_pending(channel, "promote", channel["sets"][:1])),
    "abandoned": (CHANNEL, lambda channel: forge_pending(channel, "abandon", [])),
    "manifest": (MANIFEST, lambda signed: signed.update(payload=signed["payload"] + " ")),
    "shape": (MANIFEST, lambda signed: signed.update(payload="{}")),
}


@pytest.fixture(scope="module")
def newer(sets: Sets, signed: Path, keys: list[Path]) -> Path:
    """A store that shows the second set, too."""
    place = linked(signed, sets.home / "newer")
    Signing(keys[0], MOMENT + timedelta(hours=1)).promote(sets.store(place), sets.documents[1])
    return place


@dataclass
class Shop:
    """The store of two sets, the key of the release and another one, and a folder for copies."""

    sets: Sets
    key: Path
    other_key: Path
    signed: Path
    newer: Path
    root: Path

    def start(self, name: str) -> Path:
        """Return a copy of the signed store, which shows the first set."""
        return linked(self.signed, self.root / name)

    @cached_property
    def promoted(self) -> tuple[FaultyStore, FaultyStore]:
        """A copy of a store that shows the second set, and one of it from before."""
        return self.sets.store(linked(self.newer, self.root / "store")), self.sets.store(self.signed)


@pytest.fixture
def shop(sets: Sets, keys: list[Path], signed: Path, newer: Path, tmp_path: Path) -> Shop:
    return Shop(sets, *keys, signed, newer, tmp_path)


def require_never_signed(store: FaultyStore, signing: Signing, document: wheel_set.SetDocument) -> None:
    """Nobody who signs takes a channel as it is."""
    before = [store.inner.read(path).content for path in (CHANNEL, MANIFEST)]
    for attempt in (signing.promote, signing.demote, signing.abandon):
        with pytest.raises(REFUSED):
            attempt(store, document)
    with pytest.raises(REFUSED):
        signing.refresh(store)
    assert [store.inner.read(path).content for path in (CHANNEL, MANIFEST)] == before


@pytest.mark.parametrize("what", FORGERIES)
def test_what_was_edited_is_not_signed(shop: Shop, what: str) -> None:
    store, signing = shop.promoted[0], Signing(shop.key, MOMENT + timedelta(hours=2))
    path, change = FORGERIES[what]
    edit(store, path, change)
    require_never_signed(store, signing, shop.sets.documents[1])


def test_a_change_that_somebody_claims_without_a_key_is_not_made(shop: Shop) -> None:
    """It is not what anybody with a key has asked for, and such a one puts it back."""
    store, (old, new) = shop.promoted[0], shop.sets.documents
    signing = Signing(shop.key, MOMENT + timedelta(hours=2))
    edit(store, CHANNEL, lambda channel: forge_pending(channel, "demote", channel["sets"][:1]))
    before = [store.inner.read(path).content for path in (CHANNEL, MANIFEST)]
    for attempt in (signing.promote, signing.demote):
        with pytest.raises(errors.ReleaseError, match="is being changed: demote of 2"):
            attempt(store, old)
    left = signing.refresh(store)
    assert left is not None and left.changing is not None and "by eve" in str(left.changing.pending)
    assert [store.inner.read(path).content for path in (CHANNEL, MANIFEST)] == before
    signing.abandon(store, new)
    assert signing.promoter(store).read_channel_record().channel.shown == (old.id, new.id)
    assert store.folder is not None
    assert list_unsigned(store.folder, shop.key) == []


def test_pages_and_sets_that_were_edited_are_not_signed(shop: Shop) -> None:
    store, new = shop.promoted[0], shop.sets.documents[1]
    signing = Signing(shop.key, MOMENT + timedelta(hours=2))
    assert store.folder is not None
    stated = read_manifest(store, shop.key).files
    for folder in (PAGES, PATHS.view_pages(TARGET, "nightly")):
        page = store.folder / folder / "torch/index.html"
        content = page.read_bytes()
        page.unlink()
        page.write_bytes(content.replace(new.files[0].sha256.encode(), b"0" * 64) + b" ")
    forged = {"schema": 1, "releases": "none"}
    edit(store, PATHS.support_document, lambda document: document.update(forged))
    signing.refresh(store)  # it follows from documents, and says the truth again
    assert read_manifest(store, shop.key).files == stated
    assert list_unsigned(store.folder, shop.key) == []
    edit(store, PATHS.set_document(new.id), lambda document: document.update(rocm="9.9.9"))
    require_never_signed(store, signing, shop.sets.documents[0])


def test_an_old_state_that_is_put_back_is_never_signed(shop: Shop) -> None:
    (store, old), now = shop.promoted, MOMENT + timedelta(hours=2)
    signing, memory = Signing(shop.key, now), ManifestMemory(shop.root / "seen")
    assert signing.signer is not None
    signing.signer = replace(signing.signer, memory=memory)
    whole = shop.sets.store(linked(store.inner.folder, shop.root / "whole"))
    signing.demote(whole, shop.sets.documents[1])
    signing.promote(whole, shop.sets.documents[1])  # its version is known here
    put_back(store, old, manifest=False)
    require_never_signed(store, Signing(shop.key, now), shop.sets.documents[1])
    put_back(whole, old, manifest=True)  # only who saw the newer one can tell, until it expires
    with pytest.raises(errors.ReleaseError, match="an old state was put back"):
        signing.refresh(whole)
    require_never_signed(whole, signing, shop.sets.documents[1])
    unknowing = shop.sets.store(linked(whole.inner.folder, shop.root / "unknowing"))
    Signing(shop.key, now).refresh(unknowing)
    signing.begin(whole)  # who put a copy back says so
    assert list_unsigned(whole.inner.folder, shop.key) == []
    assert memory.find_version(whole.url_of(MANIFEST)) == read_manifest(whole, shop.key).version
    later = Signing(shop.key, MOMENT + timedelta(days=15))
    with pytest.raises(errors.ReleaseError, match="expired"):
        later.refresh(unknowing)
    require_never_signed(unknowing, later, shop.sets.documents[1])
    later.begin(unknowing)
    assert list_unsigned(unknowing.inner.folder, shop.key) == []


def test_a_channel_is_signed_for_the_first_time_whether_or_not_it_tells_something_new(shop: Shop) -> None:
    store, signing = shop.sets.store(linked(shop.sets.place, shop.root / "store")), Signing(shop.key)
    for name in ("new", "known"):
        clean = shop.sets.store(linked(store.inner.folder, shop.root / name))
        with pytest.raises(errors.ReleaseError, match="nobody has signed"):
            signing.refresh(clean)
        assert clean.writes == []
        signing.begin(clean)
        for number, write in enumerate(clean.writes):
            place = linked(store.inner.folder, shop.root / f"{name} {number}")
            with pytest.raises(Killed):
                signing.begin(shop.sets.store(place, write, "after"))
            signing.begin(shop.sets.store(place))
            require_signed(shop.sets, place, shop.key)
        Signing(None).refresh(store)


def test_without_the_key_what_is_signed_stays_as_it_is(shop: Shop) -> None:
    store, nobody, stranger = shop.promoted[0], Signing(None), Signing(shop.other_key)
    for signing in (nobody, stranger):
        for attempt in (signing.promote, signing.demote):
            with pytest.raises((errors.UsageError, errors.ReleaseError)):
                attempt(store, shop.sets.documents[0])
        with pytest.raises((errors.UsageError, errors.ReleaseError)):
            signing.refresh(store)
    assert store.writes == []
    # nor the rest of the store: another channel that has something to be told, where it is seen from
    assert store.folder is not None
    Signing(None, channel="stable").promoter(store).promote(shop.sets.documents[0], lambda: PASSED)
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    for words in ([], ["--public-url", "https://wheels.example.org/"]):
        told = call("set", "refresh", store.folder, *words, code=2).err
        assert f"nightly of {FAMILY} is signed\ntip: name the key with --sign-with KEY" in told
    after = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    assert after == before
    Signing(None, channel="stable").refresh(store)  # nobody has signed that one
    store.remove(MANIFEST)
    with pytest.raises(errors.ReleaseError, match="nobody has signed"):
        Signing(shop.key).promote(store, shop.sets.documents[0])


def test_a_claim_that_another_channel_refuses_leaves_what_was_signed(shop: Shop) -> None:
    place, twins = shop.start("store"), []
    for text in ("one", "two"):
        world = World(shop.root / text, "2.9.4", text=text)
        world.wheels[0] = shop.sets.worlds[0].wheels[0]
        twins.append(stage(FolderStore(place), world.plan()).document)
    signing, other = Signing(shop.key), Signing(None, channel="stable")
    store = Watched(FolderStore(place), at=f"replace {CHANNEL}")
    store.guest = lambda: other.promote(shop.sets.store(place), twins[1])
    with pytest.raises(errors.ReleaseError, match="has other bytes in 2"):
        signing.promote(store, twins[0])
    signing.promote(shop.sets.store(place), shop.sets.documents[1])
    require_signed(shop.sets, place, shop.key)


def test_a_signature_is_renewed_when_half_of_its_time_is_over(shop: Shop) -> None:
    store = shop.sets.store(shop.start("renewed"))
    written = {}
    for days in (6, 8):
        store.writes.clear()
        Signing(shop.key, MOMENT + timedelta(days=days)).refresh(store)
        written[days] = list(store.writes)
    assert written == {6: [], 8: [f"replace {MANIFEST}"]}
    replaced = replace(
        Signing(shop.other_key).signer, signers={"old": ssh_signature.read_public_key(shop.key, ENV)}
    )
    successor = Signing(shop.other_key, MOMENT + timedelta(days=16))
    successor.signer = replace(replaced, now=successor.now)
    successor.refresh(store)  # another key, which knows the one before
    assert list_unsigned(store.inner.folder, shop.other_key) == []


def test_what_another_signed_meanwhile_is_signed_again_as_it_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two who refresh by other policies: the pages of one are never left under the word of the other."""
    later = MOMENT + timedelta(days=8)  # more than half of its time is over: each has one to write
    place, signing = shop.start("start"), Signing(shop.key, later)
    rules = POLICY.model_copy(update={"views": {"all": (TARGET,)}})

    def overtake() -> None:
        refresher = Refresher(shop.sets.store(place), rules, "bob@there", later, ENV, signing.signer)
        refresher.refresh_channel(FAMILY, "nightly")

    before_first_call(monkeypatch, ManifestKeeper, "write", overtake)
    signing.refresh(shop.sets.store(place))
    assert list_unsigned(place, shop.key) == []


def choose(url: str, key: Path, code: int | tuple[int, ...] = 0) -> Ended:
    """Choose from an index whose pages must be signed."""
    machine = ["--gfx", TARGET, "--rocm", "7.1", "--python", "3.11", "--platform", "linux"]
    return call("choose", "torch", "--index", url, *machine, "--released-by", f"{key}.pub", code=code)


def test_an_installer_takes_what_was_signed_and_nothing_older(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store, old), folder = shop.promoted, shop.promoted[0].inner.folder
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.root / "state"))
    now = datetime.now(timezone.utc).replace(microsecond=0)
    Signing(shop.key, now).begin(store)
    url = f"{shop.sets.url}{quote(folder.relative_to(shop.sets.root).as_posix())}/{FAMILY}/"
    channel, view = f"{url}simple/nightly/", f"{url}by-gfx/{TARGET}/nightly/"
    for index in (channel, view, f"{folder.as_uri()}/{FAMILY}/simple/nightly/"):
        assert "torch-2.9.2" in choose(index, shop.key).out
    choose(channel, shop.other_key, 17)
    choose(f"{url}sets/{shop.sets.documents[1].id}/simple/", shop.key, 17)  # not signed
    page = folder / PAGES / "torch/index.html"
    for name in ("index.html", "index.json"):
        page.with_name(name).rename(shop.root / name)
    choose(channel, shop.key, 17)  # hidden
    shutil.copy(shop.root / "index.html", page)
    choose(channel, shop.key)
    page.write_text(page.read_text().replace("2.9.2", "2.9.3"))
    choose(channel, shop.key, 17)  # edited
    choose(view, shop.key)
    put_back(store, old, manifest=True)
    Signing(shop.key, now - timedelta(days=1)).begin(store)  # it holds, as of yesterday
    assert "an old state was put back" in choose(channel, shop.key, 17).err
    shutil.rmtree(shop.root / "state")
    choose(channel, shop.key)  # who has seen nothing newer cannot know


def test_an_installer_takes_nothing_unsigned_of_a_change_that_was_killed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, exhaustive: bool
) -> None:
    """The old set, as it was signed; nothing while pages are neither of what was signed; then the new set."""
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.root / "state"))
    signing, new = Signing(shop.key, datetime.now(timezone.utc).replace(microsecond=0)), shop.sets.new
    start = shop.start("start")
    signing.begin(shop.sets.store(start))
    seen = []
    for _, place in killed_at_writes(
        start, lambda store: signing.promote(store, new), exhaustive=exhaustive, most=7
    ):
        url = f"{shop.sets.url}{quote(place.relative_to(shop.sets.root).as_posix())}/{FAMILY}/simple/nightly/"
        ended = choose(url, shop.key, (0, 17))
        seen.append({0: "new" if "torch-2.9.2" in ended.out else "old", 17: "nothing"}[ended.code])
        assert (seen[-1] == "nothing") == any(
            name.startswith("simple/nightly/torch/") for name in list_unsigned(place, shop.key)
        )
    assert list(dict.fromkeys(seen)) == ["old", "nothing", "new"]
    assert seen == sorted(seen, key=["old", "nothing", "new"].index)


def test_torch_is_installed_from_a_signed_channel(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages are signed; ROCm's packages come from elsewhere."""
    store, folder = shop.promoted[0], shop.promoted[0].inner.folder
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.root / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.root / "cache"))
    Signing(shop.key, datetime.now(timezone.utc).replace(microsecond=0)).begin(store)
    venv = make_environment(shop.root / "venv")
    url = f"{shop.sets.url}{quote(folder.relative_to(shop.sets.root).as_posix())}/"
    words = ["torch", "--index", f"{url}{FAMILY}/simple/nightly/", "--rocm-index", f"{url}rocm/"]
    words += ["--gfx", TARGET, "--python", str(venv.prefix)]

    def install(*more: str, dependencies: str = f"{url}rocm/", code: int = 0) -> Ended:
        monkeypatch.setenv("UV_DEFAULT_INDEX", dependencies)
        return call("install", *words, *more, code=code)

    install("--released-by", f"{shop.other_key}.pub", code=17)
    install("--released-by", f"{shop.other_key}.pub", dependencies=words[2], code=17)
    assert venv.packages() == {}
    install("--released-by", f"{shop.key}.pub")
    assert {"torch", "triton", "rocm"} == set(venv.packages())
    assert venv.packages()["torch"].startswith("2.9.2")


def test_the_commands_sign_by_a_key_that_a_variable_holds(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = linked(shop.sets.place, shop.root / "store")
    monkeypatch.setenv("XDG_STATE_HOME", str(shop.root / "state"))
    (shop.root / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shop.root / "temp"))
    refresh = ["set", "refresh", str(place)]
    demote = ["set", "demote", str(place), "--channel", "nightly", "--set", shop.sets.documents[0].id]
    monkeypatch.setenv("ROCM_WHEELS_RELEASE_KEY", shop.key.read_text())
    call(*refresh, code=15)  # nobody has signed it
    call(*refresh, "--sign-anew", "--dry-run")
    assert not (place / MANIFEST).exists()
    call(*refresh, "--sign-anew")
    assert list_unsigned(place, shop.key) == []
    monkeypatch.delenv("ROCM_WHEELS_RELEASE_KEY")
    call(*demote, code=2)
    call(*demote, "--sign-with", shop.other_key, code=15)
    monkeypatch.setenv("ROCM_WHEELS_RELEASED_BY", f"{shop.key}.pub")  # another key takes its place
    call(*demote, "--sign-with", shop.other_key)
    assert list_unsigned(place, shop.other_key) == []
    assert not list((shop.root / "temp").rglob("key"))
