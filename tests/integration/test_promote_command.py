"""``rocm-wheels set promote`` and ``demote`` as people type them: gate first, dry run, roll back."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from crash import FaultyStore, Killed
from documents import said
from stores import FAMILY, NOW, World, drafts

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter, read_channel
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.release.verdict import RuleResult, Verdict
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract

POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 14d}, smoke: {fresh: 7d}}}
  stable: {signed: false, rules: {audit: {fresh: 14d}}}
families:
  gfx94X-dcgpu: {bypass_tests_for_releases: true, owner: ann, reason: the <only> card is broken}
"""


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


PATHS = store_paths.FamilyPaths(FAMILY)


def everything(place: Path) -> dict[str, bytes]:
    found = {str(one.relative_to(place)): one for one in place.rglob("*") if one.is_file()}
    return {path: one.read_bytes() for path, one in found.items() if not path.startswith(".store/")}


def test_from_the_gate_to_the_channel_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, policy = tmp_path / "store", tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    store = folder.FolderStore(place)
    ids = []
    for number, version in enumerate(("2.9.1", "2.9.2")):
        world = World(tmp_path / version, version)
        if number:
            world.wheels[0] = next((tmp_path / "2.9.1").glob("triton*.whl"))
        assert boundary.run_command(main.cli, [*world.words(str(place)), "--json"]) == 0
        ids.append(json.loads(capsys.readouterr().out)["set"])
    old, new = ids

    def words(set_id: str, *more: str, channel: str = "nightly") -> list[str]:
        return [
            "set",
            "promote",
            str(place),
            "--set",
            set_id,
            "--channel",
            channel,
            "--policy",
            str(policy),
            *more,
        ]

    before = everything(place)
    assert boundary.run_command(main.cli, words(old)) == 15
    said_of_gate = capsys.readouterr().err
    assert f"{old} cannot go to nightly" in said_of_gate and "no evidence for all 3 wheels" in said_of_gate
    assert everything(place) == before
    assert boundary.run_command(main.cli, words("")) == 2
    assert "the id of the set is empty" in capsys.readouterr().err
    assert boundary.run_command(main.cli, words(old, channel="weekly")) == 2
    assert "the policy has no channel weekly" in capsys.readouterr().err
    for one in ids:
        document = wheel_set.find_set(store, one)
        moment = datetime.now(timezone.utc) - timedelta(hours=1)
        known = said("audit", document=document, when=moment, added=moment)
        add_evidence(store, document, known.evidence)

    before = everything(place)
    assert boundary.run_command(main.cli, words(old, "--dry-run", "--json")) == 0
    would = json.loads(capsys.readouterr().out)["writes"]
    assert everything(place) == before
    assert boundary.run_command(main.cli, words(old)) == 0
    told = capsys.readouterr().out
    assert f"{old} promoted; nightly of {FAMILY} is at {old}: 8 pages changed" in told
    assert {write.split()[1] for write in would} == set(everything(place)) - set(before)
    page = (place / f"{FAMILY}/simple/nightly/torch/index.html").read_text()
    shown = f"<p>{old}: untested; gfx942: untested; smoke on gfx942: "
    assert shown in page and "the &lt;only&gt; card is broken" in page
    data = json.loads((place / f"{FAMILY}/simple/nightly/torch/index.json").read_text())
    assert [(one["set"], one["state"]) for one in data["_untested"]] == [(old, "untested")]

    assert boundary.run_command(main.cli, words(new, "--json")) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["current"], done["shown"], done["pages"]) == (new, [old, new], 8)
    assert [url.rsplit("/", 3)[1] for url in done["set_indexes"]] == [new]
    assert boundary.run_command(main.cli, words(new)) == 0
    assert "nothing to do; nightly of" in capsys.readouterr().out
    judged = ("--policy", str(policy))
    back = ["set", "demote", str(place), *judged, "--channel", "nightly", "--set", new]
    assert boundary.run_command(main.cli, [*back, "--dry-run"]) == 0
    assert f"would replace {FAMILY}/simple/nightly/torch/index.json" in capsys.readouterr().out
    assert read_channel(store, PATHS, "nightly").channel.current == new
    begins = ["set", "demote", str(place), *judged, "--channel", "nightly", "--set"]
    assert boundary.run_command(main.cli, [*begins, "2.9."]) == 15
    assert f"2.9. could be {old}, {new}\ntip: give more of the id" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*begins, ""]) == 15
    assert " is not on nightly" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*back[:-1], new[:-3]]) == 0
    told = capsys.readouterr().out
    assert f"{new} demoted; nightly of {FAMILY} is at {old}" in told
    program, *again = shlex.split(told.partition("put it back: ")[2])  # the line that it prints does
    assert program == "rocm-wheels" and boundary.run_command(main.cli, again) == 0
    assert f"{new} promoted; nightly of {FAMILY} is at {new}" in capsys.readouterr().out
    assert boundary.run_command(main.cli, [*back[:-1], new[:-3]]) == 0
    capsys.readouterr()
    assert boundary.run_command(main.cli, back) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert boundary.run_command(main.cli, [*begins, new[:-3]]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert boundary.run_command(main.cli, [*begins, "2.9.3-x"]) == 15
    assert "is not on nightly" in capsys.readouterr().err
    undo = ["set", "promote", str(place), "--abandon"]
    assert (
        boundary.run_command(main.cli, [*undo, read_channel(store, PATHS, "nightly").channel.change_id]) == 15
    )
    assert "nothing is pending on nightly" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*undo, "0" * 12]) == 15
    assert f"no change {'0' * 12} is pending in {place}" in capsys.readouterr().err
    assert boundary.run_command(main.cli, words(new, "--abandon", "0" * 12)) == 2
    assert "leave out what names a set, a channel or a policy" in capsys.readouterr().err
    for wrong in (["--set", new], ["--channel", "nightly"]):
        assert boundary.run_command(main.cli, [*undo[:-1], *wrong]) == 2
        assert "tip: name both: --set ID --channel NAME" in capsys.readouterr().err
    before_demote = everything(place)
    assert boundary.run_command(main.cli, begins[:-1]) == 2
    assert everything(place) == before_demote
    assert boundary.run_command(main.cli, [*begins, old]) == 0
    assert "is at no set" in capsys.readouterr().out
    events = read_channel(store, PATHS, "nightly").channel.history
    assert [(one.action, one.sets) for one in events] == [
        ("promote", (old,)),
        ("promote", (new,)),
        ("demote", (new,)),
        ("promote", (new,)),
        ("demote", (new,)),
        ("demote", (old,)),
    ]
    after = everything(place)
    assert {path for path in before if after.get(path) != before[path]} == set()


@pytest.mark.parametrize("action", ["promote", "demote"])
def test_the_lines_that_are_printed_lead_through(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that was killed is undone by its id alone; what puts a set back names the policy."""
    shop = Shop(tmp_path, capsys)
    old, _ = shop.stage(World(tmp_path / "first").wheels)
    new, _ = shop.stage(shop.made("newer", "2.9.2"))
    for document in (old, new) if action == "demote" else (old,):
        shop.change("promote", document, "nightly")
    before = everything(shop.place)
    store = FaultyStore(folder.FolderStore(shop.place), at=f"replace {PATHS.channel_document('nightly')}")
    store.fault = "after"
    one = Promoter(store, PATHS, "nightly", ChannelActor("ann@there", NOW))
    now = datetime.now(timezone.utc)
    passed = Verdict(new.id, FAMILY, "nightly", now, (RuleResult("hashes", "pass"),))
    with pytest.raises(Killed):
        one.promote(new, lambda: passed) if action == "promote" else one.demote([new.id])
    told = shop.change("demote" if action == "promote" else "promote", old, "nightly", 15)
    assert f"nightly of {FAMILY} is being changed: {action} of {new.id} by ann@there" in told
    program, *undo = shlex.split(told.partition("or undo it: ")[2].splitlines()[0])
    assert program == "rocm-wheels" and undo[-2] == "--abandon" and str(shop.place) in undo
    listed = [
        "set",
        "list",
        str(shop.place),
        "--channel",
        "nightly",
        "--policy",
        str(tmp_path / "policy.yaml"),
    ]
    assert boundary.run_command(main.cli, listed) == 0
    assert f"undo it: rocm-wheels set promote {shop.place} --abandon {undo[-1]}\n" in capsys.readouterr().out
    assert boundary.run_command(main.cli, [*undo, "--dry-run"]) == 0
    assert f"dry run: change of {new.id} undone" in capsys.readouterr().out
    for said_so in (f"change of {new.id} undone; nightly of", "nothing to do; nightly of"):
        assert boundary.run_command(main.cli, undo) == 0
        assert said_so in capsys.readouterr().out
    document = PATHS.channel_document("nightly")
    after = everything(shop.place)
    assert {path for path in after if after[path] != before.get(path)} == {document}
    # and the line that puts a set back has the policy by which it went
    words = ["set", "demote", str(shop.place), "--set", old.id, "--channel", "nightly"]
    assert boundary.run_command(main.cli, [*words, "--policy", str(tmp_path / "policy.yaml")]) == 0
    program, *again = shlex.split(capsys.readouterr().out.partition("put it back: ")[2].splitlines()[0])
    assert again[-2:] == ["--policy", str(tmp_path / "policy.yaml")]
    assert boundary.run_command(main.cli, again) == 0
    assert f"{old.id} promoted" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["wheel", "lock", "gone"])
def test_only_what_was_tested_is_released(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, place, policy = World(tmp_path / "world"), tmp_path / "store", tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    assert boundary.run_command(main.cli, world.words(str(place))) == 0
    store, document = folder.FolderStore(place), world.plan().document
    moment = datetime.now(timezone.utc) - timedelta(hours=1)
    add_evidence(store, document, said("audit", document=document, when=moment, added=moment).evidence)
    file = document.files[0]
    staged = place / PATHS.pool_file(file.sha256, file.name)
    if damage == "wheel":
        staged.write_bytes(bytes(file.size))
    if damage == "lock":
        lock = place / PATHS.lock_file(document.locks[0].digest)
        lock.write_bytes(lock.read_bytes() + b"\n")
    if damage == "gone":
        staged.unlink()
    before = everything(place)
    words = ["set", "promote", str(place), "--set", document.id, "--channel", "nightly"]
    assert boundary.run_command(main.cli, [*words, "--policy", str(policy)]) == 15
    says = {"wheel": "has other bytes: their sha256 is", "lock": "has other bytes: their sha256 is"}
    assert says.get(damage, f"{file.name} is gone") in capsys.readouterr().err
    assert everything(place) == before


REFUSED = "warning: `set promote` to nightly, prerelease, stable will refuse this set as things are: "


class Shop:
    """A store to which sets are staged and promoted by commands; what is staged passes its gate."""

    def __init__(self, folder_of_all: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys, self.place = folder_of_all, capsys, folder_of_all / "store"
        (self.root / "policy.yaml").write_text(POLICY)
        self.triton = World(self.root / "first").wheels[0]

    def stage(self, wheels: Sequence[Path]) -> tuple[wheel_set.SetDocument, str]:
        """Stage wheels; return the set and its warnings."""
        lock = self.root / "first/set.lock"
        words = ["set", "stage", str(self.place), *map(str, wheels), "--lock", str(lock)]
        assert boundary.run_command(main.cli, [*words, "--family", FAMILY, "--json"]) == 0
        told = self.capsys.readouterr()
        store = folder.FolderStore(self.place)
        document = wheel_set.find_set(store, json.loads(told.out)["set"])
        moment = datetime.now(timezone.utc) - timedelta(hours=1)
        add_evidence(store, document, said("audit", document=document, when=moment, added=moment).evidence)
        return document, told.err

    def made(self, name: str, version: str = "2.9.1", **requires: list[str]) -> list[Path]:
        """Return the wheels of a set, with the same triton as all others."""
        found = drafts(version, text=name)
        (self.root / name).mkdir()
        for project, said_so in requires.items():
            found[project].requires = said_so
        return [self.triton, *(found[one].write(self.root / name) for one in ("torch", "torchvision"))]

    def change(self, action: str, document: wheel_set.SetDocument, channel: str, code: int = 0) -> str:
        words = ["set", action, str(self.place), "--set", document.id, "--channel", channel]
        assert boundary.run_command(main.cli, [*words, "--policy", str(self.root / "policy.yaml")]) == code
        return self.capsys.readouterr().err


def test_staging_warns_of_what_promoting_refuses_and_the_first_tip_leads_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path, capsys)
    old, told = shop.stage(World(tmp_path / "first").wheels)
    assert "warning: `set promote`" not in told
    shop.change("promote", old, "nightly")
    # other bytes under names that people have
    wheels = shop.made("again")
    again, told = shop.stage(wheels)
    reason, _, tip = told.partition(REFUSED)[2].rstrip("\n").partition("; ")
    for channel in ("nightly", "stable"):
        refused = shop.change("promote", again, channel, 15)
        assert f"error: {reason}\ntip: {tip}\n" in refused
    assert f"has other bytes in {old.id}, which people got" in reason
    assert "build the set with another version; or demote" in tip
    newer, told = shop.stage(shop.made("newer", "2.9.2"))
    assert "warning: `set promote`" not in told
    shop.change("promote", newer, "nightly")
    # or: demote it, and give these wheels a build tag
    output = tmp_path / "tagged"
    words = ["wheel", "retag", "--build-tag", "1", "--output-dir", str(output), *map(str, wheels[1:])]
    assert boundary.run_command(main.cli, words) == 0
    capsys.readouterr()
    tagged, told = shop.stage([shop.triton, *sorted(output.glob("*.whl"))])
    warned = told.partition("warning: `set promote` to nightly will refuse this set as things are: ")[2]
    reason, _, tip = warned.rstrip("\n").partition("; ")
    assert f"error: {reason}\ntip: {tip}\n" in shop.change("promote", tagged, "nightly", 15)
    assert tip.startswith(f"demote {old.id} first, or ")
    shop.change("demote", old, "nightly")
    assert "warning: `set promote`" not in shop.stage([shop.triton, *sorted(output.glob("*.whl"))])[1]
    shop.change("promote", tagged, "nightly")


def test_staging_warns_of_wheels_that_nothing_ties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path, capsys)
    loose, told = shop.stage(shop.made("loose", torchvision=["torch"]))
    reason, _, tip = told.partition(REFUSED)[2].rstrip("\n").partition("; ")
    assert f"error: {reason}\ntip: {tip}\n" in shop.change("promote", loose, "stable", 15)
    assert f"wheels of {loose.id} are not pinned to it" in reason
