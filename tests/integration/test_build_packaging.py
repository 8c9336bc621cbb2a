"""What becomes of built wheels: `build --packaging` on the miniature that the demo has built.

Each mode has an output folder of its own, and shares the build of all others.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import miniature
import pytest
from commands import Ended
from finished_demo import Demo, targets_in

from rocm_wheels.package import device_selector
from rocm_wheels.wheels import dist_info, rewrite, wheel_code

pytestmark = [
    pytest.mark.contract_slow,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="the demo's wheels are of this system"),
]


def package(demo: Demo, mode: str, *more: str, output: str = "", **env: str) -> Ended:
    """Build in a mode of packaging; nothing may be built again."""
    links = ("--find-links", str(demo.folder / "rocm-packages" / "dist"))
    ended = demo.build("--packaging", mode, *links, "--json", *more, output=output or mode, **env)
    assert "] the build left files" not in ended.err and "build-pytorch" not in ended.err, ended.err
    return ended


def rows(ended: Ended) -> dict[str, dict[str, Any]]:
    assert ended.code == 0, ended.err
    return {row["project"]: row for row in json.loads(ended.out)}


def list_files(demo: Demo, output: str) -> list[str]:
    """Return what an output has, without the statement that each wheel has beside it, and nothing else."""
    names = {path.name for path in (demo.folder / output).iterdir()}
    statements = {name for name in names if name.endswith(".intoto.json")}
    assert statements == {f"{name}.intoto.json" for name in names if name.endswith(".whl")}
    return sorted(names - statements)


@pytest.fixture(scope="module", autouse=True)
def built(demo: Demo) -> None:
    """What the modes have in common: the wheels are built (the demo's own go by a lock)."""
    assert demo.build(output="per-family").code == 0


def test_what_people_get_is_repaired_and_lies_alone(demo: Demo) -> None:
    ended = package(demo, "per-family")
    wheels = {row["project"]: row["wheel"] for row in rows(ended).values()}
    assert list_files(demo, "per-family") == sorted(wheels.values())
    for project in ("pytorch", "pytorch_audio"):
        built, *others = (demo.folder / "sources/.rocm-wheels/built").glob(f"build-{project}-cp3??/*.whl")
        assert not others and built.name.endswith("-linux_x86_64.whl")
        shown = json.loads(demo.start(sys.executable, "-m", "auditwheel", "show", "--json", built).out)
        assert shown["sym_tag"] in wheels[project]
    assert "up to date" in {row["outcome"] for row in rows(ended).values()}
    again = package(demo, "multi-arch", output="per-family")
    assert "nothing to do" in again.err or "nothing had to be built" in again.err, again.err


def test_a_repair_that_is_not_wanted_is_said(demo: Demo) -> None:
    row = rows(package(demo, "per-family", "--plat", "none", output="raw"))["pytorch"]
    assert row["wheel"].endswith("-linux_x86_64.whl") and "--plat none" in row["note"]
    repaired = rows(package(demo, "per-family", output="raw"))["pytorch"]
    assert (repaired["outcome"], repaired["note"]) == ("packaged", "")
    assert row["wheel"] not in list_files(demo, "raw"), "what it replaces has gone"


def test_a_tag_that_is_asked_for_is_made_or_refused(demo: Demo) -> None:
    """A machine that is newer than the tag cannot make such a wheel; before a build it is not known."""
    row = rows(package(demo, "per-family", "--plat", "manylinux_2_39", output="tagged"))["pytorch_audio"]
    assert row["wheel"].endswith("-manylinux_2_39_x86_64.whl")
    older = demo.build("--plat", "manylinux_2_12", output="older")
    assert older.code == 13 and "needs manylinux_2_" in older.err, older.err


def test_a_folder_to_graft_from_that_is_not_there_is_said(demo: Demo) -> None:
    ended = demo.build(output="grafted", ROCM_WHEELS_LIBRARY_DIRS="/nowhere")
    assert ended.code == 2 and "there is no folder /nowhere to graft libraries from" in ended.err, ended.err


def test_a_fat_torch_is_installed_alone_and_companions_come_beside_it(demo: Demo, tmp_path: Path) -> None:
    found = rows(package(demo, "fat"))
    name = dist_info.parse_wheel_name(found["pytorch"]["wheel"])
    assert name.build and "carries ROCm 7.1.0" in found["pytorch"]["note"]
    folder = demo.folder / "fat"
    assert list_files(demo, "fat") == sorted(row["wheel"] for row in found.values())
    torch = folder / found["pytorch"]["wheel"]
    metadata = dist_info.parse_metadata(rewrite.read_dist_info_files(torch)["METADATA"], name="METADATA")
    assert not [line for line in metadata.requires_dist if line.startswith("rocm")]
    assert targets_in(torch) == set(miniature.TARGETS)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site]
    demo.start(*pip, *(folder / row["wheel"] for row in found.values()))
    script = (
        "import torch, torchaudio; print(*{l.split()[-1] for l in open('/proc/self/maps') if 'hip64' in l})"
    )
    maps = demo.start(sys.executable, "-c", script, PYTHONPATH=str(site)).out
    assert maps.split() and all(place.startswith(f"{site}/torch/_rocm/") for place in maps.split())
    again = package(demo, "fat")
    assert "repair-" not in again.err and "fat-" not in again.err


def test_a_split_set_is_a_host_wheel_and_one_for_each_target(demo: Demo) -> None:
    found = rows(package(demo, "split"))
    folder = demo.folder / "split"
    hosts = {project: folder / row["wheel"] for project, row in found.items()}
    assert not any(wheel_code.read_device_code(hosts["pytorch"]).code.values())
    devices = sorted(path.name.split("-")[0] for path in folder.glob("amd_*.whl"))
    expected = [
        f"amd_{name}_device{part}"
        for name in ("torch", "torchaudio")
        for part in ("", *(f"_{target}" for target in miniature.TARGETS))
    ]
    assert devices == sorted(expected)
    lost = next(folder.glob("amd_torch_device_gfx942-*.whl"))
    before = lost.read_bytes()
    lost.unlink()
    assert rows(package(demo, "split"))["pytorch"]["outcome"] == "packaged"
    assert lost.read_bytes() == before
    thin = rows(package(demo, "per-family", output="split"))
    assert list_files(demo, "split") == sorted(row["wheel"] for row in thin.values()), "no device wheel stays"


def test_a_result_wanted_elsewhere_is_copied(demo: Demo) -> None:
    package(demo, "fat")
    here = {row["sha256"] for row in rows(package(demo, "fat")).values()}
    there = rows(package(demo, "fat", output="fat-elsewhere"))
    assert {row["outcome"] for row in there.values()} == {"packaged"}
    assert {row["sha256"] for row in there.values()} == here
    assert list_files(demo, "fat-elsewhere") == list_files(demo, "fat")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--packaging", "multi-arch", "--per-target"], "--per-target one for each"),
        (["--packaging", "fat"], "--find-links"),
        (["--plat", "manylinux_2_280"], "is no tag of auditwheel"),
    ],
)
def test_options_that_do_not_go_together(demo: Demo, words: list[str], said: str) -> None:
    ended = demo.build(*words, output="wrong")
    assert (ended.code, said in ended.err) == (2, True), ended.err
    assert not (demo.folder / "wrong").exists()


def stage(demo: Demo, store: Path, wheels: list[Path]) -> Ended:
    kind = ("--family", "multi-arch", "--layout", "multi-arch")
    return demo.ours("set", "stage", store, *wheels, "--lock", demo.folder / "sources.lock.json", *kind)


def test_a_split_set_is_staged_whole_or_not_at_all(demo: Demo, tmp_path: Path) -> None:
    rows(package(demo, "split"))
    wheels = sorted((demo.folder / "split").glob("*.whl"))
    for lost in ("amd-torch-device-gfx942", "amd-torch-device"):
        fewer = [wheel for wheel in wheels if not wheel.name.startswith(f"{lost.replace('-', '_')}-")]
        ended = stage(demo, tmp_path / "store", fewer)
        assert ended.code == 15 and lost in ended.err, ended.err
        assert not list((tmp_path / "store").rglob("*.whl"))
    (neutral,) = (demo.folder / "split").glob("amd_torch_device-*.whl")
    other = device_selector.make_selector("torch", neutral.name, "", ["gfx942"])
    (tmp_path / other.file).write_bytes(other.content)
    ended = stage(demo, tmp_path / "store", [*wheels, tmp_path / other.file])
    assert ended.code == 15 and other.file in ended.err, ended.err
    ended = stage(demo, tmp_path / "store", wheels)
    assert ended.code == 0, ended.err
    (document,) = (tmp_path / "store").rglob("set.json")
    missing = json.loads(document.read_text())["missing"]
    assert {cell["project"] for cell in missing} == {"apex", "torchvision"}, "nobody built those here"
    ended = demo.ours("set", "check", tmp_path / "store", "--set", document.parent.name, "--json")
    assert ended.code in {0, 14}, ended.err
    names = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels}
    assert all(digest in ended.out for digest in names.values()), "device wheels were verified, too"


def test_fat_and_thin_wheels_are_never_in_one_index(demo: Demo, tmp_path: Path) -> None:
    fat = demo.folder / "fat" / rows(package(demo, "fat"))["pytorch"]["wheel"]
    thin = demo.folder / "per-family" / rows(package(demo, "per-family"))["pytorch"]["wheel"]
    others = [wheel for wheel in (demo.folder / "fat").glob("*.whl") if wheel != fat]
    ended = stage(demo, tmp_path / "store", [fat, thin, *others])
    assert ended.code == 15 and "it carries its ROCm" in ended.err, ended.err
    assert stage(demo, tmp_path / "store", [fat, *others]).code == 0
    index = tmp_path / "index"
    assert demo.ours("index", "build", index, fat).code == 0
    before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}
    ended = demo.ours("index", "build", index, thin)
    assert ended.code == 2 and "carries its ROCm" in ended.err, ended.err
    assert {path: path.read_bytes() for path in index.rglob("*") if path.is_file()} == before
    (index / "torch" / thin.name).write_bytes(thin.read_bytes())
    assert demo.ours("index", "build", index).code == 2


def test_wheels_of_several_machines_are_packaged_together(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    shutil.copytree(demo.folder / "wheels", folder, ignore=shutil.ignore_patterns("variants"))
    before = {path.name.split("-")[0] for path in folder.glob("*.whl")}
    assert demo.ours("set", "package", folder, "--packaging", "split").code == 0
    assert not any(wheel_code.read_device_code(wheel).code for wheel in folder.glob("torch*.whl"))
    devices = {path.name.split("-")[0] for path in folder.glob("*.whl")} - before
    parts = {name.partition("_device")[2].lstrip("_") for name in devices}
    assert parts == {"", *miniature.TARGETS} and len(devices) == 9
    assert stage(demo, tmp_path / "store", sorted(folder.glob("*.whl"))).code == 0
    again = demo.ours("set", "package", folder, "--packaging", "split", "--json")
    assert (again.code, json.loads(again.out)["written"]) == (0, [])
    ended = demo.ours("set", "package", folder, "--packaging", "fat")
    assert (ended.code, "--find-links" in ended.err) == (2, True)
    split = {path.name: path.read_bytes() for path in folder.glob("*.whl")}
    (built,) = (demo.folder / "wheels").glob("torch-*.whl")  # a host comes again, beside the last packaging
    for path in built.parent.glob(f"{built.name}*"):
        shutil.copy(path, folder)
    stale = list(folder.glob("amd_torch_device[-_]*.whl"))
    for path in (*stale, *folder.glob("amd_torchvision_device_*.whl")):
        path.write_bytes(b"of the build before")
    again = demo.ours("set", "package", folder, "--packaging", "split", "--json")
    assert again.code == 0, again.err
    written = {built.name, *(path.name for path in stale)}
    assert set(json.loads(again.out)["written"]) == written and stale
    now = {path.name: path.read_bytes() for path in folder.glob("*.whl")}
    assert now.keys() == split.keys()
    for name, content in now.items():
        others = name.startswith("amd_torchvision_device_")
        assert content == (b"of the build before" if others else split[name]), name
