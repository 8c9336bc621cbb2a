"""Staged sets are pruned by policy; what a channel shows, or another set needs, never is, whoever works."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import s3_servers
from faulty_store import FaultyStore, Killed, Watched
from release_world import FAMILY, TARGET, World, a_lock
from staged import stage

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from judged_sets import said

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import errors, parallel
from rocm_wheels.release import layout, policy, prune, store_check, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.promote import ChannelActor, Promoter
from rocm_wheels.release.stage import StagePlan, plan_stage
from rocm_wheels.stores.folder import FolderStore
from rocm_wheels.stores.store import Store

LAYOUT = layout.load_layout()
STAGING = layout.FamilyPaths(LAYOUT, FAMILY)
BEGIN = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=80)
NOW = BEGIN + timedelta(days=40)
PASSED = policy.Verdict("x", FAMILY, "nightly", NOW, (policy.RuleResult("hashes", "pass", "yes"),))
# of the six sets of `staged`, by number: what these keep
RETENTION = policy.RetentionPolicy(keep=1, keep_for=timedelta(days=7), keep_passed_for=timedelta(days=60))
SHOWN, MADE_FROM, FAILED, PASSING, PLAIN, NEWEST = range(6)


class Staged:
    """A store with six sets, ten days apart at first; the first is shown by nightly."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "store"
        store = FolderStore(self.folder)
        self.plans: list[StagePlan] = []
        self.ids: list[str] = []
        for number in range(6):
            world = World(home / str(number), f"2.9.{number + 1}")
            origin = self.ids[MADE_FROM] if number == NEWEST else None
            paths, lock = layout.FamilyPaths(LAYOUT, FAMILY), [a_lock()]
            plan = plan_stage(world.wheels, lock, paths=paths, layout="per-family", origin=origin)
            stage(store, plan, now=f"{BEGIN + timedelta(days=4 * number):%Y-%m-%dT%H:%M:%SZ}")
            self.plans.append(plan)
            self.ids.append(plan.document.id)
        for number, outcome in ((FAILED, "fail"), (PASSING, "pass")):
            document = self.read(store, number)
            when = NOW - timedelta(hours=5)
            result = said("smoke", outcome, gfx=TARGET, document=document, when=when, added=when).evidence
            add_evidence(store, LAYOUT, document, result)
        promote(store, self.read(store, SHOWN))

    def read(self, store: Store, number: int) -> wheel_set.SetDocument:
        return wheel_set.find_set(store, self.ids[number])

    def copy(self, target: Path) -> FolderStore:
        """Copy the store by links: nothing in one is ever written in place."""
        return FolderStore(shutil.copytree(self.folder, target, symlinks=True, copy_function=os.link))

    def fill(self, store: Store) -> Store:
        """Have another store hold the same; what is released is promoted there."""
        paths = [item.path for item in FolderStore(self.folder).listing("v2-staging")]
        parallel.run_in_parallel(lambda path: store.create(path, self.folder / path), paths, jobs=8)
        promote(store, self.read(store, SHOWN))
        return store


def promote(store: Store, document: wheel_set.SetDocument) -> None:
    actor = ChannelActor("ann@here", f"{BEGIN:%Y-%m-%dT%H:%M:%SZ}")
    Promoter(store, STAGING, "nightly", actor).promote(document, lambda: PASSED)


def pruner(store: Store, retention: policy.RetentionPolicy = RETENTION, by: str = "bob@here") -> prune.Pruner:
    return prune.Pruner(store, LAYOUT, retention, by, NOW)


def visible(store: Store) -> list[str]:
    return list(wheel_set.list_set_ids(store, FAMILY, layout=LAYOUT))


def list_findings(store: Store) -> list[tuple[str, str]]:
    """Return what `store fsck` finds, but that nobody has refreshed the channel since its promotion."""
    in_folder = store.folder is not None
    report = store_check.StoreCheck(store, LAYOUT, NOW, hash_wheels=in_folder, pauses=()).run()
    return [(item.check, item.subject) for item in report.findings if item.check != "stale-status"]


def list_damages(store: Store) -> list[tuple[str, str]]:
    notes = {"pending-prune", "stale-listing"}
    return [(check, subject) for check, subject in list_findings(store) if check not in notes]


def content(store: Store) -> dict[str, tuple[int, str]]:
    return {item.path: (item.size, item.tag) for item in store.listing("")}


def list_bytes(store: Store) -> dict[str, str]:
    return {item.path: store.digest(item.path) for item in store.listing("")}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    return Staged(tmp_path_factory.mktemp("staged"))


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, staged: Staged, tmp_path: Path) -> Store:
    if request.param == "folder":
        return staged.copy(tmp_path / "copy")
    return staged.fill(s3_servers.a_store())


def test_what_nothing_needs_goes_and_is_written_down(staged: Staged, store: Store) -> None:
    before = {path: digest for path, digest in content(store).items() if path.startswith("v2/")}
    findings = list_findings(store)
    gone = [staged.ids[number] for number in (FAILED, PLAIN)]
    kept = {staged.ids[number] for number in (SHOWN, MADE_FROM, PASSING, NEWEST)}
    dry = pruner(store).plan(FAMILY)
    plan = pruner(store).prune(FAMILY)
    assert dry == plan and [document.id for document in plan.sets] == gone
    reasons = {item.set_id: item.reason for item in plan.kept}
    assert set(reasons) == kept == set(visible(store))
    assert reasons[staged.ids[SHOWN]] == "nightly shows it"
    assert reasons[staged.ids[MADE_FROM]] == f"{staged.ids[NEWEST]} was made from it"
    assert "passed" in reasons[staged.ids[PASSING]] and "newest" in reasons[staged.ids[NEWEST]]
    wheels = {
        file.sha256: file.size
        for number in (FAILED, PLAIN)
        for file in staged.plans[number].document.files
        if file.project != "triton"  # which every set has
    }
    assert plan.size == sum(wheels.values()) > 0
    after = content(store)
    assert {path: digest for path, digest in after.items() if path.startswith("v2/")} == before
    assert not [path for path in after if any(sha256 in path for sha256 in wheels)]
    assert not [path for path in after if any(f"/sets/{set_id}/" in path for set_id in gone)]
    assert list_findings(store) == findings  # `store fsck` is content
    # names stay with their bytes, results and logs are there, and the record says who it was
    record = prune.list_pruned_sets(store, STAGING)[gone[0]]
    assert (record.by, record.when) == ("bob@here", f"{NOW:%Y-%m-%dT%H:%M:%SZ}")
    for file in record.files:
        assert store.read(STAGING.name_claim(file.name)).content.decode().strip() == file.sha256
    assert list(store.listing(STAGING.evidence_folder(gone[0])))
    assert list(store.listing(STAGING.log_folder(gone[0])))
    with pytest.raises(errors.ReleaseError, match=r"was pruned .* by bob@here"):
        stage(store, staged.plans[FAILED])
    with pytest.raises(errors.ReleaseError, match="was pruned"):
        staged.read(store, FAILED)
    assert pruner(store).prune(FAMILY).sets == () and content(store) == after


def test_names_of_a_pruned_set_are_not_given_to_other_bytes(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    pruner(store).prune(FAMILY)
    other = World(tmp_path / "other", f"2.9.{PLAIN + 1}", "other bytes")
    triton = next(wheel for wheel in other.wheels if wheel.name.startswith("triton"))
    other.wheels[other.wheels.index(triton)] = next(
        wheel.path for wheel in staged.plans[NEWEST].wheels if wheel.file.project == "triton"
    )
    with pytest.raises(errors.ReleaseError, match="other bytes under the same name"):
        stage(store, other.plan())
    # nor where somebody deletes the record of a name: that is damage, and is repaired
    torch = next(file for file in staged.plans[PLAIN].document.files if file.project == "torch")
    store.remove(STAGING.name_claim(torch.name))
    assert list_damages(store) == [("missing-name", STAGING.name_claim(torch.name))]


class KilledAt(FaultyStore):
    """A store whose process ends before its write of a number, or after it."""

    def __init__(self, inner: Store, number: int, *, after: bool) -> None:
        super().__init__(inner)
        self.number, self.after = number, after

    def _write(self, what: str, work: Callable[[], str], path: str) -> str:
        with self._lock:
            self._alive()
            self.writes.append(what)
            if len(self.writes) == self.number:
                if self.after:
                    work()
                self.dead = True
                raise Killed
            return work()


def test_a_prune_that_is_killed_is_carried_on(staged: Staged, tmp_path: Path, exhaustive: bool) -> None:
    whole = FaultyStore(staged.copy(tmp_path / "whole"))
    pruner(whole).prune(FAMILY)
    expected = list_bytes(whole.inner)
    step = 1 if exhaustive else 9
    for number in range(1, len(whole.writes) + 1, step):
        for after in (False, True) if exhaustive else (number % 2 == 0,):
            inner = staged.copy(tmp_path / f"{number}{after}")
            with pytest.raises(Killed):
                pruner(KilledAt(inner, number, after=after)).prune(FAMILY)
            assert list_damages(inner) == []
            pruner(inner).prune(FAMILY)
            assert list_bytes(inner) == expected, (number, after)
            shutil.rmtree(inner.folder)


def test_who_changes_his_mind_after_a_kill_keeps_what_is_there(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    writes = FaultyStore(staged.copy(tmp_path / "whole"))
    pruner(writes).prune(FAMILY)
    first_removal = next(number for number, what in enumerate(writes.writes, 1) if what.startswith("remove"))
    with pytest.raises(Killed):
        pruner(KilledAt(store, first_removal, after=True)).prune(FAMILY)
    more = RETENTION.model_copy(update={"keep": 6})
    plan = pruner(store, more).prune(FAMILY)
    assert plan.sets == () and list(plan.leftovers) == [staged.ids[FAILED]]
    assert set(visible(store)) == set(staged.ids) - {staged.ids[FAILED]}
    assert set(prune.list_pruned_sets(store, STAGING)) == {staged.ids[FAILED]}
    assert list_damages(store) == []
    stage(store, staged.plans[PLAIN])  # it is there, and can be sent again


def test_of_two_at_once_one_stops(staged: Staged, tmp_path: Path) -> None:
    inner = staged.copy(tmp_path / "copy")
    document = STAGING.set_document(staged.ids[PLAIN])
    watched = Watched(inner, at=f"remove {document}")
    plans: list[prune.PrunePlan] = []
    watched.guest = lambda: plans.append(pruner(inner, by="eve@there").prune(FAMILY))
    with pytest.raises(errors.ReleaseError, match="another process prunes"):
        pruner(watched).prune(FAMILY)
    assert plans and staged.ids[PLAIN] not in visible(inner) and staged.ids[FAILED] not in visible(inner)
    assert inner.head(STAGING.prune_claim) is None
    assert list_damages(inner) == []


def test_who_slept_while_another_finished_removes_no_more(staged: Staged, tmp_path: Path) -> None:
    """Somebody may have staged the same wheels again by then."""
    inner = staged.copy(tmp_path / "copy")
    wheels = [file for file in staged.plans[FAILED].document.files if file.project != "triton"]
    first = f"remove {STAGING.wheel_file(wheels[0].sha256, wheels[0].name)}"
    watched = Watched(inner, at=first)
    watched.guest = lambda: pruner(inner, by="eve@there").prune(FAMILY)
    with pytest.raises(errors.ReleaseError, match="another process prunes"):
        pruner(watched).prune(FAMILY)
    assert len(wheels) > 1 and watched.writes[-1] == first


def begin(store: Store, name: str, when: datetime) -> str:
    """Begin a set as `set stage` does; return its folder."""
    folder = STAGING.set_folder(f"{name}-0123456789ab")
    store.create(f"{folder}/begun.json", json.dumps({"when": f"{when:%Y-%m-%dT%H:%M:%SZ}"}).encode())
    return folder


def test_nothing_goes_while_a_set_is_being_staged(
    staged: Staged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = staged.copy(tmp_path / "copy")
    begun = begin(store, "2.9.9", NOW - timedelta(hours=1))
    before = content(store)
    assert "is being staged" in pruner(store).prune(FAMILY).blocked and content(store) == before
    short = ["--keep", "1", "--keep-for", "1h", "--keep-passed-for", "1h"]
    words = ["store", "prune", str(store.folder), *short]
    # to the command all of it is long ago but the set that was begun: the clock is today's
    store.remove(f"{begun}/begun.json")
    begin(store, "2.9.9", datetime.now(timezone.utc))
    assert boundary.run_command(main.cli, words) == 15 and content(store).keys() == before.keys()
    store.remove(f"{begun}/begun.json")
    begin(store, "2.9.9", datetime.now(timezone.utc) - timedelta(days=9))  # given up
    assert (
        boundary.run_command(main.cli, [*words, "--dry-run"]) == 0 and content(store).keys() == before.keys()
    )
    capsys.readouterr()
    assert boundary.run_command(main.cli, [*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["freed"] > 0
    (family,) = document["families"]
    assert {item["set"] for item in family["sets"]}.isdisjoint(visible(store))


@pytest.mark.parametrize("at", ["create", "remove"])
def test_a_set_that_is_carried_on_long_after_is_whole_or_refused(
    staged: Staged, tmp_path: Path, at: str
) -> None:
    """A prune takes it for one that was given up, before its document is there or while that is written."""
    store, torch = staged.copy(tmp_path / "copy"), f"torch-2.9.{FAILED + 1}"
    wheels = [
        wheel.path for wheel in staged.plans[FAILED].wheels if wheel.file.name.startswith((torch, "triton-"))
    ]
    locks = [a_lock(["pytorch", "triton"])]
    plan = plan_stage(wheels, locks, paths=STAGING, layout="per-family")
    document = STAGING.set_document(plan.document.id)
    begun = f"{STAGING.set_folder(plan.document.id)}/begun.json"
    store.create(begun, json.dumps({"when": f"{BEGIN:%Y-%m-%dT%H:%M:%SZ}"}).encode())
    shared = next(file for file in plan.document.files if file.name.startswith(torch))
    wheel = STAGING.wheel_file(shared.sha256, shared.name)
    refusals: list[str] = []

    def stage_again() -> None:
        with pytest.raises(errors.ReleaseError) as refusal:
            stage(store, plan)
        refusals.append(str(refusal.value))

    if at == "create":
        staging = Watched(store, at=f"create {document}")
        staging.guest = lambda: pruner(store).prune(FAMILY)
        with pytest.raises(errors.ReleaseError, match=r"lost \d files to a prune"):
            stage(staging, plan)
    else:
        pruning = Watched(store, at=f"remove {wheel}")
        pruning.guest = stage_again
        pruner(pruning).prune(FAMILY)
        assert refusals
    assert store.head(wheel) is None
    stage(store, plan)
    assert store.head(wheel) is not None and list_damages(store) == []


def test_what_is_put_back_of_a_set_that_is_pruned_meanwhile_is_refused(
    staged: Staged, tmp_path: Path
) -> None:
    store, plan = staged.copy(tmp_path / "copy"), staged.plans[PLAIN]
    torch = next(file for file in plan.document.files if file.project == "torch")
    wheel = STAGING.wheel_file(torch.sha256, torch.name)
    store.remove(wheel)
    watched = Watched(store, at=f"create {wheel}")
    watched.guest = lambda: pruner(store).prune(FAMILY)
    with pytest.raises(errors.ReleaseError, match="was pruned"):
        stage(watched, plan)


def test_what_is_wrong_is_said_and_nothing_goes(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    before, place = content(store), str(store.folder)
    wrong = (
        ["--keep-for", "soon"],
        ["--keep", "0"],
        ["--family", "gfx1151"],
        ["--policy", str(tmp_path / "none.yaml")],
    )
    for words in wrong:
        assert boundary.run_command(main.cli, ["store", "prune", place, *words]) == 2, words
    assert boundary.run_command(main.cli, ["store", "prune", str(tmp_path / "none")]) == 2
    assert content(store) == before


@pytest.mark.parametrize("guest", ["stage", "promote"])
def test_what_others_do_before_the_claim_is_seen(staged: Staged, tmp_path: Path, guest: str) -> None:
    inner = staged.copy(tmp_path / "copy")
    watched = Watched(inner, at=f"create {STAGING.prune_claim}")
    if guest == "stage":
        watched.guest = lambda: begin(inner, "2.9.9", NOW)
        assert pruner(watched).prune(FAMILY).blocked
        assert set(visible(inner)) == set(staged.ids)
    else:
        watched.guest = lambda: promote(inner, staged.read(inner, PLAIN))
        plan = pruner(watched).prune(FAMILY)
        assert [document.id for document in plan.sets] == [staged.ids[FAILED]]
    assert inner.head(STAGING.prune_claim) is None and not prune.list_pruned_sets(inner, STAGING).keys() - {
        staged.ids[FAILED]
    }


def test_nobody_stages_while_a_family_is_pruned(staged: Staged, tmp_path: Path) -> None:
    inner = staged.copy(tmp_path / "copy")
    new = World(tmp_path / "new", "2.9.9").plan()
    refusals: list[str] = []

    def try_to_stage() -> None:
        with pytest.raises(errors.ReleaseError, match="prunes") as refusal:
            stage(inner, new)
        refusals.append(str(refusal.value))

    watched = Watched(inner, at=f"remove {STAGING.set_document(staged.ids[PLAIN])}")
    watched.guest = try_to_stage
    pruner(watched).prune(FAMILY)
    assert refusals
    stage(inner, new)
    assert list_damages(inner) == []


def test_half_a_claim_and_half_a_record_are_written_anew(staged: Staged, tmp_path: Path) -> None:
    """What a store leaves whose writes are not one step."""
    store = staged.copy(tmp_path / "copy")
    store.create(STAGING.prune_claim, b"{")
    store.create(STAGING.pruned_record(staged.ids[PLAIN]), b'{"schema"')
    pruner(store).prune(FAMILY)
    assert set(prune.list_pruned_sets(store, STAGING)) == {staged.ids[number] for number in (FAILED, PLAIN)}
    assert list_findings(store) == []


def test_a_channel_that_cannot_be_read_holds_everything(staged: Staged, tmp_path: Path) -> None:
    store = staged.copy(tmp_path / "copy")
    path = layout.FamilyPaths(LAYOUT, FAMILY, "release").channel_document("nightly")
    stored = store.read(path)
    store.replace(path, stored.content[:-20], stored.tag)
    before = content(store)
    with pytest.raises(errors.DataError, match="nightly"):
        pruner(store).prune(FAMILY)
    assert content(store) == before
