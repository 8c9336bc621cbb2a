"""What somebody can do who may write to the staging area of a store, by hand: nothing of it is released.

A set with a wheel for each project, verified and tested on its GPU; in the other store it failed since.
Each attack is on a copy, and then the command is run that people run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from attacked_sets import LAYOUT, RELEASED, STAGED, Attacked, list_leaves, overwrite, stage_attacked
from judged_sets import said
from release_world import TARGET, World

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import layout, set_log, wheel_set
from rocm_wheels.release.evidence.evidence import parse_evidence
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.stores import folder

SAMPLE = 12  # each that many is in CI


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    return stage_attacked(tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def failed(good: Attacked) -> Attacked:
    attacked = good.copy("failed")
    attacked.know("smoke", "fail", 3)
    return attacked


def edit_leaf(text: bytes, at: tuple[str | int, ...], *, remove: bool) -> bytes:
    """Return a document with another value there, of the same kind where there is one, or without it."""
    document = json.loads(text)
    parent = document
    for name in at[:-1]:
        parent = parent[name]
    value = parent[at[-1]]
    if remove:
        del parent[at[-1]]
    elif isinstance(value, bool):
        parent[at[-1]] = not value
    elif isinstance(value, int):
        parent[at[-1]] = value + 1
    elif isinstance(value, str) and value:
        last = "0" if value[-1] != "0" else "1"
        parent[at[-1]] = value[:-1] + last
    else:
        parent[at[-1]] = {"files": [], "locks": []}.get(
            str(at[-1]), "x" if value in ("", None) else value or ["x"]
        )
    return json.dumps(document, indent=1).encode() + b"\n"


Attack = tuple[str, Callable[[Attacked], None]]


def list_attacks(attacked: Attacked) -> Iterator[Attack]:
    """Yield edits, deletions and swaps over all that a set is made of, each with its name."""
    relative = [path.relative_to(attacked.place) for path in attacked.files("")]
    documents = [attacked.set_file, *attacked.results, *attacked.entries]
    for path in (path.relative_to(attacked.place) for path in documents):
        text = (attacked.place / path).read_bytes()
        for at in list_leaves(json.loads(text)):
            for remove in (False, True):
                new = edit_leaf(text, at, remove=remove)
                if json.loads(new) != json.loads(text):
                    name = f"{path.parts[2]}/{path.name}: {'without ' * remove}{at}"
                    yield name, lambda a, path=path, new=new: overwrite(a.place / path, new)
    whole = {"sets/", "evidence/", "log/", "files/"}
    needed = [path for path in relative if any(f"/{part}" in path.as_posix() for part in whole)]
    # pages are made anew, and lost ones are told; the page of an audit is none of what is judged
    needless = {"begun.json", "index.json", "index.html", "audit.html", "audit.json"}
    for path in needed:
        names = path.as_posix()
        if path.name not in needless and "/names/" not in names:
            yield f"{names} gone", lambda a, path=path: (a.place / path).unlink()
            yield (
                f"{names} cut",
                lambda a, path=path: overwrite(a.place / path, (a.place / path).read_bytes()[:-2]),
            )
    groups = [attacked.results, attacked.entries, [p for p in attacked.files("") if p.suffix == ".whl"]]
    for group in groups:
        for first in group:
            for second in (path for path in group if path > first):
                pair = [path.relative_to(attacked.place) for path in (first, second)]
                yield f"{pair[0]} and {pair[1].name} swapped", lambda a, pair=pair: swap(a, *pair)


def swap(attacked: Attacked, first: Path, second: Path) -> None:
    one, other = ((attacked.place / path).read_bytes() for path in (first, second))
    overwrite(attacked.place / first, other)
    overwrite(attacked.place / second, one)


@pytest.mark.contract
def test_the_good_one_is_released_and_the_failed_one_is_not(good: Attacked, failed: Attacked):
    assert good.copy("good released").promote()
    assert not failed.copy("failed tried").promote()


@pytest.mark.contract
def test_a_wheel_that_was_exchanged_after_its_tests_is_held(good: Attacked):
    attacked = good.copy("exchanged")
    assert attacked.run("gate", "--channel", "nightly") == 0
    wheel = next(path for path in attacked.files("") if path.suffix == ".whl")
    content = wheel.read_bytes()
    overwrite(wheel, content[:-1] + bytes([content[-1] ^ 1]))
    assert attacked.run("gate", "--channel", "nightly") == 15
    assert not attacked.promote()


@pytest.mark.contract
def test_no_set_is_released_of_which_anything_was_changed(good: Attacked, exhaustive: bool):
    attacks = list(list_attacks(good))
    assert len(attacks) >= 250
    promoted = []
    for number, (name, attack) in enumerate(attacks if exhaustive else attacks[::SAMPLE]):
        attacked = good.copy(f"attack {number}")
        attack(attacked)
        promoted += [name] if attacked.promote() else []
        shutil.rmtree(attacked.place)
    assert promoted == [], "\n".join(promoted)


def test_no_failure_is_made_undone(failed: Attacked, exhaustive: bool):
    """Each way to be rid of the last result alone, its entry alone, or to say that it passed."""
    attacks = [*list_attacks(failed), *((name, attack) for name, attack in FORGERIES)]
    assert len(attacks) >= 300
    promoted = []
    for number, (name, attack) in enumerate(attacks if exhaustive else [*attacks[::SAMPLE], *FORGERIES]):
        attacked = failed.copy(f"undone {number}")
        attack(attacked)
        promoted += [name] if attacked.promote() else []
        shutil.rmtree(attacked.place)
    assert promoted == [], "\n".join(promoted)


def lose_failure(attacked: Attacked) -> None:
    attacked.results[-1].unlink()


def write_pass_by_hand(attacked: Attacked) -> None:
    """A pass after the failure, in its own file, by whoever can write there."""
    when = datetime.now(timezone.utc).replace(microsecond=0)
    of = {"document": attacked.document, "when": when, "added": when, "gfx": TARGET}
    evidence = said("smoke", **of).evidence
    (attacked.results[0].parent / f"{evidence.id}.json").write_bytes(evidence.to_json())


def point_entry_at_pass(attacked: Attacked) -> None:
    """The entry of the failure names the pass once more; its chain is right."""
    entry = json.loads(attacked.entries[-1].read_bytes())
    passed = json.loads(attacked.entries[-2].read_bytes())
    lose_failure(attacked)
    kept = {name: passed[name] for name in ("evidence", "digest", "about")}
    forged = set_log.LogEntry.model_validate({**entry, **kept})
    overwrite(attacked.entries[-1], forged.to_json())
    attacked.entries[-2].unlink()


def lose_log(attacked: Attacked) -> None:
    lose_failure(attacked)
    shutil.rmtree(attacked.entries[0].parent)


def lose_log_but_first(attacked: Attacked) -> None:
    for path in attacked.entries[1:]:
        path.unlink()


def lose_middle(attacked: Attacked) -> None:
    """The failure is the last but one, and what came after it says nothing of it."""
    attacked.know("verify", "pass", 1)
    attacked.results[-2].unlink()
    attacked.entries[-2].unlink()


FORGERIES: list[Attack] = [
    ("the failure is gone", lose_failure),
    ("a pass written by hand", write_pass_by_hand),
    ("an entry that names a pass twice", point_entry_at_pass),
    ("the whole log is gone", lose_log),
    ("the log but its first entry is gone", lose_log_but_first),
    ("a failure and its entry within the log are gone", lose_middle),
]


@pytest.mark.parametrize("name", [name for name, _ in FORGERIES])
def test_the_gate_says_by_its_rule_what_was_done(
    name: str, failed: Attacked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    attacked = failed.copy(f"gate {name}")
    dict(FORGERIES)[name](attacked)
    assert attacked.run("gate", "--channel", "nightly", "--json") == 15
    verdict = json.loads(capsys.readouterr().out)
    held = {rule["rule"] for rule in verdict["rules"] if rule["outcome"] == "fail"}
    assert ("log" in held) == (name not in {"a pass written by hand", "the log but its first entry is gone"})
    assert held


def test_the_last_failure_and_its_entry_are_missed_once_they_were_released(good: Attacked):
    """What is cut off together where nobody else has it is not missed; the release area has it."""
    attacked = good.copy("released and cut")
    assert attacked.promote()
    attacked.know("smoke", "fail", 2)
    assert attacked.run("refresh") == 15  # it is shown, and fails
    status = json.loads((attacked.place / RELEASED.channel_status("nightly")).read_bytes())
    assert [one["state"] for one in status["sets"]] == ["tests failed"]
    attacked.results[-1].unlink()
    attacked.entries[-1].unlink()
    assert attacked.run("gate", "--channel", "nightly") == 15
    # and where somebody can write to the release area, too, the channel's documents have its head
    for area in (RELEASED,):
        attacked.files(area.evidence_folder(attacked.document.id))[-1].unlink()
        attacked.files(area.log_folder(attacked.document.id))[-1].unlink()
    assert attacked.run("refresh") == 15
    status = json.loads((attacked.place / RELEASED.channel_status("nightly")).read_bytes())
    assert [(one["state"], one["failed_checks"]) for one in status["sets"]] == [("checks failed", ["log"])]
    assert attacked.run("refresh") == 15  # and it stays so
    again = json.loads((attacked.place / RELEASED.channel_status("nightly")).read_bytes())
    assert again == status


@pytest.mark.contract
def test_a_name_stays_taken_whatever_is_deleted(good: Attacked):
    """By turns: its records, the document where the set was released, and the one in staging."""
    attacked, world = good.copy("names"), World(good.place.with_name("other world"), text="other")
    assert attacked.promote()
    stage = world.words(str(attacked.place))

    def remove_names(store: Attacked, *areas: layout.FamilyPaths) -> None:
        for area in areas:
            shutil.rmtree(store.place / area.name_claims)

    assert boundary.run_command(main.cli, stage) == 15
    remove_names(attacked, STAGED)
    assert boundary.run_command(main.cli, stage) == 15
    remove_names(attacked, RELEASED)
    assert boundary.run_command(main.cli, stage) == 15
    # who may write to staging by hand puts the other set there, with its results
    other = Attacked(good.place.with_name("other"), world.plan().document, good.policy)
    assert boundary.run_command(main.cli, world.words(str(other.place))) == 0
    other = Attacked(
        other.place, wheel_set.find_set(folder.FolderStore(other.place), other.document.id), good.policy
    )
    other.know("verify", "pass", 5)
    other.know("smoke", "pass", 4)
    shutil.copytree(other.place / LAYOUT.staging, attacked.place / LAYOUT.staging, dirs_exist_ok=True)
    moved = Attacked(attacked.place, other.document, good.policy)
    assert attacked.run("demote", "--channel", "nightly") == 0
    channel = attacked.place / RELEASED.channel_document("nightly")
    before = channel.read_bytes()
    remove_names(attacked, STAGED)
    assert moved.run("gate", "--channel", "nightly") == 0
    assert moved.run("promote", "--channel", "nightly") == 15
    assert channel.read_bytes() == before
    assert not (attacked.place / RELEASED.set_document(other.document.id)).exists()
    shutil.rmtree(attacked.place / STAGED.set_folder(other.document.id))
    (attacked.place / RELEASED.set_document(attacked.document.id)).unlink()
    assert boundary.run_command(main.cli, stage) == 15  # the document in staging says it
    attacked.set_file.unlink()
    assert boundary.run_command(main.cli, stage) == 15  # and now nothing does
    assert boundary.run_command(main.cli, world.words(str(other.place))) == 0


@pytest.mark.contract
def test_a_document_that_was_edited_is_refused_by_all_who_read_it(good: Attacked):
    released = good.copy("released and edited")
    assert released.promote()
    text = good.set_file.read_bytes()
    fields = [
        at for at in list_leaves(json.loads(text)) if at[0] in {"rocm", "version", "created", "planned"}
    ]
    fields += [("files", 1, name) for name in json.loads(text)["files"][1]]
    for number, at in enumerate(fields):
        new = edit_leaf(text, at, remove=False)
        if json.loads(new) == json.loads(text):
            continue
        attacked = released.copy(f"edited {number}")
        overwrite(attacked.set_file, new)
        assert attacked.run("gate", "--channel", "nightly") == 2, at
        overwrite(attacked.set_file, text)
        overwrite(attacked.place / RELEASED.set_document(attacked.document.id), new)
        attacked.know("verify", "pass", 1)
        assert attacked.run("refresh") == 15, at
        assert attacked.run("list", "--channel", "nightly") == 2, at
        shutil.rmtree(attacked.place)


def test_a_set_without_a_log_is_held_until_its_wheels_are_staged_once_more(good: Attacked):
    attacked = good.copy("without a log")
    entries = attacked.entries
    shutil.rmtree(entries[0].parent)
    assert not attacked.promote()
    world = World(good.place.with_name("world"))
    assert boundary.run_command(main.cli, world.words(str(attacked.place))) == 0
    assert [path.name for path in attacked.entries] == ["000001.json"]
    assert not attacked.promote()  # its results are not in the log
    store = folder.FolderStore(attacked.place)
    for path in attacked.results:
        add_evidence(
            store,
            LAYOUT,
            attacked.document,
            parse_evidence(path.read_bytes(), where=path.name, name=path.stem),
        )
    assert attacked.promote()
    assert not set_log.read_set_log(store, RELEASED, attacked.document.id).faults
    head = json.loads((attacked.place / RELEASED.channel_document("nightly")).read_bytes())["sets"][0]["log"]
    assert head == {"count": 3, "digest": hashlib.sha256(attacked.entries[-1].read_bytes()).hexdigest()}


def list_shown_states(attacked: Attacked) -> set[str]:
    """Return the words for tests of all that people read of a channel: documents, pages, listing, answers."""
    words = set[str]()
    for path in attacked.files("v2"):
        if path.name.endswith(".json") and "/simple/" not in str(path):
            document = json.loads(path.read_bytes())
            for leaf in list_leaves(document) if isinstance(document, dict) else ():
                value = get_leaf(document, leaf)
                if leaf[-1] == "state" or "told" in leaf:
                    words.add(str(value))
    for page in (attacked.place / RELEASED.channel_pages("nightly")).rglob("index.html"):
        words |= set(re.findall(r"<p>(.*?)</p>", page.read_text()))
    return words


def get_leaf(value: Any, at: tuple[str | int, ...]) -> Any:
    for name in at:
        value = value[name]
    return value


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not installed")
@pytest.mark.parametrize("signed_by", ["nobody", "mallory", "ann"])
def test_a_line_that_nobody_known_signed_makes_nothing_tested(
    good: Attacked, tmp_path: Path, signed_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ann", "mallory"):
        make_key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(make_key, check=True)
    policy = tmp_path / "policy.yaml"
    rules = "{verify: {fresh: 14d}, complete: {}, smoke: {fresh: 7d}}"
    channels = f"channels: {{nightly: {{rules: {rules}}}, stable: {{signed: required, rules: {rules}}}}}\n"
    policy.write_text(f"{channels}signers: {{ann: {(tmp_path / 'ann.pub').read_text().strip()}}}\n")
    attacked = replace(good.copy(f"signed-by-{signed_by}"), policy=policy)
    for kind in ("verify", "smoke") if signed_by != "nobody" else ():
        attacked.know(kind, "pass", 2, tmp_path / signed_by)
    expected, code = ("tested", 0) if signed_by == "ann" else ("reported, unsigned", 15)
    assert attacked.run("promote", "--channel", "nightly") == 0  # which takes reports
    assert attacked.run("refresh") == 0
    states = list_shown_states(attacked)
    assert any(expected in word for word in states), states
    assert any(re.search(r"(?<!un)(?<!partly )tested", word) for word in states) == (signed_by == "ann")
    view = attacked.place / RELEASED.view_pages(TARGET, "nightly")
    assert view.exists(), "nightly takes reports, so that stores without keys have views"
    capsys.readouterr()
    listing = ["set", "list", str(attacked.place), "--policy", str(policy), "--channel", "nightly", "--json"]
    assert boundary.run_command(main.cli, listing) == 0
    (shown,) = json.loads(capsys.readouterr().out)["channels"][0]["sets"]
    assert shown["then"]["state"] == shown["now"]["state"] == expected
    assert {target["state"] for target in shown["now"]["targets"]} == {expected}
    assert attacked.run("gate", "--channel", "stable") == code
    assert attacked.run("promote", "--channel", "stable") == code
    assert (attacked.place / RELEASED.channel_document("stable")).exists() == (code == 0)
    assert attacked.run("list", "--passed", TARGET, "--channel", "stable", "--policy", str(policy)) == code
