"""What a run builds against and does not build: a torch as a wheel or installed, an active environment."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import miniature
import pytest
from commands import Ended
from finished_demo import ARCHIVE, LIBRARY, Demo, required, split_torch, targets_in
from uv import find_uv_bin

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
ONLY_TORCH = ("--no-build-triton", "--no-build-pytorch-audio")
ONLY_VISION = (*ONLY_TORCH, "--build-pytorch-vision", "--no-build-pytorch")
NAME = "torch-2.13.0a0+rocm7.1.0.miniature"
SITE = Path(f"lib/python3.{sys.version_info[1]}/site-packages")


def vision(folder: Path) -> Path:
    (wheel,) = folder.glob("torchvision-*.whl")
    return wheel


def environment_of(work: Path) -> Path:
    (place,) = (place for place in (work / "environments").iterdir() if place.name.startswith("py"))
    return place


def another(demo: Demo, *words: str | Path) -> Ended:
    """Build torchvision with a work directory of its own, in which nobody has built torch."""
    packages, work = demo.folder / "rocm-packages" / "dist", demo.folder / "work of vision"
    more = ["--install-rocm", "--find-links", packages, "--work-dir", work]
    more += ["--rocm-extras", ",".join(f"device-{target}" for target in miniature.TARGETS)]
    return demo.build(*ONLY_VISION, *map(str, [*more, *words]), output="vision")


def test_without_a_torch_nothing_begins(demo: Demo) -> None:
    ended = another(demo)
    assert ended.code == 2
    assert "error: torchvision for cp" in ended.err and "neither given nor installed" in ended.err
    for way in ("`build pytorch …` builds it", "--pytorch-wheel FILE", "--current-env"):
        assert way in ended.err
    work = demo.folder / "work of vision"
    assert not (work / "environments").exists() and not (work / "runs").exists()


def test_a_companion_alone_against_a_wheel_is_what_it_is_beside_its_torch(demo: Demo) -> None:
    """Then against another one, and back: each time the environment has the torch that is wanted."""
    torch, there = demo.wheels()["torch"], vision(demo.folder / "wheels")
    ended = another(demo, "--pytorch-wheel", torch)
    assert ended.code == 0, ended.err
    assert f"(--pytorch-wheel: {torch})" in ended.err
    made = vision(demo.folder / "vision")
    assert required(made) == required(there)
    assert targets_in(made) == set(miniature.TARGETS)
    work = demo.folder / "work of vision"
    record = next((work / "runs").glob("*/events.jsonl")).read_text().splitlines()
    begun = next(event for event in map(json.loads, record) if event["event"] == "run-begun")
    assert begun["against"][0].items() >= {"project": "pytorch", "place": str(torch)}.items()
    assert "nothing to do" in another(demo, "--pytorch-wheel", torch).err
    ended = another(demo)
    assert "nothing to do" in ended.err, "that very torch is installed now"
    assert "(installed: " in ended.err

    if not (demo.folder / "second").exists():  # where test_build_again has not made it
        assert demo.build(*ONLY_TORCH, "--pytorch-build-number", "2", output="second").code == 0
    (second,) = (demo.folder / "second").glob("torch-*.whl")
    ended = another(demo, "--pytorch-wheel", second)
    assert "inputs changed: PYTORCH_VERSION (" in ended.err and "), pins, wheel of pytorch" in ended.err
    assert required(vision(demo.folder / "vision"))[0].endswith(".post2")
    assert another(demo, "--pytorch-wheel", torch).code == 0
    assert required(vision(demo.folder / "vision")) == required(there)
    assert (environment_of(work) / SITE / f"{NAME}.dist-info").is_dir()


def repacked(wheel: Path, folder: Path, changes: Mapping[str, bytes | None], tag: str = "") -> Path:
    """Write a wheel with other members (``None``: left out) or another tag, and a RECORD that is right."""
    folder.mkdir(parents=True, exist_ok=True)
    own = f"cp3{sys.version_info[1]}"
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members |= {name: data for name, data in changes.items() if data is not None}
    members = {name: data for name, data in members.items() if changes.get(name, b"") is not None}
    record = next(name for name in members if name.endswith(".dist-info/RECORD"))
    if tag:
        stated = record.replace("RECORD", "WHEEL")
        members[stated] = members[stated].replace(f"{own}-{own}".encode(), f"{tag}-{tag}".encode())
    del members[record]
    lines = [f"{name},sha256={digest(data)},{len(data)}" for name, data in members.items()]
    path = folder / wheel.name.replace(f"-{own}-{own}-", f"-{tag or own}-{tag or own}-")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return path


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def cpu(wheel: Path, folder: Path) -> Path:
    changes = {"torch/version.py": f"__version__ = {NAME[6:]!r}\nhip = None\n".encode()}
    return repacked(wheel, folder, changes)


def cut(wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    path = folder / wheel.name
    path.write_bytes(wheel.read_bytes()[:-100])
    return path


def damaged(wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    path = folder / wheel.name
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo("torch/lib/libtorch_hip.so")
    content = bytearray(wheel.read_bytes())
    content[member.header_offset + 200] ^= 0xFF
    path.write_bytes(content)
    return path


def of_another_rocm(wheel: Path, folder: Path) -> Path:
    return next(wheel.parent.parent.glob("earlier-rocm/wheels/torch-*.whl"))


WRONG: list[tuple[Callable[[Path, Path], Path], list[str]]] = [
    (lambda wheel, folder: repacked(wheel, folder, {}, "cp39"), ["does not fit the interpreter cp"]),
    (cpu, ["torch/version.py: a CPU-only build"]),
    (of_another_rocm, ["it requires ROCm 7.0.2+miniature, and ROCm 7.1.0+miniature is", "lacks gfx1100"]),
    (cut, ["is not a readable wheel: cut short or damaged"]),
    (damaged, ["torch/lib/libtorch_hip.so"]),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=["Python", "CPU", "ROCm", "cut", "damaged"])
def test_a_wrong_wheel_is_refused_before_anything_begins(
    demo: Demo, make: Callable[[Path, Path], Path], said: list[str], tmp_path: Path
) -> None:
    wheel = make(demo.wheels()["torch"], tmp_path / "wrong")
    before = sorted((demo.folder / "sources" / ".rocm-wheels" / "runs").iterdir())
    ended = demo.build(*ONLY_VISION, "--pytorch-wheel", str(wheel))
    assert ended.code == 2, ended.err
    assert f"(--pytorch-wheel: {wheel}) cannot be built against:" in ended.err
    for reason in said:
        assert reason in ended.err
    assert sorted((demo.folder / "sources" / ".rocm-wheels" / "runs").iterdir()) == before


def test_an_installed_torch_is_asked_and_ours_comes_back(demo: Demo, tmp_path: Path) -> None:
    """Somebody installs another torch by hand; the next run that builds its own has it swapped back."""
    place = environment_of(demo.folder / "sources" / ".rocm-wheels")
    words = [find_uv_bin(), "pip", "install", "-q", "--no-deps", "--no-index", "--reinstall", "--python"]
    theirs = cpu(demo.wheels()["torch"], tmp_path / "theirs")
    demo.start(*words, place / "bin" / "python", theirs)
    ended = demo.build(*ONLY_VISION)
    assert ended.code == 2
    assert f"(installed: {place / SITE}) cannot be built against:" in ended.err
    assert "`torch.version.hip` is None: a CPU-only or CUDA build" in ended.err
    (place / SITE / "torch" / "version.py").write_text("raise ImportError('no version')\n")
    assert "it cannot be imported: " in demo.build(*ONLY_VISION, "--dry-run").err
    for project in ("pytorch", "pytorch_vision"):
        (built,) = (demo.folder / "sources" / ".rocm-wheels" / "built").glob(f"build-{project}-cp3??/*.whl")
        built.unlink()
    ended = demo.build("--build-pytorch-vision", "--no-build-triton", "--no-build-pytorch-audio")
    assert ended.code == 0, ended.err
    assert "hip = '7.1.0" in (place / SITE / "torch" / "version.py").read_text()


def test_a_companion_is_built_against_a_split_torch(demo: Demo, tmp_path: Path) -> None:
    """With its device wheels beside it targets are compared; without, a warning says that they are not."""
    host, parts = split_torch(demo.wheels()["torch"], tmp_path)
    words = ("--gfx", ",".join(miniature.TARGETS), "--json", host, *parts.values())
    [report] = json.loads(demo.ours("audit", *words, code=0).out)["wheels"]
    assert set(report["targets"]) == set(miniature.TARGETS) == set(parts)

    words = (*ONLY_VISION, "--pytorch-wheel", str(host), "--dry-run")
    assert ARCHIVE not in demo.build(*words).err
    parts["gfx1100"].unlink()
    fewer = demo.build(*words)
    assert fewer.code == 2 and f"{LIBRARY} lacks gfx1100: it holds gfx942" in fewer.err
    parts["gfx942"].rename(tmp_path / "away.zip")
    ended = another(demo, "--pytorch-wheel", host)
    assert ended.code == 0, ended.err
    assert f"its device code is in {ARCHIVE}, which is not here" in ended.err
    made = vision(demo.folder / "vision")
    assert targets_in(made) == set(miniature.TARGETS)
    assert required(made) == required(vision(demo.folder / "wheels"))

    ended = another(demo, "--dry-run")
    assert "(installed: " in ended.out + ended.err
    assert f"its device code is in {ARCHIVE}, which is not here" in ended.err
    place = environment_of(demo.folder / "work of vision") / SITE / "torch" / ".kpack"
    place.mkdir()
    with zipfile.ZipFile(tmp_path / "away.zip") as archive:
        (place / "torch_gfx942.kpack").write_bytes(archive.read("torch/.kpack/torch_gfx942.kpack"))
    ended = another(demo, "--dry-run")
    assert ended.code == 2 and f"{LIBRARY} lacks gfx1100: it holds gfx942" in ended.err


def test_triton_counts_without_being_built(demo: Demo) -> None:
    """What torch requires and whether it has flash attention is the same as when its triton is built."""
    assert demo.build().code == 0
    both = required(demo.wheels()["torch"])
    assert any("triton==" in line for line in both)
    triton = str(demo.wheels()["triton"])
    for more in ((), ("--triton-wheel", triton)):
        ended = demo.build(*ONLY_TORCH, *more)
        assert "nothing to do" in ended.err, ended.err
    next((demo.folder / "sources/.rocm-wheels/built").glob("build-pytorch-cp3??/*.whl")).unlink()
    ended = demo.build(*ONLY_TORCH, "--triton-wheel", triton)
    assert "flash attention: on" in ended.err
    assert required(demo.wheels()["torch"]) == both


def test_the_torch_of_an_active_environment(demo: Demo, tmp_path: Path) -> None:
    uv, venv = find_uv_bin(), tmp_path / "mine"
    demo.start(uv, "venv", "-q", "--python", sys.executable, venv)
    install = [uv, "pip", "install", "-q", "--prerelease", "allow", "--python", venv / "bin" / "python"]
    install += ["--find-links", demo.folder / "rocm-packages" / "dist"]
    devices = ",".join(f"device-{target}" for target in miniature.TARGETS)
    install += [f"rocm[devel,{devices}]=={miniature.ROCM_VERSION}"]
    demo.start(*install)
    words = (*ONLY_VISION, "--current-env", "--work-dir", str(tmp_path / "work"))
    ended = demo.build(*words, output="current", VIRTUAL_ENV=str(venv))
    assert ended.code == 2 and "neither given nor installed" in ended.err
    wheels = [demo.wheels()[name] for name in ("torch", "triton")]
    demo.start(*install, *wheels)
    ended = demo.build(*words, output="current", VIRTUAL_ENV=str(venv))
    assert ended.code == 0, ended.err
    assert f"(installed: {venv / SITE})" in ended.err
    assert required(vision(demo.folder / "current")) == required(vision(demo.folder / "wheels"))


ONLY_TRITON = ("--no-build-pytorch", "--no-build-pytorch-audio", "--build-triton")


def test_rocm_is_installed_into_an_active_environment_and_then_built_with(demo: Demo, tmp_path: Path) -> None:
    venv, packages = tmp_path / "mine", demo.folder / "rocm-packages" / "dist"
    demo.start(find_uv_bin(), "venv", "-q", "--python", sys.executable, venv)
    words = [*ONLY_TRITON, "--current-env", "--install-rocm", "--find-links", str(packages)]
    words += ["--rocm-extras", ",".join(f"device-{target}" for target in miniature.TARGETS)]
    words += ["--work-dir", str(tmp_path / "work")]
    ended = demo.build(*words, output="into mine", VIRTUAL_ENV=str(venv))
    assert ended.code == 0, ended.err
    assert [wheel.name.split("-")[0] for wheel in (demo.folder / "into mine").glob("*.whl")] == ["triton"]
    again = demo.build(*words, output="into mine", VIRTUAL_ENV=str(venv))
    assert (again.code, "up to date" in again.out) == (0, True), again.err


def test_a_step_alone_does_not_begin_before_its_rocm_is_installed(demo: Demo, tmp_path: Path) -> None:
    plan, packages = tmp_path / "plan.json", demo.folder / "rocm-packages" / "dist"
    words = demo.build_words("--install-rocm", "--find-links", str(packages), output="alone")
    words += ["--work-dir", str(tmp_path / "work"), "-o", str(plan)]
    demo.ours("plan", *words[1:], code=0)
    tag = f"cp3{sys.version_info[1]}"
    for step in (f"install-tools-{tag}", "probe-targets"):
        ended = demo.ours("run-step", step, "--plan", plan, code=2)
        assert f"{step} needs install-rocm-{tag}, which has not created its environment" in ended.err
        assert f"tip: run it first: rocm-wheels run-step install-rocm-{tag} --plan" in ended.err
