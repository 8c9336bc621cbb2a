"""Sets that a channel may get yet, as the morning after a night asks for them, and what a staged set is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from commands import call
from documents import LOCK, a_set, sha, wheel
from stores import FAMILY_OF_NIGHTS as FAMILY
from stores import NOW, PYTHON, ROCM, Night

from rocm_wheels.release import queries, store_paths, verdict, wheel_set
from rocm_wheels.release.channel import ChannelActor, Promoter
from rocm_wheels.release.gate import load_policy_for
from rocm_wheels.stores import folder

MOMENT = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)


@dataclass(frozen=True)
class NamedNight(Night):
    """A night whose versions begin with a word: ``nightly`` for those that the channel is to get."""

    word: str = "nightly"

    @property
    def version(self) -> str:
        return f"{self.torch}+{self.word}{self.day:02}.rocm{ROCM}"


def test_open_is_the_newest_of_each_torch_that_the_channel_neither_shows_nor_took_back(
    tmp_path: Path,
) -> None:
    store = folder.FolderStore(tmp_path / "store")
    paths, actor = store_paths.FamilyPaths(FAMILY), ChannelActor("ann@here", NOW)
    promoter = Promoter(store, paths, "nightly", actor)
    query = queries.StoreQuery(store, load_policy_for("nightly", None), MOMENT, {})

    def list_open() -> list[str]:
        return [row.id for row in queries.list_open_sets(query, "nightly")]

    nights = [("2.13.0", 18), ("2.13.0", 19), ("2.12.0", 15), ("2.14.0", 19)]
    _old, new, _early, other = (NamedNight(torch, day).stage(store, tmp_path) for torch, day in nights)
    NamedNight("2.15.0", 19, word="dispatch").stage(store, tmp_path)
    version = other.version
    name = f"torchaudio-{version}-cp312-cp312-linux_x86_64.whl"
    set_id = wheel_set.make_set_id(version, FAMILY, [(name, sha(name))], LOCK)
    alone = a_set(
        wheel("torchaudio", name=name, version=version, sha256=sha(name)),
        version=version,
        family=FAMILY,
        id=set_id,
        created="2026-11-20T01:00:00Z",
    )
    store.create(paths.set_document(set_id), alone.to_json())
    expected = {new.id, other.id, alone.id}
    assert set(list_open()) == expected, "the newest of each torch, and of companions, in three days"
    passed = verdict.Verdict("x", FAMILY, "nightly", MOMENT, (verdict.RuleResult("hashes", "pass"),))
    promoter.promote(new, lambda: passed)
    assert set(list_open()) == {other.id, alone.id}
    promoter.demote((new.id,))
    assert set(list_open()) == {other.id, alone.id}, "what somebody took back does not come again by itself"


def test_a_staged_set_tells_a_workflow_what_it_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = NamedNight("2.13.0", 18, line="2.13").stage(folder.FolderStore(tmp_path / "store"), tmp_path)
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    argv = ["set", "show", str(tmp_path / "store"), "--set", document.id[:9], "--json"]
    told = call(*argv).out
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert outputs == {
        "set": document.id,
        "family": FAMILY,
        "index": outputs["index"],
        "layout": "per-family",
        "line": "2.13",
        "platform": "linux",
        "pythons": PYTHON,
        "rocm": ROCM,
    }
    shown = json.loads(told)
    assert {wheel["sha256"] for wheel in shown["wheels"]} == document.hashes
    # a gate that does not let it pass is an answer, where a workflow asks for one
    gate = ["set", "gate", str(tmp_path / "store"), "--set", document.id, "--channel", "nightly"]
    call(*gate, code=15)
    call(*gate, "--outputs")
    assert output.read_text().endswith("passed=false\n")
    # what another says of its step decides no exit code but where outputs are asked for
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "not-mounted" / "output"))
    questions = (
        ["set", "list", str(tmp_path / "store"), "--open", "nightly"],
        ["container", "resolve", "debian"],
    )
    for question in (argv, *questions):
        assert "warning: no outputs are set: GITHUB_OUTPUT names" in call(*question).err
    assert "which cannot be written" in call(*gate, "--outputs", code=2).err
    # a lock that cannot be read is a warning in a workflow, as elsewhere, and no line is told
    lock = store_paths.FamilyPaths(FAMILY).lock_file(document.locks[0].digest)
    (tmp_path / "store" / lock).write_text("damaged")
    output.write_text("")
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert "is not the lock that the set was staged with" in call(*argv).err
    assert {line.split("=")[0] for line in output.read_text().splitlines()} == outputs.keys() - {"line"}


def test_questions_that_exclude_each_other(tmp_path: Path) -> None:
    words = ["--open", "nightly", "--channel", "nightly"]
    call("set", "list", tmp_path, *words, code=2)
