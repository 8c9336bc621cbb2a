"""``build --current-env``: into the environment of somebody who has one, ROCm included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import miniature
import pytest
from finished_demo import Demo
from uv import find_uv_bin

pytestmark = [pytest.mark.contract_slow, pytest.mark.slow, pytest.mark.network]
ONLY_TRITON = ("--no-build-pytorch", "--no-build-pytorch-audio", "--build-triton")


def test_rocm_is_installed_there_and_then_built_with(demo: Demo, tmp_path: Path) -> None:
    venv, packages = tmp_path / "mine", demo.folder / "rocm-packages" / "dist"
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, venv], env=demo.env, check=True)
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
    door = "build_tools/rocm_wheels/__main__.py"
    made = demo.run("plan", *words[1:], door=door)
    assert made.code == 0, made.err
    tag = f"cp3{sys.version_info[1]}"
    for step in (f"install-tools-{tag}", "probe-targets"):
        ended = demo.run("run-step", step, "--plan", str(plan), door=door)
        assert f"{step} needs install-rocm-{tag}, which has not created its environment" in ended.err
        assert f"tip: run it first: rocm-wheels run-step install-rocm-{tag} --plan" in ended.err
        assert ended.code == 2
