"""ROCm's own test of its Python packages, where torch stands on them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.limit(900)
def test_rocm_sdk(tmp_path: Path, said: Any) -> None:
    """``rocm-sdk test``: every library loads, every program starts."""
    try:
        version = importlib.metadata.version("rocm")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the Python packages of ROCm are not installed")
    argv = [sys.executable, "-m", "rocm_sdk", "test"]
    ended = subprocess.run(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ended.returncode == 0, "rocm-sdk test: " + "\n".join(ended.stdout.splitlines()[-12:])
    said(f"rocm {version}")
