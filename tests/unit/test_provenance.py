"""The lock inside a wheel: which part of it, and what stays the same whatever it says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from audit_wheels import torch_draft

from rocm_wheels.errors import DataError
from rocm_wheels.model.lock import Lock, LockedProject
from rocm_wheels.pipeline.provenance import FILE, content, part_of, put_inside


def lock(**why: str) -> Lock:
    projects = {
        name: LockedProject(
            origin=f"https://h/{name}.git", ref="main", why=why.get(name, "test"), commit="1" * 40
        )
        for name in ("triton", "pytorch", "pytorch_audio", "apex")
    }
    return Lock(rocm="7.1.0", targets=("gfx942",), projects=projects)


def test_a_wheel_tells_its_own_project_and_those_it_is_built_against() -> None:
    assert list(json.loads(part_of(lock(), "pytorch"))["projects"]) == ["triton", "pytorch"]
    assert list(json.loads(part_of(lock(), "apex"))["projects"]) == ["triton", "pytorch", "apex"]
    assert part_of(lock(), "apex") == part_of(lock(pytorch_audio="something else"), "apex")
    assert part_of(lock(), "apex") != part_of(lock(triton="something else"), "apex")


def test_the_content_of_a_wheel_does_not_depend_on_its_lock(tmp_path: Path) -> None:
    wheel = torch_draft().write(tmp_path)
    before = content(wheel)
    for text in (b"{}\n", b'{"a": 1}\n'):
        path, now = put_inside(wheel, tmp_path, text)
        assert (path, now, content(path)) == (wheel, before, before)
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(FILE))
            assert archive.read(name) == text
    other = torch_draft()
    other.members["torch/other.py"] = b"x = 1\n"
    assert content(other.write(tmp_path)) != before


def test_a_damaged_wheel_stays_as_it_is(tmp_path: Path) -> None:
    wheel = torch_draft().write(tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    damaged = wheel.read_bytes()
    with pytest.raises(DataError):
        put_inside(wheel, tmp_path, b"{}\n")
    assert wheel.read_bytes() == damaged
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
