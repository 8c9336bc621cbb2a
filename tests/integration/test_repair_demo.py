"""``wheel repair`` of the demo's wheels: installed by pip, imported, with targets and RECORD as before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import miniature
import pytest
from finished_demo import Demo, targets_in

from rocm_wheels.wheels import edit, scan

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the demo's wheels are of this system"),
]
SCRIPT = "import torch; assert torch.version.hip, 'a CPU build'; print(torch.__file__)"


def run(*words: str | Path, **env: str) -> str:
    done = subprocess.run(
        list(map(str, words)), env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask_auditwheel(wheel: Path) -> str:
    shown = run(sys.executable, "-m", "auditwheel", "show", "--json", wheel)
    return str(json.loads(shown)["sym_tag"])


def test_repaired_wheels_are_those_that_were_built(demo: Demo, tmp_path: Path) -> None:
    """An SDK that the loader would find changes nothing; pip takes the wheels, and torch is imported."""
    packages, out = demo.folder / "rocm-packages" / "dist", tmp_path / "repaired"
    (sdk,) = (demo.folder / "sources" / ".rocm-wheels").glob("**/_rocm_sdk_core/lib/libamdhip64.so.7")
    built = (demo.folder / "sources" / ".rocm-wheels" / "built").glob("build-*-cp3??/*.whl")
    wheels = {wheel.name.split("-")[0]: wheel for wheel in built}
    repair = [sys.executable, "-m", "rocm_wheels", "wheel", "repair", "--json", "--find-links", packages]
    printed = run(*repair, "--output-dir", out, *wheels.values(), LD_LIBRARY_PATH=str(sdk.parent))
    repaired = {Path(row["source"]).name.split("-")[0]: row for row in json.loads(printed)["wheels"]}
    assert set(repaired) == set(wheels)
    for name, row in repaired.items():
        old, new = wheels[name], Path(row["path"])
        assert row["grafts"] == [] and scan.scan_wheel(new).faults == ()
        difference = edit.compare_wheels(old, new)
        assert not difference.added and not difference.removed and not difference.metadata
        assert {changed.rpartition("/")[2] for changed in difference.changed} <= {
            "WHEEL",
            "rocm-wheels.cdx.json",
        }
        assert targets_in(new) == targets_in(old)
        if row["platforms"]:
            assert row["platforms"][0] == ask_auditwheel(old)
        else:
            assert name == "apex" and new.read_bytes() == old.read_bytes(), "it alone has no library"
    assert "libamdhip64.so.7" in repaired["torch"]["excluded"]
    assert "libtorch_hip.so" in repaired["torchaudio"]["excluded"]
    assert targets_in(Path(repaired["torch"]["path"])) == set(miniature.TARGETS)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
    rocm = [path for path in packages.glob("*.whl") if "devel" not in path.name]
    run(*pip, repaired["torch"]["path"], *rocm)
    assert str(site) in run(sys.executable, "-c", SCRIPT, PYTHONPATH=str(site))
