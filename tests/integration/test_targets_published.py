"""Binaries that AMD's own toolchains made: the ROCm libraries inside the wheels of ``bitsandbytes`` on PyPI.

The table was read from the wheels with a search for bundle headers and a separate decompressor,
not with the code under test; the embedded ELF headers are the second witness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from filelock import FileLock

from rocm_wheels.cli import wheel
from rocm_wheels.device_code import code_objects
from rocm_wheels.wheels import wheel_code
from rocm_wheels.wheels.scan import scan_wheel

pytestmark = [pytest.mark.contract, pytest.mark.slow, pytest.mark.network]

VERSION = "0.50.2"
WHEELS = {
    "manylinux_2_24_x86_64": "bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl",
    "win_amd64": "bitsandbytes-0.50.2-py3-none-win_amd64.whl",
}

RDNA2 = [f"gfx10{n}" for n in (10, 11, 12, 30, 31, 32, 33, 34, 35, 36)]
RDNA3_4 = [f"gfx1{n}" for n in (100, 101, 102, 103, 150, 151, 152, 153, 200, 201)]
WIDE = ["gfx908", "gfx90a", "gfx942", "gfx950", *RDNA2, *RDNA3_4, "gfx1250"]
ROCM7 = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", *RDNA3_4]
WINDOWS = ["gfx908", "gfx90a", *RDNA2, *RDNA3_4]

# library: (code objects, packing, targets)
LIBRARIES = {
    "libbitsandbytes_rocm64.so": (28, "zstd v2", [t for t in ROCM7 if t != "gfx950"]),
    "libbitsandbytes_rocm70.so": (30, "zstd v2", ROCM7),
    "libbitsandbytes_rocm71.so": (30, "zstd v3", ROCM7),
    "libbitsandbytes_rocm72.so": (30, "zstd v3", ROCM7),
    "libbitsandbytes_rocm714.so": (50, "zstd v3", WIDE),
    "libbitsandbytes_rocm715.so": (50, "zstd v3", WIDE),
    "libbitsandbytes_rocm72.dll": (
        14, "zstd v3", ["gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201"]
    ),
    "libbitsandbytes_rocm714.dll": (44, "zstd v3", WINDOWS),
    "libbitsandbytes_rocm715.dll": (44, "zstd v3", WINDOWS),
}  # fmt: skip


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    """Download both wheels once (82 MB) into the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "rocm-wheels-tests"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        for platform, name in WHEELS.items():
            if not (folder / name).exists():
                to = ["--quiet", "--dest", folder, "--platform", platform, "--only-binary=:all:", "--no-deps"]
                pip = [sys.executable, "-m", "pip", "download"]
                subprocess.run([*pip, *to, f"bitsandbytes=={VERSION}"], check=True)
    return {platform: folder / name for platform, name in WHEELS.items()}


def test_every_published_library_is_read(wheels: dict[str, Path]) -> None:
    found = {
        Path(member).name: objects
        for path in wheels.values()
        for member, objects in wheel_code.read_device_code(path).code.items()
    }
    assert {
        name: (len(objects), {o.packing for o in objects}, code_objects.list_code_targets(objects))
        for name, objects in found.items()
    } == {name: (count, {packing}, targets) for name, (count, packing, targets) in LIBRARIES.items()}
    everything = [item for objects in found.values() for item in objects]
    assert len(everything) == 320
    assert all(item.machine == item.target.processor and item.form == "elf" for item in everything)


def test_published_wheels_have_no_fault(wheels: dict[str, Path]) -> None:
    for path in wheels.values():
        scan = scan_wheel(path)
        assert scan.faults == ()
        assert scan.metadata and (scan.metadata.name, str(scan.metadata.version)) == ("bitsandbytes", VERSION)
        assert {Path(name).name for name in scan.device_code} <= LIBRARIES.keys()


def test_the_command_prints_table_and_json(wheels: dict[str, Path]) -> None:
    windows = str(wheels["win_amd64"])
    table = CliRunner().invoke(wheel.targets_command, [windows])
    assert table.exit_code == 0
    assert [line.split()[:4] for line in table.stdout.splitlines() if "rocm72.dll" in line] == [
        ["bitsandbytes/libbitsandbytes_rocm72.dll", "14", "zstd", "v3"]
    ]
    assert "total: 102 code objects" in table.stdout
    result = json.loads(CliRunner().invoke(wheel.targets_command, [windows, "--json"]).stdout)
    assert result["total"]["code_objects"] == 102
    assert result["files"][0]["code"][0]["targets"] == WINDOWS
