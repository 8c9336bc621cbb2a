"""Variants of one version that were built from two locks: one set, promoted, and told apart by installers."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from commands import call
from pythons import UV
from servers import serve_folder
from stores import NEWER, NOW, OLDER, rocm_wheel, several_drafts, verified

from rocm_wheels.core import process
from rocm_wheels.index import update
from rocm_wheels.release import store_paths, wheel_set
from rocm_wheels.sources.lock import digest_lock, format_lock, write_lock
from rocm_wheels.stores import folder

pytestmark = pytest.mark.contract


def test_uv_takes_a_variant_of_a_set_with_two_locks_and_others_the_plain_wheel(tmp_path: Path) -> None:
    wheels = [draft.write(tmp_path) for draft in several_drafts().values()]
    words = ["set", "stage", str(tmp_path / "store"), *map(str, wheels)]
    words += ["--family", "variants", "--layout", "variants"]
    for name, lock in (("newer", NEWER), ("older", OLDER)):
        write_lock(tmp_path / f"{name}.lock", lock)
        words += ["--lock", str(tmp_path / f"{name}.lock")]
    staged = call(*words, "--json").json
    assert (staged["new"], staged["missing"], staged["rocm"]) == (True, [], ["7.0.2", "7.1.0"])
    assert not call(*words, "--json").json["new"]
    assert "ROCm 7.0.2, 7.1.0  5 wheels  complete" in call("set", "list", tmp_path / "store").out

    store = folder.FolderStore(tmp_path / "store")
    document = wheel_set.find_set(store, staged["set"])
    verified(store, document, datetime.now(timezone.utc))
    (tmp_path / "policy.yaml").write_text(
        "channels:\n  nightly: {signed: false, rules: {audit: {fresh: 14d}, complete: {}}}\n"
    )
    words = ["set", "promote", str(tmp_path / "store"), "--set", document.id, "--channel", "nightly"]
    call(*words, "--policy", tmp_path / "policy.yaml")
    told = call("set", "list", tmp_path / "store", "--channel", "nightly").out
    assert f"{document.id}  ROCm 7.0.2, 7.1.0" in told
    (release,) = json.loads((tmp_path / "store/variants/support.json").read_text())["releases"]
    rocm = {"rocm7.1": "7.1.0", "rocm7.0": "7.0.2", "": "7.1.0"}
    assert {wheel["label"]: wheel["rocm"] for wheel in release["wheels"]} == rocm
    released = store_paths.FamilyPaths("variants")
    for lock in (NEWER, OLDER):
        assert store.read(released.lock_file(digest_lock(lock))).content == format_lock(lock).encode()

    update.add_wheels(tmp_path / "store" / "rocm", [rocm_wheel(tmp_path)], now=NOW)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    with serve_folder(tmp_path / "store") as server:
        index = ["--index", f"{server.url}rocm/"]
        index += ["--index-url", f"{server.url}{released.channel_pages('nightly')}/"]
        variants = ["--preview-features", "wheel-variants"]
        for preview, labels in (([], ("", "")), (variants, ("rocm7.1", "null"))):
            site = tmp_path / f"site {labels[0]}"
            process.capture_output([*UV, *preview, *index, "--target", str(site), "torch"], env=env)
            found = tuple((site / name / "__init__.py").read_text() for name in ("torch", "triton"))
            assert found == tuple(f"label = {label!r}\n" for label in labels)
