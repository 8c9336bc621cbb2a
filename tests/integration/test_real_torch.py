"""The published torch: a CPU build must not pass for a ROCm one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract_slow

VERSION = "2.13.0+cpu"
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture(scope="module")
def torch_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CPU build of torch, where the registry has one for this Python."""
    folder = tmp_path_factory.mktemp("torch")
    words = [
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
        f"torch=={VERSION}",
    ]
    ended = subprocess.run([BASE_PYTHON, *words], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if ended.returncode or not wheels:
        pytest.skip(f"torch {VERSION} is not to be had for this Python")
    return wheels[0]


@pytest.mark.slow
@pytest.mark.network
def test_a_cpu_build_of_torch_is_refused(torch_cpu: Path) -> None:
    words = [
        "-m",
        "rocm_wheels",
        "audit",
        "--gfx",
        "gfx942",
        "--rocm",
        "7.1.0",
        str(torch_cpu),
    ]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 14, ended.stdout + ended.stderr
    said = ended.stdout + ended.stderr
    assert "rocm-build" in said and "CPU" in said
    assert "device-libraries" in said
    assert "archive:" not in said, "its RECORD, METADATA and names are right"
