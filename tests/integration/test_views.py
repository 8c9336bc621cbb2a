"""Views and what is told follow evidence: killed at any write, overtaken, in a folder and in S3."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import servers
import stores
from commands import call
from crash import Killed, KilledAfter, Watched, sample
from documents import policy
from pythons import plan_by_uv
from servers import serve_folder
from stores import FAMILY, PATHS, ROCM, TARGET, World, everything, promoter, stage

from rocm_wheels.core import parallel
from rocm_wheels.release import support, wheel_set
from rocm_wheels.release.refresh import Refresher, RefreshResult
from rocm_wheels.stores import folder
from rocm_wheels.stores.store import Store

VIEW, CHANNEL = PATHS.view_pages(TARGET, "nightly"), PATHS.channel_pages("nightly")
RULES = "{signed: false, rules: {audit: {fresh: 14d}}}"
POLICY = f"channels: {{nightly: {RULES}, stable: {RULES}}}"
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
NEEDED = {"triton": f"3.5.0+rocm{ROCM}", "rocm": ROCM}


def refresh(store: Store) -> RefreshResult:
    """All that the command does for the channel."""
    refresher = Refresher(store, policy(POLICY), "bob@here", MOMENT, {})
    done = refresher.refresh_channel(FAMILY, "nightly")
    assert done is not None
    refresher.refresh_support()
    return done


def know(store: Store, document: wheel_set.SetDocument, outcome: str = "pass", hours: float = 5) -> None:
    when = MOMENT - timedelta(hours=hours)
    stores.know(store, document, TARGET, outcome, when)


def view_of(store: Store) -> str:
    """Return what a view shows by its pages: "old", "new", "none"; a mixture is neither."""
    pages = [store.read(one.path).content.decode() for one in store.listing(VIEW)]
    versions = {version for page in pages for version in ("torch-2.9.1", "torch-2.9.2") if version in page}
    return {0: "none", 1: "old" if "torch-2.9.1" in versions else "new", 2: "both"}[len(versions)]


class Sets(stores.Sets):
    """Folders in which two sets are on a channel, both tested, a view at the newer one, which then failed."""

    pages = VIEW

    def fill(self, store: Store) -> None:
        for document in self.documents:
            know(store, document)
            stores.promote(store, document)
        assert view_of(store) == "none"
        assert refresh(store).views == ((TARGET, None, self.new.id, "linux"),)
        assert view_of(store) == "new"
        know(store, self.new, "fail", hours=4)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    root = tmp_path_factory.getbasetemp()
    with serve_folder(root) as server:
        yield Sets(tmp_path_factory.mktemp("sets"), root, server.url)


class SplitSets(Sets):
    """The same of a split torch: plain `torch` is host and device wheels, of one set or the other."""

    world = stores.SplitWorld
    parts = frozenset(
        {
            "amd-torch-device",
            f"amd-torch-device-{TARGET}",
            "rocm-bootstrap",
            f"rocm-sdk-device-{TARGET}",
        }
    )


@pytest.fixture(scope="module")
def split_sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    root = tmp_path_factory.getbasetemp()
    with serve_folder(root) as server:
        yield SplitSets(tmp_path_factory.mktemp("split sets"), root, server.url)


def clean_run(sets: Sets, place: Path) -> tuple[list[str], dict[str, bytes]]:
    """Return the writes of a refresh that nothing happened to, and what came of it."""
    store = sets.store(sets.copy(place))
    done = refresh(store)
    assert (done.retold, done.views) == ((sets.new.id,), ((TARGET, sets.new.id, sets.old.id, "linux"),))
    assert [one.set for one in done.failing] == [sets.new.id]
    assert len(store.writes) == len(set(store.writes))
    return store.writes, everything(place)


def require_finished(sets: Sets, place: Path, wanted: dict[str, bytes]) -> None:
    """Run the command again, and once more: that writes nothing."""
    store = sets.store(place)
    refresh(store)
    assert everything(place) == wanted
    count = len(store.writes)
    assert refresh(store).failing and len(store.writes) == count


@pytest.mark.contract
@pytest.mark.parametrize("kind", ["sets", "split_sets"])
def test_a_refresh_that_was_killed_is_finished_and_a_view_is_one_set_or_the_other(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, exhaustive: bool
) -> None:
    sets: Sets = request.getfixturevalue(kind)
    before = sets.copy(tmp_path / "before")
    assert sets.get(before) == sets.get(before, "pip") == "new"
    writes, wanted = clean_run(sets, tmp_path / "clean")
    seen = []
    for number, write in enumerate(sample(writes, exhaustive, 7)):
        place = sets.copy(tmp_path / str(number))
        with pytest.raises(Killed):
            refresh(sets.store(place, write, "after" if number % 4 else "before"))
        seen.append(sets.get(place))
        if write == f"replace {VIEW}/torch/index.json":
            assert sets.get(place, "pip") == seen[-1]
        require_finished(sets, place, wanted)
    assert sets.get(place) == "old"
    assert seen == sorted(seen) and set(seen) == {"new", "old"}


@pytest.mark.contract
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_refresh_that_is_killed_again_and_again_comes_to_an_end(
    writes: int, sets: Sets, tmp_path: Path
) -> None:
    clean, wanted = clean_run(sets, tmp_path / "clean")
    place, seen = sets.copy(tmp_path / "store"), []
    for _ in range(len(clean) + 1):
        try:
            refresh(KilledAfter(folder.FolderStore(place), writes))
        except Killed:
            seen.append(sets.get(place))
            continue
        break
    assert everything(place) == wanted
    assert len(seen) == len(clean) // writes and seen == sorted(seen) and set(seen) == {"new", "old"}


@pytest.mark.contract
@pytest.mark.parametrize("kind", ["sets", "split_sets"])
def test_who_knows_less_never_has_the_last_word(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, exhaustive: bool
) -> None:
    """At a write of one refresh comes another: with the same knowledge, or with a pass that makes good."""
    sets: Sets = request.getfixturevalue(kind)
    writes, wanted = clean_run(sets, tmp_path / "clean")
    for number, (write, more) in enumerate(product(sample(writes, exhaustive), (False, True))):
        place = sets.copy(tmp_path / str(number))
        store = sets.store(place, write, "")

        def guest(place: Path = place, more: bool = more) -> None:
            other = sets.store(place)
            if more:
                know(other, sets.new, hours=3)
            refresh(other)

        store.guest = guest
        refresh(store)
        assert store.guest is None
        assert sets.get(place) == ("new" if more else "old"), write
        if not more:
            assert everything(place) == wanted
        count = len(store.writes)
        refresh(store)
        assert store.writes[count:] == [], write


@pytest.mark.contract
def test_without_a_set_that_passed_there_is_no_view(sets: Sets, tmp_path: Path) -> None:
    place = sets.copy(tmp_path / "none")
    store = sets.store(place)
    know(store, sets.old, "fail", hours=3)
    count = len(store.writes)
    done = refresh(store)
    assert done.views == ((TARGET, sets.new.id, None, "linux"),) and len(done.failing) == 2
    assert sets.get(place) == "none" and not (place / VIEW).exists()
    made = [one for one in store.writes[count:] if VIEW in one]
    assert made and all(one.startswith("remove") for one in made)
    page = (place / CHANNEL / "torch/index.html").read_text()
    for one in (sets.old.id, sets.new.id):
        assert f"<p>{one}: tests failed; {TARGET}: tests failed</p>" in page
    for number, write in enumerate(made):
        killed = sets.copy(tmp_path / f"killed {number}")
        again = sets.store(killed, write, "after")
        know(again, sets.old, "fail", hours=3)
        with pytest.raises(Killed):
            refresh(again)
        require_finished(sets, killed, everything(place))
        assert sets.get(killed) == "none"
    (place / PATHS.support_document).unlink()  # all of it follows from documents
    assert refresh(sets.store(place)).failing
    assert everything(place) == everything(killed)


@pytest.mark.parametrize("lost", ["a wheel", "its METADATA", "half a wheel", "all files"])
def test_a_set_that_lost_files_leaves_its_views_and_is_named(lost: str, sets: Sets, tmp_path: Path) -> None:
    """Refreshing does all there is to do and ends with 15; a stage of the same wheels puts the set back."""
    place, rules = sets.copy(tmp_path / "store"), tmp_path / "policy.yaml"
    rules.write_text(POLICY)
    store = sets.store(place)
    know(store, sets.new, hours=3)  # both passed
    refresh(store)
    assert sets.get(place) == "new"
    gone = [file for file in sets.new.files if lost == "all files" or file.project == "torch"]
    gone = [file for file in gone if file.sha256 not in sets.old.hashes]
    for file in gone:
        wheel = PATHS.pool_file(file.sha256, file.name)
        if lost != "its METADATA":
            content = store.read(wheel).content
            store.remove(wheel)
            if lost == "half a wheel":
                store.create(wheel, content[:100])
        if lost in {"its METADATA", "all files"}:
            store.remove(f"{wheel}.metadata")
    words = ["set", "refresh", str(place), "--policy", str(rules)]
    for _ in range(2):
        told = call(*words, code=15)
        assert f"{gone[0].name}" in told.out and "gone or cut short: stage the same wheels again" in told.out
        assert f"shown, and something failed since: {sets.new.id} (nightly of {FAMILY})" in told.err
        assert sets.get(place) == "old"
    assert "files: torch-2.9.2" in call("set", "list", place, "--channel", "nightly").out
    for file in gone:
        store.remove(PATHS.pool_file(file.sha256, file.name))
    stage(store, sets.worlds[1].plan())
    call(*words)
    assert sets.get(place) == "new"


def test_refresh_in_s3_over_a_bad_line_and_killed(sets: Sets, exhaustive: bool) -> None:
    bucket = servers.a_bucket()
    require_refreshed_in_s3(sets, lambda url="": servers.a_store(url, bucket=bucket), exhaustive)


def require_refreshed_in_s3(sets: Sets, connect: Callable[..., Store], exhaustive: bool) -> None:
    """Refresh in a bucket (``connect`` returns its store, by a URL), over a bad line and killed."""
    store, seen, faults = connect(), [0], ["503", "lost"]
    start = folder.FolderStore(sets.place)
    needed = [one.path for one in start.listing("")]
    parallel.run_in_parallel(lambda path: store.create(path, start.read(path).content), needed, jobs=8)
    assert view_of(store) == "new"

    def fault(_method: str, _path: str) -> str:
        seen[0] += 1
        return faults[seen[0] // 20 % 2] if seen[0] % 20 == 0 else ""

    with servers.bad_line(fault) as line:
        assert refresh(connect(line.url)).failing
    assert view_of(store) == "old"
    know(store, sets.new, hours=3)
    watched = Watched(store)
    refresh(watched)
    assert view_of(store) == "new"
    order = [one.split()[1].removeprefix(f"{VIEW}/") for one in watched.writes if f"{VIEW}/" in one]
    pages = [one.partition("/")[0] for one in order if one.endswith("html") and "/" in one]
    # the new one comes, then the old one goes
    assert pages == ["torch", "torchvision", "torchvision", "torch"]
    count = len(watched.writes)
    refresh(watched)
    assert len(watched.writes) == count
    for number, write in enumerate(sample(watched.writes, exhaustive)):
        know(store, sets.new, "fail" if number % 2 == 0 else "pass", hours=2.5 - number / 100)
        with pytest.raises(Killed):
            refresh(Watched(store, at=write, fault="after"))
        refresh(store)
        assert view_of(store) == ("old" if number % 2 == 0 else "new")
    said_of_views = support.read_document(store, "support.json")[0].views
    assert {one.set for one in said_of_views} == {sets.old.id if number % 2 == 0 else sets.new.id}


# ---- the command


@pytest.mark.contract
def test_the_command_tells_what_failed_and_how_to_take_it_away(
    sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a channel shows what failed, refreshing does all there is to do, and ends with 15."""
    place, rules = sets.copy(tmp_path / "store"), tmp_path / "policy.yaml"
    rules.write_text(POLICY)

    def run(*words: str, code: int = 0) -> str:
        found = call("set", words[0], place, *words[1:], code=code)
        failed = f"error: shown, and something failed since: {sets.new.id} (nightly of "
        assert (failed in found.err) == (code == 15)
        return found.out

    chosen = ["--policy", str(rules)]
    before = everything(place)
    would = json.loads(run("refresh", *chosen, "--dry-run", "--json", code=15))
    assert everything(place) == before
    done = json.loads(run("refresh", *chosen, "--json", code=15))
    (one,) = done["channels"]
    assert one == would["channels"][0]
    after = everything(place)
    assert {line.split()[1] for line in would["writes"]} == {
        path for path in after if before.get(path) != after[path]
    }
    assert (one["told"], one["left"]) == ([sets.new.id], None)
    assert one["views"] == [{"gfx": TARGET, "before": sets.new.id, "now": sets.old.id, "os": "linux"}]
    assert done["documents"] == ["support.json"]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    assert "nothing to do" in run("refresh", *chosen, code=15)
    assert sets.new.id in run("refresh", *chosen, code=15)  # what failed is named every time
    summary = (tmp_path / "summary").read_text()
    assert summary.count(f"{sets.new.id}: tests failed; {TARGET}: tests failed\n    take it away: ") == 2
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    seen = json.loads((place / PATHS.support_document).read_text())
    assert [(r["set"], r["state"]) for r in seen["releases"]] == [
        (sets.new.id, "tests failed"),
        (sets.old.id, "reported, unsigned"),  # nightly takes it, and says so
    ]
    (bad,) = one["failing"]
    assert bad["command"].endswith(f" --policy {rules}")
    assert (bad["set"], bad["told"]) == (sets.new.id, [f"{TARGET}: tests failed"])
    # the failed one is left
    taken = ["demote", *chosen, "--channel", "nightly", "--set", sets.old.id, "--dry-run"]
    assert f"\n{sets.new.id}: tests failed; {TARGET}: tests failed\n  take it away: " in run(*taken)
    assert json.loads(run(*taken, "--json"))["failing"] == [bad]
    program, *words = shlex.split(bad["command"])
    assert program == "rocm-wheels" and f"nightly of {FAMILY} is at {sets.old.id}" in call(*words).out
    assert json.loads(run("refresh", *chosen, "--json"))["channels"][0]["failing"] == []
    outside = f"{sets.url}{quote(place.relative_to(sets.root).as_posix())}"
    assert outside not in (place / "support.json").read_text()
    rules.write_text(f"{POLICY}\nother_indexes: ['{outside}/rocm']\n")
    run("refresh", *chosen, "--public-url", outside)
    for path, text in (("support.json", f"{FAMILY}/sets"), (PATHS.support_document, "sets")):
        (release,) = json.loads((place / path).read_text())["releases"]
        assert release["url"] == f"{outside}/{FAMILY}/sets/{sets.old.id}/simple/"
        assert release["index"] == f"{text}/{sets.old.id}/simple/"
    (view,) = json.loads((place / "support.json").read_text())["views"]
    again = run("demote", "--channel", "nightly", "--set", sets.new.id, *chosen)
    assert f"index: {outside}/{PATHS.channel_pages('nightly')}/\n" in again  # where people see it
    for one in (release, view):  # the very words that it gives to people
        words = shlex.split(one["install"]["uv"])
        assert words[:3] == ["uv", "pip", "install"]
        assert plan_by_uv([*words[3:], "--target", str(tmp_path / "none")], sets.env) == {
            "torch": f"2.9.1+rocm{ROCM}",
            **NEEDED,
        }


def test_a_change_that_somebody_else_has_begun_is_left_alone(sets: Sets, tmp_path: Path) -> None:
    place, rules = sets.copy(tmp_path / "store"), tmp_path / "policy.yaml"
    rules.write_text(POLICY)
    with pytest.raises(Killed):
        promoter(sets.store(place, f"replace {CHANNEL}/torch/index.html", "before")).demote([sets.new.id])
    before = everything(place)
    told = call("set", "refresh", place, "--policy", rules, code=15).err
    assert f"nightly of {FAMILY} is being changed: demote of {sets.new.id} by ann@here" in told
    assert everything(place) == before
    # a refresh that was killed stands in nobody's way
    other = sets.copy(tmp_path / "other")
    with pytest.raises(Killed):
        refresh(sets.store(other, f"replace {CHANNEL}/torch/index.html", "before"))
    finished = promoter(sets.store(other))
    assert finished.demote([sets.new.id]).channel.current == sets.old.id
    # the very command that was killed finishes it, and views follow
    words = ["set", "demote", str(place), "--channel", "nightly", "--set", sets.new.id]
    said = call(*words, "--policy", rules).out
    assert (
        "an earlier run had begun it" in said
        and f"view of {TARGET} in nightly of {FAMILY}: {sets.old.id}" in said
    )
    assert sets.get(place) == "old"


@pytest.mark.contract
def test_a_release_is_out_when_its_views_fail(sets: Sets, tmp_path: Path) -> None:
    place, rules = sets.copy(tmp_path / "store"), tmp_path / "policy.yaml"
    rules.write_text(POLICY)
    damaged = next((place / PATHS.evidence_folder(sets.old.id)).iterdir())
    kept = damaged.read_bytes()
    damaged.unlink()
    damaged.write_text("{}")
    words = ["set", "demote", str(place), "--channel", "nightly", "--set", sets.new.id]
    words += ["--policy", str(rules)]
    found = call(*words, code=15)
    assert f"{sets.new.id} demoted" in found.out
    assert f"people get it (nightly of {FAMILY} is at {sets.old.id})" in found.err
    assert f"`rocm-wheels set refresh {place} --policy {rules}` completes it" in found.err
    assert "tip: it may have said that a test failed" in found.err  # why it could not
    told = call("set", "refresh", place, "--policy", rules, code=15).err
    assert f"nightly of {FAMILY} was not refreshed\n  because file:" in told
    damaged.write_bytes(kept)
    call("set", "refresh", place, "--policy", rules)
    assert sets.get(place) == "old"


WRONG_WORDS = [
    (["--public-url", "s3://x/y"], "is no URL of a folder"),
    (["--policy", "stable.yaml"], "the policy has no channel nightly"),
]


@pytest.mark.contract
def test_wrong_words_change_nothing(sets: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stable.yaml").write_text("channels: {stable: {signed: false, rules: {audit: {fresh: 14d}}}}")
    before = everything(sets.place)
    for words, says in WRONG_WORDS:
        assert says in call("set", "refresh", sets.place, *words, code=2).err
    assert everything(sets.place) == before
    assert "the folder does not exist" in call("set", "refresh", tmp_path / "empty", code=2).err
    (tmp_path / "empty").mkdir()
    assert "nothing was staged in" in call("set", "refresh", tmp_path / "empty", code=15).err
    stage(folder.FolderStore(tmp_path / "begun"), World(tmp_path / "world").plan())
    assert "yet: `rocm-wheels set promote` makes them" in call("set", "refresh", tmp_path / "begun").err
