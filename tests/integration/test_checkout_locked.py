"""``checkout --lock``: the locked commits, submodules and patch sets, or an error that says what differs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from sources import ALL, DEEP, MIDDLE, Upstream, content, write_lock

from rocm_wheels.sources import patches

pytestmark = pytest.mark.contract

TORCH, AUDIO = "pytorch_torch_repo.py", "pytorch_audio_repo.py"
PATCH = """\
From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001
From: A Dev <dev@example.invalid>
Date: Tue, 14 Nov 2023 22:13:20 +0000
Subject: [PATCH] Say it otherwise

---
 version.txt | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/version.txt b/version.txt
--- a/version.txt
+++ b/version.txt
@@ -1 +1 @@
-2.9.0
+2.9.0.1
--
2.39.0
"""


def test_all_of_the_lock_then_nothing_to_do_then_back(github: Upstream, tmp_path: Path) -> None:
    assert github.checkout(tmp_path, "torch", "--source-dir", "trees").code == 0  # a newer one
    lock = github.first_commits()
    write_lock(tmp_path / "l.json", lock)
    said = github.checkout(tmp_path, "--lock", "l.json", "--source-dir", "trees")
    assert said.code == 0, said.err
    lines = dict(line.split("  ", 1) for line in said.out.splitlines())
    assert sorted(lines) == sorted(ALL)
    for name, project in lock["projects"].items():
        tree = tmp_path / "trees" / name
        assert github.git(tree, "rev-parse", "THEROCK_UPSTREAM_DIFFBASE") == project["commit"]
        state = json.loads((tree / ".git/rocm-wheels/state.json").read_text())
        assert (state["ref"], state["origin"]) == (project["ref"], project["origin"])
        assert f"at {project['commit'][:12]} ({project['ref']})" in lines[name]
    assert "[pytorch] v1 at " in said.err
    assert "(lock l.json)" in said.err
    again = github.checkout(tmp_path, "--lock", "l.json", "--source-dir", "trees")
    assert (again.code, again.err.count("nothing to do")) == (0, 5), again.err


def test_named_ones_and_the_doors(github: Upstream, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "l.json", github.first_commits())
    said = github.checkout(tmp_path, "torchvision", "apex", "--lock", lock, "--source-dir", "trees")
    assert said.code == 0, said.err
    assert sorted(path.name for path in (tmp_path / "trees").iterdir()) == ["apex", "pytorch_vision"]
    # the doors: the same, and --origin is another place for the locked commit
    audio = github.script(tmp_path, AUDIO, "checkout", "--lock", lock, "--checkout-dir", "mine")
    assert audio.code == 0, audio.err
    commit = github.first_commits()["projects"]["pytorch_audio"]["commit"]
    assert github.git(tmp_path / "mine", "rev-parse", "HEAD") == commit
    words = ("--lock", lock, "--checkout-dir", "other", "--origin", github.folder / "audio")
    there = github.script(tmp_path, AUDIO, "checkout", *words)
    assert there.code == 0, there.err
    assert "(lock " in there.err
    assert "origin: --origin" in there.err
    assert github.git(tmp_path / "other", "rev-parse", "HEAD") == commit
    words = ("--lock", lock, "--source-dir", "trees", "--no-submodules")
    torch = github.script(tmp_path, TORCH, "checkout", *words)
    assert torch.code == 0, torch.err
    assert "--no-submodules: the 2 in " in torch.err


def test_the_patch_set_is_the_locked_one(github: Upstream, tmp_path: Path) -> None:
    patch = tmp_path / "patches/pytorch_audio/2.9/base/0001-Say.patch"
    patch.parent.mkdir(parents=True)
    patch.write_text(PATCH)
    digest = patches.read_patch_set(tmp_path / "patches/pytorch_audio/2.9").digest
    lock = github.first_commits()
    lock["projects"]["pytorch_audio"]["patches"] = {"name": "2.9", "digest": digest}
    where, patched = ("--source-dir", "trees"), {"ROCM_WHEELS_PATCH_DIR": "patches"}
    file = write_lock(tmp_path / "l.json", lock)
    said = github.checkout(tmp_path, "torchaudio", "--lock", file, *where, **patched)
    assert said.code == 0, said.err
    assert (tmp_path / "trees/pytorch_audio/version.txt").read_text() == "2.9.0.1\n"
    before = content(tmp_path / "trees")
    patch.write_text(PATCH.replace("2.9.0.1", "2.9.0.2"))
    other = github.checkout(tmp_path, "torchaudio", "--lock", "l.json", *where, **patched)
    assert other.code == 10
    now = patches.read_patch_set(tmp_path / "patches/pytorch_audio/2.9").digest
    assert re.search(rf"patch set patches/pytorch_audio/2.9 has the digest {now}.* says {digest}", other.err)
    assert "`rocm-wheels lock update l.json pytorch_audio`" in other.err
    patch.unlink()
    gone = github.checkout(tmp_path, "torchaudio", "--lock", "l.json", *where, **patched)
    assert (gone.code, "patches/pytorch_audio/2.9 has no patches, and l.json says" in gone.err) == (10, True)
    assert content(tmp_path / "trees") == before

    # no patches in the lock: none are applied, and that is said where the line has a set
    patch.write_text(PATCH)
    lock["line"] = "2.9"
    del lock["projects"]["pytorch_audio"]["patches"]
    file = write_lock(tmp_path / "l.json", lock)
    bare = github.checkout(tmp_path, "torchaudio", "--lock", file, *where, **patched)
    assert bare.code == 0, bare.err
    assert "no patches: " in bare.err
    assert "patches/pytorch_audio/2.9 is left out" in bare.err
    assert (tmp_path / "trees/pytorch_audio/version.txt").read_text() == "2.9.0\n"


def test_a_manifest_is_a_lock(github: Upstream, tmp_path: Path) -> None:
    projects = github.first_commits()["projects"]
    manifest: dict[str, Any] = {"schema_version": 1}
    for name in ("pytorch", "apex"):
        manifest[name] = {"repo": projects[name]["origin"], "commit": projects[name]["commit"]}
    (tmp_path / "m.json").write_text(json.dumps(manifest))
    said = github.checkout(tmp_path, "--lock", "m.json", "--source-dir", "trees")
    assert said.code == 0, said.err
    assert github.git(tmp_path / "trees/apex", "rev-parse", "HEAD") == projects["apex"]["commit"]


def test_one_that_fails_takes_no_other_away(github: Upstream, tmp_path: Path) -> None:
    """In a folder that none of them had found there."""
    lock = github.first_commits()
    lock["projects"]["apex"]["commit"] = "1" * 40
    write_lock(tmp_path / "l.json", lock)
    said = github.checkout(tmp_path, "--lock", "l.json", "--source-dir", "deep/er")
    assert said.code == 10
    assert [line.split()[0] for line in said.out.splitlines() if line.endswith("failed")] == ["apex"]
    trees = tmp_path / "deep/er"
    assert sorted(path.name for path in trees.iterdir()) == [name for name in ALL if name != "apex"]
    alone = github.checkout(tmp_path, "apex", "--lock", "l.json", "--source-dir", "other/place")
    assert (alone.code, (tmp_path / "other").exists()) == (10, False)


# what is changed in the lock of torch → what is said
CHANGES: list[tuple[dict[str, Any], str]] = [
    ({MIDDLE: {"commit": "1" * 40}}, rf"submodule {MIDDLE} is [0-9a-f]{{40}}, not 1{{40}}"),
    ({DEEP: None}, rf"submodule {DEEP} is [0-9a-f]{{40}}, not there"),
    ({"tree": "2" * 40}, r"the files of [0-9a-f]{12} are the tree [0-9a-f]{40}, not 2{40}"),
]


@pytest.mark.parametrize(("changes", "said"), CHANGES)
def test_a_lock_that_was_changed_by_hand(
    github: Upstream, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    lock = github.first_commits()
    torch = lock["projects"]["pytorch"]
    for key, value in changes.items():
        if key == "tree":
            torch[key] = value
        elif value is None:
            del torch["submodules"][key]
        else:
            torch["submodules"][key] |= value
    words = ("--lock", write_lock(tmp_path / "l.json", lock), "--source-dir", "trees")
    ended = github.checkout(tmp_path, "torch", *words)
    assert ended.code == 10
    assert re.search(said, ended.err), ended.err
    assert f"changed the lock by hand; `rocm-wheels lock update {tmp_path}/l.json pytorch`" in ended.err
