"""The probe with the small ROCm's real compiler."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rocm import ENV, another, small_sdk

from rocm_wheels.compile import sdk_tree
from rocm_wheels.core import errors

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(sys.platform != "linux", reason="the small ROCm is for Linux"),
    pytest.mark.slow,
    pytest.mark.network,
]


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> sdk_tree.SdkTree:
    return small_sdk(tmp_path_factory)


def test_one_bad_target_hides_no_other(sdk: sdk_tree.SdkTree, tmp_path: Path) -> None:
    targets = ["gfx90a", "gfx9999", "gfx942:xnack-", "gfx1100", "gfx1201"]
    found = sdk_tree.probe_targets(sdk, targets, tmp_path / "work", ENV, platform="linux", jobs=2)
    assert list(found) == targets
    assert found.pop("gfx9999") == "unsupported HIP gpu architecture: gfx9999 (compiled for gfx9999)"
    assert set(found.values()) == {None}
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'x.h:3:1: error: no such builtin' >&2; exit 1", "x.h:3: no such builtin"),
        ("echo Fault; touch $TMPDIR/crash.sh; exit 139", "hipcc failed with exit code 139: Fault"),
        ("exit 0", "hipcc ended without an error and without an object"),
        ("sleep 60", "the probe for gfx942 was stopped after 1 s without an end"),
    ],
)  # fmt: skip
def test_what_can_go_wrong(
    sdk: sdk_tree.SdkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr(sdk_tree, "_PROBE_SECONDS", 1.0)
    broken = another(sdk, tmp_path / "broken")
    (broken.bin / "hipcc").write_text(f"#!/bin/sh\n{script}\n")
    found = sdk_tree.probe_targets(broken, ["gfx942"], tmp_path / "work", ENV, platform="linux", jobs=1)
    assert (found["gfx942"] or "").endswith(said)
    assert list((tmp_path / "work").iterdir()) == []


def test_no_compiler_is_no_fault_of_a_target(sdk: sdk_tree.SdkTree, tmp_path: Path) -> None:
    with pytest.raises(errors.SdkError, match="has no hipcc in"):
        sdk_tree.probe_targets(
            replace(sdk, bin=tmp_path), ["gfx942"], tmp_path, ENV, platform="linux", jobs=1
        )
