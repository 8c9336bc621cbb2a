"""Sets are pruned by policy; what a channel shows, or another set needs, never is, whoever works."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import servers
from commands import call
from crash import FaultyStore, Killed, Watched, sample
from documents import policy as make_policy
from documents import said
from stores import FAMILY, TARGET, World, a_lock, abandon, linked, stage

from rocm_wheels.core import errors, parallel
from rocm_wheels.release import fsck, policy, prune, refresh, store_paths, verdict, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter, read_channel
from rocm_wheels.release.evidence.evidence import Signature
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.stage import StagePlan, plan_stage
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store, put_file

PATHS = store_paths.FamilyPaths(FAMILY)
BEGIN = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=80)
NOW = BEGIN + timedelta(days=40)
PASSED = verdict.Verdict("x", FAMILY, "nightly", NOW, (verdict.RuleResult("hashes", "pass"),))
RULES = make_policy("channels: {nightly: {signed: false, rules: {audit: {fresh: 14d}}}}")
# of the five sets of `staged`, by number: what these keep
RETENTION = policy.RetentionPolicy(keep=1, keep_for=timedelta(days=7), keep_passed_for=timedelta(days=60))
SHOWN, FAILED, PASSING, PLAIN, NEWEST = range(5)


class Staged:
    """A store with five sets, four days apart; the first is shown by nightly."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "store"
        self.plans: list[StagePlan] = []
        self.ids: list[str] = []
        for number in range(5):
            world = World(home / str(number), f"2.9.{number + 1}")
            plan = plan_stage(world.wheels, [a_lock()], paths=PATHS, layout="per-family")
            self.plans.append(plan)
            self.ids.append(plan.document.id)
        self.fill(FolderStore(self.folder))

    def fill(self, store: Store) -> Store:
        for number, plan in enumerate(self.plans):
            stage(store, plan, now=f"{BEGIN + timedelta(days=4 * number):%Y-%m-%dT%H:%M:%SZ}")
        for number, outcome in ((FAILED, "fail"), (PASSING, "pass")):
            document = self.read(store, number)
            when = NOW - timedelta(hours=5)
            result = said("smoke", outcome, gfx=TARGET, document=document, when=when, added=when).evidence
            add_evidence(store, document, result)
        promote(store, self.read(store, SHOWN))
        refresher = refresh.Refresher(store, RULES, "ann@here", NOW, {})
        refresher.refresh_channel(FAMILY, "nightly")
        refresher.refresh_support()
        return store

    def read(self, store: Store, number: int) -> wheel_set.SetDocument:
        return wheel_set.find_set(store, self.ids[number])

    def copy(self, target: Path) -> FolderStore:
        return FolderStore(linked(self.folder, target))

    def wheel_of(self, number: int) -> str:
        """Return where the torch of a set lies, which no other set has."""
        torch = next(file for file in self.plans[number].document.files if file.project == "torch")
        return PATHS.pool_file(torch.sha256, torch.name)


def promoter(store: Store) -> Promoter:
    return Promoter(store, PATHS, "nightly", ChannelActor("ann@here", f"{BEGIN:%Y-%m-%dT%H:%M:%SZ}"))


def promote(store: Store, document: wheel_set.SetDocument) -> None:
    promoter(store).promote(document, lambda: PASSED)


def pruner(store: Store, retention: policy.RetentionPolicy = RETENTION, now: datetime = NOW) -> prune.Pruner:
    return prune.Pruner(store, retention, now)


def visible(store: Store) -> list[str]:
    return wheel_set.list_set_ids(store, FAMILY)


def findings(store: Store) -> list[tuple[str, str]]:
    report = fsck.check_store(store, hash_wheels=store.folder is not None)
    return [(finding.check, finding.path) for finding in report.findings]


def content(store: Store) -> dict[str, tuple[int, str]]:
    return {item.path: (item.size, item.tag) for item in store.listing("")}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    return Staged(tmp_path_factory.mktemp("staged"))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, staged: Staged, tmp_path: Path) -> Store:
    if request.param == "folder":
        return staged.copy(tmp_path / "copy")
    return staged.fill(servers.a_store())


def test_what_nothing_needs_goes(staged: Staged, store: Store) -> None:
    before = content(store)
    gone = [staged.ids[number] for number in (PLAIN, FAILED)]
    kept = {staged.ids[number] for number in (SHOWN, PASSING, NEWEST)}
    dry = pruner(store).plan(FAMILY)
    assert content(store) == before
    plan = pruner(store).prune(FAMILY)
    assert dry == plan and [document.id for document in plan.sets] == gone
    assert set(plan.kept) == kept == set(visible(store))
    assert plan.kept[staged.ids[SHOWN]] == "nightly shows it"
    assert "passed" in plan.kept[staged.ids[PASSING]] and "newest" in plan.kept[staged.ids[NEWEST]]
    wheels = {
        file.sha256: file.size
        for number in (FAILED, PLAIN)
        for file in staged.plans[number].document.files
        if file.project != "triton"  # which every set has
    }
    assert plan.size == sum(wheels.values()) > 0
    after = content(store)
    lost = before.keys() - after.keys()
    assert after == {path: before[path] for path in after}
    folders = [f"/sets/{set_id}/" for set_id in gone]
    assert lost == {path for path in before if any(key in path for key in (*wheels, *folders))}
    assert list(store.listing(PATHS.evidence_folder(gone[1])))  # results stay
    assert findings(store) == []
    assert pruner(store).prune(FAMILY).sets == () and content(store) == after
    stage(store, staged.plans[FAILED])  # it can be sent again, and goes when it is old again
    assert findings(store) == []


def test_a_prune_that_is_killed_is_carried_on(staged: Staged, tmp_path: Path, exhaustive: bool) -> None:
    """What is left of it has no document, and goes when it is old."""
    whole = Watched(staged.copy(tmp_path / "whole"))
    pruner(whole).prune(FAMILY)
    expected = content(whole.inner).keys()
    later = datetime.now(timezone.utc) + timedelta(days=9)
    retention = RETENTION.model_copy(update={"keep_for": later - BEGIN - timedelta(days=13)})
    for number, write in enumerate(sample(whole.writes, exhaustive)):
        for fault in ("before", "after") if exhaustive else (("before", "after")[number % 2],):
            inner = staged.copy(tmp_path / f"{number}{fault}")
            with pytest.raises(Killed):
                pruner(Watched(inner, at=write, fault=fault)).prune(FAMILY)
            assert {check for check, _ in findings(inner)} <= {"unknown-file"}
            pruner(inner).prune(FAMILY)
            assert set(visible(inner)) == set(visible(whole.inner))
            pruner(inner, retention.model_copy(update={"keep": 6}), later).prune(FAMILY)
            assert content(inner).keys() == expected, (write, fault)


@pytest.mark.parametrize("at", ["remove", "looked"])
def test_who_stages_what_is_pruned_is_told_and_the_same_command_carries_on(
    staged: Staged, tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He finds a wheel present, and then it goes."""
    # one file after another: else his last look may see the wheel's METADATA go, and tell him first
    monkeypatch.setattr(parallel, "run_in_parallel", lambda work, items, **_: [work(item) for item in items])
    store, torch = staged.copy(tmp_path / "copy"), f"torch-2.9.{FAILED + 1}"
    wheels = [
        wheel.path for wheel in staged.plans[FAILED].wheels if wheel.file.name.startswith((torch, "triton-"))
    ]
    locks = [a_lock(["pytorch", "triton"])]
    plan = plan_stage(wheels, locks, paths=PATHS, layout="per-family")
    wheel, document = staged.wheel_of(FAILED), PATHS.set_document(plan.document.id)
    if at == "remove":  # his document comes while the prune removes
        pruning = Watched(store, at=f"remove {wheel}")
        pruning.guest = lambda: stage(store, plan)
        with pytest.raises(errors.ReleaseError, match=f"{plan.document.id} was staged while files of it"):
            pruner(pruning).prune(FAMILY)
        assert ("missing-file", wheel) in findings(store)
    else:  # the prune comes before his document
        staging = Watched(store, at=f"create {document}")
        staging.guest = lambda: pruner(store).prune(FAMILY)
        with pytest.raises(errors.ReleaseError, match=r"has lost \d files to a prune") as said:
            stage(staging, plan)
        assert "run the same command again" in (said.value.tip or "")
    assert store.head(wheel) is None
    stage(store, plan)
    assert store.head(wheel) is not None and findings(store) == []


def test_who_stages_an_old_set_again_while_it_is_pruned_is_told(
    staged: Staged, tmp_path: Path, exhaustive: bool
) -> None:
    """At any write of the one and of the other: all is there at the end, or one of the two says so."""
    clean = FaultyStore(staged.copy(tmp_path / "clean"))
    pruner(clean).prune(FAMILY)
    told = 0
    for number, write in enumerate(sample(clean.writes, exhaustive, 5)):
        store, refusals = staged.copy(tmp_path / str(number)), list[str]()

        def guest(store: Store = store, refusals: list[str] = refusals) -> None:
            try:
                stage(store, staged.plans[FAILED])
            except errors.ReleaseError as refusal:
                refusals.append(str(refusal))

        watched = Watched(store, at=write)
        watched.guest = guest
        try:
            pruner(watched).prune(FAMILY)
        except errors.ReleaseError as refusal:
            refusals.append(str(refusal))
        whole = staged.ids[FAILED] not in visible(store) or findings(store) == []
        assert whole or refusals, write
        told += bool(refusals)
        stage(store, staged.plans[FAILED])
        assert {check for check, _ in findings(store)} <= {"unknown-file"}
    assert told


@pytest.mark.parametrize("moment", ["before", "claimed", "finished"])
def test_a_set_that_is_promoted_while_it_is_pruned_stays(staged: Staged, tmp_path: Path, moment: str) -> None:
    inner = staged.copy(tmp_path / "copy")
    document = staged.read(inner, PLAIN)
    channel = PATHS.channel_document("nightly")
    watched = Watched(inner, at=f"remove {PATHS.set_document(document.id)}")

    def begin() -> None:
        store = Watched(inner, at=f"replace {channel}", fault="after")
        with pytest.raises(Killed):
            promote(store, document)

    if moment == "finished":
        watched.guest = lambda: promote(inner, document)
    elif moment == "claimed":
        watched.guest = begin
    else:  # his claim comes when nothing is left of the set
        promoting = Watched(inner, at=f"replace {channel}")
        promoting.guest = lambda: pruner(inner).prune(FAMILY)
        with pytest.raises(errors.ReleaseError, match=f"there is no set {document.id}"):
            promote(promoting, document)
        assert abandon(promoter(inner)).channel.shown == (staged.ids[SHOWN],)
        assert findings(inner) == []
        return
    pruner(watched).prune(FAMILY)
    assert document.id in visible(inner) and staged.ids[FAILED] not in visible(inner)
    promote(inner, document)
    assert read_channel(inner, PATHS, "nightly").channel.shown == (staged.ids[SHOWN], document.id)
    refresh.Refresher(inner, RULES, "ann@here", NOW, {}).refresh_channel(FAMILY, "nightly")
    assert {(check, path) for check, path in findings(inner)} <= {("wrong-page", "support.json")}


def test_of_two_at_once_both_end_well(staged: Staged, tmp_path: Path, exhaustive: bool) -> None:
    clean = FaultyStore(staged.copy(tmp_path / "clean"))
    pruner(clean).prune(FAMILY)
    expected = content(clean.inner).keys()
    for number, write in enumerate(sample(clean.writes, exhaustive, 3)):
        inner = staged.copy(tmp_path / str(number))
        watched = Watched(inner, at=write)
        watched.guest = lambda inner=inner: pruner(inner).prune(FAMILY)
        pruner(watched).prune(FAMILY)
        assert content(inner).keys() == expected, write


def test_files_of_no_set_go_when_no_stage_can_be_at_them_any_more(staged: Staged, tmp_path: Path) -> None:
    store, plan = staged.copy(tmp_path / "copy"), World(tmp_path / "new", "2.9.9").plan()
    last = f"create {PATHS.set_document(plan.document.id)}"
    with pytest.raises(Killed):
        stage(FaultyStore(store, at=last, fault="before"), plan)
    begun = content(store)
    everything = policy.RetentionPolicy(keep=99)
    today = datetime.now(timezone.utc)
    assert pruner(store, everything, today).prune(FAMILY).files == ()
    assert content(store) == begun  # just now it was begun
    later = pruner(store, everything, today + everything.unfinished_for + timedelta(hours=1))
    expected = later.plan(FAMILY)
    assert expected.sets == () and expected.files and later.prune(FAMILY) == expected
    assert begun.keys() - content(store).keys() >= set(expected.files)
    assert not [path for path in content(store) if plan.document.id in path or "2.9.9" in path]
    assert findings(store) == [] and len(visible(store)) == 5
    stage(store, plan)
    assert findings(store) == []


def test_no_signature_is_looked_at(staged: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set stays as one that passed where there is no ssh-keygen, too."""
    store = staged.copy(tmp_path / "copy")
    document = staged.read(store, PLAIN)
    result = said("smoke", gfx=TARGET, document=document, when=NOW, added=NOW).evidence
    signature = Signature(key=f"ssh-ed25519 {'A' * 68}", value="-----BEGIN SSH SIGNATURE-----")
    add_evidence(store, document, result.model_copy(update={"signature": signature}))
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = pruner(store).plan(FAMILY)
    assert plan.kept[document.id].startswith("it passed")


def test_the_command_says_what_goes_and_why_the_rest_stays(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    before = content(store)
    rules = tmp_path / "policy.yaml"
    ours = re.sub(
        "(?m)^retention:.*$",
        "retention: {keep: 1, keep_for: 1h, keep_passed_for: 1h}",
        policy.read_policy_text(),
    )
    rules.write_text(ours)
    words = ["store", "prune", str(store.folder), "--policy", str(rules), "--json"]
    printed = []
    for options in (["--dry-run"], []):
        printed.append(call(*words, *options).json)
        assert (content(store) == before) == bool(options)
    (would, did) = ({**one, "dry_run": None, "when": None} for one in printed)
    assert would["families"] == did["families"] and would["freed"] == did["freed"] > 0
    (family,) = did["families"]
    assert {item["set"] for item in family["sets"]} == {staged.ids[n] for n in (FAILED, PASSING, PLAIN)}
    assert {item["set"] for item in family["kept"]} == set(visible(store))


def test_what_is_wrong_is_said_and_nothing_goes(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    before, place = content(store), str(store.folder)
    call("store", "prune", place, "--policy", tmp_path / "none.yaml", code=2)
    call("store", "prune", tmp_path / "none", code=2)
    assert content(store) == before


@pytest.mark.parametrize("kind", ["channel", "set"])
def test_a_document_that_cannot_be_read_holds_everything(staged: Staged, tmp_path: Path, kind: str) -> None:
    """What it names must not go."""
    store = staged.copy(tmp_path / "copy")
    path = PATHS.channel_document("nightly") if kind == "channel" else PATHS.set_document(staged.ids[SHOWN])
    put_file(store, path, store.read(path).content[:-20])
    before = content(store)
    with pytest.raises(errors.DataError, match="nightly" if kind == "channel" else staged.ids[SHOWN]):
        pruner(store).prune(FAMILY)
    assert content(store) == before
