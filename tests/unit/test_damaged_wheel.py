"""A damaged wheel is one exit code, 2, in every command that reads it; the audit lists it with 14.

Cut short, or with a byte of a member changed; `wheel join` is in tests/integration/test_split.py. A command
that does not read the damaged member (`wheel show`) writes no wheel.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from binaries import HOST, bundle, compress, elf, hip
from wheels import Draft

from rocm_wheels.cli import boundary, main

pytestmark = pytest.mark.contract

CODE = elf({".hip_fatbin": compress(bundle(HOST, hip("gfx90a"), hip("gfx942")), 3, "zstd")})
INIT = b'import rocm_sdk\nrocm_sdk.initialize_process(preload_shortnames=["rocblas"])\n'
LIBRARY = "torch/lib/libtorch_hip.so"
MEMBERS = {
    "torch/__init__.py": b"from . import _rocm_init\n",
    "torch/_rocm_init.py": INIT,
    LIBRARY: CODE,
    "torch/data.bin": bytes(range(256)) * 40,
}
# command: its words, where {wheel} is the damaged one, {folder} that of it alone, {good} one as it should be,
# {device} a device wheel of it, {rocm} a folder with the wheel of ROCm, {out} a folder that is not there
WRITING = {
    "retag": "wheel retag {wheel} --build-tag 1 -o {out}",
    "prune": "wheel prune {wheel} --gfx gfx942 -o {out}",
    "repair": "wheel repair {wheel} -o {out}",
    "fat": "wheel fat {wheel} --find-links {rocm} --gfx gfx942 -o {out}",
    "split": "wheel split {wheel} -o {out}",
    "finalize": "wheel finalize {wheel} --to torch=2.9.0+rocm7.1.1 -o {out}",
    "finalize --keep": "wheel finalize {wheel} {candidate} --keep torch -o {out}",
    "stamp": "wheel stamp {wheel} -o {out}",
    "set package": "set package {folder} --packaging split",
    "index build": "index build {folder}",
}
READING = {
    "targets": "targets {wheel}",
    "targets --details": "targets {wheel} --details",
    "wheel show": "wheel show {wheel}",
    "wheel diff": "wheel diff {wheel} {good}",
    "wheel diff, new": "wheel diff {good} {wheel}",
    "provenance verify": "provenance verify {wheel}",
    "install": f"install {{wheel}} --python {sys.executable} --dry-run",
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What stands for the names in the words of commands; the wheel is whole yet."""
    for name in ("good", "folder", "other", "rocm"):
        (tmp_path / name).mkdir()
    good = Draft(members=MEMBERS, requires=["rocm[libraries]==7.1.0"]).write(tmp_path / "good")
    rocm = {"_rocm_sdk_core/.info/version": b"7.1.0\n", "_rocm_sdk_core/lib/librocblas.so.5": CODE}
    Draft("rocm_sdk_core", "7.1.0", "py3-none-linux_x86_64", members=rocm).write(tmp_path / "rocm")
    candidate = Draft("torchvision", "0.24.0rc1", members={"torchvision/__init__.py": b""})
    return {
        "wheel": shutil.copy(good, tmp_path / "folder"),
        "folder": str(tmp_path / "folder"),
        "good": str(good),
        "rocm": str(tmp_path / "rocm"),
        "candidate": str(candidate.write(tmp_path / "other")),
        "out": str(tmp_path / "out"),
    }


def cut(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])


def change(wheel: Path, part: bytes) -> None:
    content = wheel.read_bytes()
    assert content.count(part) == 1
    wheel.write_bytes(content.replace(part, part[:-1] + bytes([part[-1] ^ 1])))


def run(command: str, places: dict[str, str]) -> int:
    return boundary.run_command(main.cli, [word.format(**places) for word in command.split()])


@pytest.mark.parametrize("name", [*WRITING, *READING])
def test_one_that_is_cut_short(name: str, places: dict[str, str], tmp_path: Path) -> None:
    cut(Path(places["wheel"]))
    before = sorted(tmp_path.rglob("*.whl"))
    assert run({**WRITING, **READING}[name], places) == 2
    assert sorted(tmp_path.rglob("*.whl")) == before


@pytest.mark.parametrize("name", WRITING)
def test_no_wheel_is_made_of_one_with_a_damaged_member(
    name: str, places: dict[str, str], tmp_path: Path
) -> None:
    change(Path(places["wheel"]), MEMBERS["torch/data.bin"])
    before = sorted(tmp_path.rglob("*.whl"))
    assert run(WRITING[name], places) == 2
    assert sorted(tmp_path.rglob("*.whl")) == before


@pytest.mark.parametrize("name", ["prune", "split", "stamp", "targets", "targets --details"])
def test_damaged_device_code(name: str, places: dict[str, str]) -> None:
    change(Path(places["wheel"]), CODE)
    assert run({**WRITING, **READING}[name], places) == 2


@pytest.mark.parametrize("damage", [cut, lambda wheel: change(wheel, CODE)], ids=["cut", "changed"])
def test_the_audit_lists_it(damage: object, places: dict[str, str]) -> None:
    damage(Path(places["wheel"]))  # type: ignore[operator]
    assert run("audit {wheel} {good}", places) == 14
