"""ROCm's own test of its Python packages, where torch stands on them, and its tool that watches GPUs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from exact import require_installed


@pytest.mark.limit(900)
def test_rocm_sdk(tmp_path: Path, said: Any) -> None:
    """``rocm-sdk test``: every library loads, every program starts."""
    version = require_installed("rocm")
    argv = [sys.executable, "-m", "rocm_sdk", "test"]
    ended = subprocess.run(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert ended.returncode == 0, "rocm-sdk test: " + "\n".join(ended.stdout.splitlines()[-12:])
    said(f"rocm {version}")


@pytest.mark.gpu
def test_amd_smi(torch: Any, device: str, said: Any) -> None:
    """``amd-smi`` sees the GPU that torch calculates on, by its place on the PCI bus."""
    if sys.platform == "win32" or torch.version.hip is None:
        pytest.skip("amd-smi is for ROCm on Linux")
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which("amd-smi", path=folders)
    if program is None:
        pytest.skip("amd-smi is not on PATH: pip install rocm")
    ended = subprocess.run([program, "list", "--json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"amd-smi list: {ended.stderr.strip() or ended.stdout.strip()}"
    places = _read_places(ended.stdout)
    assert len(places) >= torch.cuda.device_count(), (
        f"torch sees {torch.cuda.device_count()}, amd-smi {places}"
    )
    properties = torch.cuda.get_device_properties(device)
    if hasattr(properties, "pci_bus_id"):
        bus = (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id)
        assert "{:04x}:{:02x}:{:02x}".format(*bus) in places, f"{device} is none of {places}"
    said(f"{len(places)} on the bus")


def _read_places(printed: str) -> list[str]:
    """Return domain, bus and device (``0000:05:00``) of each GPU that amd-smi lists as JSON."""
    begin = re.search(r"^[\[{]", printed, re.MULTILINE)  # behind warnings, of groups that the user is not in
    listed = json.loads(printed[begin.start() :] if begin else printed)
    cards = listed.get("gpu_data", []) if isinstance(listed, dict) else listed
    return [str(card["bdf"]).lower().partition(".")[0] for card in cards]
