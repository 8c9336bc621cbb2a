"""``wheel repair`` on published wheels, by digest: auditwheel says the tag, and run paths are mended.

The large ones are of the marker ``exhaustive``: auditwheel unpacks them for minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import call
from wheels import download

from rocm_wheels.wheels import edit, scan

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.network]

CP311 = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
# requirement: (file's SHA-256, platform, more words for pip, tag that its symbols allow)
SMALL = {
    "jax-rocm7-plugin==0.10.2": (
        "fc6c3f6641d99916ea1896353a0c27187f1fcddb811768d4607d7e78834571a3",
        "manylinux_2_27_x86_64", CP311, "manylinux_2_27_x86_64",
    ),
    "onnxruntime-migraphx==1.27.1": (
        "4a178713a67dbcd1a952edb89d60e856ec70538f8f9848c89745ae2328305b6d",
        "manylinux_2_34_x86_64", CP311, "manylinux_2_35_x86_64",
    ),
    "bitsandbytes==0.50.2": (
        "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        "manylinux_2_24_x86_64", (), "manylinux_2_34_x86_64",
    ),
}  # fmt: skip
LARGE = {
    "onnxruntime-rocm==1.22.2.post3": (
        "705596b48933446ae6766921c5c8a46ef42f0c735bf158b6eb44a60bf7f95230",
        "manylinux_2_34_x86_64", CP311, "manylinux_2_35_x86_64",
    ),
    "cupy-rocm-7-0==14.2.0": (
        "8e824c1c2fc386e72fe8ae69ab7c273326b17650160400f8f4ea2c932189ed1a",
        "manylinux2014_x86_64", CP311, "manylinux_2_24_x86_64",
    ),
    "jaxlib==0.10.2": (
        "1faca3c5d4662cb4a6130a68105d68bb520764817e165d6eebfd6786c0d1f30f",
        "manylinux_2_27_x86_64", CP311, "manylinux_2_27_x86_64",
    ),
    "triton==3.9.0": (
        "1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e",
        "manylinux_2_27_x86_64", CP311, "manylinux_2_27_x86_64",
    ),
}  # fmt: skip
WINDOWS = ("bitsandbytes==0.50.2", "c697963c8fda3dcd0d7ebd9b5211ae4067feef7cd06e0350d4e816a434fe683d")
HIP_DLLS = ("amdhip64_7.dll", "hipblas.dll", "rocblas.dll", "libhipblaslt.dll")


def repair(*words: object) -> tuple[int, Any]:
    ended = call("wheel", "repair", "--json", *words, code=None)
    return ended.code, ended.json["wheels"][0] if ended.out else ended.err


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel reads the wheels of Linux on Linux")
@pytest.mark.parametrize(
    ("requirement", "published"),
    [
        *(pytest.param(name, row, id=name) for name, row in SMALL.items()),
        *(pytest.param(name, row, id=name, marks=pytest.mark.exhaustive) for name, row in LARGE.items()),
    ],
)
def test_tag_is_the_one_of_auditwheel(
    requirement: str, published: tuple[str, str, tuple[str, ...], str]
) -> None:
    digest, platform, words, tag = published
    wheel = download(requirement, digest, platform, *words)
    code, planned = repair(wheel, "--dry-run")
    assert code in {0, 13}
    if not planned["platforms"]:
        assert tag in wheel.name
    else:
        assert planned["platforms"][0] == tag
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["sym_tag"] == tag


def test_run_paths_of_builders_leave_a_published_wheel(tmp_path: Path) -> None:
    """They are 4.5 kB each, and name eight Pythons' folders in /usr/local."""
    name = "jax-rocm7-plugin==0.10.2"
    digest, platform, words, _ = SMALL[name]
    wheel = download(name, digest, platform, *words)
    code, planned = repair(wheel, "--dry-run")
    assert code == 13
    missing = sorted({fault.partition(",")[0] for fault in planned["faults"]})
    excludes = [word for library in missing for word in ("--exclude", library)]
    code, repaired = repair(wheel, "--output-dir", tmp_path, *excludes)
    assert code == 0, repaired
    changes = repaired["changes"]
    assert len(changes) > 5 and all(change["in_place"] for change in changes)
    assert all("/usr/local" not in change["run_paths"][0]["new"] for change in changes)
    path = Path(repaired["path"])
    difference = edit.compare_wheels(wheel, path)
    members = [change["member"] for change in changes]
    assert sorted(name for name in difference.changed if ".dist-info" not in name) == members
    assert scan.scan_wheel(path).faults == ()
    code, again = repair(path, "--dry-run", *excludes)
    assert code == 0 and not again["changes"] and not again["platforms"]


def test_wheel_for_windows_stays_byte_for_byte(tmp_path: Path) -> None:
    wheel = download(*WINDOWS, "win_amd64")
    code, planned = repair(wheel, "--dry-run")
    assert code == 13
    assert {fault.partition(",")[0] for fault in planned["faults"]} >= set(HIP_DLLS)
    missing = sorted({fault.partition(",")[0] for fault in planned["faults"]})
    excludes = [word for library in missing for word in ("--exclude", library)]
    code, repaired = repair(wheel, "--output-dir", tmp_path, *excludes)
    assert code == 0
    assert Path(repaired["path"]).read_bytes() == wheel.read_bytes()
