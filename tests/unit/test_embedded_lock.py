"""The lock inside a wheel: which part of it, and what stays the same whatever it says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from wheels import embed_parts, torch_draft

from rocm_wheels.models.lock import Lock, LockedProject
from rocm_wheels.package import sbom
from rocm_wheels.wheels.sbom import SourcePart, WheelParts

PARTS = WheelParts(tool="1", sources=(SourcePart("pytorch", "", "1" * 40),))


def lock(**why: str) -> Lock:
    projects = {
        name: LockedProject(
            origin=f"https://h/{name}.git", ref="main", why=why.get(name, "test"), commit="1" * 40
        )
        for name in ("triton", "pytorch", "pytorch_audio", "apex")
    }
    return Lock(rocm="7.1.0", targets=("gfx942",), projects=projects)


def test_a_wheel_tells_its_own_project_and_those_it_is_built_against() -> None:
    assert list(json.loads(sbom.extract_lock_part(lock(), "pytorch"))["projects"]) == ["triton", "pytorch"]
    assert list(json.loads(sbom.extract_lock_part(lock(), "apex"))["projects"]) == [
        "triton",
        "pytorch",
        "apex",
    ]
    assert sbom.extract_lock_part(lock(), "apex") == sbom.extract_lock_part(
        lock(pytorch_audio="something else"), "apex"
    )
    assert sbom.extract_lock_part(lock(), "apex") != sbom.extract_lock_part(
        lock(triton="something else"), "apex"
    )


def test_the_content_of_a_wheel_does_not_depend_on_its_lock(tmp_path: Path) -> None:
    wheel = torch_draft().write(tmp_path)
    before = sbom.digest_content(wheel)
    for text in (b"{}\n", b'{"a": 1}\n'):
        written = embed_parts(wheel, text, PARTS)
        assert written == wheel
        assert sbom.digest_content(wheel) == before
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(sbom.LOCK_MEMBER))
            assert archive.read(name) == text
    other = torch_draft()
    other.members["torch/other.py"] = b"x = 1\n"
    assert sbom.digest_content(other.write(tmp_path)) != before


def test_the_bytes_of_a_wheel_do_not_depend_on_the_umask_of_its_build(tmp_path: Path) -> None:
    """A front end stores the modes that files have; with umask 077 nobody else could read them unpacked."""
    wheels = []
    for mask in (0o022, 0o077):
        (folder := tmp_path / str(mask)).mkdir()
        path = torch_draft().write(folder)
        with zipfile.ZipFile(path) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
        with zipfile.ZipFile(path, "w") as archive:
            for info, content in members:
                mode = 0o777 if info.filename.endswith(".so") else 0o666
                info.create_system, info.external_attr = 3, (0o100000 | (mode & ~mask)) << 16
                archive.writestr(info, content)
        wheels.append(embed_parts(path, None, PARTS))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[1]) as archive:
        modes = {info.filename.endswith(".so"): info.external_attr >> 16 for info in archive.infolist()}
    assert modes == {True: 0o100755, False: 0o100644}


PIN = "torch==2.13.0a0+rocm7.1.0"


@pytest.mark.parametrize(
    ("stated", "written"),
    [
        (["numpy"], ["numpy", PIN]),  # torchaudio 2.11.0, apex
        (["numpy", "torch", "pillow"], ["numpy", PIN, "pillow"]),
        (["torch>=2.11"], [PIN]),  # torchaudio 2.11.1; a pre-release counts
        (["torch==2.13.0a0"], [PIN]),  # any local part would do
        (["Torch ; os_name == 'posix'", "torch"], [PIN]),
        ([PIN], [PIN]),
        (["torch==2.12.0"], ["torch==2.12.0"]),  # another version: the checks refuse it
        (["torch @ https://h/torch.whl"], ["torch @ https://h/torch.whl"]),
        (["torch-tool", "torch>1; extra == 'all'"], ["torch-tool", "torch>1; extra == 'all'", PIN]),
    ],
)
def test_requirements_are_narrowed_to_what_a_wheel_was_built_against(
    stated: list[str], written: list[str]
) -> None:
    assert sbom.narrow_requirements(stated, pins=[PIN]) == written
    assert sbom.narrow_requirements(written, pins=[PIN]) == written
    assert sbom.narrow_requirements(stated, pins=[]) == stated


def test_pins_are_part_of_the_content_and_are_written_once(tmp_path: Path) -> None:
    wheel = torch_draft().write(tmp_path)
    before, required = sbom.digest_content(wheel), torch_draft().requires
    sbom.require_pins(wheel, ["numpy==2.0"], ["rocm (==7.1)"])
    pinned, written = sbom.digest_content(wheel), wheel.stat().st_ino
    assert pinned != before
    sbom.require_pins(wheel, ["numpy==2.0"], ["rocm (==7.1)"])
    assert wheel.stat().st_ino == written, "nothing was to be written"
    embed_parts(wheel, b"{}\n", PARTS)
    assert sbom.digest_content(wheel) == pinned
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(name).decode().splitlines()
    assert [one for one in lines if one.startswith(("Requires-Dist", "Requires-External"))] == [
        *(f"Requires-Dist: {one}" for one in (*required, "numpy==2.0")),
        "Requires-External: rocm (==7.1)",
    ]
