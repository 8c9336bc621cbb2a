"""Whether an installer would take one wheel for another: one rule for indexes and for sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wheels import NOW, wheel

from rocm_wheels.core import errors
from rocm_wheels.index import update
from rocm_wheels.release import set_conflicts
from rocm_wheels.wheels import installer_slots

pytestmark = pytest.mark.contract

# tags of a wheel that carries its ROCm, of one with build tag 1 that does not; is there a machine for both
PAIRS = [
    ("cp312-cp312-linux_x86_64", "cp312-cp312-linux_x86_64", True),
    ("cp312-cp312-linux_x86_64", "cp312-cp312-manylinux_2_28_x86_64", True),
    ("cp312-cp312-manylinux2014_x86_64", "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
    ("cp312-cp312-linux_x86_64", "cp312-cp312-linux_aarch64", False),
    ("cp312-cp312-linux_x86_64", "cp312-cp312-musllinux_1_2_x86_64", False),
    ("cp312-cp312-linux_x86_64", "cp312-cp312-win_amd64", False),
    ("cp312-cp312-win_amd64", "cp312-cp312-win_arm64", False),
    ("cp312-cp312-macosx_11_0_arm64", "cp312-cp312-macosx_12_0_universal2", True),
    ("cp312-cp312-linux_x86_64", "cp313-cp313-linux_x86_64", False),
    ("cp313-cp313-linux_x86_64", "cp313-cp313t-linux_x86_64", False),
    ("cp312-cp312-linux_x86_64", "cp39-abi3-linux_x86_64", True),
    ("cp312-cp312-linux_x86_64", "py3-none-any", True),
    ("cp312-cp312-linux_x86_64", "py2.py3-none-linux_x86_64", True),
    ("cp312.cp313-none-linux_x86_64", "cp313-cp313-linux_x86_64", True),
]


@pytest.mark.parametrize(("fat_tag", "thin_tag", "same"), PAIRS)
def test_fat_beside_thin_is_refused_where_an_installer_would_choose(
    fat_tag: str, thin_tag: str, same: bool, tmp_path: Path
) -> None:
    fat = wheel(tmp_path, tag=fat_tag)
    thin = wheel(tmp_path, tag=thin_tag, build="1", requires=("rocm[libraries]==7.1.0",))
    assert installer_slots.are_interchangeable(thin.name, fat.name) == same
    files: list[Any] = [
        SimpleNamespace(name=path.name, project="torch", version="2.9.1", carries_rocm=path == fat)
        for path in (fat, thin)
    ]
    assert list(set_conflicts.find_rivals(files[:1], files[1:])) == ([tuple(files)] if same else [])
    try:
        update.add_wheels(tmp_path / "index", [fat, thin], now=NOW)
    except errors.DataError as refusal:
        assert same and f"{fat.name} carries its ROCm" in refusal.message
    else:
        assert not same


def test_wheels_of_other_releases_are_not_compared() -> None:
    names = ["torch-2.9.1-py3-none-any.whl", "torch-2.9.2-py3-none-any.whl", "triton-2.9.1-py3-none-any.whl"]
    names += ["torch-2.9.1-py3-none-any-rocm7.whl"]
    for name in names:
        assert [installer_slots.are_interchangeable(name, other) for other in names].count(True) == 1
    assert installer_slots.are_interchangeable(names[0], "Torch-2.9.1.0-3-cp312-cp312-linux_x86_64.whl")


@pytest.mark.parametrize(
    "name", ["torch.whl", "torch-2.9.whl", "torch-x-py3-none-any.whl", "torch-1-py3-none-any.zip"]
)
def test_no_name_of_a_wheel_has_slots(name: str) -> None:
    with pytest.raises(errors.DataError, match=name):
        installer_slots.installer_slots(name)
