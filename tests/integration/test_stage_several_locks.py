"""Variants of one version that were built from two locks: one set, promoted, and told apart by installers."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from documents import said
from servers import serve_folder
from stores import NEWER, NOW, OLDER, rocm_wheel, several_drafts
from uv import find_uv_bin

from rocm_wheels.cli import boundary, main
from rocm_wheels.core import process
from rocm_wheels.index import update
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.release.evidence.store import add_evidence
from rocm_wheels.sources.lock import digest_lock, format_lock, write_lock
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract


def test_uv_takes_a_variant_of_a_set_with_two_locks_and_others_the_plain_wheel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = [draft.write(tmp_path) for draft in several_drafts().values()]
    words = [
        "set",
        "stage",
        str(tmp_path / "store"),
        *map(str, wheels),
        "--family",
        "variants",
        "--layout",
        "variants",
    ]
    for name, lock in (("newer", NEWER), ("older", OLDER)):
        write_lock(tmp_path / f"{name}.lock", lock)
        words += ["--lock", str(tmp_path / f"{name}.lock")]
    assert boundary.run_command(main.cli, [*words, "--json"]) == 0
    staged = json.loads(capsys.readouterr().out)
    assert (staged["new"], staged["missing"], staged["rocm"]) == (True, [], ["7.0.2", "7.1.0"])
    assert boundary.run_command(main.cli, [*words, "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["new"]
    assert boundary.run_command(main.cli, ["set", "list", str(tmp_path / "store")]) == 0
    assert "ROCm 7.0.2, 7.1.0  5 wheels  complete" in capsys.readouterr().out

    store = folder.FolderStore(tmp_path / "store")
    document = wheel_set.find_set(store, staged["set"])
    moment = datetime.now(timezone.utc)
    known = said("audit", document=document, when=moment, added=moment)
    add_evidence(store, document, known.evidence)
    (tmp_path / "policy.yaml").write_text(
        "channels:\n  nightly: {signed: false, rules: {audit: {fresh: 14d}, complete: {}}}\n"
    )
    words = ["set", "promote", str(tmp_path / "store"), "--set", document.id, "--channel", "nightly"]
    assert boundary.run_command(main.cli, [*words, "--policy", str(tmp_path / "policy.yaml")]) == 0
    capsys.readouterr()
    assert (
        boundary.run_command(main.cli, ["set", "list", str(tmp_path / "store"), "--channel", "nightly"]) == 0
    )
    assert f"{document.id}  ROCm 7.0.2, 7.1.0" in capsys.readouterr().out
    (release,) = json.loads((tmp_path / "store/variants/support.json").read_text())["releases"]
    rocm = {"rocm7.1": "7.1.0", "rocm7.0": "7.0.2", "": "7.1.0"}
    assert {wheel["label"]: wheel["rocm"] for wheel in release["wheels"]} == rocm
    released = store_paths.FamilyPaths("variants")
    for lock in (NEWER, OLDER):
        assert store.read(released.lock_file(digest_lock(lock))).content == format_lock(lock).encode()

    update.add_wheels(tmp_path / "store" / "rocm", [rocm_wheel(tmp_path)], now=NOW)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    uv = [find_uv_bin(), "pip", "install", "--no-cache", "--no-config", "--python", sys.executable]
    with serve_folder(tmp_path / "store") as server:
        index = [
            "--index",
            f"{server.url}rocm/",
            "--index-url",
            f"{server.url}{released.channel_pages('nightly')}/",
        ]
        for preview, labels in (
            ([], ("", "")),
            (["--preview-features", "wheel-variants"], ("rocm7.1", "null")),
        ):
            site = tmp_path / f"site {labels[0]}"
            process.capture_output([*uv, *preview, *index, "--target", str(site), "torch"], env=env)
            found = tuple((site / name / "__init__.py").read_text() for name in ("torch", "triton"))
            assert found == tuple(f"label = {label!r}\n" for label in labels)
