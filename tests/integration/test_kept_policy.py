"""The policy that a channel keeps: whoever promotes or refreshes next judges by it, or is refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from nights import FAMILY, Night, know, verified

from rocm_wheels.cli import boundary, main
from rocm_wheels.release import layout, wheel_set
from rocm_wheels.stores import folder

NOW = datetime.now(timezone.utc).replace(microsecond=0)
STRICT = """
channels:
  nightly: {rules: {verify: {fresh: 14d}, smoke: {fresh: 7d, targets: one}}}
  stable: {rules: {verify: {fresh: 14d}}}
"""
CHANNEL = layout.FamilyPaths(layout.load_layout(), FAMILY, "release").channel_document("nightly")
Run = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> folder.FolderStore:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    policies = {
        "strict": STRICT,
        "easy": STRICT.replace(", smoke: {fresh: 7d, targets: one}", ""),
        "other channel": STRICT.replace("verify: {fresh: 14d}}}\n", "verify: {fresh: 1d}}}\n"),
        "other family": STRICT + """
families:
  gfx950-dcgpu: {bypass_tests_for_releases: true, owner: ann, reason: none is here}
""",
        "other retention": f"retention: {{keep: 3}}\n# a comment\n{STRICT}",
        "this family": STRICT + """
families:
  gfx1101: {bypass_tests_for_releases: true, owner: ann, reason: none is here}
""",
        "waived long ago": STRICT + """
waivers:
  - {rule: smoke, channels: [nightly], gfx: gfx1100, owner: ann, reason: it hangs, expires: 2026-01-01}
""",
    }  # fmt: skip
    for name, text in policies.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return folder.FolderStore(tmp_path / "store")


@pytest.fixture
def run(store: folder.FolderStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_words(*words: str, policy: str = "", code: int = 0) -> str:
        more = ["--policy", str(tmp_path / f"{policy}.yaml")] if policy else []
        command, *options = words
        assert boundary.run_command(main.cli, ["set", command, store.url, *options, *more]) == code
        both = capsys.readouterr()
        return both.out + both.err

    return run_words


def stage(store: folder.FolderStore, tmp_path: Path, day: int) -> wheel_set.SetDocument:
    document = Night("2.10.0", day).stage(store, tmp_path / "wheels")
    when = NOW - timedelta(hours=1)
    verified(store, document, when)
    know(store, document, "gfx1100", "pass", when)
    return document


def read_channel(store: folder.FolderStore) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(store.read(CHANNEL).content)
    return content


def promote(run: Run, document: wheel_set.SetDocument, *words: str, **more: Any) -> str:
    return run("promote", "--set", document.id, "--channel", "nightly", *words, **more)


def test_a_channel_keeps_the_policy_of_its_first_set(
    store: folder.FolderStore, run: Run, tmp_path: Path
) -> None:
    """Refresh and promote judge by it, and refuse another that is named: nothing is written then."""
    first, second = (stage(store, tmp_path, day) for day in (21, 22))
    promote(run, first, policy="strict")
    kept = read_channel(store)
    assert kept["policy"]["channels"]["nightly"]["rules"]["smoke"]["fresh"] == "1w"
    assert "stable" not in kept["policy"]["channels"]
    for name in ("strict", "other channel", "other family", "other retention", "waived long ago", ""):
        run("refresh", policy=name)
        assert read_channel(store) == kept, name
    for name in ("easy", "this family"):
        refused = run("refresh", policy=name, code=15)
        assert "--change-policy" in refused
        assert "--change-policy" in promote(run, second, policy=name, code=15)
        assert read_channel(store) == kept
    assert "rules.smoke" in run("refresh", policy="easy", code=15)
    promote(run, second)  # by the one that it keeps, not by the usual one
    assert read_channel(store)["policy"] == kept["policy"]


def test_a_channel_takes_another_policy_when_told_to(
    store: folder.FolderStore, run: Run, tmp_path: Path
) -> None:
    """It is in its history, with who and when; the one of before is another policy from then on."""
    document = stage(store, tmp_path, 21)
    promote(run, document, policy="strict")
    run("refresh", "--change-policy", "--dry-run", policy="easy")
    assert "smoke" in read_channel(store)["policy"]["channels"]["nightly"]["rules"]
    assert "rules.smoke" in run("refresh", "--change-policy", policy="easy")
    channel = read_channel(store)
    assert "smoke" not in channel["policy"]["channels"]["nightly"]["rules"]
    assert [bool(event.get("policy")) for event in channel["history"]] == [True, True]
    run("refresh", policy="strict", code=15)
    run("refresh", "--change-policy", policy="easy")
    assert read_channel(store) == channel
    run("demote", "--channel", "nightly", policy="strict", code=15)
    assert read_channel(store) == channel


def test_a_channel_of_before_keeps_the_policy_of_who_comes_first(
    store: folder.FolderStore, run: Run, tmp_path: Path
) -> None:
    promote(run, stage(store, tmp_path, 21), policy="strict")
    channel = read_channel(store)
    del channel["policy"]
    for event in channel["history"]:
        del event["policy"]
    stored = store.read(CHANNEL)
    store.replace(CHANNEL, (json.dumps(channel, indent=1) + "\n").encode(), stored.tag)
    run("refresh", policy="easy")
    run("refresh", policy="strict", code=15)
    run("refresh", policy="easy")
