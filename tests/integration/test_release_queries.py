"""``rocm-wheels set list`` filtered: what a channel shows, what passed on a GPU target."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from commands import call, take_down, transcript
from documents import FAMILY, NOW, a_set, put_set, said, wheel

from rocm_wheels.cli import evidence
from rocm_wheels.release import fsck, refresh, store_paths, wheel_set
from rocm_wheels.release.channel import Channel, ChannelEvent, ChannelSet, PendingChange, read_channel
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.policy import load_policy
from rocm_wheels.stores import folder

_ = transcript  # a fixture for every test here
MESSAGES = "releases"

PATHS = store_paths.FamilyPaths(FAMILY)
POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 14d}}}
  stable: {passes_after_failure: 2, signed: false, rules: {audit: {fresh: 14d}}}
"""
Ask = Callable[..., Any]


@lru_cache
def a_model(wheels: int) -> wheel_set.SetDocument:
    return a_set(*(wheel("torch", f"3{10 + n}") for n in range(wheels)))


def numbered(number: int, wheels: int = 1) -> wheel_set.SetDocument:
    model, lock = a_model(wheels), wheel_set.SetLock(digest=f"{number:064x}")
    own = wheel_set.make_set_id(
        model.version, model.family, ((f.name, f.sha256) for f in model.files), lock.digest
    )
    created = f"2026-11-{1 + number // 24:02}T{number % 24:02}:00:00Z"
    return model.model_copy(update={"created": created, "locks": (lock,), "id": own})


SETS = [numbered(number) for number in range(5)]
IDS = [one.id for one in SETS]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> folder.FolderStore:
    monkeypatch.setattr(evidence, "current_time", lambda: NOW)
    (tmp_path / "policy.yaml").write_text(POLICY)
    found = folder.FolderStore(tmp_path / "store")
    for one in SETS:
        put_set(found, one)
    return found


@pytest.fixture
def ask(store: folder.FolderStore, tmp_path: Path) -> Ask:
    def answer(*words: str, code: int = 0) -> Any:
        policy = ["--policy", str(tmp_path / "policy.yaml")]
        both = call("set", "list", store.url, *words, *policy, code=code)
        if "--json" not in words:
            take_down(["set", "list", store.url, *words], code, both.out + both.err)
        return both.json if "--json" in words else both.out + both.err

    return answer


def known(store: folder.FolderStore, number: int, *args: str, **more: Any) -> None:
    add_evidence(store, SETS[number], said(*args, document=SETS[number], **more).evidence)


def shown(*numbers: int) -> tuple[ChannelSet, ...]:
    return tuple(
        ChannelSet(set=IDS[n], document=SETS[n].digest, when=f"2026-11-2{n}T00:00:00Z", by="ann@here")
        for n in numbers
    )


def channel(
    store: folder.FolderStore, name: str, on: tuple[int, ...], demoted: tuple[int, ...] = (), **more: Any
) -> None:
    gone = tuple(
        ChannelEvent(action="demote", sets=(IDS[n],), by="bob@here", when="2026-11-20T00:00:00Z", revision=9)
        for n in demoted
    )
    channel = Channel(family=FAMILY, channel=name, revision=9, sets=shown(*on), history=gone, **more)
    store.create(PATHS.channel_document(name), channel.to_json())


@pytest.mark.contract
def test_what_passed_on_a_target(store: folder.FolderStore, ask: Ask) -> None:
    """The newest first, as without a filter; the rest is not listed."""
    known(store, 1, "smoke")
    known(store, 2, "smoke")
    known(store, 2, "tests", "fail")
    known(store, 3, "smoke", gfx="gfx1031")
    known(store, 0, "smoke")
    found = ask("--passed", "gfx1030:xnack-", "--json")["sets"]
    assert [(one["id"], one["os"], one["results"]) for one in found] == [
        (IDS[number], "linux", ["smoke on gfx1030: pass"]) for number in (1, 0)
    ]
    lines = ask("--passed", "gfx1030")
    assert lines.index(IDS[1]) < lines.index(IDS[0]) and IDS[2] not in lines
    assert [one["id"] for one in ask("--passed", "gfx1031", "--json")["sets"]] == [IDS[3]]
    assert ask("--passed", "gfx942", "--json", code=15) == {"sets": [], "unfinished": []}
    ask("--passed", "gfx942", code=15)


@pytest.mark.contract
def test_what_a_channel_shows_that_passed(store: folder.FolderStore, ask: Ask) -> None:
    """What it showed once and does not show is not among it: the first is the last known good one."""
    for number in (1, 2, 3):
        known(store, number, "smoke")
    channel(store, "nightly", (1, 2), demoted=(3,))
    words = ["--passed", "gfx1030", "--channel", "nightly"]
    (found,) = ask(*words, "--json")["channels"]
    assert [one["set"] for one in found["sets"]] == [IDS[2], IDS[1]]
    known(store, 2, "tests", "crash", hours=3)
    (found,) = ask(*words, "--json")["channels"]
    assert [one["set"] for one in found["sets"]] == [IDS[1]]
    ask("--passed", "gfx1031", "--channel", "nightly", code=15)
    # a failure that one pass made good still stands for stable
    channel(store, "stable", (3,))
    known(store, 3, "smoke", "fail", hours=3)
    known(store, 3, "smoke", hours=0.5)
    (found,) = ask("--channel", "stable", "--passed", "gfx1030", "--json")["channels"]
    assert [one["set"] for one in found["sets"]] == [IDS[3]]


def test_what_people_see_is_said_where_that_is_known(store: folder.FolderStore, ask: Ask) -> None:
    channel(store, "nightly", (1,))
    said_so = refresh.Refresher(store, load_policy(), "ann", NOW, {})
    said_so.set_public("https://wheels.example.org")
    (shows,) = ask("--channel", "nightly", "--json")["channels"]
    assert shows["index"] == f"https://wheels.example.org/{PATHS.channel_pages('nightly')}/"
    index = f"https://wheels.example.org/{PATHS.set_index(IDS[1])}/"
    assert [one["index"] for one in shows["sets"]] == [index]


def test_what_a_channel_shows_and_what_is_known_now(store: folder.FolderStore, ask: Ask) -> None:
    ask("--channel", "nightly")
    pending = PendingChange(
        action="promote",
        sets=(IDS[3],),
        by="bob@here",
        began="2026-11-21T11:00:00Z",
        goal=shown(1, 2, 3),
        adds=True,
    )
    channel(store, "nightly", (1, 2), pending=pending)
    known(store, 2, "smoke")
    (found,) = ask("--channel", "nightly", "--json")["channels"]
    assert (found["family"], found["revision"]) == (FAMILY, 9)
    assert found["index"] == store.url_of(f"{PATHS.channel_pages('nightly')}/")
    assert found["pending"] == {
        "id": read_channel(store, PATHS, "nightly").channel.change_id,
        "action": "promote",
        "sets": [IDS[3]],
        "by": "bob@here",
        "began": pending.began,
    }
    new, old = found["sets"]
    assert (new["set"], old["set"]) == (IDS[2], IDS[1])
    assert (new["since"], new["by"]) == ("2026-11-22T00:00:00Z", "ann@here")
    assert new["then"] == {"state": "untested", "told": []}
    assert new["now"]["state"] == "reported, unsigned" and old["now"]["state"] == "untested"
    assert new["now"]["targets"][0] == {
        "gfx": "gfx1030",
        "state": "reported, unsigned",
        "by": ["smoke tests"],
        "pythons": ["3.10"],
        "when": "2026-11-21",
    }
    ask("--channel", "nightly")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--passed", "gfx1300"], 2, "gfx1300 is no GPU target; did you mean gfx1"),
        (["--passed", "gfx110X-all"], 2, "--passed gfx110X-all names 4 targets"),
        (["--passed", ""], 2, "--passed names no GPU target"),
        (["--channel", "nigthly"], 2, "the policy has no channel nigthly; did you mean nightly?"),
        (["--channel", "prerelease"], 2, "the policy has no channel prerelease"),
        ([], 2, "--policy has no effect here"),
    ],
)  # fmt: skip
def test_wrong_questions(words: list[str], code: int, expected: str, ask: Ask) -> None:
    assert expected in ask(*words, code=code)


@pytest.mark.parametrize(
    ("results", "state", "told"),
    [
        ([("smoke",), ("tests", "fail")], "tests failed", "gfx1030: tests failed"),
        ([("smoke",), ("audit", "fail")], "checks failed", "audit: failed"),
    ],
)
def test_what_failed_since_is_what_refresh_tells_of(  # noqa: PLR0917
    results: list[tuple[str, ...]],
    state: str,
    told: str,
    store: folder.FolderStore,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    channel(store, "nightly", (1,))
    for one in results:
        known(store, 1, *one)
    lines = ask("--channel", "nightly")
    assert told in lines
    (known_now,) = ask("--channel", "nightly", "--json")["channels"][0]["sets"]
    monkeypatch.setattr(fsck, "check_store", lambda *_: fsck.StoreReport())  # of sets without files
    words = ["set", "refresh", store.url, "--policy", str(tmp_path / "policy.yaml")]
    ended = call(*words, code=15)  # it fails, and is shown
    take_down(words, ended.code, ended.out + ended.err)
    (released,) = json.loads(store.read(PATHS.support_document).content)["releases"]
    assert [released[key] for key in ("state", "told")] == [
        known_now["now"][key] for key in ("state", "told")
    ]
    assert released["targets"] == known_now["now"]["targets"]
    assert "is not what pages say" not in ask("--channel", "nightly")


def test_what_cannot_be_read_is_no_answer(store: folder.FolderStore, ask: Ask) -> None:
    known(store, 1, "smoke")
    store.create(f"{PATHS.evidence_folder(IDS[2])}/20261121T100000Z-000000000000.json", b"{")
    ask("--passed", "gfx1030", code=2)
    store.create(PATHS.set_document("2.9.5-000000000000"), b"{}")
    (store.folder / PATHS.evidence_folder(IDS[2]) / "20261121T100000Z-000000000000.json").unlink()
    ask("--passed", "gfx1030", code=15)
