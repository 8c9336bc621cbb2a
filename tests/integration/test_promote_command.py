"""``rocm-wheels set promote`` and ``demote`` as people type them: gate first, dry run, roll back."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from judged_sets import said
from release_world import FAMILY, World

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import layout, wheel_set
from rocm_wheels.release.channel import read_channel
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract

POLICY = """
channels:
  nightly: {rules: {verify: {fresh: 14d}, smoke: {fresh: 7d}}}
  stable: {rules: {verify: {fresh: 14d}}}
families:
  gfx94X-dcgpu: {bypass_tests_for_releases: true, owner: ann, reason: the <only> card is broken}
"""


@pytest.fixture(autouse=True)
def no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def everything(place: Path) -> dict[str, bytes]:
    return {str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()}


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
    assert f"{old} cannot go to nightly" in said_of_gate and "no evidence for 3 of 3 wheels" in said_of_gate
    assert everything(place) == before
    assert boundary.run_command(main.cli, words("")) == 2
    assert "the id of the set is empty" in capsys.readouterr().err
    assert boundary.run_command(main.cli, words(old, channel="weekly")) == 2
    assert "the policy has no channel weekly" in capsys.readouterr().err
    for one in ids:
        document = wheel_set.find_set(store, one)
        moment = datetime.now(timezone.utc) - timedelta(hours=1)
        known = said("verify", document=document, when=moment, added=moment)
        add_evidence(store, layout.load_layout(), document, known.evidence)

    before = everything(place)
    assert boundary.run_command(main.cli, words(old, "--dry-run", "--json")) == 0
    would = json.loads(capsys.readouterr().out)["writes"]
    assert everything(place) == before
    assert boundary.run_command(main.cli, words(old)) == 0
    told = capsys.readouterr().out
    assert f"{old} promoted; nightly of {FAMILY} is at {old}: 24 files copied" in told
    made = {write.split()[1] for write in would} - {"v2/gfx94X-dcgpu/simple/nightly"}
    there = {path for path in everything(place) if path.startswith("v2/") and "/simple/nightly/" not in path}
    assert made == there - set(before)
    page = (place / f"v2/{FAMILY}/simple/nightly/torch/index.html").read_text()
    shown = f"<p>{old}: untested; gfx942: untested; smoke on gfx942: "
    assert shown in page and "the &lt;only&gt; card is broken" in page
    data = json.loads((place / f"v2/{FAMILY}/simple/nightly/torch/index.json").read_text())
    assert [(one["set"], one["state"]) for one in data["_untested"]] == [(old, "untested")]

    assert boundary.run_command(main.cli, words(new, "--json")) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["current"], done["shown"], done["copied"]) == (new, [old, new], 21)
    assert [url.rsplit("/", 3)[1] for url in done["set_indexes"]] == [new]
    assert boundary.run_command(main.cli, words(new)) == 0
    assert "nothing to do; nightly of" in capsys.readouterr().out
    back = ["set", "demote", str(place), "--channel", "nightly", "--to", old]
    assert boundary.run_command(main.cli, [*back, "--dry-run"]) == 0
    assert f"would point v2/{FAMILY}/simple/nightly to" in capsys.readouterr().out
    assert read_channel(store, _release(), "nightly").channel.current == new
    begins = ["set", "demote", str(place), "--channel", "nightly", "--set"]
    assert boundary.run_command(main.cli, [*begins, "2.9."]) == 15
    assert f"2.9. could be {old}, {new}\ntip: give the whole id" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*begins, ""]) == 15
    assert f" is not on nightly of {FAMILY}" in capsys.readouterr().err
    assert boundary.run_command(main.cli, [*back[:-1], old[:-3]]) == 0
    assert f"{new} demoted; nightly of {FAMILY} is at {old}" in capsys.readouterr().out
    assert boundary.run_command(main.cli, back) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert boundary.run_command(main.cli, [*begins, new[:-3]]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert (
        boundary.run_command(
            main.cli, ["set", "demote", str(place), "--channel", "nightly", "--set", "2.9.3-x"]
        )
        == 15
    )
    assert f"is not on nightly of {FAMILY}" in capsys.readouterr().err
    assert boundary.run_command(main.cli, words(new, "--abandon")) == 15
    assert "nothing is pending on nightly" in capsys.readouterr().err
    assert boundary.run_command(main.cli, ["set", "demote", str(place), "--channel", "nightly"]) == 0
    assert "is at no set" in capsys.readouterr().out
    assert boundary.run_command(main.cli, ["set", "demote", str(place), "--channel", "nightly"]) == 15
    assert "shows no sets" in capsys.readouterr().err
    events = read_channel(store, _release(), "nightly").channel.history
    assert [(one.action, one.sets) for one in events] == [
        ("promote", (old,)),
        ("promote", (new,)),
        ("demote", (new,)),
        ("demote", (old,)),
    ]
    kept = {path: text for path, text in everything(place).items() if path in before}
    assert {path for path in before if kept.get(path) != before[path]} == set()


def _release():

    return layout.FamilyPaths(layout.load_layout(), FAMILY, "release")


@pytest.mark.parametrize("damage", ["wheel", "page", "released"])
def test_only_what_was_tested_is_released(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, place, policy = World(tmp_path / "world"), tmp_path / "store", tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    assert boundary.run_command(main.cli, world.words(str(place))) == 0
    store, document = folder.FolderStore(place), world.plan().document
    moment = datetime.now(timezone.utc) - timedelta(hours=1)
    add_evidence(
        store,
        layout.load_layout(),
        document,
        said("verify", document=document, when=moment, added=moment).evidence,
    )
    file = document.files[0]
    staged = place / world.places.wheel_file(file.sha256, file.name)
    if damage == "wheel":
        staged.write_bytes(bytes(file.size))
    if damage == "page":
        (place / world.places.set_index(document.id) / "torch/index.html").unlink()
    if damage == "released":
        store.create(_release().wheel_file(file.sha256, file.name), b"of somebody else")
    words = [
        "set",
        "promote",
        str(place),
        "--set",
        document.id,
        "--channel",
        "nightly",
        "--policy",
        str(policy),
    ]
    assert boundary.run_command(main.cli, words) == 15
    says = {
        "wheel": "has other bytes: their sha256 is",
        "page": "has lost files in staging: v2-staging",
        "released": "its sha256 is",
    }
    assert says[damage] in capsys.readouterr().err
    assert not (place / _release().set_document(document.id)).exists()
    assert not (place / _release().channel_document("nightly")).exists()
