"""``rocm-wheels doctor`` as it is called: environments of their own, exit codes, JSON, wrong input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from binaries import bundle, elf, hip
from commands import Ended, call
from pythons import install, install_torch
from uv import find_uv_bin

pytestmark = pytest.mark.contract

CLONE = Path(__file__).resolve().parents[2]
_ABOUT_GPUS = ("HSA_", "HIP_", "ROCR_", "CUDA_", "ROCM_", "AMD_", "PYTORCH_", "NV_", "MIOPEN_", "VIRTUAL_ENV")


def _clean() -> dict[str, str]:
    """Return an environment that says nothing of GPUs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_ABOUT_GPUS)}


def doctor(*words: object, code: int | None = None, **env: str) -> Ended:
    """Run the command in this process, in an environment that says nothing of GPUs but what is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", {**_clean(), **env})
        return call("doctor", *words, code=code)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=os.name != "nt")
    return folder


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A virtual environment with a torch for gfx1100, gfx942 and gfx950, and a torchvision for CUDA."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=os.name != "nt")
    place = next(folder.glob("lib/python*/site-packages"))
    code = elf({".hip_fatbin": bundle(hip("gfx1100"), hip("gfx9-4-generic"))})
    install_torch(place, version="2.9.1+rocm7.1.0", **{"torch/lib/libtorch_hip.so": code})
    install(place, "torchvision", "0.24.1+cu128", tag="py3-none-any")
    return folder


def test_no_torch_and_no_gpu_is_no_error(bare: Path) -> None:
    argv = [sys.executable, "-m", "rocm_wheels", "doctor", "--python", str(bare), "--gfx", "none"]
    env = {**_clean(), "PYTHONPATH": str(CLONE / "build_tools")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch is not installed" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("no GPU detected; torch is not installed; ")
    assert done.stderr == ""
    assert "\033[" not in done.stdout


def test_the_active_environment_is_looked_at(bare: Path) -> None:
    said = doctor("--json", "--gfx", "none", VIRTUAL_ENV=str(bare)).json
    assert Path(said["python"]["site_packages"]).is_relative_to(bare)


def test_an_active_environment_that_is_gone_is_named_with_its_variable(tmp_path: Path) -> None:
    done = doctor(VIRTUAL_ENV=str(tmp_path / "gone"), code=2)
    assert done.out == ""
    assert f"VIRTUAL_ENV={tmp_path}/gone: there is no such environment\ntip: unset VIRTUAL_ENV" in done.err


def test_kernels_yes_and_no_each_with_its_file(filled: Path) -> None:
    done = doctor("--python", filled, "--gfx", "gfx1100,gfx950", "--gfx", "gfx1201", "--json", code=17)
    assert done.err.startswith("error: ")
    said = done.json
    assert [(one["gfx"], one["served"], one["how"]) for one in said["kernels"]] == [
        ("gfx1100", True, "native"),
        ("gfx950", True, "generic"),
        ("gfx1201", False, "no"),
    ]
    assert {Path(file).name for one in said["kernels"] for file in one["files"]} == {"libtorch_hip.so"}
    assert {one["name"]: one["build"] for one in said["packages"]} == {"torch": "rocm", "torchvision": "cuda"}
    errors = [one for one in said["findings"] if one["severity"] == "error"]
    assert {one["check"] for one in errors} == {"kinds", "interpreter"} - (
        {"interpreter"} if sys.version_info[:2] == (3, 11) else set()
    )
    left_alone = [one["fix"] for one in said["findings"] if one["check"] == "torch-kernels"][-1]
    assert left_alone.startswith("export HIP_VISIBLE_DEVICES=0,1   # or: rocm-wheels install torch")
    assert all(one["fix"] for one in said["findings"] if one["severity"] != "ok")
    assert said["errors"] == len(errors)


def test_what_is_required_and_not_here_is_what_uv_finds(tmp_path: Path) -> None:
    """torchvision without numpy, and what that is required by: the doctor reads files, uv is the oracle."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=os.name != "nt")
    place = next(folder.glob("lib/python*/site-packages"))
    unneeded = ['pywin32; sys_platform == "win32"', 'optree>=0.13; extra == "optree"']
    install_torch(place, "gfx1100", requires=["sympy>=1.13.3", "triton==3.5.1", "fsspec[http]", *unneeded])
    install(place, "torchvision", "0.24.1+rocm7.1.0", requires=["numpy", "torch==2.9.1", "pillow!=8.3.*"])
    install(place, "triton", "3.5.0")
    install(place, "sympy", "1.14.0", requires=["mpmath<1.4,>=1.1.0"])
    install(place, "mpmath", "1.4.1")
    install(place, "fsspec", "2025.1", requires=['aiohttp; extra == "http"', 'dask; extra == "dask"'])
    install(place, "pillow", "8.3.1")
    checked = subprocess.run(
        [find_uv_bin(), "pip", "check", "--no-config", "--python", folder],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    expected = {tuple(match) for match in re.findall(r"`([\w-]+)` requires `([\w-]+)", checked.stderr)}
    findings = doctor("--python", folder, "--gfx", "gfx1100", "--json").json["findings"]
    told = [one["text"] for one in findings if one["check"] == "requirements"]
    found = {(text.split()[0], re.split(r"[^\w-]", text.split(" requires ")[1])[0]) for text in told}
    assert ("torchvision", "numpy") in expected and len(expected) >= 4
    # uv does not look at what extras that are asked for require
    assert found == expected | {("fsspec", "aiohttp")}


def test_a_gpu_without_kernels_is_an_error(filled: Path) -> None:
    told = doctor("--python", filled, "--gfx", "gfx1101", code=17).out
    assert "error    kernels of torch for gfx1101: no: " in told and f"--python {filled}" in told


@pytest.mark.parametrize("gfx", ["gfx803", "new:gfx1399"])
def test_no_command_is_advised_that_would_not_help(gfx: str, filled: Path, tmp_path: Path) -> None:
    """No torch has kernels for these cards: `install` would bring none, whatever is installed now."""
    folder = tmp_path / "with-cpu"
    venv.create(folder, symlinks=os.name != "nt")
    install(
        next(folder.glob("lib/python*/site-packages")), "torch", "2.9.1+cpu", files={"torch/version.py": ""}
    )
    for python in (filled, folder):
        said = doctor("--python", python, "--gfx", gfx, "--json", code=17).json
        findings = [one for one in said["findings"] if one["check"].startswith("torch")]
        bad = [one for one in findings if one["severity"] != "ok"]
        assert bad and all("rocm-wheels install" not in one["fix"] for one in bad)
        assert all("rocm-wheels build" not in one["fix"] for one in bad)  # no ROCm compiles for it
        is_new = gfx == "new:gfx1399"  # then an index may know of it, and is asked
        ask = f"rocm-wheels choose torch --channel nightly --gfx {gfx}"
        assert all((ask in one["fix"]) == is_new for one in bad)
    told = call("configure", "--python", filled, "--gfx", gfx, code=None).err
    assert "kernels for" in told and "install a torch" not in told


def test_the_command_that_is_advised_names_the_channel_that_has_a_torch(filled: Path) -> None:
    """An RX 6400 with a torch for other cards: of Python 3.10 there are nightlies, else a stable one."""
    findings = doctor("--python", filled, "--gfx", "gfx1034", "--json").json["findings"]
    (fix,) = [one["fix"] for one in findings if one["check"] == "torch-kernels"]
    assert "rocm-wheels install torch torchvision torchaudio" in fix and "--gfx gfx1034" in fix
    assert ("--venv my-torch --python 3.11" in fix) == (sys.version_info[:2] == (3, 10))


def test_a_variable_that_cannot_be_read_is_a_finding(bare: Path) -> None:
    ended = doctor("--python", bare, HSA_OVERRIDE_GFX_VERSION="eleven", HIP_VISIBLE_DEVICES="0,x")
    assert "HSA_OVERRIDE_GFX_VERSION: 'eleven' is not a version" in ended.out
    assert "fix: unset HSA_OVERRIDE_GFX_VERSION" in ended.out and "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "{program} is no program that can be started"),
        ("#!/bin/sh\nexit 1\n", "asking {program} where its packages are"),
        ("#!/bin/sh\necho hello\n", "{program}, asked where its packages are, said 'hello'"),
    ],
)
def test_what_is_no_python_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    program = tmp_path / "python"
    program.write_text(text or "no program")
    program.chmod(0o755 if text else 0o644)
    ended = doctor("--python", program, code=2)
    assert message.format(program=program) in ended.err
    assert "Traceback" not in ended.err and ended.out == ""
