"""``rocm-wheels set promote`` and ``demote`` as people type them: gate first, dry run, roll back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from commands import call
from crash import FaultyStore, Killed
from stores import FAMILY, PATHS, World, drafts, everything, hours_ago, promote, promoter, verified

from rocm_wheels.release import wheel_set
from rocm_wheels.release.channel import read_channel
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract

POLICY = """
channels:
  nightly: {signed: false, rules: {audit: {fresh: 14d}, smoke: {fresh: 7d}}}
  stable: {signed: false, rules: {audit: {fresh: 14d}}}
families:
  gfx94X-dcgpu: {bypass_tests_for_releases: true, owner: ann, reason: the <only> card is broken}
"""


class Shop:
    """A store to which sets are staged and promoted by commands; what is staged passes its gate."""

    def __init__(self, folder_of_all: Path) -> None:
        self.root, self.place = folder_of_all, folder_of_all / "store"
        self.store, self.policy = folder.FolderStore(self.place), self.root / "policy.yaml"
        self.policy.write_text(POLICY)
        self.triton = World(self.root / "first").wheels[0]

    def stage(self, wheels: Sequence[Path], *, passes: bool = True) -> tuple[wheel_set.SetDocument, str]:
        """Stage wheels; return the set and its warnings."""
        lock = self.root / "first/set.lock"
        words = ["set", "stage", str(self.place), *map(str, wheels), "--lock", str(lock)]
        told = call(*words, "--family", FAMILY, "--json")
        document = wheel_set.find_set(self.store, told.json["set"])
        if passes:
            verified(self.store, document, hours_ago(datetime.now(timezone.utc), 1))
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
        return call(*words, "--policy", self.policy, code=code).err


def test_from_the_gate_to_the_channel_and_back(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    place, policy, store = shop.place, shop.policy, shop.store
    documents = [
        shop.stage(wheels, passes=False)[0]
        for wheels in (World(tmp_path / "first").wheels, shop.made("newer", "2.9.2"))
    ]
    old, new = (document.id for document in documents)

    def words(set_id: str, *more: str, channel: str = "nightly") -> list[str]:
        named = ["--set", set_id, "--channel", channel, "--policy", str(policy)]
        return ["set", "promote", str(place), *named, *more]

    before = everything(place)
    told = call(*words(old), code=15).err
    assert f"{old} cannot go to nightly" in told and "no evidence for all 3 wheels" in told
    assert everything(place) == before
    assert "the id of the set is empty" in call(*words(""), code=2).err
    assert "the policy has no channel weekly" in call(*words(old, channel="weekly"), code=2).err
    for document in documents:
        verified(store, document, hours_ago(datetime.now(timezone.utc), 1))

    before = everything(place)
    would = call(*words(old, "--dry-run", "--json")).json["writes"]
    assert everything(place) == before
    told = call(*words(old)).out
    assert f"{old} promoted; nightly of {FAMILY} is at {old}: 8 pages changed" in told
    assert {write.split()[1] for write in would} == set(everything(place)) - set(before)
    page = (place / f"{FAMILY}/simple/nightly/torch/index.html").read_text()
    shown = f"<p>{old}: untested; gfx942: untested; smoke on gfx942: "
    assert shown in page and "the &lt;only&gt; card is broken" in page
    data = json.loads((place / f"{FAMILY}/simple/nightly/torch/index.json").read_text())
    assert [(one["set"], one["state"]) for one in data["_untested"]] == [(old, "untested")]

    done = call(*words(new, "--json")).json
    assert (done["current"], done["shown"], done["pages"]) == (new, [old, new], 8)
    assert [url.rsplit("/", 3)[1] for url in done["set_indexes"]] == [new]
    assert "nothing to do; nightly of" in call(*words(new)).out
    begins = ["set", "demote", str(place), "--policy", str(policy), "--channel", "nightly", "--set"]
    back = [*begins, new]
    assert f"would replace {FAMILY}/simple/nightly/torch/index.json" in call(*back, "--dry-run").out
    assert read_channel(store, PATHS, "nightly").channel.current == new
    assert f"2.9. could be {old}, {new}\ntip: give more of the id" in call(*begins, "2.9.", code=15).err
    assert " is not on nightly" in call(*begins, "", code=15).err
    told = call(*begins, new[:-3]).out
    assert f"{new} demoted; nightly of {FAMILY} is at {old}" in told
    program, *again = shlex.split(told.partition("put it back: ")[2])  # the line that it prints does
    assert program == "rocm-wheels"
    assert f"{new} promoted; nightly of {FAMILY} is at {new}" in call(*again).out
    call(*begins, new[:-3])
    assert "nothing to do" in call(*back).out
    assert "nothing to do" in call(*begins, new[:-3]).out
    assert "is not on nightly" in call(*begins, "2.9.3-x", code=15).err
    undo = ["set", "promote", str(place), "--abandon"]
    told = call(*undo, read_channel(store, PATHS, "nightly").channel.change_id, code=15).err
    assert "nothing is pending on nightly" in told
    assert f"no change {'0' * 12} is pending in {place}" in call(*undo, "0" * 12, code=15).err
    told = call(*words(new, "--abandon", "0" * 12), code=2).err
    assert "leave out what names a set, a channel or a policy" in told
    for wrong in (["--set", new], ["--channel", "nightly"]):
        assert "tip: name both: --set ID --channel NAME" in call(*undo[:-1], *wrong, code=2).err
    before_demote = everything(place)
    call(*begins[:-1], code=2)
    assert everything(place) == before_demote
    assert "is at no set" in call(*begins, old).out
    events = read_channel(store, PATHS, "nightly").channel.history
    done = [("promote", old), *[("promote", new), ("demote", new)] * 2, ("demote", old)]
    assert [(one.action, one.sets) for one in events] == [(action, (one,)) for action, one in done]
    after = everything(place)
    assert {path for path in before if after.get(path) != before[path]} == set()


@pytest.mark.parametrize("action", ["promote", "demote"])
def test_the_lines_that_are_printed_lead_through(action: str, tmp_path: Path) -> None:
    """A change that was killed is undone by its id alone; what puts a set back names the policy."""
    shop = Shop(tmp_path)
    old, _ = shop.stage(World(tmp_path / "first").wheels)
    new, _ = shop.stage(shop.made("newer", "2.9.2"))
    for document in (old, new) if action == "demote" else (old,):
        shop.change("promote", document, "nightly")
    before = everything(shop.place)
    store = FaultyStore(shop.store, at=f"replace {PATHS.channel_document('nightly')}", fault="after")
    with pytest.raises(Killed):
        promote(store, new) if action == "promote" else promoter(store).demote([new.id])
    told = shop.change("demote" if action == "promote" else "promote", old, "nightly", 15)
    assert f"nightly of {FAMILY} is being changed: {action} of {new.id} by ann@here" in told
    program, *undo = shlex.split(told.partition("or undo it: ")[2].splitlines()[0])
    assert program == "rocm-wheels" and undo[-2] == "--abandon" and str(shop.place) in undo
    listed = call("set", "list", shop.place, "--channel", "nightly", "--policy", shop.policy).out
    assert f"undo it: rocm-wheels set promote {shop.place} --abandon {undo[-1]}\n" in listed
    assert f"dry run: change of {new.id} undone" in call(*undo, "--dry-run").out
    for said_so in (f"change of {new.id} undone; nightly of", "nothing to do; nightly of"):
        assert said_so in call(*undo).out
    document = PATHS.channel_document("nightly")
    after = everything(shop.place)
    assert {path for path in after if after[path] != before.get(path)} == {document}
    # and the line that puts a set back has the policy by which it went
    words = ["set", "demote", shop.place, "--set", old.id, "--channel", "nightly", "--policy", shop.policy]
    program, *again = shlex.split(call(*words).out.partition("put it back: ")[2].splitlines()[0])
    assert again[-2:] == ["--policy", str(shop.policy)]
    assert f"{old.id} promoted" in call(*again).out


REFUSED = "warning: `set promote` to nightly, prerelease, stable will refuse this set as things are: "


def test_staging_warns_of_what_promoting_refuses_and_the_first_tip_leads_through(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
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
    call(*words)
    tagged, told = shop.stage([shop.triton, *sorted(output.glob("*.whl"))])
    warned = told.partition("warning: `set promote` to nightly will refuse this set as things are: ")[2]
    reason, _, tip = warned.rstrip("\n").partition("; ")
    assert f"error: {reason}\ntip: {tip}\n" in shop.change("promote", tagged, "nightly", 15)
    assert tip.startswith(f"demote {old.id} first, or ")
    shop.change("demote", old, "nightly")
    assert "warning: `set promote`" not in shop.stage([shop.triton, *sorted(output.glob("*.whl"))])[1]
    shop.change("promote", tagged, "nightly")


def test_staging_warns_of_wheels_that_nothing_ties(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    loose, told = shop.stage(shop.made("loose", torchvision=["torch"]))
    reason, _, tip = told.partition(REFUSED)[2].rstrip("\n").partition("; ")
    assert f"error: {reason}\ntip: {tip}\n" in shop.change("promote", loose, "stable", 15)
    assert f"wheels of {loose.id} are not pinned to it" in reason
